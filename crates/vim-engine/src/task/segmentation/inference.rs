//! What a segmenter says of an image of any size.

use burn::tensor::activation::softmax;
use burn::tensor::{Device, Tensor};
use vim_data::dense_ops::{bilinear, rescaled};
use vim_data::ops::flip;
use vim_data::{DenseRecipe, Inference, LONGEST_SIDE, PairError, Pixels, Region, Statistics};
use vim_dense::{Segmenter, predicted, resize};

use crate::error::Error;
use crate::task::frame::framed;

// What data may hold is what the kernels take.
const _: () = assert!(LONGEST_SIDE == vim_kernels::LONGEST_SIDE);

/// How images are shown to a segmenter in evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Viewer {
    /// The sizes of images and windows.
    pub recipe: DenseRecipe,
    /// What pixels are normalized by.
    pub statistics: Statistics,
    /// Whether each image is seen at several sizes and mirrored, and the probabilities averaged.
    pub multi_scale: bool,
}

/// Factors of `pairs.scale` that an image is seen at.
const RATIOS: [f64; 6] = [0.5, 0.75, 1.0, 1.25, 1.5, 1.75];

impl Viewer {
    /// Checks that no side of `image` is too long for the kernels, at each size that it is seen at.
    pub fn check(&self, model: &Segmenter, image: &Pixels) -> Result<(), PairError> {
        let stored = [image.height, image.width];
        let seen = if self.multi_scale { self.sizes(model, stored) } else { Vec::new() };
        PairError::check_side(stored, seen)
    }

    /// The class of each pixel of each of `images`, `[H, W]`. Images of one size that follow each
    /// other are seen at once.
    ///
    /// # Source
    ///
    /// mmsegmentation 0.29.1: `Resize` with the aspect kept, `slide_inference`, then the logits
    /// resized to the image's size.
    pub fn labels(
        &self,
        model: &Segmenter,
        images: &[&Pixels],
        device: &Device,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let mut all = Vec::with_capacity(images.len());
        for alike in images.chunk_by(|a, b| [a.height, a.width] == [b.height, b.width]) {
            let stored @ [height, width] = [alike[0].height, alike[0].width];
            let labels = match self.multi_scale {
                true => self.averaged(model, alike, device)?.argmax(3).squeeze_dim::<3>(3),
                false => {
                    let logits = self.logits(model, alike, self.size(model, stored), device)?;
                    predicted(logits, stored)?.labels
                }
            };
            let labels: Vec<u8> =
                labels.into_data().iter::<i64>().map(|label| label as u8).collect();
            all.extend(labels.chunks_exact(height * width).map(<[u8]>::to_vec));
        }
        Ok(all)
    }

    /// The size that an image of size `stored` is shown at.
    pub(super) fn size(&self, model: &Segmenter, stored: [usize; 2]) -> [usize; 2] {
        let own = model.backbone_config().image_size;
        match self.recipe.inference {
            Inference::Slide => rescaled(stored, self.recipe.scale),
            Inference::Whole => rescaled(stored, [own.height.min(own.width); 2]),
        }
    }

    /// The sizes that an image of size `stored` is shown at for an average: each by a ratio of the
    /// scale, its shorter side no less than the model's.
    ///
    /// # Source
    ///
    /// mmsegmentation 0.29.1: `MultiScaleFlipAug` with `Resize(min_size)`.
    fn sizes(&self, model: &Segmenter, stored: [usize; 2]) -> Vec<[usize; 2]> {
        let own = model.backbone_config().image_size;
        let least = own.height.min(own.width);
        let scale = self.recipe.scale;
        let short = scale[0].min(scale[1]) as f64;
        let size = |ratio: f64| {
            let target = ((short * ratio) as usize).max(least);
            let factor = target as f64 / stored[0].min(stored[1]) as f64;
            stored.map(|side| ((side as f64 * factor + 0.5) as usize).max(1))
        };
        RATIOS.map(size).to_vec()
    }

    /// The mean of the probabilities of all sizes and mirror images of images of one size, at that
    /// size, `[B, H, W, K]`.
    fn averaged(
        &self,
        model: &Segmenter,
        images: &[&Pixels],
        device: &Device,
    ) -> Result<Tensor<4>, Error> {
        let stored = [images[0].height, images[0].width];
        let mirrored: Vec<Pixels> = images
            .iter()
            .map(|&image| {
                let mut mirrored = image.clone();
                flip(&mut mirrored.data, stored);
                mirrored
            })
            .collect();
        let mirrored: Vec<&Pixels> = mirrored.iter().collect();
        let mut sum: Option<Tensor<4>> = None;
        for size in self.sizes(model, stored) {
            for (is_mirrored, images) in [(false, images), (true, &mirrored)] {
                let logits = resize(self.logits(model, images, size, device)?, stored)?;
                let seen = softmax(logits, 3);
                let seen = if is_mirrored { seen.flip([2]) } else { seen };
                sum = Some(match sum.take() {
                    Some(sum) => sum + seen,
                    None => seen,
                });
            }
        }
        let sum = sum.ok_or_else(|| Error::internal("an average of nothing"))?;
        Ok(sum / (2 * RATIOS.len()) as f64)
    }

    /// Logits of `images` shown at `size`, `[B, h, w, K]`.
    fn logits(
        &self,
        model: &Segmenter,
        images: &[&Pixels],
        size: [usize; 2],
        device: &Device,
    ) -> Result<Tensor<4>, Error> {
        let own = model.backbone_config().image_size;
        let crop = [own.height, own.width];
        let whole = Region { top: 0, left: 0, height: size[0], width: size[1] };
        let show = |&image: &&Pixels| {
            let mut shown = Pixels::black(size[0], size[1]);
            bilinear(image, size, whole, &mut shown.data);
            shown
        };
        let shown: Vec<Pixels> = images.iter().map(show).collect();
        let padded = [size[0].max(crop[0]), size[1].max(crop[1])];
        let images = framed(&shown, padded, self.statistics, device)?;
        let logits = model.slide(images, self.recipe.stride(crop))?;
        Ok(logits.narrow(1, 0, size[0]).narrow(2, 0, size[1]))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use vim_dense::SegmenterConfig;
    use vim_model::{ClassToken, VimConfig};

    use super::*;

    /// Blocks of 8 px, each of a colour.
    fn picture([height, width]: [usize; 2], seed: usize) -> Pixels {
        let colour = |row: usize, column: usize, channel: usize| {
            let block = (row / 8) * 31 + (column / 8) * 17 + channel * 7;
            ((block + 1) * (seed * 53 + 11) % 256) as u8
        };
        let place = |at: usize| colour(at / (3 * width), at / 3 % width, at % 3);
        Pixels { height, width, data: (0..3 * height * width).map(place).collect() }
    }

    #[test]
    fn an_image_that_gets_too_long_is_refused() {
        let device = Device::flex();
        let backbone = VimConfig {
            image_size: 32.into(),
            patch_size: 8,
            depth: 4,
            d_model: 16,
            class_token: ClassToken::None,
            ..VimConfig::default()
        };
        let heads = SegmenterConfig { out_indices: vec![0, 1, 2, 3], ..SegmenterConfig::default() };
        let model = heads.init(&backbone, 2, &device, 1).unwrap();
        let recipe = DenseRecipe { scale: [128, 64], ..DenseRecipe::default() };
        let fits = |multi_scale, width| {
            let viewer = Viewer { recipe, statistics: Statistics::IMAGENET, multi_scale };
            viewer.check(&model, &Pixels::black(1, width)).is_ok()
        };
        assert!(fits(false, LONGEST_SIDE) && !fits(false, LONGEST_SIDE + 1));
        // The largest of the sizes has a shorter side of 112 pixels.
        assert!(fits(true, LONGEST_SIDE / 112) && !fits(true, LONGEST_SIDE / 112 + 1));
    }

    #[test]
    fn images_seen_together_get_the_classes_that_each_gets_alone() {
        let device = Device::flex();
        let backbone = VimConfig {
            image_size: 32.into(),
            patch_size: 8,
            depth: 4,
            d_model: 16,
            class_token: ClassToken::None,
            ..VimConfig::default()
        };
        let heads = SegmenterConfig {
            out_indices: vec![0, 1, 2, 3],
            aux_channels: 8,
            ..SegmenterConfig::default()
        };
        let model = heads.init(&backbone, 50, &device, 1).unwrap();
        // Two of one size, one of another, and again the first size: three groups.
        let pictures = [[40, 56], [40, 56], [33, 32], [40, 56]];
        let pictures: Vec<Pixels> =
            pictures.into_iter().zip(1..).map(|(size, seed)| picture(size, seed)).collect();
        let recipe = DenseRecipe { scale: [64, 32], ..DenseRecipe::default() };
        let mut seen = BTreeSet::new();
        for inference in [Inference::Slide, Inference::Whole] {
            for multi_scale in [false, true] {
                let recipe = DenseRecipe { inference, ..recipe };
                let viewer = Viewer { recipe, statistics: Statistics::IMAGENET, multi_scale };
                let all: Vec<&Pixels> = pictures.iter().collect();
                let together = viewer.labels(&model, &all, &device).unwrap();
                for (image, labels) in all.iter().zip(&together) {
                    assert_eq!(labels.len(), image.height * image.width);
                    let alone = viewer.labels(&model, &[image], &device).unwrap();
                    assert_eq!(&alone[0], labels, "{inference:?}, {multi_scale}");
                }
                seen.extend(together);
            }
        }
        assert!(seen.len() > 4, "images that all look alike show nothing: {}", seen.len());
    }
}
