//! The linear map against f64 loops.

use vim_kernels::{Implementation, KernelError, Precision, linear};

use crate::check::{Check, Context, Row, Subject, rows_of, worst};
use crate::compare::{Dtype, Numbers, gradient, tensor, values};

/// max |difference| / max |reference| in f32: sums of up to 768 products, and of the weights'
/// gradients of 5125.
pub(crate) const F32: f64 = 1e-5;

/// The same with 11 bits of every factor: 2⁻¹¹ of each of two, and the errors of a sum's terms
/// mostly cancel.
pub(crate) const TF32: f64 = 1e-3;

/// The same in bf16: a weight is rounded to 8 bits, so is a result that is stored in bf16.
pub(crate) const BF16: f64 = 8e-3;

/// The result and the gradients of x, weight and bias, in each precision.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let check = |precision| {
        let run = move |context: &Context, factor| {
            let sizes = sizes(context.quick);
            let without = sizes[..2].iter().map(|&sizes| (sizes, false));
            let all = sizes.iter().map(|&sizes| (sizes, true)).chain(without);
            worst(all.map(|(sizes, has_bias)| rows(sizes, has_bias, precision, context, factor)))
        };
        Check::new(Subject::Oracle, "linear", Implementation::Kernel, precision, run)
    };
    precisions(context).map(check).collect()
}

/// The precisions that are asked for.
pub(crate) fn precisions(context: &Context) -> impl Iterator<Item = Precision> + use<'_> {
    let own = |precision: &Precision| match precision {
        Precision::Bf16 => context.dtypes.contains(&Dtype::Bf16),
        Precision::F32 | Precision::Tf32 => context.dtypes.contains(&Dtype::F32),
    };
    [Precision::F32, Precision::Tf32, Precision::Bf16].into_iter().filter(own)
}

/// Batch, tokens, inputs and outputs: of a layer's products, and odd ones.
fn sizes(quick: bool) -> Vec<[usize; 4]> {
    let mut sizes = vec![
        [2, 5, 3, 7],
        [1, 1, 16, 16],
        [8, 197, 96, 44],
        [3, 33, 12, 130],
        [1, 300, 40, 10],
        [5, 211, 12, 130],
        [9, 130, 45, 33],
        [2, 3, 700, 400],
        [4, 1025, 192, 96],
    ];
    if !quick {
        sizes.extend([[8, 197, 192, 768], [8, 197, 384, 192], [8, 197, 768, 768]]);
        sizes.extend([[5, 1025, 17, 33], [9, 130, 261, 97], [3, 401, 768, 36]]);
    }
    sizes
}

fn rows(
    [batch, len, inputs, outputs]: [usize; 4],
    has_bias: bool,
    precision: Precision,
    context: &Context,
    factor: f64,
) -> Result<Vec<Row>, KernelError> {
    let device = &context.device.clone().autodiff();
    let dtype = if precision == Precision::Bf16 { Dtype::Bf16 } else { Dtype::F32 };
    let mut numbers = Numbers::new(41);
    let x = numbers.vec(batch * len * inputs, -1.0, 1.0, dtype);
    let weight = numbers.vec(inputs * outputs, -1.0, 1.0, Dtype::F32);
    let bias = numbers.vec(outputs, -1.0, 1.0, Dtype::F32);
    let grad_y = numbers.vec(batch * len * outputs, -1.0, 1.0, dtype);
    let tokens = batch * len;
    let (mut y, mut of_x) = (vec![0.0; tokens * outputs], vec![0.0; x.len()]);
    let (mut of_weight, mut of_bias) = (vec![0.0; weight.len()], vec![0.0; outputs]);
    for t in 0..tokens {
        for o in 0..outputs {
            let grad = grad_y[t * outputs + o];
            of_bias[o] += grad;
            let mut sum = if has_bias { bias[o] } else { 0.0 };
            for i in 0..inputs {
                let (x, weight) = (x[t * inputs + i], weight[i * outputs + o]);
                sum += x * weight;
                of_x[t * inputs + i] += grad * weight;
                of_weight[i * outputs + o] += grad * x;
            }
            y[t * outputs + o] = sum;
        }
    }

    let given = tensor(&x, [batch, len, inputs], dtype, device).require_grad();
    let w = tensor(&weight, [inputs, outputs], Dtype::F32, device).require_grad();
    let b = tensor(&bias, [outputs], Dtype::F32, device).require_grad();
    let got = linear(given.clone(), w.clone(), has_bias.then(|| b.clone()), precision)?;
    let upstream = tensor(&grad_y, [batch, len, outputs], dtype, device);
    let grads = (got.clone() * upstream).sum().backward();
    let tolerance = match precision {
        Precision::F32 => F32,
        Precision::Tf32 => TF32,
        Precision::Bf16 => BF16,
    };
    // What bf16 does not round, neither factor nor result, is as good as f32.
    let exact = if precision == Precision::Tf32 { TF32 } else { F32 };
    let bias = if has_bias { "" } else { " without bias" };
    let case = format!("B={batch} L={len} {inputs} to {outputs}{bias}");
    let mut arrays = vec![
        ("y", values(got), y, tolerance),
        ("x", gradient(&given, &grads), of_x, tolerance),
        ("weight", gradient(&w, &grads), of_weight, exact),
    ];
    if has_bias {
        arrays.push(("bias", gradient(&b, &grads), of_bias, F32));
    }
    Ok(rows_of(arrays, 1e-30, factor, &case))
}
