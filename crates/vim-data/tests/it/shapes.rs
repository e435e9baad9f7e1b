//! The procedural dataset: what it promises, and how hard it is.

use std::collections::BTreeSet;

use vim_data::{Class, DataConfig, DataError, Normalize, ShapesConfig, Split};

use crate::fixture::shapes;
use crate::softmax::{Fit, Pixels, Softmax};

fn hash(split: &Split, count: usize) -> String {
    let mut hasher = blake3::Hasher::new();
    for position in 0..count {
        hasher.update(&split.image(position).unwrap());
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

/// If this fails, every published figure on `shapes` is void: change the version in the key
/// instead.
#[test]
fn images_are_pinned() {
    let splits = vim_data::open::<Class>(&shapes(24, 24, 24)).unwrap();
    let parts = [&splits.train, splits.val.as_ref().unwrap(), &splits.test];
    let large = ShapesConfig { image_size: 64, seed: 1, ..ShapesConfig::default() };
    let large =
        vim_data::open::<Class>(&DataConfig { shapes: large, ..DataConfig::default() }).unwrap();
    let hashes = [parts[0], parts[1], parts[2], &large.train].map(|split| hash(split, 24));
    assert_eq!(
        hashes,
        ["8e1a5b833ec52b0d", "47c4266345171084", "8d1431ef561fdb72", "e263ff8649499799"]
    );
}

#[test]
fn an_image_depends_on_nothing_but_its_key() {
    let few = vim_data::open::<Class>(&shapes(30, 5, 5)).unwrap();
    let many = vim_data::open::<Class>(&shapes(3_000, 50, 50)).unwrap();
    assert_eq!(hash(&few.train, 30), hash(&many.train, 30));
    assert_eq!(few.train.image(29).unwrap(), few.train.image(29).unwrap());
    let mut other = shapes(30, 5, 5);
    other.shapes.seed = 1;
    assert_ne!(hash(&few.train, 30), hash(&vim_data::open::<Class>(&other).unwrap().train, 30));
}

#[test]
fn no_two_images_are_equal_across_parts() {
    let splits = vim_data::open::<Class>(&shapes(300, 200, 200)).unwrap();
    let val = splits.val.unwrap();
    let images: BTreeSet<Vec<u8>> = [&splits.train, &val, &splits.test]
        .into_iter()
        .flat_map(|split| (0..split.len()).map(|i| split.image(i).unwrap()))
        .collect();
    assert_eq!(images.len(), 700);
}

#[test]
fn classes_are_balanced_and_named() {
    let train = vim_data::open::<Class>(&shapes(1_200, 1, 1)).unwrap().train;
    assert_eq!(train.num_classes(), 12);
    assert_eq!(train.class_names().iter().collect::<BTreeSet<_>>().len(), 12);
    for class in 0..12 {
        assert_eq!((0..1_200).filter(|&i| train.label(i) == class).count(), 100);
    }
}

#[test]
fn impossible_sizes_are_refused() {
    let sized = |image_size, train, test| {
        let shapes = ShapesConfig { image_size, train, test, ..ShapesConfig::default() };
        vim_data::open::<Class>(&DataConfig { shapes, ..DataConfig::default() })
    };
    for (size, train, test, bad) in [
        (31, 9, 9, "data.shapes.image_size"),
        (1025, 9, 9, "data.shapes.image_size"),
        (32, 0, 9, "data.shapes.train"),
        (32, 2_000_001, 9, "data.shapes.train"),
        (32, 9, 0, "data.shapes.test"),
    ] {
        let result = sized(size, train, test);
        assert!(matches!(result, Err(DataError::InvalidConfig { key, .. }) if key == bad), "{bad}");
    }
    for size in [32, 49, 64] {
        assert_eq!(sized(size, 1, 1).unwrap().train.image(0).unwrap().len(), 3 * size * size);
    }
}

#[test]
fn statistics_are_those_of_the_images() {
    let train = vim_data::open::<Class>(&shapes(3_000, 1, 1)).unwrap().train;
    let stated = train.statistics(Normalize::Dataset);
    let images: Vec<Vec<u8>> = (0..3_000).map(|i| train.image(i).unwrap()).collect();
    for channel in 0..3 {
        let values = || {
            let pixels = images.iter().flat_map(|image| image.chunks_exact(3));
            pixels.map(move |pixel| f64::from(pixel[channel]) / 255.0)
        };
        let count = values().count() as f64;
        let mean = values().sum::<f64>() / count;
        let std = (values().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count).sqrt();
        assert!((mean - f64::from(stated.mean[channel])).abs() < 0.01, "{mean}");
        assert!((std - f64::from(stated.std[channel])).abs() < 0.005, "{std}");
    }
}

/// The classes must need more than a weighted sum of pixels; the classifier itself must work.
#[test]
fn linear_classifier_fails() {
    let splits = vim_data::open::<Class>(&shapes(4_000, 1, 1_200)).unwrap();
    let train = Pixels::of(&splits.train).unwrap();
    let fit = Fit { epochs: 10, batch_size: 50, learning_rate: 0.005, weight_decay: 0.1 };
    let model = Softmax::fit(&train, 12, fit);
    let (seen, unseen) =
        (model.accuracy(&train), model.accuracy(&Pixels::of(&splits.test).unwrap()));
    assert!(seen > 0.25, "{seen}: it did not even fit the training images");
    assert!(unseen < 0.4, "{unseen}");
}

/// A fine texture must be visible: within the figure, both of its colours, far apart.
#[test]
fn textured_figures_have_more_edges_than_solid_ones() {
    let train = vim_data::open::<Class>(&shapes(1_200, 1, 1)).unwrap().train;
    let mut edges = [0_f64; 12];
    for i in 0..1_200 {
        let image = train.image(i).unwrap();
        let jump = |at: usize| f64::from(image[at].abs_diff(image[at + 3]) > 40);
        edges[train.label(i) as usize] +=
            (0..image.len() - 3).step_by(3).map(jump).sum::<f64>() / 100.0;
    }
    for shape in edges.chunks_exact(3) {
        assert!(shape[0] < 0.7 * shape[1] && shape[1] < 0.95 * shape[2], "{edges:?}");
    }
}
