//! The convolution by 3×3 taps against f64 loops.

use vim_kernels::{Implementation, KernelError, Precision, conv3x3};

use crate::check::{Check, Context, Row, Subject, rows_of, worst};
use crate::compare::{Dtype, Numbers, gradient, tensor, values};

/// max |difference| / max |reference| in f32: sums of up to 9 · 40 products, and of the weights'
/// gradients of as many pixels.
const F32: f64 = 1e-5;

/// The same with 11 bits of every factor, as of the linear map.
const TF32: f64 = 1e-3;

/// The same in bf16: a weight is rounded to 8 bits, so are the parts of every tap and the result.
const BF16: f64 = 1e-2;

/// The result and the gradients of x and weight, in each precision that the device has.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let precisions = [Precision::F32, Precision::Tf32, Precision::Bf16].into_iter();
    let own = |precision: &Precision| match precision {
        Precision::Bf16 => context.dtypes.contains(&Dtype::Bf16),
        Precision::F32 | Precision::Tf32 => context.dtypes.contains(&Dtype::F32),
    };
    let there = |precision: &Precision| precision.check(&context.device).is_ok();
    let check = |precision| {
        let run = move |context: &Context, factor| {
            let sizes = sizes(context.quick).into_iter();
            worst(sizes.map(|sizes| rows(sizes, precision, context, factor)))
        };
        Check::new(Subject::Oracle, "conv3x3", Implementation::Kernel, precision, run)
    };
    precisions.filter(own).filter(there).map(check).collect()
}

/// Batch, height, width, inputs and outputs: one pixel, one row, one column, and more.
fn sizes(quick: bool) -> Vec<[usize; 5]> {
    let mut sizes = vec![[1, 1, 1, 3, 2], [2, 1, 5, 4, 3], [1, 4, 1, 2, 8], [2, 6, 5, 12, 10]];
    if !quick {
        sizes.push([1, 19, 23, 40, 34]);
    }
    sizes
}

fn rows(
    [batch, height, width, inputs, outputs]: [usize; 5],
    precision: Precision,
    context: &Context,
    factor: f64,
) -> Result<Vec<Row>, KernelError> {
    let device = &context.device.clone().autodiff();
    let dtype = if precision == Precision::Bf16 { Dtype::Bf16 } else { Dtype::F32 };
    let mut numbers = Numbers::new(43);
    let pixels = batch * height * width;
    let x = numbers.vec(pixels * inputs, -1.0, 1.0, dtype);
    let weight = numbers.vec(outputs * inputs * 9, -1.0, 1.0, Dtype::F32);
    let grad_y = numbers.vec(pixels * outputs, -1.0, 1.0, dtype);
    let mut y = vec![0.0; pixels * outputs];
    let (mut of_x, mut of_weight) = (vec![0.0; x.len()], vec![0.0; weight.len()]);
    for (pixel, tap) in (0..pixels).flat_map(|pixel| (0..9).map(move |tap| (pixel, tap))) {
        let (image, h, w) = (pixel / (height * width), pixel / width % height, pixel % width);
        let (row, column) = (h + tap / 3, w + tap % 3); // one more than the neighbour's
        if row < 1 || row > height || column < 1 || column > width {
            continue;
        }
        let from = (image * height + row - 1) * width + column - 1;
        for (o, i) in (0..outputs).flat_map(|o| (0..inputs).map(move |i| (o, i))) {
            let (at, grad) = ((o * inputs + i) * 9 + tap, grad_y[pixel * outputs + o]);
            y[pixel * outputs + o] += x[from * inputs + i] * weight[at];
            of_x[from * inputs + i] += grad * weight[at];
            of_weight[at] += grad * x[from * inputs + i];
        }
    }

    let given = tensor(&x, [batch, height, width, inputs], dtype, device).require_grad();
    let w = tensor(&weight, [outputs, inputs, 3, 3], Dtype::F32, device).require_grad();
    let got = conv3x3(given.clone(), w.clone(), precision)?;
    let upstream = tensor(&grad_y, [batch, height, width, outputs], dtype, device);
    let grads = (got.clone() * upstream).sum().backward();
    let tolerance = match precision {
        Precision::F32 => F32,
        Precision::Tf32 => TF32,
        Precision::Bf16 => BF16,
    };
    // The gradient of the weight is a sum in f32 of what bf16 does not round again.
    let exact = if precision == Precision::Tf32 { TF32 } else { F32 };
    let case = format!("B={batch} H={height} W={width} {inputs} to {outputs}");
    let arrays = vec![
        ("y", values(got), y, tolerance),
        ("x", gradient(&given, &grads), of_x, tolerance),
        ("weight", gradient(&w, &grads), of_weight, exact),
    ];
    Ok(rows_of(arrays, 1e-30, factor, &case))
}
