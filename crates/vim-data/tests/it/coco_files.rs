//! Images with objects in files: every layout, and all that may be wrong with them.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};
use vim_data::{
    BadTrain, Batch, Class, DataConfig, DataError, EnvPaths, EvalScene, ImageObjects, LabelMap,
    Loader, LoaderConfig, SourceError, Split, Splits, Stage,
};

use crate::coco_tree::{
    config, drawn, file, files, open, scenes, spoiled, training, write_folder, write_zips,
};

#[test]
fn folders_and_zips_give_the_same_objects() {
    let root = tempfile::tempdir().unwrap();
    let files = files(false);
    let [folder, zips] = ["tree", "zips"].map(|name| root.path().join(name));
    write_folder(&folder, &files);
    write_zips(&zips, &files);
    let drawn = drawn();
    // Numbers of images and annotations, sizes, classes, boxes and masks.
    let with_objects = |scene: &EvalScene| scene.objects.objects.iter().any(|one| !one.crowd);
    let expected: Vec<EvalScene> = scenes(&drawn.train).into_iter().filter(with_objects).collect();
    assert!(expected.len() < 16 || !drawn.train.is_empty());
    let mut fingerprints = BTreeSet::new();
    // Opened twice: the second time by the cached index.
    for path in [&folder, &zips, &zips] {
        let splits = open(path).unwrap();
        let without_place = |mut scenes: Vec<EvalScene>| {
            scenes.iter_mut().for_each(|scene| scene.position = 0);
            scenes
        };
        assert_eq!(without_place(scenes(&splits.train)), without_place(expected.clone()));
        assert_eq!(scenes(&splits.test), scenes(&drawn.test));
        let classes = splits.train.dataset().object_classes().unwrap();
        assert_eq!(classes.categories[..3], [2, 5, 8].map(Some));
        assert_eq!(splits.train.class_names(), drawn.train.class_names());
        fingerprints.insert(splits.train.dataset().fingerprint().to_string());
    }
    assert_eq!(fingerprints.len(), 1);
    for refused in [
        vim_data::open::<Class>(&config(&folder)).map(|_| ()),
        vim_data::dry_run::<Class>(&config(&folder)).map(|_| ()),
        vim_data::open::<LabelMap>(&config(&folder)).map(|_| ()),
    ] {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("data.dataset = coco"), "{error}");
    }
    assert!(vim_data::dry_run::<ImageObjects>(&config(&folder)).unwrap().is_none());
}

#[test]
fn zips_are_staged() {
    let root = tempfile::tempdir().unwrap();
    let disk = tempfile::tempdir().unwrap();
    write_zips(root.path(), &files(false));
    let paths = EnvPaths { node_disk: Some(disk.path().to_owned()), cache: None };
    let staged = DataConfig { stage: Stage::Require, ..config(root.path()) };
    let sources = vim_data::open_coco(&staged, &paths).unwrap();
    fs::remove_file(root.path().join("train2017.zip")).unwrap();
    let split = Split::whole(std::sync::Arc::new(sources.train));
    assert!(!scenes(&split).is_empty());
}

#[test]
fn images_without_objects_but_crowds_are_not_trained_on() {
    let root = tempfile::tempdir().unwrap();
    let mut files = files(false);
    for (name, bytes) in files.iter_mut().filter(|(name, _)| name.ends_with(".json")) {
        let mut content: Value = serde_json::from_slice(bytes).unwrap();
        let objects = content["annotations"].as_array_mut().unwrap();
        // The first image is left without anything, the second with crowds.
        objects.retain(|object| object["image_id"] != 1);
        for object in objects.iter_mut().filter(|object| object["image_id"] == 2) {
            object["iscrowd"] = json!(1);
        }
        *bytes = content.to_string().into_bytes();
        assert!(name.starts_with("annotations"));
    }
    write_folder(root.path(), &files);
    let Splits { train, test, notes, .. } = open(root.path()).unwrap();
    let left = |split: &Split| -> BTreeSet<u64> {
        scenes(split).iter().map(|scene| scene.objects.id).collect()
    };
    assert!(!left(&train).contains(&1) && !left(&train).contains(&2));
    assert_eq!(left(&test), (1..=6).collect(), "all count in an evaluation");
    assert!(notes.join("\n").contains("have no objects but crowds"), "{notes:?}");
}

#[test]
fn bad_objects_are_left_out_and_their_images_kept() {
    let scene = |index: usize| scenes(&drawn().train).swap_remove(index).objects;
    let (first, count) = (scene(0).objects[0].id, scene(0).objects.len());
    assert!(!scene(0).objects[0].crowd && count > 1);
    let mask = "/annotations/0/segmentation";
    let clean = {
        let root = tempfile::tempdir().unwrap();
        write_folder(root.path(), &files(true));
        let splits = open(root.path()).unwrap();
        splits.train.dataset().fingerprint()
    };
    for (pointer, value, expected) in [
        (mask, json!([[1, 2, 3, 4]]), "has a polygon of 4"),
        (mask, json!([]), "has no mask"),
        (mask, Value::Null, "has no mask"),
        (mask, json!([10, 10, 20, 10, 20, 20]), "a polygon of 1 numbers"),
        (mask, json!({ "size": [9, 9], "counts": "a2" }), "a mask of 9 × 9 pixels"),
        (mask, json!({ "size": [48, 48], "counts": [3] }), "runs cover 3 of"),
        ("/annotations/0/bbox/3", json!(-2), "no side negative"),
    ] {
        let (_root, folder) = spoiled("train2017", true, pointer, value);
        let sources = vim_data::open_coco(&config(&folder), &EnvPaths::default()).unwrap();
        let report = vim_data::verify_objects(&sources.train, 2, &|_| {}).unwrap();
        assert!(report.bad.is_empty() && report.warned.len() == 1, "{expected}: {report:?}");
        let [warned] = &report.warned[..] else { panic!("{report:?}") };
        assert!(warned.name.ends_with(&file(1)), "{warned:?}");
        assert!(warned.what.contains(&format!("annotation {first}, which has")), "{warned:?}");
        let scan = vim_data::scan_objects(&sources.train, 2, &|_| {}).unwrap();
        assert_eq!(scan.odd.len(), 1, "{expected}: {:?}", scan.odd);
        let Splits { train, notes, .. } = open(&folder).unwrap();
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(note.starts_with("1 objects of 1 images in "), "{note}");
        assert!(note.contains(&format!("the first is annotation {first} of ")), "{note}");
        let of_image = train.dataset().objects(0).unwrap();
        assert_eq!((of_image.objects.len(), of_image.left_out.len()), (count - 1, 1));
        assert!(of_image.left_out[0].to_string().contains(expected), "{of_image:?}");
        // An evaluation compares its box, and nobody takes these data for those without a fault.
        assert_eq!(of_image.left_out[0].bbox.is_some(), pointer == mask);
        assert_ne!(train.dataset().fingerprint(), clean);
        let loader = Loader::new(train, training(2)).unwrap();
        let mut batches = loader.batches(0..16);
        let made: Vec<Batch> = batches.by_ref().map(Result::unwrap).collect();
        assert!(made.iter().any(|batch| batch.indices.contains(&0)), "{expected}");
        assert!(batches.take_bad().is_empty());
    }
}

#[test]
fn an_image_of_another_size_is_named_and_replaced() {
    // The images are in falling order: the last is the first file.
    let (_root, folder) = spoiled("train2017", false, "/images/15/height", json!(47));
    // Runs tell of another size themselves, so that no object of it can be used.
    let train = open(&folder).unwrap().train;
    assert!(train.dataset().objects(0).unwrap().id != 1, "an image without objects is left out");
    let (_root, folder) = spoiled("train2017", true, "/images/15/height", json!(47));
    let sources = vim_data::open_coco(&config(&folder), &EnvPaths::default()).unwrap();
    let report = vim_data::verify_objects(&sources.train, 2, &|_| {}).unwrap();
    let expected = "48 × 48 pixels, and 47 × 48 in the annot";
    assert_eq!(report.bad.len(), 1, "{:?}", report.bad);
    assert!(report.bad[0].what.contains(expected), "{:?}", report.bad);
    let train = open(&folder).unwrap().train;
    let loader = Loader::new(train.clone(), training(2)).unwrap();
    let mut batches = loader.batches(0..16);
    let made: Vec<Batch> = batches.by_ref().map(Result::unwrap).collect();
    assert!(made.iter().all(|batch| !batch.indices.contains(&0)));
    let bad = batches.take_bad();
    assert!(bad[0].reason.contains(expected) && bad[0].name.ends_with(&file(1)), "{bad:?}");
    let fails = LoaderConfig { on_bad: BadTrain::Fail.into(), ..training(2) };
    assert!(Loader::new(train, fails).unwrap().batches(0..16).any(|batch| batch.is_err()));
}

/// The files with the annotations of the training part changed.
fn changed(change: impl Fn(&mut Value)) -> (tempfile::TempDir, std::path::PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let mut files = files(true);
    let name = "annotations/instances_train2017.json";
    let (_, bytes) = files.iter_mut().find(|(other, _)| other == name).unwrap();
    let mut content: Value = serde_json::from_slice(bytes).unwrap();
    change(&mut content);
    *bytes = content.to_string().into_bytes();
    write_folder(root.path(), &files);
    let path = root.path().to_owned();
    (root, path)
}

#[test]
fn most_objects_of_a_part_must_be_usable() {
    let without = |every: usize| {
        changed(|content| {
            let all = content["annotations"].as_array_mut().unwrap();
            for one in all.iter_mut().step_by(every) {
                one["segmentation"] = Value::Null;
            }
        })
    };
    let (_root, folder) = without(1);
    let with_masks = DataConfig { masks: Some(true), ..config(&folder) };
    let error = vim_data::open::<ImageObjects>(&with_masks).unwrap_err().to_string();
    assert!(error.contains("objects has a mask, which"), "{error}");
    assert!(error.contains("`detection.masks = false`"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    let (_root, folder) = without(3);
    let notes = open(&folder).unwrap().notes.join("\n");
    assert!(notes.contains("cannot be used (no mask: "), "{notes}");
    let (_root, folder) = changed(|content| {
        let all = content["annotations"].as_array_mut().unwrap();
        for one in all.iter_mut().skip(1) {
            one["bbox"][2] = json!(-1);
        }
    });
    let error = open(&folder).unwrap_err().to_string();
    assert!(error.contains("objects cannot be used (a box that is none: "), "{error}");
}

#[test]
fn names_may_begin_with_the_folder_they_are_in() {
    let (_root, folder) = changed(|content| {
        for image in content["images"].as_array_mut().unwrap() {
            image["file_name"] = json!(format!("./{}", image["file_name"].as_str().unwrap()));
        }
    });
    let root = tempfile::tempdir().unwrap();
    write_folder(root.path(), &files(true));
    let plain = open(root.path()).unwrap().train;
    let dotted = open(&folder).unwrap().train;
    assert_eq!(dotted.dataset().fingerprint(), plain.dataset().fingerprint());
}

#[test]
fn an_archive_of_annotations_is_no_larger_than_a_file_may_be() {
    let root = tempfile::tempdir().unwrap();
    write_zips(root.path(), &files(false));
    let path = root.path().join("annotations_trainval2017.zip");
    // The stated size alone is above the limit: nothing is unpacked.
    let mut bytes = fs::read(&path).unwrap();
    let head = bytes.windows(4).rposition(|four| four == b"PK\x01\x02").unwrap();
    let starts: Vec<usize> =
        (0..=head).filter(|&at| bytes[at..].starts_with(b"PK\x01\x02")).collect();
    for at in starts {
        bytes[at + 24..at + 28].copy_from_slice(&((2_u32 << 30) + 1).to_le_bytes());
    }
    fs::write(&path, bytes).unwrap();
    let error = open(root.path()).unwrap_err().to_string();
    assert!(error.contains("larger than 2048 MiB"), "{error}");
}

#[test]
fn a_scan_counts_classes_and_names_bad_annotations() {
    let (_root, folder) =
        spoiled("val2017", false, "/annotations/0/segmentation", json!([[1, 2, 3]]));
    let sources = vim_data::open_coco(&config(&folder), &EnvPaths::default()).unwrap();
    let report = vim_data::scan_objects(sources.val.as_ref().unwrap(), 2, &|_| {}).unwrap();
    assert_eq!((report.images, report.classes, report.odd.len()), (6, 12, 1));
    assert!(report.odd[0].what.contains("a polygon of 3 numbers"), "{:?}", report.odd);
    let report = vim_data::scan_objects(&sources.train, 2, &|_| {}).unwrap();
    let images = |class: u32| {
        let has = |scene: &&EvalScene| scene.objects.objects.iter().any(|one| one.class == class);
        scenes(&drawn().train).iter().filter(has).count()
    };
    let most = (0..12).map(images).max().unwrap();
    assert!(report.odd.is_empty() && report.largest_class.images <= most, "{report:?}");
}

#[test]
fn files_that_do_not_fit_are_named() {
    for (part, pointer, value, why) in [
        ("train2017", "/annotations/0/image_id", json!(99), "of image 99, which it does not have"),
        ("val2017", "/images/0/file_name", json!("x.png"), "it names `x.png`, which is not in"),
        ("val2017", "/images/0/file_name", Value::Null, "image 6 has no `file_name`"),
        ("val2017", "/categories/0/name", json!("newt"), "only the former has `newt`"),
        ("val2017", "/categories/0/id", json!(1000), "1000"),
    ] {
        let (_root, folder) = spoiled(part, false, pointer, value);
        // The category that is numbered otherwise may have objects.
        let error = open(&folder).unwrap_err().to_string();
        assert!(error.contains(why) || error.contains("category"), "{why}: {error}");
    }
    let root = tempfile::tempdir().unwrap();
    write_folder(root.path(), &files(false));
    for (gone, what) in [
        ("annotations/instances_val2017.json", "annotations_trainval2017.zip"),
        ("val2017", "val2017.zip"),
        ("train2017", "train2017.zip"),
    ] {
        let path = root.path().join(gone);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        let error = open(root.path()).unwrap_err();
        assert!(matches!(error, DataError::Source(SourceError::NoHalf { .. })), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
    let zips = tempfile::tempdir().unwrap();
    write_zips(zips.path(), &files(false));
    fs::write(zips.path().join("annotations_trainval2017.zip"), b"PK\x03\x04 and no more").unwrap();
    let error = open(zips.path()).unwrap_err();
    assert!(matches!(error, DataError::Source(SourceError::Zip { .. })), "{error}");
}

#[test]
fn a_part_names_its_files() {
    let root = tempfile::tempdir().unwrap();
    write_folder(root.path(), &files(false));
    let sources = vim_data::open_coco(&config(root.path()), &EnvPaths::default()).unwrap();
    let name = vim_data::Dataset::name(&sources.train, 0);
    assert!(name.ends_with(".png") && name.contains("train2017"), "{name}");
}
