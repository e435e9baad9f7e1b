//! The selective scan: inputs, a run on tensors, and its checks against the f64 loops.

use burn::tensor::{Device, Tensor};
use strum::VariantArray;
use vim_kernels::oracle::{OracleScan, OracleScanGrads};
use vim_kernels::{
    Implementation, KernelError, Projection, ScanOptions, Series, has_kernel, selective_scan,
};

use super::args::Dtype;
use super::check::{Check, Context, Row, Subject, Worst, choice};
use super::compare::{Numbers, figures, tensor, values};

/// max |difference| / max |reference| in f32, of arrays with a value per token. A coefficient is good
/// to about 4 units in the last place (2.4e-7), and a state sums of the order of 1/(1 − a_bar) of
/// them, which is up to 100 here.
pub(crate) const PER_TOKEN: f64 = 2e-5;

/// The same for gradients that are sums over all tokens, whose terms have both signs: the sum may be
/// a few times smaller than what was rounded on the way to it.
const SUMS: f64 = 1e-4;

/// The same for arrays that are stored in bf16: its numbers are 2⁻⁸ apart, relatively, so rounding a
/// right result is off by half of that. The other half is for what was rounded on the way.
pub(crate) const STORED_BF16: f64 = 1.0 / 256.0;

/// Which form B and C take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Form {
    Variable,
    Grouped(usize),
    Constant,
    /// B constant, C variable.
    Mixed,
}

impl Form {
    pub(crate) const ALL: [Self; 4] =
        [Self::Variable, Self::Grouped(2), Self::Constant, Self::Mixed];

    fn name(self) -> &'static str {
        match self {
            Self::Variable => "",
            Self::Grouped(_) => " grouped",
            Self::Constant => " constant",
            Self::Mixed => " B constant",
        }
    }
}

/// A scan with every optional input; delta·a reaches about `reach` in magnitude.
pub(crate) fn inputs(
    [batch, len, d_inner, d_state]: [usize; 4],
    form: Form,
    reach: f64,
    dtype: Dtype,
) -> OracleScan {
    let mut x = Numbers::new(3);
    let groups = if let Form::Grouped(groups) = form { groups } else { 1 };
    let tokens = batch * len * d_inner;
    let variable = batch * len * groups * d_state;
    let b_constant = matches!(form, Form::Constant | Form::Mixed);
    let c_constant = matches!(form, Form::Constant);
    let weight = Dtype::F32;
    let mut projection = |constant| {
        let (n, dtype) = if constant { (d_inner * d_state, weight) } else { (variable, dtype) };
        x.vec(n, -1.0, 1.0, dtype)
    };
    let (b, c) = (projection(b_constant), projection(c_constant));
    // softplus(−3.5 … 1) is 0.03 … 1.3, the range that trained models reach; a does the rest.
    OracleScan {
        batch,
        len,
        d_inner,
        d_state,
        groups,
        delta_softplus: true,
        b_constant,
        c_constant,
        b,
        c,
        u: x.vec(tokens, -1.5, 1.5, dtype),
        delta: x.vec(tokens, -3.0, 0.5, dtype),
        a: x.vec(d_inner * d_state, -reach, -0.01 * reach, weight),
        d: Some(x.vec(d_inner, -1.0, 1.0, weight)),
        z: Some(x.vec(tokens, -2.0, 2.0, dtype)),
        delta_bias: Some(x.vec(d_inner, -0.5, 0.5, weight)),
        ..OracleScan::default()
    }
}

/// A weighting of the outputs, so that gradients of different outputs do not cancel or hide.
pub(crate) fn grad_of(scan: &OracleScan, dtype: Dtype) -> Vec<f64> {
    Numbers::new(99).vec(scan.u.len(), -1.0, 1.0, dtype)
}

/// Output, last state and gradients of a scan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Results {
    pub(crate) y: Vec<f64>,
    pub(crate) last_state: Vec<f64>,
    pub(crate) grads: OracleScanGrads,
}

impl Results {
    /// Those of the f64 loops.
    pub(crate) fn of_oracle(scan: &OracleScan, grad_y: &[f64]) -> Self {
        let (y, last_state) = scan.forward();
        Self { y, last_state, grads: scan.backward(grad_y) }
    }

    /// Those of `implementation` on `device`, which is without autodiff.
    pub(crate) fn on_device(
        scan: &OracleScan,
        grad_y: &[f64],
        implementation: Implementation,
        dtype: Dtype,
        device: &Device,
    ) -> Result<Self, KernelError> {
        let device = &device.clone().autodiff();
        let OracleScan { batch, len, d_inner, d_state, groups, .. } = *scan;
        let tokens = [batch, len, d_inner];
        let per_token = |values| tensor(values, tokens, dtype, device).require_grad();
        let weight =
            |values: &Vec<f64>| tensor(values, [d_inner], Dtype::F32, device).require_grad();
        let (u, delta) = (per_token(&scan.u), per_token(&scan.delta));
        let a = tensor(&scan.a, [d_inner, d_state], Dtype::F32, device).require_grad();
        // A leaf in one dimension, whichever form the projection takes.
        let leaf = |values: &[f64], constant: bool| {
            let dtype = if constant { Dtype::F32 } else { dtype };
            tensor(values, [values.len()], dtype, device).require_grad()
        };
        let form = |leaf: &Tensor<1>, constant: bool| -> Projection {
            if constant {
                leaf.clone().reshape([d_inner, d_state]).into()
            } else if groups > 1 {
                leaf.clone().reshape([batch, len, groups, d_state]).into()
            } else {
                leaf.clone().reshape([batch, len, d_state]).into()
            }
        };
        let (b, c) = (leaf(&scan.b, scan.b_constant), leaf(&scan.c, scan.c_constant));
        let d = scan.d.as_ref().map(weight);
        let z = scan.z.as_ref().map(|z| per_token(z));
        let delta_bias = scan.delta_bias.as_ref().map(weight);
        let out = selective_scan(
            u.clone(),
            delta.clone(),
            a.clone(),
            form(&b, scan.b_constant),
            form(&c, scan.c_constant),
            d.clone(),
            z.clone(),
            delta_bias.clone(),
            ScanOptions {
                method: scan.method,
                series: scan.series,
                delta_softplus: scan.delta_softplus,
                reverse: scan.reverse,
                choice: choice(implementation),
            },
        )?;
        let y = values(out.y.clone());
        let last_state = values(out.last_state);
        let grads = (out.y * tensor(grad_y, tokens, dtype, device)).sum().backward();
        // An input without a gradient is reported as an array of the wrong length, which fails.
        let three = |t: &Tensor<3>| t.grad(&grads).map_or(vec![], values);
        let two = |t: &Tensor<2>| t.grad(&grads).map_or(vec![], values);
        let one = |t: &Tensor<1>| t.grad(&grads).map_or(vec![], values);
        let grads = OracleScanGrads {
            u: three(&u),
            delta: three(&delta),
            a: two(&a),
            b: one(&b),
            c: one(&c),
            d: d.as_ref().map_or(vec![], one),
            z: z.as_ref().map_or(vec![], three),
            delta_bias: delta_bias.as_ref().map_or(vec![], one),
        };
        Ok(Self { y, last_state, grads })
    }

    /// Every array with its name, `y` and `last_state` first.
    pub(crate) fn named(&self) -> [(&'static str, &[f64]); 10] {
        let [u, delta, a, b, c, d, z, delta_bias] = named(&self.grads);
        [("y", &self.y), ("last_state", &self.last_state), u, delta, a, b, c, d, z, delta_bias]
    }
}

/// Every gradient with its name.
pub(crate) fn named(grads: &OracleScanGrads) -> [(&'static str, &[f64]); 8] {
    [
        ("u", &grads.u),
        ("delta", &grads.delta),
        ("a", &grads.a),
        ("b", &grads.b),
        ("c", &grads.c),
        ("d", &grads.d),
        ("z", &grads.z),
        ("delta_bias", &grads.delta_bias),
    ]
}

/// What the error of an array may be.
fn tolerance(array: &str, scan: &OracleScan, dtype: Dtype) -> f64 {
    let constant = (array == "b" && scan.b_constant) || (array == "c" && scan.c_constant);
    let sum = constant || ["a", "d", "delta_bias"].contains(&array);
    match dtype {
        Dtype::Bf16 if !sum && array != "last_state" => STORED_BF16,
        Dtype::F32 | Dtype::Bf16 => {
            if sum {
                SUMS
            } else {
                PER_TOKEN
            }
        }
    }
}

/// The rows of one case: every array that it has.
fn rows(
    scan: &OracleScan,
    implementation: Implementation,
    dtype: Dtype,
    device: &Device,
    case: &str,
    factor: f64,
) -> Result<Vec<Row>, KernelError> {
    let grad_y = grad_of(scan, dtype);
    let got = Results::on_device(scan, &grad_y, implementation, dtype, device)?;
    let want = Results::of_oracle(scan, &grad_y);
    // The bias's gradient is one sum a channel of delta's, of both signs: its scale is what sums of
    // such terms come to, the root of the sum of their squares, however far this one cancels.
    let squares: f64 = want.grads.delta.iter().map(|g| g * g).sum();
    let of_sums = (squares / scan.d_inner as f64).sqrt();
    let pairs = got.named().into_iter().zip(want.named());
    Ok(pairs
        .filter(|(_, (_, want))| !want.is_empty())
        .map(|((array, got), (_, want))| {
            let floor = if array == "delta_bias" { of_sums } else { 1e-30 };
            let tolerance = tolerance(array, scan, dtype) * factor;
            Row::judged(array, figures(got, want, floor), tolerance, case)
        })
        .collect())
}

/// The cases of a check: sizes `[B, L, D, N]`, form, and how far delta·a reaches.
fn cases(quick: bool, implementation: Implementation) -> Vec<([usize; 4], Form, f64)> {
    let mut cases: Vec<_> = Form::ALL.map(|form| ([2, 21, 6, 16], form, 4.0)).into();
    let mut sizes = vec![[1, 1, 1, 1], [1, 2, 5, 17], [2, 5, 3, 1]];
    if !quick {
        sizes.extend([[1, 5, 64, 16], [1, 197, 5, 16], [2, 37, 33, 17]]);
        // Longer than what one unit scans alone; wider than a block of channels.
        sizes.push(match implementation {
            Implementation::Kernel => [1, 1025, 5, 16],
            Implementation::Reference => [1, 1025, 2, 2],
        });
        if implementation == Implementation::Kernel {
            sizes.push([1, 67, 130, 16]);
        }
    }
    cases.extend(sizes.into_iter().map(|sizes| (sizes, Form::Variable, 4.0)));
    // delta reaches 1.3, so delta·a reaches −1000 and beyond: every decay underflows.
    cases.push(([1, 21, 6, 3], Form::Variable, 1000.0));
    cases
}

/// Every method, series, implementation and type: y, the last state and all gradients.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let mut checks = Vec::new();
    for implementation in context.implementations() {
        for &dtype in context.dtypes {
            for &method in &context.methods {
                for &series in Series::VARIANTS {
                    let run = move |context: &Context, factor: f64| {
                        let mut worst = Worst::default();
                        for (sizes, form, reach) in cases(context.quick, implementation) {
                            for reverse in [false, true] {
                                let base = inputs(sizes, form, reach, dtype);
                                let scan = OracleScan { method, series, reverse, ..base };
                                let case = case_name(&scan, form, reach);
                                let device = &context.device;
                                rows(&scan, implementation, dtype, device, &case, factor)?
                                    .into_iter()
                                    .for_each(|row| worst.add(row));
                            }
                        }
                        for scan in without_optional_inputs(dtype) {
                            let scan = OracleScan { method, series, ..scan };
                            let case = case_name(&scan, Form::Variable, 4.0) + " inputs absent";
                            rows(&scan, implementation, dtype, &context.device, &case, factor)?
                                .into_iter()
                                .for_each(|row| worst.add(row));
                        }
                        Ok(worst.into_rows())
                    };
                    checks.push(Check {
                        subject: Subject::Oracle,
                        operation: "selective_scan",
                        method: Some(method),
                        series: Some(series),
                        implementation: implementation.to_string(),
                        dtype: dtype.to_string(),
                        run: Box::new(run),
                    });
                }
            }
        }
    }
    checks
}

fn case_name(scan: &OracleScan, form: Form, reach: f64) -> String {
    let OracleScan { batch, len, d_inner, d_state, .. } = scan;
    let way = if scan.reverse { " reverse" } else { "" };
    let far = if reach > 4.0 { format!(" |delta a| to {reach}") } else { String::new() };
    format!("B={batch} L={len} D={d_inner} N={d_state}{}{way}{far}", form.name())
}

/// One without D, one without the gate, one without bias and softplus.
fn without_optional_inputs(dtype: Dtype) -> [OracleScan; 3] {
    let base = inputs([2, 5, 6, 4], Form::Variable, 4.0, dtype);
    // Without softplus, delta is used as it is: make it a step.
    let delta = base.delta.iter().map(|d| dtype.round(0.02 + d.abs() / 4.0)).collect();
    [
        OracleScan { d: None, ..base.clone() },
        OracleScan { z: None, ..base.clone() },
        OracleScan { delta_bias: None, delta_softplus: false, delta, ..base },
    ]
}

/// Whether the kernel is there, which is then what a check with one implementation takes.
pub(crate) fn preferred(device: &Device) -> Implementation {
    if has_kernel(device) { Implementation::Kernel } else { Implementation::Reference }
}
