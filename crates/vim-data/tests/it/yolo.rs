//! Objects in YOLO's files of labels, as Ultralytics, Roboflow, Label Studio and CVAT lay them.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use vim_data::{
    DataConfig, Dataset, DatasetKind, EnvPaths, ImageObjects, Mask, Split, Splits, encode_png,
};

use crate::coco_tree::{SIDE, config, drawn, epoch, scenes, training, write_folder};

fn of_yolo(path: &Path) -> DataConfig {
    DataConfig { dataset: DatasetKind::Yolo, ..config(path) }
}

fn open(path: &Path) -> Result<Splits, String> {
    vim_data::open::<ImageObjects>(&of_yolo(path)).map_err(|error| error.to_string())
}

/// The images of a split in one folder and the lines of their objects in another; polygons around
/// the boxes where `polygons` says so.
fn part(split: &Split, images: &str, labels: &str, polygons: bool) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for (at, scene) in scenes(split).into_iter().enumerate() {
        files.push((format!("{images}/a.{at:03}.png"), encode_png(&scene.image).unwrap()));
        let mut lines = String::new();
        for object in &scene.objects.objects {
            let share = |value: f64| value / SIDE as f64;
            let [x, y, width, height] = object.bbox.map(share);
            let (right, below) = (x + width, y + height);
            match polygons {
                true => writeln!(
                    lines,
                    "{} {x} {y} {right} {y} {right} {below} {x} {below}",
                    object.class
                ),
                false => writeln!(
                    lines,
                    "{} {} {} {width} {height}",
                    object.class,
                    x + width / 2.0,
                    y + height / 2.0
                ),
            }
            .unwrap();
        }
        files.push((format!("{labels}/a.{at:03}.txt"), lines.into_bytes()));
    }
    files
}

fn names_yaml(head: &str) -> (String, Vec<u8>) {
    let names: Vec<String> =
        drawn().train.class_names().iter().map(|name| format!("'{name}'")).collect();
    let text = format!("{head}nc: 12\nnames: [{}]\n", names.join(", "));
    ("data.yaml".to_owned(), text.into_bytes())
}

fn names_txt(name: &str) -> (String, Vec<u8>) {
    (name.to_owned(), drawn().train.class_names().join("\n").into_bytes())
}

/// That the objects of `split` are those of the scenes drawn as `expected`, crowds and all.
fn assert_drawn(split: &Split, expected: &Split, masks: bool, what: &str) {
    let all = scenes(expected);
    assert_eq!(split.len(), all.len(), "{what}");
    for (scene, drawn) in scenes(split).iter().zip(&all) {
        assert_eq!(scene.image, drawn.image, "{what}");
        let (ours, theirs) = (&scene.objects.objects, &drawn.objects.objects);
        assert_eq!(ours.len(), theirs.len(), "{what}");
        for (one, other) in ours.iter().zip(theirs) {
            assert_eq!(one.class, other.class, "{what}");
            let near = one.bbox.iter().zip(other.bbox).all(|(a, b)| (a - b).abs() < 1e-9);
            assert!(near, "{what}: {one:?} {other:?}");
            assert_eq!(one.mask.is_some(), masks, "{what}");
            assert!(matches!(one.mask, None | Some(Mask::Polygons(_))));
        }
    }
}

#[test]
fn exports_are_read_as_they_are() {
    let Splits { train, test, .. } = drawn();
    for polygons in [false, true] {
        let both = |of_train: [&str; 2], of_val: [&str; 2], names: (String, Vec<u8>)| {
            let mut files = part(&train, of_train[0], of_train[1], polygons);
            files.extend(part(&test, of_val[0], of_val[1], polygons));
            files.push(names);
            files
        };
        for (what, files) in [
            (
                "Ultralytics",
                both(
                    ["images/train", "labels/train"],
                    ["images/val", "labels/val"],
                    names_yaml(
                        "path: ../datasets/x # root\ntrain: images/train\nval: images/val\n",
                    ),
                ),
            ),
            (
                "Roboflow",
                both(
                    ["train/images", "train/labels"],
                    ["valid/images", "valid/labels"],
                    names_yaml("train: ../train/images\nval: ../valid/images\n"),
                ),
            ),
            (
                "without a data.yaml",
                both(
                    ["images/train", "labels/train"],
                    ["images/val", "labels/val"],
                    names_txt("classes.txt"),
                ),
            ),
            ("beside the images", both(["train", "train"], ["val", "val"], names_txt("obj.names"))),
            (
                "other names",
                both(
                    ["images/a", "labels/a"],
                    ["images/b", "labels/b"],
                    names_yaml("train: images/a\nval: [images/b]\n"),
                ),
            ),
            (
                "of another machine",
                both(
                    ["train/images", "train/labels"],
                    ["valid/images", "valid/labels"],
                    names_yaml("train: /content/x/train/images\nval: C:\\x\\valid\\images\n"),
                ),
            ),
            (
                "a list of images",
                both(
                    ["images/train", "labels/train"],
                    ["images/val", "labels/val"],
                    names_yaml("train: train.txt\nval: val.txt\n"),
                ),
            ),
        ] {
            let root = tempfile::tempdir().unwrap();
            write_folder(root.path(), &files);
            let splits = open(root.path()).unwrap();
            assert_drawn(&splits.train, &train, polygons, what);
            assert_drawn(&splits.test, &test, polygons, what);
            assert_eq!(splits.train.class_names(), train.class_names(), "{what}");
            let yaml = root.path().join("data.yaml");
            if yaml.is_file() {
                assert_drawn(&open(&yaml).unwrap().train, &train, polygons, what);
            }
            assert!(!epoch(&splits.train, training(2)).is_empty());
            // With masks wanted, boxes are none; without, polygons are boxes.
            let with = |masks| {
                let config = DataConfig { masks: Some(masks), ..of_yolo(root.path()) };
                vim_data::open::<ImageObjects>(&config).map_err(|error| error.to_string())
            };
            assert_drawn(&with(false).unwrap().train, &train, false, what);
            match polygons {
                true => assert_drawn(&with(true).unwrap().train, &train, true, what),
                false => {
                    let error = with(true).unwrap_err();
                    assert!(error.contains("detection.masks = false"), "{error}");
                }
            }
        }
    }
}

#[test]
fn an_export_of_one_part_holds_images_out() {
    let Splits { train, .. } = drawn();
    let root = tempfile::tempdir().unwrap();
    let mut files = part(&train, "images", "labels", false);
    files.push(names_txt("classes.txt"));
    write_folder(root.path(), &files);
    let error = open(root.path()).unwrap_err();
    assert!(error.contains("data.val_fraction"), "{error}");
    let held = DataConfig { val_fraction: 0.25, ..of_yolo(root.path()) };
    let splits = vim_data::open::<ImageObjects>(&held).unwrap();
    assert_eq!((splits.train.dataset().len(), splits.val.unwrap().len()), (16, 4));
    // Keys name them as well.
    let moved = root.path().join("elsewhere");
    fs::create_dir(&moved).unwrap();
    for name in ["images", "labels", "classes.txt"] {
        fs::rename(root.path().join(name), moved.join(format!("my {name}"))).unwrap();
    }
    let keys = DataConfig {
        train_images: Some(moved.join("my images")),
        train_annotations: Some(moved.join("my labels")),
        classes: Some(moved.join("my classes.txt")),
        ..held
    };
    assert_eq!(vim_data::open::<ImageObjects>(&keys).unwrap().train.dataset().len(), 16);
}

#[test]
fn a_wrong_line_costs_an_object_and_an_image_without_labels_has_none() {
    let Splits { train, .. } = drawn();
    let root = tempfile::tempdir().unwrap();
    let mut files = part(&train, "images", "labels", false);
    files.push(names_txt("classes.txt"));
    write_folder(root.path(), &files);
    let label = |at: usize| root.path().join(format!("labels/a.{at:03}.txt"));
    let lines = fs::read_to_string(label(0)).unwrap();
    fs::write(label(0), format!("{lines}12 0.5 0.5 0.1 0.1\n0 12 40 3 3\n")).unwrap();
    fs::remove_file(label(1)).unwrap();
    fs::write(label(2), "").unwrap();
    let sources = vim_data::open_coco(&of_yolo(root.path()), &EnvPaths::default()).unwrap();
    let notes = sources.notes.join("\n");
    assert!(notes.contains("2 objects of 1 images in "), "{notes}");
    let without = "1 of 16 training images have no file of labels, the first `";
    assert!(notes.contains(without) && notes.contains("a.001.png`"), "{notes}");
    assert!(notes.contains("a class that is none: 1, numbers that are no shares: 1"), "{notes}");
    assert!(notes.contains("`12 0.5 0.5 0.1 0.1`: the classes are 0 to 11"), "{notes}");
    assert!(notes.contains("2 of 16 training images have no objects"), "{notes}");
    let report = vim_data::verify_objects(&sources.train, 2, &|_| {}).unwrap();
    assert_eq!((report.bad.len(), report.warned.len(), report.images), (0, 1, 14));
    // Most of them wrong, as of pixels.
    for at in 0..16 {
        fs::write(label(at), "0 12 40 3 3\n").unwrap();
    }
    let error = vim_data::open_coco(&of_yolo(root.path()), &EnvPaths::default()).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("16 of its 16 objects cannot be used"), "{error}");
    assert!(error.contains("shares of the image's width and height"), "{error}");
}

#[test]
fn an_export_beside_another_is_read_by_itself() {
    let Splits { train, test, .. } = drawn();
    let root = tempfile::tempdir().unwrap();
    let yaml = "train: ../train/images\nval: ../valid/images\n";
    let write = |below: &str, of_train: &Split, yaml: &str| {
        let mut files = part(of_train, "train/images", "train/labels", false);
        files.extend(part(&test, "valid/images", "valid/labels", false));
        files.push(names_yaml(yaml));
        write_folder(&root.path().join(below), &files);
    };
    write("", &train.only(vec![0, 1]), yaml);
    for (below, yaml) in [
        ("x", yaml),
        ("y", "path: ../\ntrain: train/images\nval: valid/images\n"),
        ("z", "path: .\ntrain: ../train/images\nval: ../valid/images\n"),
    ] {
        write(below, &train, yaml);
        assert_eq!(open(&root.path().join(below)).unwrap().train.len(), 16, "{below}");
        // What it lacks is not taken from the other.
        fs::remove_dir_all(root.path().join(below).join("valid")).unwrap();
        let error = open(&root.path().join(below)).unwrap_err();
        assert!(error.contains("valid/images`, which is no folder there"), "{error}");
    }
    // A file that means what it says.
    write_folder(&root.path().join("settings"), &[names_yaml(yaml)]);
    assert_eq!(open(&root.path().join("settings")).unwrap().train.len(), 2);
}

#[test]
fn labels_lie_beside_the_path_as_given() {
    let Splits { train, .. } = drawn();
    let root = tempfile::tempdir().unwrap();
    let mut files = part(&train, "photos", "x/labels", false);
    files.push(names_txt("x/classes.txt"));
    write_folder(root.path(), &files);
    let held = DataConfig { val_fraction: 0.25, ..of_yolo(&root.path().join("x")) };
    let images = root.path().join("x/images");
    std::os::unix::fs::symlink(root.path().join("photos"), &images).unwrap();
    let of_folder = vim_data::open::<ImageObjects>(&held).unwrap();
    let key = DataConfig { train_images: Some(images), ..held };
    for splits in [of_folder, vim_data::open::<ImageObjects>(&key).unwrap()] {
        assert_eq!(splits.train.dataset().len(), 16);
    }
}

#[test]
fn images_of_one_file_of_labels_are_refused() {
    let Splits { train, .. } = drawn();
    let root = tempfile::tempdir().unwrap();
    let mut files = part(&train, "images", "labels", false);
    files.push(names_txt("classes.txt"));
    files.push(("images/a.003.jpg".to_owned(), files[0].1.clone()));
    write_folder(root.path(), &files);
    let error = open(root.path()).unwrap_err();
    assert!(error.contains("a.003.jpg") && error.contains("a.003.png"), "{error}");
    assert!(error.contains("have one file of them: remove or rename one"), "{error}");
}

#[test]
fn a_damaged_image_is_named_as_any_is() {
    let Splits { train, .. } = drawn();
    let root = tempfile::tempdir().unwrap();
    let mut files = part(&train, "images", "labels", false);
    files.push(names_txt("classes.txt"));
    files[0].1.truncate(9);
    write_folder(root.path(), &files);
    let sources = vim_data::open_coco(&of_yolo(root.path()), &EnvPaths::default()).unwrap();
    let report = vim_data::verify_objects(&sources.train, 2, &|_| {}).unwrap();
    assert_eq!(report.bad.len(), 1, "{report:?}");
    assert!(report.bad[0].name.ends_with("a.000.png"), "{report:?}");
}

#[test]
fn labels_are_in_shares_of_the_image_as_it_now_is() {
    let Splits { train, .. } = drawn();
    let root = tempfile::tempdir().unwrap();
    let mut files = part(&train, "images", "labels", false);
    files.push(names_txt("classes.txt"));
    write_folder(root.path(), &files);
    let heights = || -> Vec<usize> {
        let open = vim_data::open_coco(&of_yolo(root.path()), &EnvPaths::default()).unwrap();
        (0..2).map(|at| open.train.objects(at).unwrap().size[0]).collect()
    };
    assert_eq!(heights(), [SIDE, SIDE]);
    thread::sleep(Duration::from_millis(20));
    let mut half = scenes(&train).swap_remove(1).image;
    half.height /= 2;
    half.data.truncate(half.data.len() / 2);
    fs::write(root.path().join("images/a.001.png"), encode_png(&half).unwrap()).unwrap();
    assert_eq!(heights(), [SIDE, SIDE / 2]);
}

#[test]
fn what_is_missing_is_named() {
    let Splits { train, .. } = drawn();
    let files = part(&train, "images/train", "labels/train", false);
    let root = tempfile::tempdir().unwrap();
    write_folder(root.path(), &files);
    let said = |expected: &str| {
        let error = open(root.path()).unwrap_err();
        assert!(error.contains(expected) && error.lines().count() == 1, "{expected}: {error}");
    };
    said("set `data.classes`");
    // The folder of the part's name is there, and is not what is named.
    write_folder(root.path(), &[names_yaml("train: photos/train\n")]);
    said("`data.yaml` names `photos/train`, which is no folder there; set `data.train_images`");
    write_folder(root.path(), &[names_yaml("train: images/train\nval: images/train\n")]);
    said("16 of 16 validation images are training images too");
    let twice = b"train: images/train\nnames: [a, a, b, c, d, e, f, g, h, i, j, k]\n".to_vec();
    write_folder(root.path(), &[("data.yaml".to_owned(), twice)]);
    said("two classes are called `a`");
    write_folder(root.path(), &[("data.yaml".to_owned(), b"names: [a]\nnc: 2\n".to_vec())]);
    said("`nc: 2`, and `names` has 1");
    fs::remove_dir_all(root.path().join("labels")).unwrap();
    write_folder(root.path(), &[names_yaml("train: images/train\n")]);
    said("none of the 16 images has a file of them");
    // COCO's reader leads to these.
    let error = vim_data::open::<ImageObjects>(&config(root.path())).unwrap_err().to_string();
    assert!(error.contains("data.dataset = \"yolo\""), "{error}");
}
