//! Which images belong to which part.

use std::collections::BTreeSet;

use strum::VariantArray;
use vim_data::{
    Annotation, Class, DataConfig, DataError, DatasetKind, HoldOut, ImageObjects, LabelMap, Split,
};

use crate::fixture::{archive, shapes};

fn indices(split: &Split) -> BTreeSet<usize> {
    (0..split.len()).map(|position| split.index(position)).collect()
}

fn with_fraction(config: DataConfig, val_fraction: f64) -> DataConfig {
    DataConfig { val_fraction, ..config }
}

fn cifar() -> DataConfig {
    let path = Some(archive("cifar10", "binary"));
    DataConfig { dataset: DatasetKind::Cifar10, path, ..DataConfig::default() }
}

#[test]
fn held_out_images_are_disjoint_and_complete() {
    for config in [cifar(), shapes(230, 40, 30)] {
        let splits = vim_data::open::<Class>(&with_fraction(config, 0.1)).unwrap();
        let val = splits.val.unwrap();
        let (kept, held) = (indices(&splits.train), indices(&val));
        assert_eq!((kept.len(), held.len()), (207, 23));
        assert!(kept.is_disjoint(&held));
        assert_eq!(kept.union(&held).copied().collect::<Vec<_>>(), (0..230).collect::<Vec<_>>());
    }
}

#[test]
fn held_out_images_are_stratified() {
    for fraction in [0.1, 0.25, 0.37, 0.5] {
        let config = with_fraction(shapes(1_205, 0, 30), fraction);
        let config = DataConfig { val_seed: Some(4), ..config };
        let splits = vim_data::open::<Class>(&config).unwrap();
        let val = splits.val.unwrap();
        assert_eq!(val.len(), (1_205.0 * fraction).round() as usize);
        for class in 0..12 {
            let count =
                |split: &Split| (0..split.len()).filter(|&i| split.label(i) == class).count();
            let (held, kept) = (count(&val), count(&splits.train));
            let share = (held + kept) as f64 * fraction;
            assert!((held as f64 - share).abs() <= 1.0, "class {class}: {held} of {share}");
        }
    }
}

#[test]
fn held_out_images_follow_from_the_seed() {
    for val_rule in [HoldOut::EachClass, HoldOut::Rounded] {
        let held = |val_seed| {
            let config = DataConfig { val_seed, val_rule, ..with_fraction(cifar(), 0.2) };
            indices(&vim_data::open::<Class>(&config).unwrap().val.unwrap())
        };
        assert_eq!(held(Some(1)), held(Some(1)));
        assert_ne!(held(Some(1)), held(Some(2)));
        assert_eq!(held(None), held(Some(0)), "left out, it is fixed");
    }
}

#[test]
fn keys_without_an_effect_are_told_or_refused() {
    let refused = |config: &DataConfig| {
        let opened = vim_data::open::<Class>(config).unwrap_err();
        let preview = vim_data::dry_run::<Class>(config).unwrap_err().to_string();
        assert_eq!(opened.to_string(), preview);
        let DataError::InvalidConfig { key, .. } = opened else { panic!("{opened}") };
        (key, preview)
    };
    let without = shapes(20, 5, 5);
    let (key, message) = refused(&DataConfig { val_seed: Some(3), ..without.clone() });
    assert_eq!(key, "data.val_seed");
    assert!(message.contains("`data.val_seed = 3`") && message.contains("no effect"), "{message}");
    // Those of other datasets are a note: old records and `--set data.dataset` may leave some.
    let others = DataConfig {
        label_suffix: Some("_mask".to_owned()),
        val_path: Some("x/val".into()),
        train_annotations: Some("train.json".into()),
        ..without.clone()
    };
    let opened = vim_data::open::<Class>(&others).unwrap();
    assert_eq!(
        opened.notes,
        [
            "`data.val_path = x/val` has no effect: `imagenet` and `folder` alone look for \
             validation images there",
            "`data.label_suffix = _mask` has no effect: `pairs` and `ade20k` alone have label maps",
            "`data.train_annotations = train.json` has no effect: `coco` and `yolo` alone have \
             annotations",
        ]
    );
    assert_eq!(vim_data::dry_run::<Class>(&others).unwrap().unwrap().notes, opened.notes);
    assert!(vim_data::open::<Class>(&without).unwrap().notes.is_empty());
    let (key, message) = refused(&DataConfig { val_rule: HoldOut::Rounded, ..without });
    assert_eq!(key, "data.val_rule");
    assert!(message.contains("`data.val_rule = \"rounded\"`"), "{message}");
    let large = DataConfig { val_seed: Some(1 << 63), ..with_fraction(shapes(20, 0, 5), 0.5) };
    assert_eq!(refused(&large).0, "data.val_seed");
}

#[test]
fn each_class_keeps_a_training_image_and_counts_say_so() {
    // 15 images of 12 classes: three of them have two.
    let of = |val_rule| {
        let config = DataConfig { val_rule, ..with_fraction(shapes(15, 0, 5), 0.2) };
        vim_data::open::<Class>(&config).unwrap()
    };
    let each = of(HoldOut::EachClass);
    assert_eq!(each.train.class_counts(), Some(vec![1; 12]));
    assert!(each.train.empty_classes().is_empty());
    let val = each.val.unwrap();
    let mut held = [0; 12];
    held[..3].fill(1);
    assert_eq!(val.class_counts(), Some(held.to_vec()));
    assert_eq!(val.empty_classes(), val.class_names()[3..]);
    let rounded = of(HoldOut::Rounded);
    assert_eq!(rounded.val.unwrap().len(), 3);
    assert!(!rounded.train.empty_classes().is_empty());
    let scenes = vim_data::open::<LabelMap>(&shapes(15, 0, 5)).unwrap().train;
    assert_eq!((scenes.class_counts(), scenes.empty_classes()), (None, vec![]));
}

#[test]
fn a_dry_run_opens_the_same_splits_without_pixels() {
    for config in [shapes(230, 40, 30), with_fraction(shapes(230, 0, 30), 0.1)] {
        let preview = vim_data::dry_run::<Class>(&config).unwrap().unwrap();
        let opened = vim_data::open::<Class>(&config).unwrap();
        assert_eq!(indices(&preview.train), indices(&opened.train));
        assert_eq!(preview.val.map(|val| indices(&val)), opened.val.map(|val| indices(&val)));
    }
    for (dataset, classes) in [(DatasetKind::Cifar10, 10), (DatasetKind::Cifar100, 100)] {
        // Nothing is there, and nothing is looked for.
        let config = DataConfig { dataset, path: Some("/no/such".into()), ..DataConfig::default() };
        let splits =
            vim_data::dry_run::<Class>(&with_fraction(config.clone(), 0.1)).unwrap().unwrap();
        let lengths = [splits.train.len(), splits.val.unwrap().len(), splits.test.len()];
        assert_eq!(lengths, [45_000, 5_000, 10_000]);
        assert_eq!(splits.train.num_classes(), classes);
        assert_eq!(splits.train.encoding(), vim_data::Encoding::Pixels { size: [32, 32] });
        assert!(vim_data::dry_run::<Class>(&with_fraction(config.clone(), 1.0)).is_err());
        let nowhere = DataConfig { path: None, ..config };
        let error = vim_data::dry_run::<Class>(&nowhere).unwrap_err();
        assert!(matches!(error, DataError::MissingPath { .. }), "{error}");
    }
    for dataset in [DatasetKind::Imagenet, DatasetKind::Folder] {
        let path = Some("/no/such".into());
        let config = DataConfig { dataset, path, ..DataConfig::default() };
        assert!(vim_data::dry_run::<Class>(&config).unwrap().is_none(), "only the files know");
    }
}

/// Whether the images of each dataset have classes, label maps and objects: a row for each.
const ANNOTATIONS: [(DatasetKind, [bool; 3]); 9] = [
    (DatasetKind::Shapes, [true, true, true]),
    (DatasetKind::Cifar10, [true, false, false]),
    (DatasetKind::Cifar100, [true, false, false]),
    (DatasetKind::Imagenet, [true, false, false]),
    (DatasetKind::Folder, [true, false, false]),
    (DatasetKind::Ade20k, [false, true, false]),
    (DatasetKind::Pairs, [false, true, false]),
    (DatasetKind::Coco, [false, false, true]),
    (DatasetKind::Yolo, [false, false, true]),
];

#[test]
fn a_dataset_is_opened_with_what_its_images_have_and_with_nothing_else() {
    assert_eq!(ANNOTATIONS.map(|(dataset, _)| dataset), *DatasetKind::VARIANTS);
    let empty = tempfile::tempdir().unwrap();
    for (dataset, has) in ANNOTATIONS {
        let path = Some(empty.path().to_owned());
        let config = DataConfig { dataset, path, ..DataConfig::default() };
        let opened = [
            [vim_data::dry_run::<Class>(&config).map(|_| ()), open_nothing::<Class>(&config)],
            [vim_data::dry_run::<LabelMap>(&config).map(|_| ()), open_nothing::<LabelMap>(&config)],
            [
                vim_data::dry_run::<ImageObjects>(&config).map(|_| ()),
                open_nothing::<ImageObjects>(&config),
            ],
        ];
        let of_each = match dataset.has_objects() {
            true => "a dataset with a class for each image; this one's are for each object",
            false => {
                "a dataset with a class for each image; this one's are for each pixel, which \
                 `task = \"segmentation\"` learns"
            }
        };
        let texts = [
            of_each,
            "a dataset with label maps: shapes, ade20k or pairs",
            "a dataset with objects: shapes, coco or yolo",
        ];
        for ((results, has), text) in opened.into_iter().zip(has).zip(texts) {
            for result in results {
                match result {
                    Ok(()) => assert!(has, "{dataset:?}: {text}"),
                    Err(error) => {
                        assert!(!has, "{dataset:?}: {error}");
                        let is_right = matches!(
                            error,
                            DataError::InvalidConfig { key: "data.dataset", expected, .. }
                                if expected == text
                        );
                        assert!(is_right, "{dataset:?}: {error}");
                    }
                }
            }
        }
        assert_eq!(dataset.has_pairs(), has == [false, true, false], "{dataset:?}");
        assert_eq!(dataset.has_objects(), has == [false, false, true], "{dataset:?}");
    }
}

/// Opens a dataset; that its files are not there counts as opened.
fn open_nothing<A: Annotation>(config: &DataConfig) -> Result<(), DataError> {
    match vim_data::open::<A>(config) {
        Err(error @ DataError::InvalidConfig { .. }) => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[test]
fn without_a_fraction_only_shapes_has_a_validation_split() {
    assert!(vim_data::open::<Class>(&cifar()).unwrap().val.is_none());
    assert!(vim_data::open::<Class>(&shapes(20, 0, 5)).unwrap().val.is_none());
    let splits = vim_data::open::<Class>(&shapes(20, 7, 5)).unwrap();
    assert_eq!((splits.train.len(), splits.val.unwrap().len(), splits.test.len()), (20, 7, 5));
}

#[test]
fn bad_fractions_are_refused() {
    for fraction in [-0.1, 1.0, 2.0, f64::NAN, f64::INFINITY, 0.001, 0.999] {
        let result = vim_data::open::<Class>(&with_fraction(shapes(20, 0, 5), fraction));
        assert!(
            matches!(result, Err(DataError::InvalidConfig { key: "data.val_fraction", .. })),
            "{fraction}"
        );
    }
}

#[test]
fn fingerprints_tell_the_parts_and_the_datasets_apart() {
    let of = |config: &DataConfig| {
        let splits = vim_data::open::<Class>(config).unwrap();
        [splits.train, splits.test].map(|split| split.dataset().fingerprint().to_string())
    };
    let mut seeded = shapes(20, 0, 5);
    seeded.shapes.seed = 1;
    let cifar100 = DataConfig {
        dataset: DatasetKind::Cifar100,
        path: Some(archive("cifar100", "python")),
        ..DataConfig::default()
    };
    let all = [cifar(), cifar100, shapes(20, 0, 5), shapes(21, 0, 5), seeded].map(|c| of(&c));
    let distinct: BTreeSet<&String> = all.iter().flatten().collect();
    // One more image of training leaves the 5 test images as they are.
    assert_eq!((distinct.len(), &all[2][1]), (9, &all[3][1]));
    let python = DataConfig { path: Some(archive("cifar10", "python")), ..cifar() };
    assert_eq!(of(&python), of(&cifar()), "the same images in another file");
}
