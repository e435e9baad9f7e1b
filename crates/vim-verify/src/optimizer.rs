//! A step of the optimizer over many tensors against the formulas in f64.

use burn::tensor::Tensor;
use vim_kernels::{
    AdamWHyper, FlatParams, Implementation, KernelError, ParamStep, moving_average,
    supports_multi_tensor,
};

use crate::check::{Array, Check, Context, Row, Subject, rows_of, worst};
use crate::compare::{Dtype, Numbers, tensor, values};

/// max |difference| / max |reference| in f32: a few roundings, a root and a quotient.
const F32: f64 = 3e-6;

/// The same of the sum of squares, of up to 70 000 of one sign.
const SUM: f64 = 1e-5;

/// Buffers that a kernel takes at most, and has code for each of.
const MOST: usize = 48;

/// Buffers of the last launch of a step, where the others take [`MOST`], of Vim-Ti and Vim-S, of a
/// segmenter, and of a detector: of its gradients, and of weights, which lie in one each before
/// the first step.
const LAST: [usize; 6] = [7, 31, 6, 30, 17, 41];

/// The operations of a step, where a device takes many tensors at once: the sum of squares of
/// gradients, weights and moments after the step, and a moving average of the weights.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    if !supports_multi_tensor(&context.device) || !context.dtypes.contains(&Dtype::F32) {
        return Vec::new();
    }
    let run = |context: &Context, factor| {
        let many = LAST.iter().filter(|_| context.sizes_decide()).map(|last| MOST + last);
        worst([1, 3].into_iter().chain(many).map(|count| rows(count, context, factor)))
    };
    vec![Check::new(Subject::Oracle, "adamw", Implementation::Kernel, Dtype::F32, run)]
}

fn rows(count: usize, context: &Context, factor: f64) -> Result<Vec<Row>, KernelError> {
    let device = &context.device;
    let mut numbers = Numbers::new(103);
    // One element, a block, and parts of several blocks.
    let lengths: Vec<usize> = (0..count).map(|i| [1, 512, 700, 1537][i % 4] + i / 4).collect();
    let mut all = |low: f64, high: f64| -> Vec<Vec<f64>> {
        lengths.iter().map(|&length| numbers.vec(length, low, high, Dtype::F32)).collect()
    };
    let (weights, gradients) = (all(-1.0, 1.0), all(-0.1, 0.1));
    let (means, squares) = (all(-0.1, 0.1), all(1e-4, 1e-2));
    let averages = all(-1.0, 1.0);
    let on_device = |all: &[Vec<f64>]| -> Vec<Tensor<1>> {
        all.iter().map(|one| tensor(one, [one.len()], Dtype::F32, device)).collect()
    };
    let step = |i: usize| {
        let of = |number: f64| Dtype::F32.round(number);
        ParamStep { rate: of(0.01 / (1.0 + i as f64)), keep: of(1.0 - 0.001 * (i % 3) as f64) }
    };
    let steps: Vec<ParamStep> = (0..count).map(step).collect();
    let rule = AdamWHyper {
        betas: [0.9, 0.999],
        eps: 1e-8,
        // Below the norm, so that gradients are scaled.
        limit: Some(0.5),
        root_scale: 1.25,
    };
    let decay = 0.99;

    let packing = FlatParams::of(&on_device(&weights));
    let pack = |all: &[Vec<f64>]| packing.pack(on_device(all));
    let square_norm = packing.sum_of_squares(&on_device(&gradients));
    let [value, first, second, average] =
        [&weights, &means, &squares, &averages].map(|all| pack(all));
    let updated = [&value, &first, &second];
    packing.adamw(updated, on_device(&gradients), &steps, square_norm.clone(), rule);
    moving_average(&average, value.clone(), square_norm.clone(), decay);

    let norm = gradients.iter().flatten().map(|g| g * g).sum::<f64>();
    let scale = (0.5 / (norm.sqrt() + 1e-6)).min(1.0);
    let mut want = [(); 4].map(|()| Vec::new());
    for (i, ParamStep { rate, keep }) in steps.iter().enumerate() {
        for at in 0..lengths[i] {
            let g = gradients[i][at] * scale;
            let m = 0.9 * means[i][at] + 0.1 * g;
            let s = 0.999 * squares[i][at] + 0.001 * g * g;
            let w = keep * weights[i][at] - rate * m / (s.sqrt() * 1.25 + 1e-8);
            let a = decay * averages[i][at] + (1.0 - decay) * w;
            want.iter_mut().zip([w, m, s, a]).for_each(|(all, number)| all.push(number));
        }
    }
    let parts = |packed: &Tensor<1>| -> Vec<f64> {
        packing.parts(packed).into_iter().flat_map(values).collect()
    };
    let [of_value, of_first, of_second, of_average] = want;
    let arrays: Vec<Array> = vec![
        ("square_norm", values(square_norm), vec![norm], SUM),
        ("weights", parts(&value), of_value, F32),
        ("means", parts(&first), of_first, F32),
        ("squares", parts(&second), of_second, F32),
        ("average", parts(&average), of_average, F32),
    ];
    Ok(rows_of(arrays, 1e-30, factor, &format!("{count} tensors")))
}
