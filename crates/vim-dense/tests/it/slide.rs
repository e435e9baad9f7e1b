//! Windows that slide over an image, and labels at another size.

use burn::tensor::{Device, Int, Tensor};
use vim_dense::{DenseError, Predicted, predicted, resize};

use crate::support::{CLASSES, images, numbers, shaken, small};

#[test]
fn logits_are_means_over_the_windows_of_a_pixel() {
    let (heads, backbone) = small();
    let device = Device::flex();
    let model = shaken(&heads, &backbone, &device);
    let whole = images(0, 1, 110, &device).narrow(2, 0, 90);
    let got = numbers(model.slide(whole.clone(), [20, 41]).unwrap());
    // By hand: the rows and columns where windows of 64 begin.
    let (rows, columns) = ([0, 20, 26], [0, 41, 46]);
    let mut sums = vec![0.0_f64; 90 * 110 * CLASSES];
    let mut counts = vec![0.0_f64; 90 * 110];
    for (top, left) in rows.into_iter().flat_map(|top| columns.map(|left| (top, left))) {
        let window = whole.clone().narrow(2, top, 64).narrow(3, left, 64);
        let logits = numbers(resize(model.forward(window).unwrap(), [64, 64]).unwrap());
        for (i, logit) in logits.into_iter().enumerate() {
            let (pixel, class) = (i / CLASSES, i % CLASSES);
            let at = (top + pixel / 64) * 110 + left + pixel % 64;
            sums[at * CLASSES + class] += f64::from(logit);
            counts[at] += if class == 0 { 1.0 } else { 0.0 };
        }
    }
    assert_eq!(got.len(), sums.len());
    for (i, got) in got.iter().enumerate() {
        let expected = sums[i] / counts[i / CLASSES];
        assert!((f64::from(*got) - expected).abs() < 1e-4 * (1.0 + expected.abs()), "{i}");
    }
}

#[test]
fn an_image_of_the_model_s_size_is_one_window() {
    let (heads, backbone) = small();
    let device = Device::flex();
    let model = shaken(&heads, &backbone, &device);
    let image = images(3, 2, 64, &device);
    let expected = resize(model.forward(image.clone()).unwrap(), [64, 64]).unwrap();
    let got = model.slide(image.clone(), [43, 43]).unwrap();
    assert_eq!(numbers(got), numbers(expected));
    for (image, stride) in [(image.clone().narrow(2, 0, 63), [43, 43]), (image, [0, 43])] {
        let error = model.slide(image, stride).err().unwrap();
        assert!(matches!(error, DenseError::Argument { .. }), "{error:?}");
    }
}

/// Bands of rows are no different from the whole.
#[test]
fn labels_are_of_the_largest_resized_logit() {
    let device = Device::flex();
    let logits: Vec<f32> = (0..2 * 7 * 5 * 3).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
    let logits = Tensor::<1>::from_floats(&logits[..], &device).reshape([2, 7, 5, 3]);
    for to in [[7, 5], [13, 11], [300, 4]] {
        let Predicted { labels, probabilities } = predicted(logits.clone(), to).unwrap();
        let large = resize(logits.clone(), to).unwrap();
        assert_eq!((labels.dims(), probabilities.dims()), ([2, to[0], to[1]], [2, to[0], to[1]]));
        let expected: Tensor<3, Int> = large.clone().argmax(3).squeeze_dim(3);
        let [got, expected] =
            [labels, expected].map(|labels| labels.into_data().iter::<i64>().collect::<Vec<_>>());
        assert_eq!(got, expected, "{to:?}");
        let softmax = burn::tensor::activation::softmax(large, 3).max_dim(3);
        for (a, b) in numbers(probabilities).iter().zip(numbers(softmax)) {
            assert!((a - b).abs() < 1e-6, "{to:?}");
        }
    }
}
