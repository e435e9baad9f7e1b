//! From bytes to the images that a model is trained on: normalized, erased and mixed in one pass.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;
mod native;
mod noise;
pub(crate) mod oracle;

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{
    Autodiff, AutodiffBackend, Backend, Dispatch, ExtensionType, backend_extension,
};
use burn::tensor::{Bytes, DType, Device, Int, Tensor, TensorData};

use native::prepare;
use vim_kernels_core::check::{MAX_ELEMENTS, check_limit, expect};
use vim_kernels_core::{KernelError, has_kernel};

const OPERATION: &str = "image_batch";
/// Numbers of an area.
pub(crate) const AREA: usize = 4;
/// Numbers of a box: its area, its kind and its seed.
pub(crate) const BOX: usize = AREA + 2;
/// Means and deviations.
pub(crate) const STATISTICS: usize = 6;
/// Kinds of a box; 0 is none.
pub(crate) const COLOUR: i32 = 1;
pub(crate) const NOISE: i32 = 2;

/// A rectangle of an image, in pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// First row.
    pub top: usize,
    /// First column.
    pub left: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

/// What an erased rectangle is filled with, in normalized values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EraseFill {
    /// One value for each channel.
    Colour([f32; 3]),
    /// Independent normal numbers, a function of the seed and the position in the image.
    Pixels {
        /// Another seed gives other numbers.
        seed: u32,
    },
}

/// A rectangle to erase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EraseBox {
    /// Index of the image in the batch.
    pub image: usize,
    /// The erased rectangle.
    pub region: Region,
    /// Its fill.
    pub fill: EraseFill,
}

/// How each image is mixed with its partner: image `i` of `B` with image `B − 1 − i`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum MixPlan {
    /// Not at all.
    #[default]
    None,
    /// `lambda·image + (1 − lambda)·partner`.
    Mixup {
        /// Weight of the image itself.
        lambda: f32,
    },
    /// The partner's pixels within the region.
    Cutmix {
        /// The region; it may be empty.
        region: Region,
    },
}

/// Images as bytes, and their augmentation.
#[derive(Clone, Debug)]
pub struct ImageBatch<'a> {
    /// Rows of red, green and blue, 0..=255: `[B, H, W, 3]`. Uploaded without a copy where `Bytes`
    /// can be shared.
    pub pixels: Bytes,
    /// `[B, H, W]`.
    pub size: [usize; 3],
    /// Mean of each channel of pixels scaled to 0..=1.
    pub mean: [f32; 3],
    /// Standard deviation of the same.
    pub std: [f32; 3],
    /// Erased before mixing; of two overlapping rectangles of an image the later one wins.
    pub erased: &'a [EraseBox],
    /// Applied last, one per image; empty for none at all.
    pub mixing: &'a [MixPlan],
}

/// Uploads the bytes and makes `[B, 3, H, W]` images of them in f32, on the device:
/// `(pixel/255 − mean)/std`, erased, then mixed.
///
/// # Errors
///
/// [`KernelError::Shape`] if the bytes do not have the size stated or an area is outside its image;
/// [`KernelError::TooLarge`] if the result has more than 2³² elements.
///
/// # Source
///
/// `ToTensor` and `Normalize` of torchvision; `RandomErasing` and `Mixup` of timm 0.4.12, whose
/// batch mode takes the same partners.
pub fn image_batch(batch: ImageBatch<'_>, device: &Device) -> Result<Tensor<4>, KernelError> {
    batch.check()?;
    let Plan { places, values, boxes } = batch.plan();
    let spec = ImageSpec { size: batch.size, boxes, mixes: !batch.mixing.is_empty() };
    if !has_kernel(device) {
        let [count, height, width] = batch.size;
        let images = prepare(&words(&batch.pixels), &places, &values, spec);
        return Ok(Tensor::from_data(TensorData::new(images, [count, 3, height, width]), device));
    }
    let bytes = whole_words(batch.pixels);
    // As words: WGSL has no bytes.
    let words = bytes.len() / 4;
    let pixels = TensorData::from_bytes(bytes, [words], DType::I32);
    let pixels = Tensor::<1, Int>::from_data(pixels, (device, DType::I32));
    let places = Tensor::<1, Int>::from_data(&places[..], (device, DType::I32));
    let values = Tensor::<1>::from_data(&values[..], device);
    let inputs = ImageInputs {
        pixels: pixels.into_dispatch(),
        places: places.into_dispatch(),
        values: values.into_dispatch(),
    };
    Ok(Tensor::from_dispatch(Dispatch::image_batch(inputs, spec)))
}

/// The bytes as the kernels take them, for a device without a kernel of its own.
fn words(bytes: &[u8]) -> Vec<i32> {
    let word = |four: &[u8]| {
        four.iter().rev().fold(0_u32, |word, &byte| word << 8 | u32::from(byte)).cast_signed()
    };
    bytes.chunks(4).map(word).collect()
}

/// The bytes, padded to a multiple of four; copied only then.
fn whole_words(bytes: Bytes) -> Bytes {
    if bytes.len().is_multiple_of(4) {
        return bytes;
    }
    let mut copy = bytes.to_vec();
    copy.resize(bytes.len().next_multiple_of(4), 0);
    Bytes::from_bytes_vec(copy)
}

/// The checked call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ImageSpec {
    /// `[B, H, W]`.
    pub(crate) size: [usize; 3],
    /// Boxes of an image, 1 or more.
    pub(crate) boxes: usize,
    /// Whether any image is mixed with its partner.
    pub(crate) mixes: bool,
}

/// The inputs on a backend.
#[derive(ExtensionType)]
pub(crate) struct ImageInputs<B: Backend> {
    /// Four bytes per word, the first one lowest.
    pixels: IntTensor<B>,
    /// As in [`Plan`].
    places: IntTensor<B>,
    /// As in [`Plan`].
    values: FloatTensor<B>,
}

/// The operation as dispatched. It has no gradient: images are not parameters.
#[backend_extension(Flex, Cube: cfg(any(feature = "cuda", feature = "wgpu")), Autodiff)]
pub(crate) trait ImageBackend: Backend {
    /// See the function of this name.
    fn image_batch(
        #[extension_type] inputs: ImageInputs<Self>,
        spec: ImageSpec,
    ) -> FloatTensor<Self>;
}

impl<B: ImageBackend, C: CheckpointStrategy> ImageBackend for Autodiff<B, C> {
    fn image_batch(inputs: ImageInputs<Self>, spec: ImageSpec) -> FloatTensor<Self> {
        let ImageInputs { pixels, places, values } = inputs;
        let inputs = ImageInputs { pixels, places, values: values.into_primitive() };
        Self::from_inner(B::image_batch(inputs, spec))
    }
}

/// The whole augmentation as numbers.
struct Plan {
    /// `[B, boxes, BOX]`, then the areas of the mixing, `[B, AREA]`.
    places: Vec<i32>,
    /// Means and deviations, then the boxes' colours `[B, boxes, 3]`, then the image's own share
    /// inside and outside of its area, `[B, 2]`.
    values: Vec<f32>,
    /// Of an image, 1 or more.
    boxes: usize,
}

impl ImageBatch<'_> {
    fn check(&self) -> Result<(), KernelError> {
        let [count, height, width] = self.size;
        let elements = count.saturating_mul(height).saturating_mul(width).saturating_mul(3);
        let good = elements > 0 && self.pixels.len() == elements;
        let expected = format!("[B, H, W, 3] = [{count}, {height}, {width}, 3], none of them 0");
        expect(OPERATION, "pixels", &[self.pixels.len()], good, expected)?;
        check_limit(OPERATION, "a batch of images", elements, MAX_ELEMENTS)?;
        let inside = |name, region: &Region| {
            let (bottom, right) =
                (region.top.checked_add(region.height), region.left.checked_add(region.width));
            let good = bottom.is_some_and(|y| y <= height) && right.is_some_and(|x| x <= width);
            let got = [region.top, region.left, region.height, region.width];
            expect(OPERATION, name, &got, good, format!("an area within [{height}, {width}]"))
        };
        for erased in self.erased {
            let good = erased.image < count;
            expect(OPERATION, "erased.image", &[erased.image], good, format!("below {count}"))?;
            inside("erased.region", &erased.region)?;
        }
        let good = self.mixing.is_empty() || self.mixing.len() == count;
        let expected = format!("one for each of {count} images, or none");
        expect(OPERATION, "mixing", &[self.mixing.len()], good, expected)?;
        self.mixing.iter().try_for_each(|mixing| match mixing {
            MixPlan::Cutmix { region } => inside("mixing.region", region),
            MixPlan::None | MixPlan::Mixup { .. } => Ok(()),
        })
    }

    fn plan(&self) -> Plan {
        let count = self.size[0];
        let mut used = vec![0; count];
        for erased in self.erased {
            used[erased.image] += 1;
        }
        let boxes = used.iter().copied().max().unwrap_or(0).max(1);
        let mut places = vec![0; count * boxes * BOX];
        let mut values = [self.mean, self.std].concat();
        values.resize(STATISTICS + count * boxes * 3, 0.0);
        used.fill(0);
        for EraseBox { image, region, fill } in self.erased {
            let at = image * boxes + used[*image];
            used[*image] += 1;
            let (kind, seed) = match fill {
                EraseFill::Colour(colour) => {
                    values[STATISTICS + 3 * at..][..3].copy_from_slice(colour);
                    (COLOUR, 0)
                }
                EraseFill::Pixels { seed } => (NOISE, seed.cast_signed()),
            };
            places[BOX * at..][..AREA].copy_from_slice(&region.numbers());
            places[BOX * at + AREA..][..2].copy_from_slice(&[kind, seed]);
        }
        let all = std::iter::repeat_n(&MixPlan::None, count - self.mixing.len());
        for mixing in self.mixing.iter().chain(all) {
            let (region, [inside, outside]) = match *mixing {
                MixPlan::None => (Region::default(), [1.0; 2]),
                MixPlan::Mixup { lambda } => (Region::default(), [lambda; 2]),
                MixPlan::Cutmix { region } => (region, [0.0, 1.0]),
            };
            places.extend(region.numbers());
            values.extend([inside, outside]);
        }
        Plan { places, values, boxes }
    }
}

impl Region {
    /// As the kernels take it: an image of fewer than 2³² elements has sides below 2³¹.
    fn numbers(&self) -> [i32; AREA] {
        [self.top, self.left, self.height, self.width].map(|n| n as i32)
    }
}
