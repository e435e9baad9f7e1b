//! Objects as Roboflow, CVAT and Label Studio export them, LVIS, and boxes without masks.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use vim_data::{
    CocoAnnotations, CocoDetections, CocoEvaluation, CocoKind, DataConfig, DataParts, Dataset,
    EnvPaths, ImageObjects, OnBad, ShapesConfig, Split, Splits, encode_png,
};

use crate::coco_tree::{
    SIDE, annotations, as_annotated, config, drawn, epoch, file, files, open, scenes, shapes,
    training, write_folder,
};

/// The images of a split below `folder`, and its annotations with the names that `name` gives them.
pub(crate) fn part(
    split: &Split,
    folder: &str,
    file_of: &str,
    name: impl Fn(&str) -> String,
) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for scene in scenes(split) {
        let image = encode_png(&scene.image).unwrap();
        files.push((format!("{folder}/{}", file(scene.objects.id)), image));
    }
    let mut content = annotations(split, true);
    for image in content["images"].as_array_mut().unwrap() {
        image["file_name"] = name(image["file_name"].as_str().unwrap()).into();
    }
    // As these programs write it: nothing of it is read.
    content["info"] = json!({ "year": "2026", "version": 1, "date_created": null });
    content["licenses"] = json!([{ "name": "", "id": 0, "url": "" }]);
    files.push((file_of.to_owned(), content.to_string().into_bytes()));
    files
}

/// The fingerprint and the objects' boxes do not tell how the files lay.
fn assert_same(split: &Split, expected: &Split, what: &str) {
    let objects = |split: &Split| -> Vec<ImageObjects> {
        scenes(split).into_iter().map(|scene| scene.objects).collect()
    };
    assert_eq!(objects(split), objects(expected), "{what}");
    assert_eq!(split.dataset().fingerprint(), expected.dataset().fingerprint(), "{what}");
}

fn published() -> (tempfile::TempDir, Splits) {
    let root = tempfile::tempdir().unwrap();
    write_folder(root.path(), &files(true));
    let splits = open(root.path()).unwrap();
    (root, splits)
}

#[test]
fn exports_of_both_parts_are_read_as_they_are() {
    let (_root, expected) = published();
    let Splits { train, test, .. } = drawn();
    let plain = |name: &str| name.to_owned();
    for (what, of_train, of_val) in [
        (
            "Roboflow",
            part(&train, "train", "train/_annotations.coco.json", plain),
            part(&test, "valid", "valid/_annotations.coco.json", plain),
        ),
        (
            "CVAT",
            part(&train, "images/Train", "annotations/instances_Train.json", plain),
            part(&test, "images/Validation", "annotations/instances_Validation.json", plain),
        ),
        (
            "folders in names",
            part(&train, "train2017", "annotations/instances_train2017.json", |name| {
                format!(".\\train2017\\{name}")
            }),
            part(&test, "val2017", "annotations/instances_val2017.json", |name| {
                format!("./{name}")
            }),
        ),
        (
            "one folder of images",
            part(&train, "images/a", "annotations/train.json", |name| format!("a/{name}")),
            part(&test, "images/b", "annotations/val.json", |name| format!("images/b/{name}")),
        ),
    ] {
        let root = tempfile::tempdir().unwrap();
        write_folder(root.path(), &of_train);
        write_folder(root.path(), &of_val);
        let splits = open(root.path()).unwrap();
        assert_same(&splits.train, &expected.train, what);
        assert_same(&splits.test, &expected.test, what);
        assert!(splits.val.is_none(), "{what}");
        let sources = vim_data::open_coco(&config(root.path()), &EnvPaths::default()).unwrap();
        let report = vim_data::verify_objects(&sources.train, 2, &|_| {}).unwrap();
        assert!(report.bad.is_empty(), "{what}: {:?}", report.bad);
    }
}

#[test]
fn a_test_part_is_tested_and_the_validation_part_chooses() {
    let (root, Splits { train, test, .. }) = (tempfile::tempdir().unwrap(), drawn());
    let plain = |name: &str| name.to_owned();
    write_folder(root.path(), &part(&train, "train", "train/_annotations.coco.json", plain));
    write_folder(root.path(), &part(&test, "valid", "valid/_annotations.coco.json", plain));
    let few = test.only(vec![0, 1]);
    write_folder(root.path(), &part(&few, "test", "test/_annotations.coco.json", plain));
    let splits = open(root.path()).unwrap();
    assert_eq!((splits.val.unwrap().len(), splits.test.len()), (6, 2));
    // As it is published, COCO's test images have no objects.
    fs::rename(root.path().join("train"), root.path().join("train2017")).unwrap();
    let splits = open(root.path()).unwrap();
    assert_eq!((splits.val.is_none(), splits.test.len()), (true, 6));
}

#[test]
fn exports_of_one_part_hold_images_out() {
    let Splits { train, .. } = drawn();
    for (what, files) in [
        (
            "CVAT",
            part(&train, "images/default", "annotations/instances_default.json", str::to_owned),
        ),
        ("Label Studio", part(&train, "images", "result.json", |name| format!("images\\{name}"))),
        (
            "Label Studio, of its server",
            part(&train, "images", "result.json", |name| format!("../../upload/1/{name}")),
        ),
        ("FiftyOne", part(&train, "data", "labels.json", str::to_owned)),
        ("one name of its own", part(&train, "images", "pets.json", str::to_owned)),
        ("beside the images", part(&train, ".", "pets.json", str::to_owned)),
    ] {
        let root = tempfile::tempdir().unwrap();
        write_folder(root.path(), &files);
        let error = open(root.path()).unwrap_err().to_string();
        assert!(error.contains("data.val_fraction"), "{what}: {error}");
        let held = DataConfig { val_fraction: 0.25, ..config(root.path()) };
        let splits = vim_data::open::<ImageObjects>(&held).unwrap();
        assert!(!splits.val.as_ref().unwrap().is_empty(), "{what}");
        assert_eq!(splits.train.dataset().len(), open_coco_len(root.path()), "{what}");
        // The file itself is a path to the data too.
        let (name, _) = files.last().unwrap();
        let own = DataConfig { path: Some(root.path().join(name)), ..held };
        let of_file = vim_data::open::<ImageObjects>(&own).unwrap();
        let print = |splits: &Splits| splits.train.dataset().fingerprint();
        assert_eq!(print(&of_file), print(&splits), "{what}");
    }
}

/// Training images with objects, of whatever is at `root`.
fn open_coco_len(root: &Path) -> usize {
    let sources = vim_data::open_coco(&config(root), &EnvPaths::default()).unwrap();
    assert!(sources.val.is_none() && sources.test.is_none());
    sources.train.len()
}

#[test]
fn keys_name_what_is_elsewhere() {
    let (_root, expected) = published();
    let (root, Splits { train, test, .. }) = (tempfile::tempdir().unwrap(), drawn());
    let plain = |name: &str| name.to_owned();
    write_folder(root.path(), &part(&train, "photos/june", "labels/june.json", plain));
    write_folder(root.path(), &part(&test, "photos/july", "labels/july.json", plain));
    let at = |name: &str| Some(root.path().join(name));
    let keys = DataConfig {
        train_images: at("photos/june"),
        train_annotations: at("labels/june.json"),
        val_images: at("photos/july"),
        val_annotations: at("labels/july.json"),
        ..config(root.path())
    };
    let splits = vim_data::open::<ImageObjects>(&keys).unwrap();
    assert_same(&splits.train, &expected.train, "keys");
    assert_same(&splits.test, &expected.test, "keys");
    for (keys, named) in [
        (DataConfig { train_annotations: None, ..keys.clone() }, "data.train_annotations"),
        (DataConfig { val_annotations: None, ..keys.clone() }, "data.val_annotations"),
        (DataConfig { train_images: at("none"), ..keys.clone() }, "data.train_images: /"),
        (DataConfig { val_annotations: at("none.json"), ..keys.clone() }, "none.json"),
    ] {
        let error = vim_data::open::<ImageObjects>(&keys).unwrap_err().to_string();
        assert!(error.contains(named), "{named}: {error}");
    }
    let here = DataConfig { val_annotations: Some("no/such.json".into()), ..keys };
    let error = vim_data::open::<ImageObjects>(&here).unwrap_err().to_string();
    let seen_from = std::env::current_dir().unwrap();
    let says = "read `data.val_annotations: no/such.json`: there is no such file or folder as seen";
    assert!(error.starts_with(says), "{error}");
    assert!(error.ends_with(&format!("from `{}`", seen_from.display())), "{error}");
}

#[test]
fn classes_that_are_called_alike_are_told_apart_by_number() {
    let root = tempfile::tempdir().unwrap();
    let mut files = files(true);
    for (_, bytes) in files.iter_mut().filter(|(name, _)| name.ends_with(".json")) {
        let mut content: Value = serde_json::from_slice(bytes).unwrap();
        let categories = content["categories"].as_array_mut().unwrap();
        let name = categories[0]["name"].clone();
        categories[1]["name"] = name;
        *bytes = content.to_string().into_bytes();
    }
    write_folder(root.path(), &files);
    let splits = open(root.path()).unwrap();
    let all: Vec<_> = splits.notes.iter().filter(|note| note.contains("are called `")).collect();
    assert!(all.len() == 1 && all[0].contains("instances_train2017.json"), "{:?}", splits.notes);
    let (names, drawn) = (splits.test.class_names(), drawn().test);
    assert_eq!((names[10].as_str(), names.len()), (&*names[11], 12));
    let classes = |split: &Split| -> Vec<u32> {
        let all = scenes(split).into_iter().flat_map(|scene| scene.objects.objects);
        all.map(|object| object.class).collect()
    };
    assert_eq!(classes(&splits.test), classes(&drawn));
}

#[test]
fn two_names_of_one_file_are_no_two_images() {
    let (root, Splits { train, .. }) = (tempfile::tempdir().unwrap(), drawn());
    let files = part(&train, "images", "result.json", |name| match name.contains('2') {
        true => format!("other/{}", file(1)),
        false => name.to_owned(),
    });
    write_folder(root.path(), &files);
    let held = DataConfig { val_fraction: 0.25, ..config(root.path()) };
    let error = vim_data::open::<ImageObjects>(&held).unwrap_err().to_string();
    assert!(error.contains("are the same file"), "{error}");
}

#[test]
fn a_category_above_all_others_is_no_class() {
    let (root, Splits { train, test, .. }) = (tempfile::tempdir().unwrap(), drawn());
    for (split, part_of) in [(&train, "train"), (&test, "valid")] {
        let name = format!("{part_of}/_annotations.coco.json");
        let mut files = part(split, part_of, &name, str::to_owned);
        let (_, bytes) = files.last_mut().unwrap();
        let mut content: Value = serde_json::from_slice(bytes).unwrap();
        let categories = content["categories"].as_array_mut().unwrap();
        categories.iter_mut().for_each(|one| one["supercategory"] = "ppe".into());
        categories.push(json!({ "id": 0, "name": "ppe", "supercategory": "none" }));
        *bytes = content.to_string().into_bytes();
        write_folder(root.path(), &files);
    }
    let splits = open(root.path()).unwrap();
    assert_eq!(splits.train.class_names(), drawn().train.class_names());
    assert!(splits.notes.iter().any(|note| note.contains("category 0 stands above")));
    // Configurations of version 2 took it for a class, by this.
    let before = DataConfig { parts: Some(DataParts::TrainVal), ..config(root.path()) };
    for config in [before.effective(), before] {
        let splits = vim_data::open::<ImageObjects>(&config).unwrap();
        assert_eq!((splits.train.num_classes(), &*splits.train.class_names()[0]), (13, "ppe"));
        assert!(splits.notes.is_empty(), "{:?}", splits.notes);
    }
    // With an object of its own it is a class.
    let path = root.path().join("train/_annotations.coco.json");
    let mut content: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    content["annotations"][0]["category_id"] = json!(0);
    fs::write(&path, content.to_string()).unwrap();
    assert_eq!(open(root.path()).unwrap().train.num_classes(), 13);
}

/// COCO's layout without a mask, but for every `every`th object.
fn without_masks(every: usize) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let mut files = files(true);
    for (_, bytes) in files.iter_mut().filter(|(name, _)| name.ends_with(".json")) {
        let mut content: Value = serde_json::from_slice(bytes).unwrap();
        for (at, one) in content["annotations"].as_array_mut().unwrap().iter_mut().enumerate() {
            if at % every != 0 || every == 1 {
                one["segmentation"] = json!([]);
                one.as_object_mut().unwrap().remove("area");
            }
        }
        *bytes = content.to_string().into_bytes();
    }
    write_folder(root.path(), &files);
    root
}

fn boxes_alone(path: &Path) -> DataConfig {
    DataConfig { masks: Some(false), ..config(path) }
}

#[test]
fn boxes_alone_are_good_objects_where_masks_are_not_wanted() {
    for every in [1, 2] {
        let root = without_masks(every);
        let splits = vim_data::open::<ImageObjects>(&boxes_alone(root.path())).unwrap();
        assert!(!splits.notes.join("\n").contains("cannot be used"), "{:?}", splits.notes);
        let drawn = scenes(&drawn().test);
        for (scene, drawn) in scenes(&splits.test).iter().zip(&drawn) {
            let (ours, theirs) = (&scene.objects, &drawn.objects);
            assert!(ours.left_out.is_empty());
            assert_eq!(ours.objects.len(), theirs.objects.len());
            for (one, other) in ours.objects.iter().zip(&theirs.objects) {
                assert_eq!((one.bbox, one.class), (other.bbox, other.class));
                assert!(one.mask.is_none());
                if every == 1 {
                    assert_eq!(one.area, Some(one.bbox[2] * one.bbox[3]));
                }
            }
        }
        let report = {
            let sources =
                vim_data::open_coco(&boxes_alone(root.path()), &EnvPaths::default()).unwrap();
            vim_data::verify_objects(&sources.train, 2, &|_| {}).unwrap()
        };
        assert!(report.bad.is_empty() && report.warned.is_empty(), "{report:?}");
        // Nobody says what is wanted: none has a mask, so boxes alone are; else masks are.
        let auto = open(root.path());
        match every {
            1 => {
                let notes = auto.unwrap().notes.join("\n");
                assert!(notes.contains("no object has a mask"), "{notes}");
            }
            _ => {
                let notes = auto.map_or_else(|error| error.to_string(), |all| all.notes.join("\n"));
                assert!(notes.contains("detection.masks = false"), "{notes}");
            }
        }
    }
}

#[test]
fn crops_of_boxes_alone_hold_what_is_left_of_the_boxes() {
    let (root, masks) = (without_masks(1), tempfile::tempdir().unwrap());
    let boxes = vim_data::open::<ImageObjects>(&boxes_alone(root.path())).unwrap().train;
    // Polygons around the boxes are the same boxes.
    write_folder(masks.path(), &files(true));
    let masks = open(masks.path()).unwrap().train;
    let mut compared = 0;
    for (one, other) in epoch(&boxes, training(2)).iter().zip(epoch(&masks, training(2))) {
        assert_eq!((&one.indices, &one.images), (&other.indices, &other.images));
        for (ours, theirs) in one.targets.iter().zip(&other.targets) {
            assert_eq!((ours.size, &ours.classes), (theirs.size, &theirs.classes));
            assert!(ours.masks.is_empty() && theirs.masks.len() == theirs.boxes.len());
            for (ours, theirs) in ours.boxes.iter().zip(&theirs.boxes) {
                assert!(ours.iter().zip(theirs).all(|(a, b)| (a - b).abs() < 1e-4));
                compared += 1;
            }
        }
    }
    assert!(compared > 10, "{compared}");
}

#[test]
fn scores_of_boxes_need_no_masks() {
    let root = without_masks(1);
    let test = vim_data::open::<ImageObjects>(&boxes_alone(root.path())).unwrap().test;
    let truths = CocoAnnotations::of(&test, OnBad::Fail).unwrap();
    let found = CocoDetections::of(&truths, as_annotated(&test)).unwrap();
    let scores = CocoEvaluation::new(&truths, &found, CocoKind::Bbox).unwrap().scores();
    assert!((scores.numbers[0].unwrap() - 1.0).abs() < 1e-12, "{scores:?}");
    assert_eq!(scores.unusable, vim_data::CocoUnusable::default());
}

#[test]
fn procedural_scenes_have_boxes_alone_too() {
    let alone = DataConfig { masks: Some(false), ..shapes(4) };
    let [boxes, masks] =
        [&alone, &shapes(4)].map(|config| vim_data::open::<ImageObjects>(config).unwrap().train);
    for (one, other) in scenes(&boxes).into_iter().zip(scenes(&masks)) {
        assert_eq!(one.image, other.image);
        let mut other = other.objects;
        other.objects.iter_mut().for_each(|object| object.mask = None);
        assert_eq!(one.objects, other);
    }
    assert_eq!(alone.shapes, ShapesConfig { train: 4, ..shapes(4).shapes });
    assert_eq!(SIDE, alone.shapes.image_size);
}

#[test]
fn lvis_is_read_by_its_addresses_and_not_scored() {
    let (root, Splits { train, test, .. }) = (tempfile::tempdir().unwrap(), drawn());
    for (split, folder, name) in
        [(&train, "train2017", "lvis_v1_train.json"), (&test, "val2017", "lvis_v1_val.json")]
    {
        let mut files = part(split, folder, name, str::to_owned);
        let (_, bytes) = files.last_mut().unwrap();
        let mut content: Value = serde_json::from_slice(bytes).unwrap();
        for image in content["images"].as_array_mut().unwrap() {
            let image = image.as_object_mut().unwrap();
            let file = image.remove("file_name").unwrap();
            let url = format!("http://images.cocodataset.org/{folder}/{}", file.as_str().unwrap());
            image.insert("coco_url".to_owned(), url.into());
            image.insert("neg_category_ids".to_owned(), json!([2, 5]));
            image.insert("not_exhaustive_category_ids".to_owned(), json!([]));
        }
        *bytes = content.to_string().into_bytes();
        write_folder(root.path(), &files);
    }
    let splits = open(root.path()).unwrap();
    assert_eq!(splits.test.len(), 6);
    assert!(splits.notes.join("\n").contains("LVIS"), "{:?}", splits.notes);
    assert!(splits.train.dataset().object_classes().unwrap().federated);
    let truths = CocoAnnotations::of(&splits.test, OnBad::Fail).unwrap();
    let read = CocoAnnotations::read(&root.path().join("lvis_v1_val.json")).unwrap();
    for truths in [truths, read] {
        let found = CocoDetections::of(&truths, []).unwrap();
        let error = CocoEvaluation::new(&truths, &found, CocoKind::Bbox).unwrap_err().to_string();
        assert!(error.contains("LVIS") && error.contains("federated AP"), "{error}");
    }
}
