//! The rotation of pairs of channels against the f64 loops.

use burn::tensor::Device;
use vim_kernels::oracle::OracleRotation;
use vim_kernels::{Implementation, KernelError, rotate_pairs};

use crate::check::{Array, Check, Context, Subject, choice, rows_of, worst};
use crate::compare::{Dtype, Numbers, tensor, values_of};
use crate::run::STORED_BF16;

/// max |difference| / max |reference| in f32: two products and a sum, each rounded once.
const F32: f64 = 1e-6;

/// Both implementations: the result and the gradient of x.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let check = |(implementation, dtype)| {
        let run = move |context: &Context, factor| {
            worst(SIZES.into_iter().map(|shape| {
                let case = inputs(shape, dtype);
                let arrays = run(&case, implementation, dtype, &context.device)?;
                Ok(rows_of(arrays, 1e-30, factor, &format!("{shape:?}")))
            }))
        };
        Check::new(Subject::Oracle, "rotate_pairs", implementation, dtype, run)
    };
    context.runs().map(check).collect()
}

/// `[B, L, M]`: single pairs and tokens, odd numbers of pairs, vectors of 2 and 4, and numbers of
/// images around the four that a GPU's unit has.
pub const SIZES: [[usize; 3]; 9] = [
    [1, 1, 2],
    [1, 2, 6],
    [3, 5, 10],
    [4, 1, 4],
    [5, 2, 12],
    [1, 197, 14],
    [9, 197, 64],
    [1, 1025, 6],
    [2, 1025, 20],
];

/// Tokens to rotate. The cosines and sines are of no angles and the sines of a pair of no sign in
/// particular, so that none can stand for another.
#[must_use]
pub fn inputs(shape: [usize; 3], dtype: Dtype) -> OracleRotation {
    let mut numbers = Numbers::new(97);
    let [_, len, d_model] = shape;
    OracleRotation {
        shape,
        x: numbers.vec(shape.iter().product(), -2.0, 2.0, dtype),
        cos: numbers.vec(len * d_model, -1.0, 1.0, Dtype::F32),
        sin: numbers.vec(len * d_model, -1.0, 1.0, Dtype::F32),
    }
}

/// The result of `implementation` on `device`, which is without autodiff, and the gradient of x.
///
/// # Errors
///
/// [`KernelError`] if `implementation` cannot run it on `device`.
pub fn run(
    case: &OracleRotation,
    implementation: Implementation,
    dtype: Dtype,
    device: &Device,
) -> Result<Vec<Array>, KernelError> {
    let device = &device.clone().autodiff();
    let shape @ [_, len, d_model] = case.shape;
    let x = tensor(&case.x, shape, dtype, device).require_grad();
    let table = |values: &[f64]| tensor(values, [1, len, d_model], Dtype::F32, device);
    let y = rotate_pairs(x.clone(), table(&case.cos), table(&case.sin), choice(implementation))?;
    let grad_y = Numbers::new(101).vec(case.x.len(), -1.0, 1.0, dtype);
    let grads = (y.clone() * tensor(&grad_y, shape, dtype, device)).sum().backward();
    let stored = if dtype == Dtype::Bf16 { STORED_BF16 + F32 } else { F32 };
    let grad_x = x.grad(&grads).map_or(vec![], |grad| values_of(grad, dtype));
    Ok(vec![
        ("y", values_of(y, dtype), case.forward(), stored),
        ("x", grad_x, case.backward(&grad_y), stored),
    ])
}
