//! Which parts of class folders are read, and as what.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tempfile::TempDir;
use vim_data::{
    DataConfig, DataParts, DatasetKind, EnvPaths, PackOptions, Split, Splits, open_images, pack,
    parts_of,
};

use crate::trees::{
    Image, check, config, content, flat_tar, folder, open, published, refusal, tar_of, train,
    unpacked, val,
};

/// [`unpacked`] with `test/`, which has the validation images under other names.
fn three() -> (TempDir, Vec<Image>) {
    let root = unpacked();
    let test: Vec<Image> = val()
        .into_iter()
        .map(|(class, name, bytes)| (class, name.replace("val", "test"), bytes))
        .collect();
    folder(&root.path().join("test"), &test);
    (root, test)
}

fn parts(path: &Path) -> DataParts {
    parts_of(&config(path)).unwrap().unwrap()
}

fn with(parts: DataParts, path: &Path) -> DataConfig {
    DataConfig { parts: Some(parts), ..config(path) }
}

fn check_three(config: &DataConfig, test: &[Image]) -> Splits {
    let splits = open(config).unwrap_or_else(|error| panic!("failed to {error}"));
    assert!(content(&splits.train) == train());
    assert!(content(splits.val.as_ref().unwrap()) == val());
    assert!(content(&splits.test) == test);
    splits
}

#[test]
fn train_val_and_test_are_three_parts() {
    let (root, test) = three();
    let splits = check_three(&config(root.path()), &test);
    assert!(splits.notes.is_empty(), "{:?}", splits.notes);
    assert_eq!((parts(root.path()), splits.test_fraction), (DataParts::TrainValTest, 0.0));
    check_three(&with(DataParts::TrainValTest, root.path()), &test);
    for (other, taken) in [("validation", true), ("valid", true), ("Val", false)] {
        let (root, test) = three();
        fs::rename(root.path().join("val"), root.path().join(other)).unwrap();
        if taken {
            check_three(&config(root.path()), &test);
        } else {
            let splits = open(&config(root.path())).unwrap();
            assert!(splits.val.is_none() && content(&splits.test) == test);
            assert!(splits.notes[0].contains("`Val` beside"), "{:?}", splits.notes);
        }
    }
    let chosen = DataConfig { val_fraction: 0.1, ..config(root.path()) };
    assert!(refusal(&chosen).contains("`data.val_fraction = 0.1`"), "{}", refusal(&chosen));
    let tested = DataConfig { test_fraction: Some(0.1), ..config(root.path()) };
    assert!(refusal(&tested).contains("`data.test_fraction = 0.1`"), "{}", refusal(&tested));
}

#[test]
fn what_is_recorded_is_read_whatever_is_there() {
    let (root, test) = three();
    let two = check(&with(DataParts::TrainVal, root.path()));
    let hint = "`data.parts = \"train_val_test\"` reads a test part";
    assert!(two.notes[0].starts_with("`test` beside") && two.notes[0].contains(hint));
    assert_eq!(two.notes.len(), 1);
    let tested = open(&with(DataParts::TrainTest, root.path())).unwrap();
    assert!(tested.val.is_none() && content(&tested.test) == test);
    assert!(tested.notes[0].starts_with("`val` beside"), "{:?}", tested.notes);
    let alone = DataConfig { val_fraction: 0.25, ..with(DataParts::Train, root.path()) };
    let alone = open(&alone).unwrap();
    assert!(alone.notes[0].starts_with("`test` and `val` beside"), "{:?}", alone.notes);
    assert_eq!((alone.train.len(), alone.test.len()), (6, 3));
    // ImageNet's validation images are what is tested.
    let imagenet = DataConfig { dataset: DatasetKind::Imagenet, ..config(root.path()) };
    check(&imagenet);
    for parts in [DataParts::TrainTest, DataParts::TrainValTest] {
        let message = refusal(&with(parts, unpacked().path()));
        assert!(message.contains("find test images beside"), "{message}");
        let other = DataConfig { dataset: DatasetKind::Imagenet, ..with(parts, root.path()) };
        assert!(refusal(&other).contains("`data.parts = \"train_"), "{}", refusal(&other));
    }
}

#[test]
fn a_test_folder_without_classes_is_named() {
    let root = unpacked();
    fs::create_dir(root.path().join("test")).unwrap();
    fs::write(root.path().join("test/1.jpg"), "x").unwrap();
    fs::create_dir(root.path().join("extra")).unwrap();
    let splits = check(&config(root.path()));
    assert!(splits.notes[0].starts_with("`extra` and `test` beside"), "{:?}", splits.notes);
    assert_eq!((splits.notes.len(), parts(root.path())), (1, DataParts::TrainVal));
}

#[test]
fn train_and_test_are_two_parts() {
    let root = unpacked();
    fs::rename(root.path().join("val"), root.path().join("test")).unwrap();
    assert!(check(&config(root.path())).notes.is_empty());
    assert_eq!(parts(root.path()), DataParts::TrainTest);
    let held = open(&DataConfig { val_fraction: 0.25, ..config(root.path()) }).unwrap();
    assert_eq!((held.train.len(), held.val.unwrap().len(), held.test.len()), (9, 3, 6));
    // A path of its own for them is the same.
    let named = DataConfig { val_path: Some(root.path().join("test")), ..config(root.path()) };
    assert!(check(&named).notes.is_empty());
    let imagenet = DataConfig { dataset: DatasetKind::Imagenet, ..config(root.path()) };
    assert!(refusal(&imagenet).contains("find validation images"));
}

#[test]
fn archives_are_two_parts_unless_three_are_asked_for() {
    let root = published();
    let list = Some(root.path().join("val.txt"));
    let classes = |prefix: &str, images: &[Image]| {
        let path = |(class, name, bytes): &Image| (format!("{class}/{name}"), bytes.clone());
        let files: Vec<_> = images.iter().map(path).collect();
        fs::write(root.path().join(format!("{prefix}.tar")), tar_of(&files)).unwrap();
    };
    let test: Vec<Image> = val();
    classes("some_test", &test);
    let both = DataConfig { val_labels: list, ..config(root.path()) };
    let notes = check(&both).notes;
    assert!(notes[0].starts_with("`some_test.tar` beside"), "{notes:?}");
    check_three(&DataConfig { parts: Some(DataParts::TrainValTest), ..both }, &test);
    fs::remove_file(root.path().join("ILSVRC2012_img_val.tar")).unwrap();
    check(&config(root.path()));
    assert_eq!(parts(root.path()), DataParts::TrainTest);
    // Beside one archive.
    let root = tempfile::tempdir().unwrap();
    for (name, images) in [("x_train.tar", train()), ("x_test.tar", val())] {
        let path = |(class, name, bytes): &Image| (format!("{class}/{name}"), bytes.clone());
        let files: Vec<_> = images.iter().map(path).collect();
        fs::write(root.path().join(name), tar_of(&files)).unwrap();
    }
    check(&config(root.path().join("x_train.tar")));
}

#[test]
fn archives_are_parts_by_whole_words() {
    let write = |root: &Path, name: &str, images: &[Image]| {
        let path = |(class, name, bytes): &Image| (format!("{class}/{name}"), bytes.clone());
        let files: Vec<_> = images.iter().map(path).collect();
        fs::write(root.join(name), tar_of(&files)).unwrap();
    };
    // One of training images is no test part, whatever its name has in it.
    for (names, others) in [
        (["latest_train.tar", "latest_val.tar"], &[][..]),
        (["train.tar", "val.tar"], &["contest.tar", "interval.tar"][..]),
        (["x-Training.2.tar", "x-valid.2.tar"], &["constrained.tar"][..]),
    ] {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), names[0], &train());
        write(root.path(), names[1], &val());
        others.iter().for_each(|name| write(root.path(), name, &val()));
        let notes = check(&config(root.path())).notes;
        assert_eq!(parts(root.path()), DataParts::TrainVal, "{names:?}");
        assert_eq!(notes.len(), others.len().min(1), "{notes:?}");
        assert!(
            notes.iter().all(|note| note.starts_with(&format!("`{}`", others[0]))),
            "{notes:?}"
        );
    }
    // What is read is not said to be not read.
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "train.tar", &train());
    write(root.path(), "test.tar", &val());
    let named = DataConfig { val_path: Some(root.path().join("test.tar")), ..config(root.path()) };
    assert!(check(&named).notes.is_empty());
    let root = unpacked();
    fs::create_dir(root.path().join("more")).unwrap();
    fs::rename(root.path().join("val"), root.path().join("more/other")).unwrap();
    let named =
        DataConfig { val_path: Some(root.path().join("more/other")), ..config(root.path()) };
    assert!(check(&named).notes.is_empty(), "{:?}", check(&named).notes);
}

fn indices(split: &Split) -> BTreeSet<usize> {
    (0..split.len()).map(|position| split.index(position)).collect()
}

#[test]
fn class_folders_alone_give_a_share_of_each() {
    let root = tempfile::tempdir().unwrap();
    folder(root.path(), &train());
    let tar = root.path().join("alone.tar");
    let under = root.path().join("with/train");
    folder(&under, &train());
    let files: Vec<_> = train()
        .iter()
        .map(|(class, name, bytes)| (format!("{class}/{name}"), bytes.clone()))
        .collect();
    fs::write(&tar, tar_of(&files)).unwrap();
    let photos = root.path().join("photos");
    folder(&photos, &train());
    for path in [&photos, &under, under.parent().unwrap(), &tar] {
        assert_eq!(parts(path), DataParts::Train, "{path:?}");
        for (val, test, counts) in
            [(0.25, None, (6, 3, 3)), (0.25, Some(0.5), (3, 3, 6)), (0.0, Some(0.25), (9, 0, 3))]
        {
            let held = DataConfig { val_fraction: val, test_fraction: test, ..config(path) };
            let splits = open(&held).unwrap();
            let of_val = splits.val.as_ref().map_or_else(BTreeSet::new, indices);
            let (of_train, of_test) = (indices(&splits.train), indices(&splits.test));
            assert_eq!((of_train.len(), of_val.len(), of_test.len()), counts, "{val} {test:?}");
            let all: BTreeSet<usize> =
                of_train.iter().chain(&of_val).chain(&of_test).copied().collect();
            assert_eq!(all.len(), 12);
            assert!(splits.train.empty_classes().is_empty());
            assert_eq!(splits.test_fraction, test.unwrap_or(val));
            // With what is recorded, it is the same.
            let again = DataConfig { parts: Some(DataParts::Train), ..held }.effective();
            assert_eq!(again.test_fraction, Some(test.unwrap_or(val)));
            assert_eq!(indices(&open(&again).unwrap().test), of_test);
        }
        let message = refusal(&config(path));
        assert!(message.contains("set `data.test_fraction` and `data.val_fraction`"), "{message}");
        for (val_fraction, test_fraction) in [
            (0.5, None),
            (0.5, Some(0.5)),
            (0.2, Some(-0.1)),
            (0.2, Some(f64::NAN)),
            (0.0, Some(0.9999)),
        ] {
            let all = DataConfig { val_fraction, test_fraction, ..config(path) };
            assert!(refusal(&all).contains("data.test_fraction"), "{}", refusal(&all));
        }
    }
    // The images need no test part to be looked at.
    let sources = open_images(&config(&photos), &EnvPaths::default()).unwrap();
    assert!(sources.val.is_none() && sources.test.is_none());
}

#[test]
fn folders_called_as_parts_are_no_classes() {
    let of = |names: &[&str]| {
        let root = tempfile::tempdir().unwrap();
        for name in names {
            fs::create_dir_all(root.path().join(name)).unwrap();
            fs::write(root.path().join(name).join("1.jpg"), name).unwrap();
            fs::write(root.path().join(name).join("2.jpg"), name).unwrap();
            fs::write(root.path().join(name).join("3.jpg"), name).unwrap();
        }
        let config = DataConfig { val_fraction: 0.3, ..config(root.path()) };
        (root, config)
    };
    for names in [&["Training", "Testing"][..], &["cat", "dog", "test"], &["test", "val"]] {
        let (_root, held) = of(names);
        let message = refusal(&held);
        assert!(message.contains("may be parts") && message.contains("`data.parts"), "{message}");
        let classes = open(&DataConfig { parts: Some(DataParts::Train), ..held }).unwrap();
        assert_eq!(classes.train.num_classes(), names.len());
    }
    // A train among cars.
    let (_root, vehicles) = of(&["car", "train", "ship"]);
    assert_eq!(open(&vehicles).unwrap().train.class_names(), ["car", "ship", "train"]);
    for names in [&["train", "val"][..], &["train"]] {
        let message = refusal(&of(names).1);
        assert!(message.contains("in no folder of a class"), "{message}");
    }
}

#[test]
fn the_same_images_are_no_two_parts() {
    let (root, _) = three();
    let train = root.path().join("train");
    let link = root.path().join("link");
    std::os::unix::fs::symlink(&train, &link).unwrap();
    for (path, val) in [(&train, &train), (&train, &link), (&link, &train)] {
        let message = refusal(&DataConfig { val_path: Some(val.clone()), ..config(path) });
        assert!(message.contains("tell validation from training images"), "{message}");
        assert!(message.contains("they are the same"), "{message}");
    }
    let message = refusal(&DataConfig { val_path: Some(train), ..config(root.path()) });
    assert!(message.contains("they are the same"), "{message}");
    let whole = Some(root.path().to_owned());
    let message = refusal(&DataConfig { val_path: whole, ..config(root.path()) });
    assert!(message.contains("they are the same"), "{message}");
    for (part, first) in [("val", "training"), ("test", "validation")] {
        let (root, _) = three();
        let place = root.path().join(part);
        fs::remove_dir_all(&place).unwrap();
        let to = if part == "val" { "train" } else { "val" };
        std::os::unix::fs::symlink(root.path().join(to), place).unwrap();
        let message = refusal(&config(root.path()));
        assert!(message.contains(&format!("from {first} images")), "{message}");
    }
    for parts in [DataParts::Train, DataParts::TrainTest] {
        let val_path = Some(root.path().join("val"));
        let message = refusal(&DataConfig { val_path, ..with(parts, root.path()) });
        assert!(message.contains("`data.val_path = "), "{message}");
    }
}

#[test]
fn a_class_may_be_empty_where_images_are_measured() {
    let (root, test) = three();
    for (part, class) in [("val", "n02"), ("test", "n04")] {
        let class = root.path().join(part).join(class);
        let _ = fs::remove_dir_all(&class);
        fs::create_dir(class).unwrap();
    }
    let splits = open(&config(root.path())).unwrap();
    assert_eq!(splits.val.unwrap().empty_classes(), ["n02"]);
    assert!(content(&splits.test) == test, "an empty folder is no class");
    let note = "the validation part has no images of 1 of the 3 classes: `n02`";
    assert_eq!(splits.notes, [note]);
    // In training it is an error.
    fs::remove_dir_all(root.path().join("train/n03")).unwrap();
    fs::create_dir(root.path().join("train/n03")).unwrap();
    let message = refusal(&config(root.path()));
    assert!(message.contains("class `n03`") && message.contains("there are none"), "{message}");
    // What is there instead is said, and not to be removed.
    for name in ["1.HEIC", "2.heic", "notes.txt"] {
        fs::write(root.path().join("train/n03").join(name), "x").unwrap();
    }
    let message = refusal(&config(root.path()));
    let found = "3 files are not read: 2 .heic, 1 .txt; convert .heic to JPEG or PNG";
    assert!(message.contains(found) && !message.contains("remove"), "{message}");
}

#[test]
fn files_that_are_not_read_are_named_by_kind() {
    let root = unpacked();
    for name in ["1.HEIC", "2.avif", "3.txt", "4", "5.txt", "._6.txt"] {
        fs::write(root.path().join("train/n02").join(name), "x").unwrap();
    }
    fs::write(root.path().join("val/n01/a.txt"), "x").unwrap();
    fs::write(root.path().join("val/loose.jpg"), "x").unwrap();
    let notes = check(&config(root.path())).notes;
    let expected = [
        "5 files are not read: 1 without an ending, 1 .avif, 1 .heic, 2 .txt; convert .avif and \
         .heic to JPEG or PNG; the first is",
        "images in no folder of a class are not read: 1, first `loose.jpg`",
        "1 file is not read: 1 .txt; the first is",
    ];
    assert_eq!(notes.len(), 3, "{notes:?}");
    for (note, expected) in notes.iter().zip(expected) {
        assert!(note.contains(expected), "{note}");
    }
}

#[test]
fn every_ending_of_what_is_decoded_is_listed() {
    let root = unpacked();
    let names = [
        "a.bmp", "b.GIF", "c.jfif", "d.jpeg", "e.jpg", "f.pbm", "g.pgm", "h.png", "i.pnm", "j.ppm",
        "k.tif", "l.TIFF", "m.webp",
    ];
    for name in names {
        fs::write(root.path().join("train/n03").join(name), "x").unwrap();
    }
    let splits = open(&config(root.path())).unwrap();
    assert!(splits.notes.is_empty(), "{:?}", splits.notes);
    assert_eq!(splits.train.len(), 12 + names.len());
}

#[test]
fn classes_of_shards_may_be_names() {
    let shards = |classes: [&str; 3]| {
        let root = tempfile::tempdir().unwrap();
        for (part, images) in [("train", train()), ("val", val())] {
            let files = images.iter().flat_map(|(class, name, bytes)| {
                let key = name.replace(".JPEG", "");
                let at = usize::from(class.as_bytes()[2] - b'1');
                let class = format!("{}\n", classes[at]).into_bytes();
                [(format!("{key}.cls"), class), (format!("{key}.jpg"), bytes.clone())]
            });
            let other = [("odd.heic".to_owned(), vec![0]), ("odd.json".to_owned(), vec![0])];
            let files: Vec<_> = files.chain(other).collect();
            fs::write(root.path().join(format!("{part}-0.tar")), tar_of(&files)).unwrap();
        }
        root
    };
    let root = shards(["n01", "\u{e9}t\u{e9} bleu", "n03"]);
    let splits = open(&config(root.path())).unwrap();
    assert_eq!(splits.train.class_names(), ["n01", "n03", "\u{e9}t\u{e9} bleu"]);
    assert_eq!(splits.train.class_counts(), Some(vec![4; 3]));
    assert_eq!(splits.test.class_counts(), Some(vec![2; 3]));
    assert!(splits.notes[0].contains("1 file is not read: 1 .heic"), "{:?}", splits.notes);
    for (classes, quoted) in [
        (["0", "n02", "2"], "`n02`"),
        (["0", "1.0", "2"], "`1.0`"),
        (["-1", "-1", "-1"], "`-1`"),
        (["a", "b\nc", "d"], "`b\\nc"),
        (["99999999", "1", "2"], "`99999999"),
    ] {
        let message = refusal(&config(shards(classes).path()));
        assert!(message.contains(quoted) && message.contains(".cls`"), "{classes:?}: {message}");
        assert!(!message.contains('\n'), "{message}");
    }
    let of_numbers = open(&config(shards(["7", "5", "6"]).path())).unwrap();
    assert_eq!(of_numbers.train.num_classes(), 8);
}

#[test]
fn packs_of_three_parts_read_like_their_source() {
    let (root, test) = three();
    let target = tempfile::tempdir().unwrap();
    let sources = open_images(&config(root.path()), &EnvPaths::default()).unwrap();
    for (name, images) in sources.parts() {
        let folder = target.path().join(name);
        pack(&images, &folder, PackOptions::default(), &|_| {}, &|| false).unwrap();
    }
    let splits = open(&config(target.path())).unwrap();
    assert!(content(splits.val.as_ref().unwrap()).len() == val().len());
    for (split, expected) in [(&splits.train, train()), (&splits.test, test)] {
        let of = |images: Vec<Image>| images.into_iter().map(|(class, _, bytes)| (class, bytes));
        assert!(of(content(split)).eq(of(expected)));
    }
    assert_eq!(parts(target.path()), DataParts::TrainValTest);
}

#[test]
fn images_without_classes_are_no_part_of_their_own() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("x_train.tar"), flat_tar(&train())).unwrap();
    let path = root.path().join("x_train.tar");
    let held = DataConfig { val_fraction: 0.2, ..config(path) };
    assert!(refusal(&held).contains("in no folder of a class"), "{}", refusal(&held));
}
