//! Interpolation, and the loss of interpolated logits, against the f64 loops.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use vim_kernels::oracle::{OracleResize, OracleResizeNll};
use vim_kernels::{Implementation, KernelError, resize, resize_nll};

use crate::check::{Array, Check, Context, Subject, choice, rows_of, worst};
use crate::compare::{Dtype, Numbers, tensor, values, values_of};
use crate::run::STORED_BF16;

/// max |difference| / max |reference| in f32: a few roundings, and for the gradients sums of up to
/// a thousand shares.
const F32: f64 = 3e-6;

/// The same of the loss and its gradient: exponentials and a logarithm of a GPU, good to a few
/// units in the last place of their argument, which is up to 10; sums over all pixels.
const LOSS: f64 = 2e-5;

/// Both implementations of both operations: results and gradients.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let interpolation = |(implementation, dtype)| {
        let run = move |context: &Context, factor| {
            worst(SIZES.into_iter().map(|(from, to)| {
                let images = inputs(from, to, dtype);
                let arrays = run(&images, implementation, dtype, &context.device)?;
                Ok(rows_of(arrays, 1e-30, factor, &format!("{from:?} to {to:?}")))
            }))
        };
        Check::new(Subject::Oracle, "resize", implementation, dtype, run)
    };
    let loss = |(implementation, dtype)| {
        let run = move |context: &Context, factor| {
            let cases = SIZES.into_iter().flat_map(|size| [(size, Some(3)), (size, None)]);
            worst(cases.map(|((from, to), ignored)| {
                let case = nll_inputs(from, to, ignored, dtype);
                let arrays = run_nll(&case, implementation, dtype, &context.device)?;
                let some = if ignored.is_some() { " some ignored" } else { " all ignored" };
                Ok(rows_of(arrays, floor(from), factor, &format!("{from:?} to {to:?}{some}")))
            }))
        };
        Check::new(Subject::Oracle, "resize_nll", implementation, dtype, run)
    };
    context.runs().map(interpolation).chain(context.runs().map(loss)).collect()
}

/// `[B, h, w, C]` and `[H, W]`: four times and sixteen times as many pixels, numbers that divide
/// nothing, fewer pixels, and single ones.
pub const SIZES: [([usize; 4], [usize; 2]); 8] = [
    ([2, 4, 3, 5], [16, 12]),
    ([1, 2, 2, 150], [33, 32]),
    ([3, 5, 7, 2], [13, 20]),
    ([2, 3, 4, 7], [3, 4]),
    ([1, 16, 9, 4], [5, 4]),
    ([1, 1, 1, 7], [5, 3]),
    ([2, 7, 5, 1], [1, 1]),
    ([1, 2, 5, 6], [2, 40]),
];

/// The least magnitude that an error of the loss is relative to: of one class it is 0, and its
/// gradient what rounding leaves of a difference of ones. Of ignored pixels alone both are 0 to the
/// bit.
#[must_use]
pub fn floor([.., classes]: [usize; 4]) -> f64 {
    if classes == 1 { 1.0 } else { 1e-30 }
}

/// Images to interpolate.
#[must_use]
pub fn inputs(from: [usize; 4], to: [usize; 2], dtype: Dtype) -> OracleResize {
    let x = Numbers::new(61).vec(from.iter().product(), -2.0, 2.0, dtype);
    OracleResize { from, to, x }
}

/// Logits, and labels of which one in `ignored` pixels is ignored, or all are.
#[must_use]
pub fn nll_inputs(
    from: [usize; 4],
    to: [usize; 2],
    ignored: Option<usize>,
    dtype: Dtype,
) -> OracleResizeNll {
    let [batch, .., classes] = from;
    let x = Numbers::new(67).vec(from.iter().product(), -5.0, 5.0, dtype);
    let pixels = batch * to[0] * to[1];
    let draws = Numbers::new(71).vec(pixels, 0.0, classes as f64, Dtype::F32);
    let label = |(pixel, draw): (usize, f64)| match ignored {
        Some(ignored) if pixel % ignored != ignored - 1 => (draw as usize).min(classes - 1) as i32,
        Some(_) | None => vim_kernels::IGNORED_LABEL,
    };
    let labels = draws.into_iter().enumerate().map(label).collect();
    OracleResizeNll { logits: OracleResize { from, to, x }, labels }
}

/// The interpolated images of `implementation` on `device`, which is without autodiff, and the
/// gradient of x.
///
/// # Errors
///
/// [`KernelError`] if `implementation` cannot run it on `device`.
pub fn run(
    images: &OracleResize,
    implementation: Implementation,
    dtype: Dtype,
    device: &Device,
) -> Result<Vec<Array>, KernelError> {
    let device = &device.clone().autodiff();
    let OracleResize { from: [batch, .., channels], to, .. } = *images;
    let x = tensor(&images.x, images.from, dtype, device).require_grad();
    let y = resize(x.clone(), to, choice(implementation))?;
    let shape = [batch, to[0], to[1], channels];
    let grad_y = Numbers::new(73).vec(shape.iter().product(), -1.0, 1.0, dtype);
    let grads = (y.clone() * tensor(&grad_y, shape, dtype, device)).sum().backward();
    let stored = if dtype == Dtype::Bf16 { STORED_BF16 + F32 } else { F32 };
    let grad_x = x.grad(&grads).map_or(vec![], |grad| values_of(grad, dtype));
    Ok(vec![
        ("y", values_of(y, dtype), images.forward(), stored),
        ("x", grad_x, images.backward(&grad_y), stored),
    ])
}

/// The loss of `implementation` on `device`, which is without autodiff, the counts, and the
/// gradient of the logits of three times the loss.
///
/// # Errors
///
/// [`KernelError`] if `implementation` cannot run it on `device`.
pub fn run_nll(
    case: &OracleResizeNll,
    implementation: Implementation,
    dtype: Dtype,
    device: &Device,
) -> Result<Vec<Array>, KernelError> {
    let device = &device.clone().autodiff();
    let OracleResize { from, to, .. } = case.logits;
    let logits = tensor(&case.logits.x, from, dtype, device).require_grad();
    let shape = [from[0], to[0], to[1]];
    let labels = TensorData::new(case.labels.clone(), shape);
    let labels = Tensor::<3, Int>::from_data(labels, (device, DType::I32));
    let got = resize_nll(logits.clone(), labels, choice(implementation))?;
    let grads = (got.loss.clone() * 3.0).backward();
    let want = case.forward();
    let counts = [want.correct, want.labelled].map(|count| count as f64).to_vec();
    let stored = if dtype == Dtype::Bf16 { STORED_BF16 + LOSS } else { LOSS };
    let grad = logits.grad(&grads).map_or(vec![], |grad| values_of(grad, dtype));
    let of_loss = case.backward().into_iter().map(|grad| 3.0 * grad).collect();
    let numbers = Tensor::cat(vec![got.correct, got.labelled], 0);
    Ok(vec![
        ("loss", values(got.loss), vec![want.loss], LOSS),
        ("counts", values(numbers), counts, 0.0),
        ("logits", grad, of_loss, stored),
    ])
}
