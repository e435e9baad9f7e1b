//! The operations that a layer is made of.

use burn::tensor::{Device, Distribution, FloatDType, Tensor};
use serde::Serialize;
use strum::VariantArray;
use vim_kernels::{
    ConvOptions, Discretization, FullScanOptions, Implementation, MAX_FULL_STATES, Series,
    add_rms_norm, causal_conv1d, discretize, full_scan, has_kernel,
};

use vim_verify::{Dtype, choice, preferred};

use super::timer::{Plan, Times, measure};
use super::{Common, ScanSizes, Skipped, no_such_type, plan, skip};
use crate::device::{self, threads};
use crate::error::Error;
use crate::output::{print, print_json};
use crate::train::environment::Head;

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
struct OpsReport {
    #[serde(flatten)]
    head: Head,
    batch: usize,
    dim: usize,
    seqlen: usize,
    dstate: usize,
    results: Vec<OpTiming>,
    skipped: Vec<Skipped>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct OpTiming {
    pub(crate) operation: String,
    dtype: Dtype,
    #[serde(flatten)]
    pub(crate) times: Times,
    /// Billions of elements, or of multiply-adds, per second.
    pub(crate) rate: f64,
    pub(crate) unit: &'static str,
    /// Inputs read once and outputs written once.
    pub(crate) gb_per_s: f64,
}

/// The work of an operation, for its rate.
#[derive(Clone, Copy)]
struct Amount {
    count: usize,
    unit: &'static str,
    /// Numbers read and written.
    numbers: usize,
}

impl Amount {
    fn elements(count: usize, numbers_each: usize) -> Self {
        Self { count, unit: "G elements/s", numbers: count * numbers_each }
    }

    /// The work of `[m, k] · [k, n]`.
    fn product(m: usize, k: usize, n: usize) -> Self {
        Self { count: m * k * n, unit: "G multiply-adds/s", numbers: m * k + k * n + m * n }
    }
}

struct Bench {
    device: Device,
    dtype: Dtype,
    plan: Plan,
    show: bool,
    results: Vec<OpTiming>,
}

impl Bench {
    fn random<const R: usize>(&self, shape: [usize; R], low: f64, high: f64) -> Tensor<R> {
        let x = Tensor::random(shape, Distribution::Uniform(low, high), &self.device);
        if self.dtype == Dtype::F32 { x } else { x.cast(self.dtype.float()) }
    }

    fn add<P: Send, O: Send + 'static>(
        &mut self,
        operation: impl Into<String>,
        amount: Amount,
        prepare: impl FnMut() -> Result<P, Error>,
        call: impl Fn(P) -> Result<O, Error> + Send + Sync,
    ) -> Result<(), Error> {
        let times = measure(&self.device, self.plan, prepare, call)?;
        let best = times.best_ms();
        let record = OpTiming {
            operation: operation.into(),
            dtype: self.dtype,
            rate: amount.count as f64 / best / 1e6,
            unit: amount.unit,
            gb_per_s: amount.numbers as f64 * self.dtype.bytes() as f64 / best / 1e6,
            times,
        };
        if self.show {
            let Times { median_ms, p10_ms, p90_ms, back_to_back_ms, .. } = record.times;
            print(&format!(
                "{:<34}{:<5}{median_ms:>9.3} [{p10_ms:>8.3} {p90_ms:>8.3}] {back_to_back_ms:>13.3} {:>7.1}  {:.2} {}",
                record.operation,
                record.dtype.to_string(),
                record.gb_per_s,
                record.rate,
                record.unit
            ))?;
        }
        self.results.push(record);
        Ok(())
    }

    /// The cost of a decay in tensor operations: zoh's exponential, bilinear's inverse.
    fn decays(&mut self, shape: [usize; 3]) -> Result<(), Error> {
        let x = self.random(shape, -4.0, -0.01);
        let amount = Amount::elements(shape.iter().product(), 2);
        self.add("exponential", amount, || Ok(x.clone()), |x| Ok(x.exp()))?;
        self.add("reciprocal", amount, || Ok(x.clone()), |x| Ok(x.recip()))
    }

    fn coefficients(&mut self, shape: [usize; 3]) -> Result<(), Error> {
        let count = shape.iter().product();
        let delta = self.random(shape, 0.03, 1.3);
        let a = self.random([1, 1, shape[2]], -4.0, -0.01);
        for &method in Discretization::VARIANTS {
            let prepare = || Ok((delta.clone(), a.clone()));
            let call = move |(delta, a): (Tensor<3>, Tensor<3>)| {
                let step = discretize(method, Series::Exact, delta, a);
                Ok((step.a_bar, step.b_bar))
            };
            let amount = Amount::elements(count, 3);
            self.add(format!("coefficients of {method}"), amount, prepare, call)?;
        }
        Ok(())
    }

    /// `[m, k]·[k, n]` of random numbers.
    fn multiply(&mut self, m: usize, k: usize, n: usize) -> Result<(), Error> {
        let x = self.random([m, k], -1.0, 1.0);
        let w = self.random([k, n], -1.0, 1.0);
        let name = format!("product {m}x{k}x{n}");
        let matmul = |(x, w): (Tensor<2>, Tensor<2>)| Ok(x.matmul(w));
        self.add(name, Amount::product(m, k, n), || Ok((x.clone(), w.clone())), matmul)
    }

    /// y = x·w, dx = dy·wᵀ and dw = xᵀ·dy, `[m, k]·[k, n]`.
    fn product(&mut self, name: &str, m: usize, k: usize, n: usize) -> Result<(), Error> {
        let x = self.random([m, k], -1.0, 1.0);
        let w = self.random([k, n], -1.0, 1.0);
        let dy = self.random([m, n], -1.0, 1.0);
        let matmul = |(one, two): (Tensor<2>, Tensor<2>)| Ok(one.matmul(two));
        let amount = Amount::product(m, k, n);
        let of = |pass: &str| format!("{name} {m}x{k}x{n} {pass}");
        self.add(of("y"), amount, || Ok((x.clone(), w.clone())), matmul)?;
        self.add(of("dx"), amount, || Ok((dy.clone(), w.clone().transpose())), matmul)?;
        self.add(of("dw"), amount, || Ok((x.clone().transpose(), dy.clone())), matmul)
    }

    fn conv(&mut self, shape @ [_, _, dim]: [usize; 3]) -> Result<(), Error> {
        let tracked = self.device.clone().autodiff();
        let implementation = preferred(&self.device);
        let options =
            ConvOptions { silu: true, choice: choice(implementation), ..ConvOptions::default() };
        let x = self.random(shape, -1.0, 1.0);
        let normal = Distribution::Normal(0.0, 0.5);
        let weight = Tensor::<3>::random([dim, 1, 4], normal, &self.device);
        let bias = Tensor::<1>::random([dim], normal, &self.device);
        let run = move |(x, weight, bias)| Ok(causal_conv1d(x, weight, Some(bias), options)?);
        let count = shape.iter().product();
        let name = |pass: &str| format!("conv1d of 4 + silu, {implementation} {pass}");
        let prepare = || Ok((x.clone(), weight.clone(), bias.clone()));
        self.add(name("fwd"), Amount::elements(count, 2), prepare, run)?;
        let leaf = |x: &Tensor<3>| Tensor::<3>::from_data(x.clone().into_data(), &tracked);
        let x = leaf(&x).cast(self.dtype.float()).require_grad();
        let weight = leaf(&weight).require_grad();
        let bias = Tensor::<1>::from_data(bias.clone().into_data(), &tracked).require_grad();
        let graph = || run((x.clone(), weight.clone(), bias.clone()));
        let back = |y: Tensor<3>| Ok(y.backward());
        self.add(name("bwd"), Amount::elements(count, 3), graph, back)
    }

    /// The addition to the residual stream with its norm, by `implementation`.
    fn norm(
        &mut self,
        shape @ [_, _, width]: [usize; 3],
        implementation: Implementation,
    ) -> Result<(), Error> {
        let tracked = self.device.clone().autodiff();
        let norm = move |(x, stream, weight)| {
            Ok(add_rms_norm(x, Some(stream), weight, 1e-5, choice(implementation))?)
        };
        let count = shape.iter().product();
        let x = self.random(shape, -1.0, 1.0);
        let uniform = |low, high| Distribution::Uniform(low, high);
        let stream = Tensor::<3>::random(shape, uniform(-1.0, 1.0), &self.device);
        let weight = Tensor::<1>::random([width], uniform(0.5, 1.5), &self.device);
        // The residual stream and its gradients are always f32.
        let wide = if self.dtype == Dtype::F32 { 1 } else { 2 };
        let name = |pass: &str| format!("add + RMS norm, {implementation} {pass}");
        let prepare = || Ok((x.clone(), stream.clone(), weight.clone()));
        self.add(name("fwd"), Amount::elements(count, 2 + 2 * wide), prepare, norm)?;
        let leaf = |x: &Tensor<3>| Tensor::<3>::from_data(x.clone().into_data(), &tracked);
        let x = leaf(&x).cast(self.dtype.float()).require_grad();
        let stream = leaf(&stream).require_grad();
        let weight = Tensor::<1>::from_data(weight.into_data(), &tracked).require_grad();
        // Backward through both results, as in a block.
        let graph = || norm((x.clone(), stream.clone(), weight.clone()));
        let back = |(normed, sum): (Tensor<3>, Tensor<3>)| {
            Ok((normed.cast(FloatDType::F32) + sum).backward())
        };
        self.add(name("bwd"), Amount::elements(count, 2 + 3 * wide), graph, back)
    }

    /// The scan with a full A of N×N, by `implementation`: a solve for each token and channel.
    fn full_scan(
        &mut self,
        shape @ [batch, seqlen, dim]: [usize; 3],
        n: usize,
        implementation: Implementation,
    ) -> Result<(), Error> {
        let tracked = self.device.clone().autodiff();
        let options = FullScanOptions { choice: choice(implementation), ..Default::default() };
        let run = move |[u, delta, a, b, c]: [Tensor<3>; 5]| {
            let out = full_scan(u, delta, a, b, c, None, None, None, options)?;
            Ok(out.y)
        };
        let (u, delta) = (self.random(shape, -1.0, 1.0), self.random(shape, 0.03, 1.3));
        // Diagonally dominant, so every system is solvable.
        let near = Distribution::Uniform(-0.5 / n as f64, 0.5 / n as f64);
        let identity = Tensor::<2>::eye(n, &self.device).unsqueeze::<3>();
        let a = Tensor::<3>::random([dim, n, n], near, &self.device) - identity * 2.0;
        let rows = [batch, seqlen, n];
        let (b, c) = (self.random(rows, -1.0, 1.0), self.random(rows, -1.0, 1.0));
        let inputs = [u, delta, a, b, c];
        let solves = shape.iter().product::<usize>();
        let numbers = |activations: usize| activations * (solves + batch * seqlen * n);
        // Minimum work of a pass: the elimination, (N³ − N)/3, and two substitutions.
        let count = solves * (n * (n * n - 1) / 3 + n * n);
        let amount = |numbers| Amount { count, unit: "G multiply-adds/s", numbers };
        let name = |pass: &str| format!("full scan {n}x{n}, {implementation} {pass}");
        let prepare = || Ok(inputs.clone());
        self.add(name("fwd"), amount(numbers(2) + solves + dim * n * n), prepare, run)?;
        let leaves = inputs.clone().map(|x| {
            let dtype = FloatDType::from(x.dtype());
            Tensor::<3>::from_data(x.into_data(), &tracked).cast(dtype).require_grad()
        });
        let graph = || run(leaves.clone());
        let back = |y: Tensor<3>| Ok(y.backward());
        self.add(name("bwd"), amount(numbers(4) + solves + 2 * dim * n * n), graph, back)
    }
}

/// The implementations that this build has for `device`.
fn implementations(device: &Device) -> Vec<Implementation> {
    let kernel = has_kernel(device).then_some(Implementation::Kernel);
    kernel.into_iter().chain([Implementation::Reference]).collect()
}

/// Times a sum, an exponential, a reciprocal and the product of `in_proj` in f32, over `[batch,
/// seqlen, dim]`.
pub(crate) fn basic(
    device: &Device,
    [batch, seqlen, dim]: [usize; 3],
    plan: Plan,
) -> Result<Vec<OpTiming>, Error> {
    let (device, dtype) = (device.clone(), Dtype::F32);
    let mut bench = Bench { device, dtype, plan, show: false, results: Vec::new() };
    let shape = [batch, seqlen, dim];
    let (x, y) = (bench.random(shape, -1.0, 1.0), bench.random(shape, -1.0, 1.0));
    let sum = |(x, y): (Tensor<3>, Tensor<3>)| Ok(x + y);
    let amount = Amount::elements(shape.iter().product(), 3);
    bench.add("sum", amount, || Ok((x.clone(), y.clone())), sum)?;
    bench.decays(shape)?;
    bench.multiply(batch * seqlen, dim.div_ceil(2), 2 * dim)?;
    Ok(bench.results)
}

const TITLE: &str = "operation                         dtype       ms [     p10      p90]  back to back    GB/s  rate";

/// What is timed, and how it is told.
#[derive(Debug)]
pub struct OpsOptions {
    /// Where and how often.
    pub common: Common,
    /// Sizes of the inputs.
    pub sizes: ScanSizes,
}

/// Times the operations that a layer is made of.
pub fn run(options: &OpsOptions) -> Result<(), Error> {
    threads::start(None)?;
    let chosen = device::choose_named(&options.common.device)?;
    let (plan, show) = (plan(&options.common)?, !options.common.json);
    let head = Head::new("profile ops", &chosen);
    let ScanSizes { batch, dim, seqlen, dstate } = options.sizes;
    if show {
        print(&head.line())?;
        print(&format!("B={batch} D={dim} L={seqlen} N={dstate}\n{TITLE}"))?;
    }
    let (mut results, mut skipped) = (Vec::new(), Vec::new());
    for &dtype in options.common.dtypes {
        if !chosen.device.supports_dtype(dtype.float()) {
            let reason = format!("the device does not compute in {dtype}");
            skipped.push(skip(&options.common, dtype, &chosen, "operations".into(), reason)?);
            continue;
        }
        let device = chosen.device.clone();
        let mut bench = Bench { device, dtype, plan, show, results: Vec::new() };
        let (tokens, inner, width) = (batch * seqlen, [batch, seqlen, dim], dim.div_ceil(2));
        let dt_rank = width.div_ceil(16);
        bench.decays(inner)?;
        bench.coefficients(inner)?;
        bench.product("in_proj", tokens, width, 2 * dim)?;
        bench.product("x_proj", tokens, dim, dt_rank + 2 * dstate)?;
        bench.product("dt_proj", tokens, dt_rank, dim)?;
        bench.product("out_proj", tokens, dim, width)?;
        let mut done = vec![("causal_conv1d", bench.conv(inner))];
        for implementation in implementations(&chosen.device) {
            done.push(("add_rms_norm", bench.norm([batch, seqlen, width], implementation)));
        }
        // The reference solves with single tensor operations: too slow at these sizes.
        let solver = preferred(&chosen.device);
        if solver == Implementation::Kernel && dstate <= MAX_FULL_STATES {
            done.push(("full_scan", bench.full_scan(inner, dstate, solver)));
        } else {
            let reason =
                format!("there is a kernel for N up to {MAX_FULL_STATES}, on some devices");
            skipped.push(Skipped { what: format!("full_scan {dtype}"), reason });
        }
        for (operation, outcome) in done {
            match outcome {
                // The device supports this type but the operation does not: reported, not an error.
                Err(error) if no_such_type(&error) => {
                    let what = format!("{operation} {dtype}");
                    skipped.push(Skipped { what, reason: error.to_string() });
                }
                other => other?,
            }
        }
        results.append(&mut bench.results);
    }
    if options.common.json {
        return print_json(&OpsReport { head, batch, dim, seqlen, dstate, results, skipped });
    }
    for Skipped { what, reason } in skipped {
        print(&format!("skipped {what}: {reason}"))?;
    }
    Ok(())
}
