//! Features of boxes against the f64 loops.

use burn::tensor::Device;
use vim_kernels::oracle::OracleRoiAlign;
use vim_kernels::{Implementation, KernelError, Roi, RoiSampling, roi_align};

use crate::check::{Array, Check, Context, Subject, choice, rows_of, worst};
use crate::compare::{Dtype, Numbers, tensor, values_of};
use crate::run::STORED_BF16;

/// max |difference| / max |reference| in f32: a place is rounded to a unit in the last place of the
/// box's edge, up to 1e-5 of a pixel, and so are its shares.
const F32: f64 = 2e-5;
/// How much wider that is for the reference: on CUDA Burn's products round their factors to TF32.
const BY_PRODUCTS: f64 = 50.0;

/// Both implementations: the result and the gradient of x.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let check = |(implementation, dtype)| {
        let by_products = implementation == Implementation::Reference && dtype == Dtype::F32;
        let wider = if by_products { BY_PRODUCTS } else { 1.0 };
        let run = move |context: &Context, factor: f64| {
            let factor = factor * wider;
            let each = SIZES.into_iter().zip(SAMPLINGS.into_iter().cycle());
            worst(each.map(|((from, bins, scale), sampling)| {
                let boxes = inputs(from, bins, scale, sampling, dtype);
                let arrays = run(&boxes, implementation, dtype, &context.device)?;
                let case = format!("{from:?} to {bins} at {scale}, {sampling:?}");
                Ok(rows_of(arrays, 1e-30, factor, &case))
            }))
        };
        Check::new(Subject::Oracle, "roi_align", implementation, dtype, run)
    };
    context.runs().map(check).collect()
}

/// `[B, H, W, C]`, bins and scale: channels of every width of a load, more pixels than a tile of
/// the backward pass has and fewer, and a single one.
pub const SIZES: [([usize; 4], usize, f32); 5] = [
    ([2, 9, 7, 3], 3, 0.5),
    ([1, 17, 23, 4], 7, 0.25),
    ([3, 5, 31, 6], 2, 1.0),
    ([2, 1, 1, 5], 4, 0.125),
    ([1, 33, 8, 8], 14, 0.0625),
];

/// As many samples as pixels or a fixed number, with a pixel's centre inside it or on its edge.
pub const SAMPLINGS: [RoiSampling; 4] = [
    RoiSampling { ratio: 0, aligned: true },
    RoiSampling { ratio: 2, aligned: false },
    RoiSampling { ratio: 3, aligned: true },
    RoiSampling { ratio: 0, aligned: false },
];

/// Boxes of all sizes: larger than the image, across its edge, beside it, without area, with one
/// edge before the other, far smaller than a pixel, and some at random.
#[must_use]
pub fn inputs(
    from: [usize; 4],
    bins: usize,
    scale: f32,
    sampling: RoiSampling,
    dtype: Dtype,
) -> OracleRoiAlign {
    let [batch, height, width, _] = from;
    let [h, w] = [height, width].map(|pixels| pixels as f64 / f64::from(scale));
    let mut numbers = Numbers::new(83);
    let mut rois = vec![
        (0, [-0.3 * w, -0.4 * h, 1.27 * w, 1.31 * h]),
        (batch - 1, [0.61 * w, 0.33 * h, 1.17 * w, 0.87 * h]),
        (0, [2.3 * w, 0.1 * h, 2.9 * w, 0.7 * h]),
        (0, [0.31 * w, 0.1 * h, 0.31 * w, 0.7 * h]),
        (0, [0.71 * w, 0.2 * h, 0.31 * w, 0.6 * h]),
        (batch - 1, [0.417 * w, 0.523 * h, 0.418 * w, 0.524 * h]),
    ];
    for i in 0..12 {
        let draws = numbers.vec(4, 0.0, 1.0, Dtype::F32);
        let (left, top) = ((1.2 * draws[0] - 0.1) * w, (1.2 * draws[1] - 0.1) * h);
        rois.push((i % batch, [left, top, left + 0.6 * draws[2] * w, top + 0.6 * draws[3] * h]));
    }
    for (_, corners) in &mut rois {
        *corners = corners.map(|edge| Dtype::F32.round(edge));
    }
    let x = numbers.vec(from.iter().product(), -2.0, 2.0, dtype);
    OracleRoiAlign { from, x, rois, scale: f64::from(scale), bins, sampling }
}

/// The features of the boxes by `implementation` on `device`, which is without autodiff, and the
/// gradient of x.
///
/// # Errors
///
/// [`KernelError`] if `implementation` cannot run it on `device`.
pub fn run(
    boxes: &OracleRoiAlign,
    implementation: Implementation,
    dtype: Dtype,
    device: &Device,
) -> Result<Vec<Array>, KernelError> {
    let device = &device.clone().autodiff();
    let OracleRoiAlign { from, bins, sampling, .. } = *boxes;
    let x = tensor(&boxes.x, from, dtype, device).require_grad();
    let roi = |&(image, corners): &(usize, [f64; 4])| Roi {
        image,
        corners: corners.map(|edge| edge as f32),
    };
    let rois: Vec<Roi> = boxes.rois.iter().map(roi).collect();
    let (scale, choice) = (boxes.scale as f32, choice(implementation));
    let y = roi_align(x.clone(), &rois, scale, bins, sampling, choice)?;
    let shape = [rois.len(), bins, bins, from[3]];
    let grad_y = Numbers::new(89).vec(shape.iter().product(), -1.0, 1.0, dtype);
    let grads = (y.clone() * tensor(&grad_y, shape, dtype, device)).sum().backward();
    let stored = if dtype == Dtype::Bf16 { STORED_BF16 + F32 } else { F32 };
    let grad_x = x.grad(&grads).map_or(vec![], |grad| values_of(grad, dtype));
    Ok(vec![
        ("y", values_of(y, dtype), boxes.forward(), stored),
        ("x", grad_x, boxes.backward(&grad_y), stored),
    ])
}
