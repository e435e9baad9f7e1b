//! Bytes to images, against loops in f64.

use burn::tensor::{Bytes, Device};
use vim_kernels::{
    EraseBox, EraseFill, ImageBatch, KernelError, MixPlan, Region, image_batch, oracle,
};

use crate::support::devices;

const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const STD: [f32; 3] = [0.229, 0.224, 0.225];

/// Numbers of f32 up to 5.8, the largest noise: a few roundings. WGSL promises only 2⁻¹¹ for a
/// cosine.
fn tolerance(device: &Device) -> f64 {
    let exact = *device == Device::flex() || cfg!(feature = "cuda");
    if exact { 6e-6 } else { 4e-3 }
}

fn agrees(batch: &ImageBatch<'_>, device: &Device) {
    let images = image_batch(batch.clone(), device).unwrap();
    let [count, height, width] = batch.size;
    assert_eq!(images.dims(), [count, 3, height, width]);
    let got: Vec<f32> = images.into_data().iter().collect();
    for (at, (got, want)) in got.into_iter().zip(oracle::image_batch(batch)).enumerate() {
        let error = (f64::from(got) - want).abs();
        assert!(
            error < tolerance(device),
            "{:?} {:?} {at}: {got} {want}",
            batch.size,
            batch.mixing
        );
    }
}

fn bytes(count: usize) -> Bytes {
    Bytes::from_bytes_vec((0..count).map(|i| ((i * 2_654_435_761) >> 7) as u8).collect())
}

#[test]
fn images_are_normalized_erased_and_mixed() {
    let (colour, noise) =
        (EraseFill::Colour([0.5, -1.0, 2.0]), EraseFill::Pixels { seed: 0xdead_beef });
    for size in [[1, 1, 1], [2, 1, 3], [3, 5, 7], [5, 32, 32], [2, 33, 65]] {
        let [count, height, width] = size;
        let pixels = bytes(3 * count * height * width);
        let area = |top: usize, left: usize| {
            let (top, left) = (top.min(height - 1), left.min(width - 1));
            let (height, width) = ((height - top).min(9), (width - left).min(4));
            Region { top, left, height, width }
        };
        let one = [EraseBox { image: count - 1, region: area(1, 2), fill: noise }];
        // Two that overlap, one without pixels.
        let several = [
            EraseBox { image: 0, region: area(0, 0), fill: noise },
            EraseBox { image: 0, region: area(2, 1), fill: colour },
            EraseBox { image: count / 2, region: area(3, 3), fill: EraseFill::Pixels { seed: 3 } },
            EraseBox { image: count - 1, region: Region::default(), fill: colour },
        ];
        for erased in [&[][..], &one, &several] {
            let (blend, paste) =
                (MixPlan::Mixup { lambda: 0.3 }, MixPlan::Cutmix { region: area(1, 1) });
            let kinds = [blend, paste, MixPlan::None, MixPlan::Mixup { lambda: 0.9 }];
            let mixings = [
                vec![],
                vec![blend; count],
                vec![paste; count],
                (0..count).map(|image| kinds[image % 4]).collect(),
            ];
            for mixing in &mixings {
                let (mean, std) = (MEAN, STD);
                let pixels = pixels.clone();
                let batch = ImageBatch { pixels, size, mean, std, erased, mixing };
                for device in devices() {
                    agrees(&batch, &device);
                    agrees(&batch, &device.clone().autodiff());
                }
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let pixels = bytes(3 * 2 * 4 * 4);
    let good =
        ImageBatch { pixels, size: [2, 4, 4], mean: MEAN, std: STD, erased: &[], mixing: &[] };
    let area = Region { top: 1, left: 1, height: 4, width: 1 };
    let fill = EraseFill::Colour([0.0; 3]);
    let named = |batch: ImageBatch<'_>| {
        let error = image_batch(batch, &Device::flex()).unwrap_err();
        let KernelError::Shape { tensor, .. } = error else { panic!("{error}") };
        tensor
    };
    assert_eq!(named(ImageBatch { size: [3, 4, 4], ..good.clone() }), "pixels");
    assert_eq!(named(ImageBatch { size: [0, 4, 4], ..good.clone() }), "pixels");
    assert_eq!(named(ImageBatch { mixing: &[MixPlan::None], ..good.clone() }), "mixing");
    let pastes = [MixPlan::Cutmix { region: area }; 2];
    assert_eq!(named(ImageBatch { mixing: &pastes, ..good.clone() }), "mixing.region");
    let outside = [EraseBox { image: 0, region: area, fill }];
    assert_eq!(named(ImageBatch { erased: &outside, ..good.clone() }), "erased.region");
    let beyond = [EraseBox { image: 2, region: Region::default(), fill }];
    assert_eq!(named(ImageBatch { erased: &beyond, ..good }), "erased.image");
}
