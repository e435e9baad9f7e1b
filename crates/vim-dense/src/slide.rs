//! Images of any size: windows that slide, and labels at the original size.

use std::ops::Range;

use burn::tensor::{Int, Tensor};
use vim_kernels::KernelError;

use crate::error::{DenseError, expect};
use crate::resize::resize;
use crate::segmenter::Segmenter;

/// The labels of an image, and how sure the model is.
#[derive(Clone, Debug)]
pub struct Predicted {
    /// The class of the largest logit, `[B, H, W]`.
    pub labels: Tensor<3, Int>,
    /// Its probability, `[B, H, W]`.
    pub probabilities: Tensor<3>,
}

impl Segmenter {
    /// Logits of an image that is at least as large as the model's: the mean, at each pixel, over
    /// the windows that contain it. Windows have the model's size and come every `stride` pixels;
    /// the last of a row or column ends at the image's edge.
    ///
    /// # Shapes
    ///
    /// - `images`: `[B, 3, H, W]`, normalized
    /// - result: `[B, H, W, K]`
    ///
    /// # Errors
    ///
    /// [`DenseError::Argument`] if the image is smaller than the model's or `stride` is 0.
    ///
    /// # Source
    ///
    /// `slide_inference` of mmsegmentation 0.29: logits are averaged, not probabilities.
    pub fn slide(&self, images: Tensor<4>, stride: [usize; 2]) -> Result<Tensor<4>, DenseError> {
        let size = self.backbone_config().image_size;
        let [batch, channels, height, width] = images.dims();
        let is_large = height >= size.height && width >= size.width;
        let got = || format!("{height} x {width} px");
        let least = || format!("at least {} x {} px: pad it", size.height, size.width);
        expect(is_large, "an image", got, least)?;
        let positive = stride.iter().all(|&stride| stride > 0);
        expect(positive, "stride", || format!("{stride:?}"), || "1 or more".to_owned())?;
        let across = windows(width, size.width, stride[1]);
        let down = windows(height, size.height, stride[0]);
        let places: Vec<[Range<usize>; 2]> = down
            .iter()
            .flat_map(|rows| across.iter().map(|columns| [rows.clone(), columns.clone()]))
            .collect();
        let classes = self.num_classes();
        let mut sums = Tensor::<4>::zeros([batch, height, width, classes], &images.device());
        for places in places.chunks((TOGETHER / batch).max(1)) {
            let seen = places
                .iter()
                .map(|[y, x]| images.clone().slice([0..batch, 0..channels, y.clone(), x.clone()]));
            let logits = self.forward(Tensor::cat(seen.collect(), 0))?;
            for (number, [y, x]) in places.iter().enumerate() {
                let logits = logits.clone().narrow(0, number * batch, batch);
                let logits = resize(logits, [size.height, size.width])?;
                let place = [0..batch, y.clone(), x.clone(), 0..classes];
                let sum = sums.clone().slice(place.clone()) + logits;
                sums = sums.slice_assign(place, sum);
            }
        }
        let counts = |length: usize, side: usize, stride: usize| -> Vec<f32> {
            let windows = windows(length, side, stride);
            let count = |place| windows.iter().filter(|window| window.contains(&place)).count();
            (0..length).map(|place| count(place) as f32).collect()
        };
        let rows = counts(height, size.height, stride[0]);
        let columns = counts(width, size.width, stride[1]);
        let device = sums.device();
        let rows = Tensor::<1>::from_floats(&rows[..], &device).reshape([1, height, 1, 1]);
        let columns = Tensor::<1>::from_floats(&columns[..], &device).reshape([1, 1, width, 1]);
        Ok(sums / (rows * columns))
    }
}

/// Windows that are seen at once: a GPU is not full of one.
const TOGETHER: usize = 8;

/// Windows of `side` pixels along an axis of `length`.
fn windows(length: usize, side: usize, stride: usize) -> Vec<Range<usize>> {
    let count = (length - side).div_ceil(stride) + 1;
    (0..count)
        .map(|window| {
            let end = (window * stride + side).min(length);
            end - side..end
        })
        .collect()
}

/// Rows of the result that are computed at once.
const BAND: usize = 128;

/// The labels of `logits` resized bilinearly to the size `to`, and their probabilities. Rows are
/// resized first; logits of all columns are there for a band of rows at a time.
///
/// # Shapes
///
/// - `logits`: `[B, h, w, K]`
///
/// # Errors
///
/// As [`resize`].
pub fn predicted(logits: Tensor<4>, to: [usize; 2]) -> Result<Predicted, KernelError> {
    let [batch, _, width, _] = logits.dims();
    let along = resize(logits, [to[0], width])?;
    let (mut labels, mut probabilities) = (Vec::new(), Vec::new());
    for first in (0..to[0]).step_by(BAND) {
        let count = BAND.min(to[0] - first);
        let band = resize(along.clone().narrow(1, first, count), [count, to[1]])?;
        let (largest, label) = band.clone().max_dim_with_indices(3);
        let sum = (band - largest).exp().sum_dim(3);
        labels.push(label.reshape([batch, count, to[1]]));
        probabilities.push(sum.recip().reshape([batch, count, to[1]]));
    }
    Ok(Predicted { labels: Tensor::cat(labels, 1), probabilities: Tensor::cat(probabilities, 1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_an_axis_and_end_at_its_edge() {
        assert_eq!(windows(512, 512, 341), Vec::from_iter(std::iter::once(0..512)));
        assert_eq!(windows(853, 512, 341), [0..512, 341..853]);
        assert_eq!(windows(854, 512, 341), [0..512, 341..853, 342..854]);
        assert_eq!(windows(100, 64, 43), [0..64, 36..100]);
        assert_eq!(windows(150, 96, 64), [0..96, 54..150]);
    }
}
