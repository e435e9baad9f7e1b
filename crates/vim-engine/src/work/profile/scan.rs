//! The selective scan, forward and backward.

use std::collections::HashMap;

use burn::tensor::{Device, Distribution, Tensor};
use serde::Serialize;
use vim_kernels::{
    Discretization, Implementation, ScanOptions, ScanOutput, Series, has_kernel, selective_scan,
};

use vim_verify::{Dtype, choice};

use super::roof::{self, Peaks, Work};
use super::timer::{Plan, Times, measure};
use super::{Common, Shape, Skipped, no_such_type, plan, skip};
use crate::device;
use crate::device::threads;
use crate::error::Error;
use crate::output::{print, print_json};
use crate::train::environment::Head;
use crate::work::methods;

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
struct ScanReport {
    #[serde(flatten)]
    head: Head,
    peaks: Peaks,
    results: Vec<ScanTiming>,
    skipped: Vec<Skipped>,
}

/// One method by one implementation at one shape.
#[derive(Clone, Debug, Serialize)]
struct ScanTiming {
    batch: usize,
    dim: usize,
    seqlen: usize,
    dstate: usize,
    dtype: Dtype,
    method: Discretization,
    series: Series,
    implementation: String,
    /// Without gradients.
    forward: Pass,
    /// As in training, with saved activations.
    forward_saving: Pass,
    /// The backward pass alone, with the fill of the gradient of y by ones that starts it.
    backward: Pass,
    /// zoh's `forward_saving` + `backward` over this one's.
    speedup_over_zoh: Option<f64>,
    /// The reference's `forward_saving` + `backward` over this one's.
    speedup_over_reference: Option<f64>,
}

/// A pass, and its share of the device's peak.
#[derive(Clone, Debug, Serialize)]
struct Pass {
    #[serde(flatten)]
    times: Times,
    work: Work,
    gb_per_s: f64,
    roof: f64,
}

impl Pass {
    fn new(times: Times, work: Work, peaks: &Peaks) -> Self {
        let best = times.best_ms();
        let gb_per_s = work.bytes as f64 / best / 1e6;
        Self { roof: peaks.floor_ms(&work) / best, times, work, gb_per_s }
    }
}

/// The inputs of a branch of Vim: with z, D, the bias of delta and its softplus.
#[derive(Clone)]
pub(crate) struct Inputs {
    pub(crate) u: Tensor<3>,
    pub(crate) delta: Tensor<3>,
    pub(crate) z: Tensor<3>,
    pub(crate) a: Tensor<2>,
    pub(crate) b: Tensor<3>,
    pub(crate) c: Tensor<3>,
    pub(crate) d: Tensor<1>,
    pub(crate) delta_bias: Tensor<1>,
}

impl Inputs {
    /// Deterministic inputs; with gradients if `tracked`, which needs a device with autodiff.
    pub(crate) fn new(
        shape: Shape,
        d_state: usize,
        dtype: Dtype,
        device: &Device,
        tracked: bool,
    ) -> Self {
        let Shape { batch, dim, seqlen } = shape;
        device.seed(0);
        let normal = Distribution::Normal(0.0, 1.0);
        let three = |last: usize| {
            let x = Tensor::<3>::random([batch, seqlen, last], normal, device);
            let x = if dtype == Dtype::F32 { x } else { x.cast(dtype.float()) };
            x.set_require_grad(tracked)
        };
        let one = || Tensor::<1>::random([dim], Distribution::Default, device);
        let a = Tensor::<2>::random([dim, d_state], Distribution::Uniform(-16.0, -1.0), device);
        Self {
            u: three(dim),
            delta: three(dim),
            z: three(dim),
            a: a.set_require_grad(tracked),
            b: three(d_state),
            c: three(d_state),
            d: one().set_require_grad(tracked),
            delta_bias: one().set_require_grad(tracked),
        }
    }

    pub(crate) fn scan(self, options: ScanOptions) -> Result<ScanOutput, Error> {
        let Self { u, delta, z, a, b, c, d, delta_bias } = self;
        Ok(selective_scan(u, delta, a, b, c, Some(d), Some(z), Some(delta_bias), options)?)
    }
}

#[derive(Clone, Copy, Debug)]
struct Subject {
    shape: Shape,
    d_state: usize,
    dtype: Dtype,
    method: Discretization,
    series: Series,
    implementation: Implementation,
}

impl Subject {
    fn name(&self) -> String {
        let Self { shape, dtype, method, implementation, .. } = self;
        format!("{method} {implementation} {dtype} {shape}")
    }

    fn measure(&self, device: &Device, plan: Plan, peaks: &Peaks) -> Result<ScanTiming, Error> {
        let Self { shape, d_state, dtype, method, series, implementation } = *self;
        let options = options(method, series, implementation);
        // The reference's graph holds every step's states: one at a time.
        let graphs = match implementation {
            Implementation::Kernel => plan.queued,
            Implementation::Reference => 1,
        };
        let inputs = Inputs::new(shape, d_state, dtype, device, false);
        let scan = move |inputs: Inputs| inputs.scan(options);
        let forward = measure(device, plan, || Ok(inputs.clone()), scan)?;
        drop(inputs);
        let tracked = device.clone().autodiff();
        let inputs = Inputs::new(shape, d_state, dtype, &tracked, true);
        let plan = Plan { queued: graphs, ..plan };
        let saving = measure(device, plan, || Ok(inputs.clone()), scan)?;
        let graph = || Ok(inputs.clone().scan(options)?.y);
        let backward = measure(device, plan, graph, |y: Tensor<3>| Ok(y.backward()))?;
        let work = roof::forward(shape, d_state, dtype);
        Ok(ScanTiming {
            batch: shape.batch,
            dim: shape.dim,
            seqlen: shape.seqlen,
            dstate: d_state,
            dtype,
            method,
            series,
            implementation: implementation.to_string(),
            forward: Pass::new(forward, work, peaks),
            forward_saving: Pass::new(saving, work, peaks),
            backward: Pass::new(backward, roof::backward(shape, d_state, dtype), peaks),
            speedup_over_zoh: None,
            speedup_over_reference: None,
        })
    }
}

/// How a branch of Vim runs its scan.
pub(crate) fn options(
    method: Discretization,
    series: Series,
    implementation: Implementation,
) -> ScanOptions {
    let choice = choice(implementation);
    ScanOptions { method, series, delta_softplus: true, choice, ..ScanOptions::default() }
}

impl ScanTiming {
    fn step_ms(&self) -> f64 {
        self.forward_saving.times.best_ms() + self.backward.times.best_ms()
    }
}

/// What is timed, and how it is told.
#[derive(Debug)]
pub struct ScanProfile {
    /// Where and how often.
    pub common: Common,
    /// Sizes of the inputs, one at least.
    pub shapes: Vec<Shape>,
    /// States of a channel.
    pub dstate: usize,
    /// The methods; all if there is none.
    pub methods: Vec<Discretization>,
    /// The implementations; all that the device has if there is none.
    pub implementations: Vec<Implementation>,
    /// How the φ functions are evaluated.
    pub series: Series,
}

/// Times each method by each implementation.
pub fn run(asked: &ScanProfile) -> Result<(), Error> {
    threads::start(None)?;
    let chosen = device::choose_named(&asked.common.device)?;
    let (plan, show) = (plan(&asked.common)?, !asked.common.json);
    let head = Head::new("profile scan", &chosen);
    let line = |text: &str| if show { print(text) } else { Ok(()) };
    line(&head.line())?;
    let peaks = Peaks::measure(&chosen, plan)?;
    line(&peaks.line())?;
    let (mut results, mut skipped) = (Vec::new(), Vec::new());
    for &shape in &asked.shapes {
        for &dtype in asked.common.dtypes {
            line(&format!(
                "\nB={} D={} L={} N={} {dtype} {}",
                shape.batch, shape.dim, shape.seqlen, asked.dstate, asked.series
            ))?;
            line(TITLE)?;
            // By (method, implementation): baselines (the reference, zoh) are measured first.
            let mut steps = HashMap::new();
            for method in methods(&asked.methods) {
                for implementation in implementations(asked, &chosen.device) {
                    let (d_state, series) = (asked.dstate, asked.series);
                    let subject = Subject { shape, d_state, dtype, method, series, implementation };
                    if !method.series().contains(&series) {
                        let reason = "no truncation of the method is published".to_owned();
                        skipped.push(Skipped { what: subject.name(), reason });
                        continue;
                    }
                    let supported = chosen.device.supports_dtype(dtype.float());
                    let measured = if supported {
                        subject.measure(&chosen.device, plan, &peaks)
                    } else {
                        Err(Error::failed(format!("the device does not compute in {dtype}")))
                    };
                    let mut record = match measured {
                        Ok(record) => record,
                        Err(error) if !supported || no_such_type(&error) => {
                            let reason = error.to_string();
                            skipped.push(skip(
                                &asked.common,
                                dtype,
                                &chosen,
                                subject.name(),
                                reason,
                            )?);
                            continue;
                        }
                        Err(error) => return Err(error),
                    };
                    let step = record.step_ms();
                    steps.insert((method, implementation), step);
                    let over = |method, implementation| {
                        steps.get(&(method, implementation)).map(|other| other / step)
                    };
                    record.speedup_over_zoh = over(Discretization::Zoh, implementation);
                    record.speedup_over_reference = over(method, Implementation::Reference);
                    line(&rows(&record))?;
                    results.push(record);
                }
            }
        }
    }
    if asked.common.json {
        return print_json(&ScanReport { head, peaks, results, skipped });
    }
    for Skipped { what, reason } in skipped {
        print(&format!("skipped {what}: {reason}"))?;
    }
    Ok(())
}

fn implementations(asked: &ScanProfile, device: &Device) -> Vec<Implementation> {
    let kernel = has_kernel(device).then_some(Implementation::Kernel);
    let here = [Implementation::Reference].into_iter().chain(kernel);
    if asked.implementations.is_empty() {
        here.collect()
    } else {
        // A missing implementation stays in the list: running it reports the error.
        let mut asked = asked.implementations.clone();
        asked.sort_by_key(|implementation| *implementation == Implementation::Kernel);
        asked.dedup();
        asked
    }
}

const TITLE: &str = "method           implementation  pass        ms [     p10      p90]  back to back    GB/s    roof  vs zoh  vs ref";

fn rows(record: &ScanTiming) -> String {
    let passes =
        [("fwd", &record.forward), ("save", &record.forward_saving), ("bwd", &record.backward)];
    let mut text = String::new();
    for (name, pass) in passes {
        let Times { median_ms, p10_ms, p90_ms, back_to_back_ms, .. } = pass.times;
        let (method, implementation) = (record.method.to_string(), &record.implementation);
        text.push_str(&format!(
            "{method:<17}{implementation:<16}{name:<5}{median_ms:>9.3} [{p10_ms:>8.3} {p90_ms:>8.3}] {back_to_back_ms:>13.3} {:>7.1} {:>6.1}%",
            pass.gb_per_s,
            pass.roof * 100.0
        ));
        if name == "bwd" {
            let times = |ratio: Option<f64>| {
                ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
            };
            let (zoh, reference) = (record.speedup_over_zoh, record.speedup_over_reference);
            text.push_str(&format!(" {:>7} {:>7}", times(zoh), times(reference)));
        }
        text.push('\n');
    }
    text
}
