//! Bytes to images on the device against the f64 loops.

use burn::tensor::{Bytes, Device};
use vim_kernels::{
    EraseBox, EraseFill, ImageBatch, Implementation, KernelError, MixPlan, Region, image_batch,
    oracle,
};

use crate::check::{Check, Context, Row, Subject, worst};
use crate::compare::{Dtype, figures, values};

/// max |difference| / max |reference|: a few roundings of f32, of numbers up to 5.8, the largest
/// noise.
const F32: f64 = 2e-6;
/// WGSL promises 2⁻¹¹ of a cosine, and of the noise no more.
const WGSL: f64 = 2e-3;

/// The kernel, which every device has: normalized, with boxes erased in both ways, and mixed in
/// both.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    if !context.dtypes.contains(&Dtype::F32) {
        return Vec::new();
    }
    let run = |context: &Context, factor| {
        let sizes = [[1, 1, 1], [3, 5, 7], [4, 33, 65], [2, 224, 224]];
        let cases = sizes.into_iter().flat_map(|size| [(size, false), (size, true)]);
        worst(cases.map(|(size, mixes)| Ok(vec![row(size, mixes, &context.device, factor)?])))
    };
    vec![Check::new(Subject::Oracle, "image_batch", Implementation::Kernel, Dtype::F32, run)]
}

fn row(size: [usize; 3], mixes: bool, device: &Device, factor: f64) -> Result<Row, KernelError> {
    let [count, height, width] = size;
    let bytes = 3 * count * height * width;
    let pixels: Vec<u8> = (0..bytes).map(|i| (i.wrapping_mul(2_654_435_761) >> 7) as u8).collect();
    let area = |share: usize| {
        let (height, width) = (height.div_ceil(share), width.div_ceil(share));
        Region { top: 0, left: 0, height, width }
    };
    let erased = [
        EraseBox { image: 0, region: area(2), fill: EraseFill::Pixels { seed: 0xdead_beef } },
        EraseBox { image: 0, region: area(5), fill: EraseFill::Colour([0.5, -1.0, 2.0]) },
        EraseBox { image: count - 1, region: area(3), fill: EraseFill::Pixels { seed: 3 } },
    ];
    let kinds =
        [MixPlan::Mixup { lambda: 0.3 }, MixPlan::Cutmix { region: area(4) }, MixPlan::None];
    let mixing: Vec<MixPlan> =
        if mixes { (0..count).map(|image| kinds[image % 3]).collect() } else { Vec::new() };
    let batch = ImageBatch {
        pixels: Bytes::from_bytes_vec(pixels),
        size,
        mean: [0.485, 0.456, 0.406],
        std: [0.229, 0.224, 0.225],
        erased: &erased,
        mixing: &mixing,
    };
    let want = oracle::image_batch(&batch);
    let got = values(image_batch(batch, device)?);
    // Where bf16 is, the device is no WGSL one.
    let exact =
        device.supports_dtype(Dtype::Bf16.float()) || device.clone().inner() == Device::flex();
    let tolerance = if exact { F32 } else { WGSL };
    let mixed = if mixes { " mixed" } else { "" };
    let case = format!("B={count} H={height} W={width}{mixed}");
    Ok(Row::judged("images", figures(&got, &want, 1e-30), tolerance * factor, case.as_str()))
}
