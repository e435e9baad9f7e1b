//! Two images that everybody can make, and what the model says of them: kept in a file, so that
//! whoever has the file can check a runtime by it (scripts/verify_export.py).

use vim_model::burn::tensor::{Device, Tensor, TensorData};

use crate::{Options, Pixels};

/// The images of a probe.
pub const PROBES: usize = 2;
/// The most logits that are kept.
const KEPT: usize = 2048;

/// The bytes of the images, `[2, H, W, 3]`: byte i is that above 2²⁴ of `(i + 1)·2654435761`, in 32
/// bits (Knuth's multiplicative hash).
fn bytes(count: usize) -> impl Iterator<Item = u8> {
    (1..=count as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
}

/// The images as the model takes them, `[2, 3, H, W]`: normalized as `options` says of pixels, else
/// from −1 to 1.
pub fn images([height, width]: [usize; 2], options: &Options, device: &Device) -> Tensor<4> {
    let Pixels { mean, std } = options.pixels.unwrap_or(Pixels { mean: [0.5; 3], std: [0.5; 3] });
    let values = bytes(PROBES * height * width * 3).enumerate();
    let values = values.map(|(i, byte)| (f32::from(byte) / 255.0 - mean[i % 3]) / std[i % 3]);
    let data = TensorData::new(values.collect::<Vec<f32>>(), [PROBES, height, width, 3]);
    Tensor::from_data(data, device).permute([0, 3, 1, 2])
}

/// The text of the images' `logits`, in the order of the graph's output: `{"every": n, "largest":
/// x, "logits": […]}`, one of n where there are many.
#[must_use]
pub fn text(logits: &[f32]) -> String {
    let every = logits.len().div_ceil(KEPT).max(1);
    let largest = logits.iter().fold(0.0_f32, |most, logit| most.max(logit.abs()));
    let kept: Vec<String> = logits.iter().step_by(every).map(f32::to_string).collect();
    format!("{{\"every\": {every}, \"largest\": {largest}, \"logits\": [{}]}}", kept.join(", "))
}
