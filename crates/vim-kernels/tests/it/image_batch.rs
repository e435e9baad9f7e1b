//! Bytes to images, against loops in f64.

use burn::tensor::{Bytes, Device};
use vim_kernels::{Area, Erased, Fill, ImageBatch, KernelError, Mixing, image_batch, oracle};

use crate::devices::devices;

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
    let (colour, noise) = (Fill::Colour([0.5, -1.0, 2.0]), Fill::Noise { seed: 0xdead_beef });
    for size in [[1, 1, 1], [2, 1, 3], [3, 5, 7], [5, 32, 32], [2, 33, 65]] {
        let [count, height, width] = size;
        let pixels = bytes(3 * count * height * width);
        let area = |top: usize, left: usize| {
            let (top, left) = (top.min(height - 1), left.min(width - 1));
            let (height, width) = ((height - top).min(9), (width - left).min(4));
            Area { top, left, height, width }
        };
        let one = [Erased { image: count - 1, area: area(1, 2), fill: noise }];
        // Two that overlap, one without pixels.
        let several = [
            Erased { image: 0, area: area(0, 0), fill: noise },
            Erased { image: 0, area: area(2, 1), fill: colour },
            Erased { image: count / 2, area: area(3, 3), fill: Fill::Noise { seed: 3 } },
            Erased { image: count - 1, area: Area::default(), fill: colour },
        ];
        for erased in [&[][..], &one, &several] {
            let (blend, paste) = (Mixing::Blend { share: 0.3 }, Mixing::Paste(area(1, 1)));
            let kinds = [blend, paste, Mixing::None, Mixing::Blend { share: 0.9 }];
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
    let area = Area { top: 1, left: 1, height: 4, width: 1 };
    let fill = Fill::Colour([0.0; 3]);
    let named = |batch: ImageBatch<'_>| {
        let error = image_batch(batch, &Device::flex()).unwrap_err();
        let KernelError::Shape { tensor, .. } = error else { panic!("{error}") };
        tensor
    };
    assert_eq!(named(ImageBatch { size: [3, 4, 4], ..good.clone() }), "pixels");
    assert_eq!(named(ImageBatch { size: [0, 4, 4], ..good.clone() }), "pixels");
    assert_eq!(named(ImageBatch { mixing: &[Mixing::None], ..good.clone() }), "mixing");
    let pastes = [Mixing::Paste(area); 2];
    assert_eq!(named(ImageBatch { mixing: &pastes, ..good.clone() }), "mixing.area");
    let outside = [Erased { image: 0, area, fill }];
    assert_eq!(named(ImageBatch { erased: &outside, ..good.clone() }), "erased.area");
    let beyond = [Erased { image: 2, area: Area::default(), fill }];
    assert_eq!(named(ImageBatch { erased: &beyond, ..good }), "erased.image");
}
