//! Layer normalization against the f64 loops.

use burn::tensor::Device;
use vim_kernels::oracle::OracleLayerNorm;
use vim_kernels::{Implementation, KernelError, layer_norm};

use crate::check::{Array, Check, Context, Subject, choice, rows_of, worst};
use crate::compare::{Dtype, Numbers, gradient, tensor, values_of};
use crate::run::STORED_BF16;

/// max |difference| / max |reference| in f32: a few roundings of 6e-8 an element, of numbers that
/// are a few times as large as their deviation, and sums over up to 1000 of them.
const F32: f64 = 1e-5;

/// Both implementations: results of both types, and the gradients of x, weight and bias.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let check = |(implementation, dtype)| {
        let run = move |context: &Context, factor| {
            let few = context.few_kernels(implementation);
            let sizes: &[[usize; 2]] = if few { &[[997, 96], [997, 256]] } else { &SIZES };
            let cases = sizes.iter().flat_map(|&size| [(size, true), (size, false)]);
            worst(cases.map(|([rows, channels], relu)| {
                let case = inputs(rows, channels, relu, dtype);
                // What is not cut off goes into the pyramid's maps, which are f32.
                let to = if relu { dtype } else { Dtype::F32 };
                let arrays = run(&case, implementation, [dtype, to], &context.device)?;
                let limited = if relu { " relu" } else { "" };
                Ok(rows_of(
                    arrays,
                    floor(channels),
                    factor,
                    &format!("T={rows} C={channels}{limited}"),
                ))
            }))
        };
        Check::new(Subject::Oracle, "layer_norm", implementation, dtype, run)
    };
    context.runs().map(check).collect()
}

/// Rows and channels: one row, odd counts, vectors of 1, 2 and 4, a row of many vectors, one that
/// takes a whole block, and more rows than the blocks of a launch take at once.
pub const SIZES: [[usize; 2]; 9] =
    [[1, 1], [7, 1], [1, 5], [7, 6], [37, 192], [7, 1000], [3, 2000], [997, 48], [9001, 24]];

/// The least size of a gradient that differences are measured by: one element has none, but for
/// what rounding leaves.
#[must_use]
pub fn floor(channels: usize) -> f64 {
    if channels == 1 { 1.0 } else { 1e-30 }
}

/// Rows of channels that are not around 0. No number before the ReLU is so near to 0 that its sign
/// is a matter of rounding.
#[must_use]
pub fn inputs(rows: usize, channels: usize, relu: bool, dtype: Dtype) -> OracleLayerNorm {
    let mut numbers = Numbers::new(97);
    let mut case = OracleLayerNorm {
        epsilon: 1e-3,
        x: numbers.vec(rows * channels, -1.0, 3.0, dtype),
        weight: numbers.vec(channels, 0.5, 1.5, Dtype::F32),
        bias: numbers.vec(channels, -0.5, 0.5, Dtype::F32),
        relu: false,
    };
    if relu {
        let least = 1e-5;
        let near = |case: &OracleLayerNorm| {
            let y = case.forward();
            (0..channels).find(|at| y[*at..].iter().step_by(channels).any(|y| y.abs() < least))
        };
        while let Some(at) = near(&case) {
            case.bias[at] += 2.0 * f64::from(2.0_f32.powi(-12));
        }
        case.relu = true;
    }
    case
}

/// The result of `implementation` on `device`, which is without autodiff, and the gradients of x,
/// weight and bias; types of x and of the result.
///
/// # Errors
///
/// [`KernelError`] if `implementation` cannot run it on `device`.
pub fn run(
    case: &OracleLayerNorm,
    implementation: Implementation,
    [from, to]: [Dtype; 2],
    device: &Device,
) -> Result<Vec<Array>, KernelError> {
    let device = &device.clone().autodiff();
    let channels = case.weight.len();
    // Four dimensions, as images have.
    let shape = [1, case.x.len() / channels, 1, channels];
    let x = tensor(&case.x, shape, from, device).require_grad();
    let weight = tensor(&case.weight, [channels], Dtype::F32, device).require_grad();
    let bias = tensor(&case.bias, [channels], Dtype::F32, device).require_grad();
    let choice = choice(implementation);
    let y = layer_norm(
        x.clone(),
        weight.clone(),
        bias.clone(),
        case.epsilon,
        case.relu,
        to.float(),
        choice,
    )?;
    let grad_y = Numbers::new(101).vec(case.x.len(), -1.0, 1.0, to);
    let grads = (y.clone() * tensor(&grad_y, shape, to, device)).sum().backward();
    let want = case.backward(&grad_y);
    let grad_x = x.grad(&grads).map_or(vec![], |grad| values_of(grad, from));
    let stored = |dtype| if dtype == Dtype::Bf16 { STORED_BF16 + F32 } else { F32 };
    Ok(vec![
        ("y", values_of(y, to), case.forward(), stored(to)),
        ("x", grad_x, want.x, stored(from)),
        ("weight", gradient(&weight, &grads), want.weight, F32),
        ("bias", gradient(&bias, &grads), want.bias, F32),
    ])
}
