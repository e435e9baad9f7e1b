//! The two parts of batch norm against the f64 loops.

use burn::tensor::Device;
use vim_kernels::oracle::OracleScaleShift;
use vim_kernels::{Implementation, KernelError, channel_sums, scale_shift};

use crate::check::{Array, Check, Context, Subject, choice, rows_of, worst};
use crate::compare::{Dtype, Numbers, gradient, tensor, values, values_of};
use crate::run::STORED_BF16;

/// max |difference| / max |reference| in f32: a few roundings.
const F32: f64 = 3e-6;

/// The same of sums over up to 5000 rows, one after the other in the reference.
const SUMS: f64 = 2e-5;

/// Both implementations of both operations: results and gradients.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let sums = |(implementation, dtype)| {
        let run = move |context: &Context, factor| {
            worst(SIZES.into_iter().map(|(rows, channels)| {
                let case = inputs(rows, channels, false, dtype);
                let arrays = run_sums(&case, implementation, dtype, &context.device)?;
                Ok(rows_of(arrays, 1e-30, factor, &format!("T={rows} C={channels}")))
            }))
        };
        Check::new(Subject::Oracle, "channel_sums", implementation, dtype, run)
    };
    let scaled = |(implementation, dtype)| {
        let run = move |context: &Context, factor| {
            let cases = SIZES.into_iter().flat_map(|size| [(size, true), (size, false)]);
            worst(cases.map(|((rows, channels), relu)| {
                let case = inputs(rows, channels, relu, dtype);
                let arrays = run(&case, implementation, dtype, &context.device)?;
                let limited = if relu { " relu" } else { "" };
                let case = format!("T={rows} C={channels}{limited}");
                Ok(rows_of(arrays, 1e-30, factor, &case))
            }))
        };
        Check::new(Subject::Oracle, "scale_shift", implementation, dtype, run)
    };
    context.runs().map(sums).chain(context.runs().map(scaled)).collect()
}

/// Rows and channels: single ones, vectors of 1, 2 and 4, several blocks of vectors, and more rows
/// than a strip has.
pub const SIZES: [(usize, usize); 7] =
    [(1, 1), (3, 5), (65, 6), (64, 192), (1000, 68), (5000, 12), (131, 17)];

/// Rows of channels. No number before the ReLU is so near to 0 that its sign is a matter of
/// rounding.
#[must_use]
pub fn inputs(rows: usize, channels: usize, relu: bool, dtype: Dtype) -> OracleScaleShift {
    let mut numbers = Numbers::new(79);
    let mut x = numbers.vec(rows * channels, -2.0, 3.0, dtype);
    let scale = numbers.vec(channels, 0.5, 1.5, Dtype::F32);
    let shift = numbers.vec(channels, -0.5, 0.5, Dtype::F32);
    for (at, x) in x.iter_mut().enumerate() {
        let channel = at % channels;
        if (*x * scale[channel] + shift[channel]).abs() < 1e-3 {
            *x = 1.0;
        }
    }
    OracleScaleShift { x, scale, shift, relu }
}

/// The sums of `implementation` on `device`, which is without autodiff, and the gradient of x.
///
/// # Errors
///
/// [`KernelError`] if `implementation` cannot run it on `device`.
pub fn run_sums(
    case: &OracleScaleShift,
    implementation: Implementation,
    dtype: Dtype,
    device: &Device,
) -> Result<Vec<Array>, KernelError> {
    let device = &device.clone().autodiff();
    let channels = case.scale.len();
    let shape = [case.x.len() / channels, channels];
    let x = tensor(&case.x, shape, dtype, device).require_grad();
    let sums = channel_sums(x.clone(), choice(implementation))?;
    let by = Numbers::new(83).vec(2 * channels, -1.0, 1.0, Dtype::F32);
    let grads = (sums.clone() * tensor(&by, [2, channels], Dtype::F32, device)).sum().backward();
    let grad_x = x.grad(&grads).map_or(vec![], |grad| values_of(grad, dtype));
    Ok(vec![
        ("sums", values(sums), case.sums(), SUMS),
        ("x", grad_x, case.sums_backward(&by), stored(dtype)),
    ])
}

/// The result of `implementation` on `device`, which is without autodiff, and the gradients of x,
/// scale and shift.
///
/// # Errors
///
/// [`KernelError`] if `implementation` cannot run it on `device`.
pub fn run(
    case: &OracleScaleShift,
    implementation: Implementation,
    dtype: Dtype,
    device: &Device,
) -> Result<Vec<Array>, KernelError> {
    let device = &device.clone().autodiff();
    let channels = case.scale.len();
    // Four dimensions, as images have.
    let shape = [1, case.x.len() / channels, 1, channels];
    let x = tensor(&case.x, shape, dtype, device).require_grad();
    let scale = tensor(&case.scale, [channels], Dtype::F32, device).require_grad();
    let shift = tensor(&case.shift, [channels], Dtype::F32, device).require_grad();
    let choice = choice(implementation);
    let y = scale_shift(x.clone(), scale.clone(), shift.clone(), case.relu, choice)?;
    let grad_y = Numbers::new(89).vec(case.x.len(), -1.0, 1.0, dtype);
    let grads = (y.clone() * tensor(&grad_y, shape, dtype, device)).sum().backward();
    let want = case.backward(&grad_y);
    let grad_x = x.grad(&grads).map_or(vec![], |grad| values_of(grad, dtype));
    Ok(vec![
        ("y", values_of(y, dtype), case.forward(), stored(dtype)),
        ("x", grad_x, want.x, stored(dtype)),
        ("scale", gradient(&scale, &grads), want.scale, SUMS),
        ("shift", gradient(&shift, &grads), want.shift, SUMS),
    ])
}

fn stored(dtype: Dtype) -> f64 {
    if dtype == Dtype::Bf16 { STORED_BF16 + F32 } else { F32 }
}
