//! Images of any size as a model sees them.

use burn::tensor::{Device, Tensor};
use vim_data::dense_ops::padding;
use vim_data::{Batch, Pixels, Statistics};

use super::classification::to_tensors;
use crate::error::Error;

/// `images` on the device, each in the upper left corner of a frame, `[height, width]`, and
/// normalized; what is beyond an image is 0.
///
/// # Shapes
///
/// - result: `[B, 3, height, width]`
pub(super) fn framed(
    images: &[Pixels],
    frame: [usize; 2],
    statistics: Statistics,
    device: &Device,
) -> Result<Tensor<4>, Error> {
    let [height, width] = frame;
    let mut pixels = vec![0; images.len() * 3 * height * width];
    let mut beyond = Vec::new();
    for (number, image) in images.iter().enumerate() {
        let own = &mut pixels[number * 3 * height * width..][..3 * height * width];
        for (row, line) in image.data.chunks_exact(3 * image.width).enumerate() {
            own[3 * row * width..][..line.len()].copy_from_slice(line);
        }
        let of = padding([image.height, image.width], frame);
        beyond.extend(of.into_iter().map(|one| (number, one)));
    }
    let mut batch = Batch::plain(pixels, vec![0; images.len()], frame);
    batch.erased = beyond;
    Ok(to_tensors(&batch, statistics, device)?.0)
}
