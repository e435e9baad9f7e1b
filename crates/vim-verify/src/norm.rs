//! The addition to the residual stream with its norm against the f64 loops.

use burn::tensor::Device;
use vim_kernels::oracle::OracleNorm;
use vim_kernels::{Implementation, KernelError, add_rms_norm};

use crate::check::{Check, Context, Row, Subject, Worst, choice};
use crate::compare::{Numbers, figures, tensor, values};
use crate::dtype::Dtype;
use crate::run::STORED_BF16;

/// max |difference| / max |reference| in f32: a few roundings of 6e-8 an element, and means over up
/// to 2000 of them; the gradient of the weight sums over rows.
const F32: f64 = 3e-6;

/// Both implementations: the normalized rows, the sums, and the gradients of x, residual and
/// weight.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let mut checks = Vec::new();
    for implementation in context.implementations() {
        for &dtype in context.dtypes {
            let run = move |context: &Context, factor: f64| {
                let mut worst = Worst::default();
                for case in cases(context.few_kernels(implementation)) {
                    rows(case, implementation, dtype, &context.device, factor)?
                        .into_iter()
                        .for_each(|row| worst.add(row));
                }
                Ok(worst.into_rows())
            };
            checks.push(Check {
                subject: Subject::Oracle,
                operation: "add_rms_norm",
                method: None,
                series: None,
                implementation: implementation.to_string(),
                dtype: dtype.to_string(),
                run: Box::new(run),
            });
        }
    }
    checks
}

/// Rows, channels, whether there is a stream to add to, and whether the sum is read beside the
/// rows.
#[derive(Clone, Copy)]
struct Case {
    rows: usize,
    d_model: usize,
    residual: bool,
    reads_sum: bool,
}

/// One row and odd counts; vectors of 1, 2 and 4; a row of many vectors, and one that takes a whole
/// block.
fn cases(few: bool) -> Vec<Case> {
    if few {
        let case = |rows| Case { rows, d_model: 192, residual: true, reads_sum: true };
        return [1, 7, 997].map(case).to_vec();
    }
    let sizes =
        [(1, 1), (7, 1), (1, 5), (7, 5), (1, 384), (7, 1000), (37, 192), (3, 2000), (997, 48)];
    let mut cases = Vec::new();
    for (rows, d_model) in sizes {
        for (residual, reads_sum) in [(true, true), (true, false), (false, true), (false, false)] {
            cases.push(Case { rows, d_model, residual, reads_sum });
        }
    }
    cases
}

/// Rows to normalize.
pub(crate) fn inputs(rows: usize, d_model: usize, residual: bool, dtype: Dtype) -> OracleNorm {
    let mut x = Numbers::new(41);
    let count = rows * d_model;
    OracleNorm {
        d_model,
        epsilon: 1e-5,
        x: x.vec(count, -2.0, 2.0, dtype),
        residual: residual.then(|| x.vec(count, -3.0, 3.0, Dtype::F32)),
        weight: x.vec(d_model, -1.5, 1.5, Dtype::F32),
    }
}

fn rows(
    Case { rows, d_model, residual, reads_sum }: Case,
    implementation: Implementation,
    dtype: Dtype,
    device: &Device,
    factor: f64,
) -> Result<Vec<Row>, KernelError> {
    let norm = inputs(rows, d_model, residual, dtype);
    let mut numbers = Numbers::new(43);
    let count = norm.x.len();
    let by_normed = numbers.vec(count, -1.0, 1.0, dtype);
    let by_sum =
        if reads_sum { numbers.vec(count, -1.0, 1.0, Dtype::F32) } else { vec![0.0; count] };
    let (want_normed, want_sum) = norm.forward();
    let want = norm.backward(&by_normed, &by_sum);

    let device = &device.clone().autodiff();
    let shape = [rows, d_model];
    let x = tensor(&norm.x, shape, dtype, device).require_grad();
    let stream = norm.residual.as_ref();
    let stream = stream.map(|r| tensor(r, shape, Dtype::F32, device).require_grad());
    let weight = tensor(&norm.weight, [d_model], Dtype::F32, device).require_grad();
    let (normed, sum) = add_rms_norm(
        x.clone(),
        stream.clone(),
        weight.clone(),
        norm.epsilon,
        choice(implementation),
    )?;
    // The loss's parts are differentiated in one go, each in its type.
    let loss =
        (normed.clone() * tensor(&by_normed, shape, dtype, device)).cast(Dtype::F32.float()).sum();
    let loss = if reads_sum {
        loss + (sum.clone() * tensor(&by_sum, shape, Dtype::F32, device)).sum()
    } else {
        loss
    };
    let grads = loss.backward();
    let stored = if dtype == Dtype::Bf16 { STORED_BF16 + F32 } else { F32 };
    // An input without a gradient is an array of the wrong length, which fails.
    let mut arrays = vec![
        ("normed", values(normed), want_normed, stored),
        ("sum", values(sum), want_sum, F32),
        ("x", x.grad(&grads).map_or(vec![], values), want.x, stored),
        ("weight", weight.grad(&grads).map_or(vec![], values), want.weight, F32),
    ];
    if let Some(stream) = stream {
        let grad = stream.grad(&grads).map_or(vec![], values);
        arrays.push(("residual", grad, want.residual, F32));
    }
    let added = if residual { " residual" } else { "" };
    let read = if reads_sum { " sum read" } else { "" };
    let case = format!("rows={rows} D={d_model}{added}{read}");
    // One element normalizes to its sign: its gradient is what rounding leaves of a difference of
    // terms of size 1, and epsilon's share.
    let floor = if d_model == 1 { 1.0 } else { 1e-30 };
    Ok(arrays
        .into_iter()
        .map(|(array, got, want, tolerance)| {
            Row::judged(array, figures(&got, &want, floor), tolerance * factor, case.as_str())
        })
        .collect())
}
