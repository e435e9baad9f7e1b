//! The 3×3 convolution against the f64 loops.

use burn::tensor::Device;
use vim_kernels::oracle::OracleConv3x3;
use vim_kernels::{Implementation, KernelError, Precision, conv3x3};

use crate::check::{Array, Check, Context, Subject, choice, rows_of, worst};
use crate::compare::{Dtype, Numbers, gradient, tensor, values_of};
use crate::linear::{BF16, F32, TF32, precisions};

/// Both implementations in each precision: the result and the gradients of x, weight and bias.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let check = |(precision, implementation)| {
        let run = move |context: &Context, factor| {
            // A kernel is compiled with a bias or without, where a detector has one and a segmenter
            // none.
            let biases: &[bool] = if context.sizes_decide() { &[true, false] } else { &[true] };
            let cases = cases(context.quick, precision).into_iter();
            let each = cases.flat_map(|case| biases.iter().map(move |&bias| (case, bias)));
            worst(each.map(|((size, inputs, outputs), has_bias)| {
                let mut conv = self::inputs(size, inputs, outputs, precision);
                conv.bias = conv.bias.filter(|_| has_bias);
                let arrays = run(&conv, implementation, precision, &context.device)?;
                let [batch, height, width] = size;
                let bias = if has_bias { "" } else { " without bias" };
                let case = format!("B={batch} H={height} W={width} {inputs} to {outputs}{bias}");
                Ok(rows_of(arrays, 1e-30, factor, &case))
            }))
        };
        Check::new(Subject::Oracle, "conv3x3", implementation, precision, run)
    };
    let implementations = context.implementations();
    let of = |precision| implementations.iter().map(move |&one| (precision, one));
    precisions(context).flat_map(of).map(check).collect()
}

/// Sizes `[B, H, W]`, C and O: images of one row or column, channels of every width of a load, and
/// more pixels than a tile has. In bf16 also what takes each of the large tiles of a head: by the
/// pixels and O, and for the weight's gradient by C and O.
fn cases(quick: bool, precision: Precision) -> Vec<([usize; 3], usize, usize)> {
    let mut cases = vec![
        ([1, 1, 1], 1, 3),
        ([3, 2, 5], 3, 17),
        ([1, 7, 1], 17, 1),
        ([2, 16, 16], 32, 24),
        ([1, 5, 33], 20, 40),
    ];
    if precision == Precision::Bf16 {
        cases.extend([
            ([2, 61, 127], 8, 192),
            ([2, 61, 127], 192, 8),
            ([1, 63, 125], 16, 192),
            ([1, 63, 125], 8, 256),
            ([1, 7, 50], 128, 192),
            ([1, 12, 50], 192, 96),
            ([1, 7, 50], 192, 192),
            ([1, 63, 125], 192, 16),
            ([1, 61, 63], 8, 256),
            ([1, 63, 125], 256, 8),
            ([1, 61, 63], 256, 8),
            ([1, 5, 32], 192, 256),
            ([1, 5, 32], 256, 256),
        ]);
    }
    if !quick {
        cases.extend([([2, 16, 16], 192, 192), ([1, 40, 24], 72, 136)]);
    }
    cases
}

/// A convolution of `[B, H, W, C]` to `outputs` channels.
#[must_use]
pub fn inputs(
    size: [usize; 3],
    inputs: usize,
    outputs: usize,
    precision: Precision,
) -> OracleConv3x3 {
    let mut x = Numbers::new(53);
    let pixels: usize = size.iter().product();
    OracleConv3x3 {
        size,
        inputs,
        outputs,
        x: x.vec(pixels * inputs, -1.0, 1.0, activations(precision)),
        weight: x.vec(outputs * inputs * 9, -1.0, 1.0, Dtype::F32),
        bias: Some(x.vec(outputs, -1.0, 1.0, Dtype::F32)),
    }
}

fn activations(precision: Precision) -> Dtype {
    if precision == Precision::Bf16 { Dtype::Bf16 } else { Dtype::F32 }
}

/// The result and the gradients of `implementation` on `device`, which is without autodiff. Those
/// of weight and bias are f32 whatever the type of x.
///
/// # Errors
///
/// [`KernelError`] if `implementation` cannot run it on `device`.
pub fn run(
    conv: &OracleConv3x3,
    implementation: Implementation,
    precision: Precision,
    device: &Device,
) -> Result<Vec<Array>, KernelError> {
    let OracleConv3x3 { size: [batch, height, width], inputs, outputs, .. } = *conv;
    let device = &device.clone().autodiff();
    let dtype = activations(precision);
    let x = tensor(&conv.x, [batch, height, width, inputs], dtype, device).require_grad();
    let weight = tensor(&conv.weight, [outputs, inputs, 3, 3], Dtype::F32, device).require_grad();
    let bias =
        conv.bias.as_ref().map(|bias| tensor(bias, [outputs], Dtype::F32, device).require_grad());
    let y = conv3x3(x.clone(), weight.clone(), bias.clone(), precision, choice(implementation))?;
    let shape = [batch, height, width, outputs];
    let grad_y = Numbers::new(59).vec(shape.iter().product(), -1.0, 1.0, dtype);
    let grads = (y.clone() * tensor(&grad_y, shape, dtype, device)).sum().backward();
    let want = conv.backward(&grad_y);
    let tolerance = match precision {
        Precision::F32 => F32,
        Precision::Tf32 => TF32,
        Precision::Bf16 => BF16,
    };
    // The kernel sums products of bf16 in f32; the reference's gradient passes through bf16.
    let exact = precision == Precision::Bf16 && implementation == Implementation::Kernel;
    let of_weight = if exact { F32 } else { tolerance };
    let grad_x = x.grad(&grads).map_or(vec![], |grad| values_of(grad, dtype));
    let mut arrays = vec![
        ("y", values_of(y, dtype), conv.forward(), tolerance),
        ("x", grad_x, want.x, tolerance),
        ("weight", gradient(&weight, &grads), want.weight, of_weight),
    ];
    arrays.extend(bias.map(|bias| ("bias", gradient(&bias, &grads), want.bias, F32)));
    Ok(arrays)
}
