//! Folders of images: layouts, lists of classes, what is refused.

use std::{fs, os::unix::fs::symlink, path::Path};

use vim_data::{DataConfig, DatasetKind, Encoding};

use crate::trees::{VAL_LIST, check, config, content, folder, open, refusal, train, unpacked, val};

#[test]
fn folders_of_classes_are_read_in_byte_order() {
    let root = unpacked();
    let splits = check(&config(root.path()));
    assert_eq!(splits.train.encoding(), Encoding::Files);
    assert!(splits.val.is_none(), "the published validation images are for the end");
    assert!(splits.notes.is_empty(), "{:?}", splits.notes);
    let held = open(&DataConfig { val_fraction: 0.25, ..config(root.path()) }).unwrap();
    assert_eq!((held.train.len(), held.val.unwrap().len(), held.test.len()), (9, 3, 6));
}

#[test]
fn the_training_folder_and_a_path_of_its_own_will_do() {
    let root = unpacked();
    fs::rename(root.path().join("val"), root.path().join("elsewhere")).unwrap();
    let of = |path: &str, val: &str| DataConfig {
        val_path: Some(root.path().join(val)),
        ..config(root.path().join(path))
    };
    check(&of("train", "elsewhere"));
    check(&of("", "elsewhere"));
    let message = refusal(&config(root.path()));
    assert!(message.contains("or `data.val_path`"), "{message}");
}

#[test]
fn links_to_folders_count_and_hidden_and_other_files_do_not() {
    let root = unpacked();
    let train = root.path().join("train");
    fs::rename(train.join("n02"), root.path().join("moved")).unwrap();
    symlink(root.path().join("moved"), train.join("n02")).unwrap();
    fs::create_dir(train.join(".git")).unwrap();
    fs::write(train.join("n01/.n01_0.JPEG"), "hidden").unwrap();
    fs::write(train.join("n01/readme.txt"), "text").unwrap();
    fs::write(train.join("n03/thumbs.db"), "text").unwrap();
    let splits = check(&config(root.path()));
    assert_eq!(splits.notes.len(), 2);
    assert!(splits.notes[0].starts_with("`moved` beside"), "{:?}", splits.notes);
    let note = &splits.notes[1];
    assert!(note.contains("2 files are not read: 1 .db, 1 .txt"), "{note}");
    assert!(note.contains("readme.txt"), "{note}");
}

#[test]
fn extensions_are_compared_without_case() {
    let root = unpacked();
    let class = root.path().join("train/n01");
    for name in ["a.jpg", "b.Jpg", "c.PNG", "d.jpeg", "e.txt", "f"] {
        fs::write(class.join(name), name).unwrap();
    }
    let splits = open(&config(root.path())).unwrap();
    let names: Vec<String> = content(&splits.train).into_iter().map(|(_, name, _)| name).collect();
    assert_eq!(&names[..4], ["a.jpg", "b.Jpg", "c.PNG", "d.jpeg"]);
    assert_eq!(names.len(), 16);
}

#[test]
fn folders_inside_a_class_belong_to_it() {
    let root = unpacked();
    let class = root.path().join("train/n01");
    fs::create_dir_all(class.join("more/still")).unwrap();
    fs::rename(class.join("n01_10.JPEG"), class.join("more/still/n01_10.JPEG")).unwrap();
    check(&config(root.path()));
    symlink(&class, class.join("more/loop")).unwrap();
    assert!(refusal(&config(root.path())).contains("link to a folder above it"));
}

#[test]
fn kaggles_layout_is_found_from_its_root_and_from_inside() {
    let root = tempfile::tempdir().unwrap();
    let inner = root.path().join("ILSVRC/Data/CLS-LOC");
    folder(&inner.join("train"), &train());
    fs::create_dir_all(inner.join("val")).unwrap();
    let mut list = "ImageId,PredictionString\n".to_owned();
    for (class, name, bytes) in val().iter().rev() {
        fs::write(inner.join("val").join(name), bytes).unwrap();
        let stem = name.trim_end_matches(".JPEG");
        list.push_str(&format!("{stem},{class} 85 1 499 272 {class} 1 2 3 4 \n"));
    }
    for text in [&list, &format!("\u{feff}{list}")] {
        fs::write(root.path().join("LOC_val_solution.csv"), text).unwrap();
        for path in [root.path(), &root.path().join("ILSVRC"), &inner] {
            check(&config(path));
        }
    }
}

/// `val` moved into one folder, with a list.
fn flat(list: &str) -> (tempfile::TempDir, DataConfig) {
    let root = unpacked();
    let flat = root.path().join("val");
    fs::remove_dir_all(&flat).unwrap();
    fs::create_dir(&flat).unwrap();
    for (_, name, bytes) in val() {
        fs::write(flat.join(name), bytes).unwrap();
    }
    let file = root.path().join("list.txt");
    fs::write(&file, list).unwrap();
    let config = DataConfig { val_labels: Some(file), ..config(root.path()) };
    (root, config)
}

#[test]
fn one_folder_with_a_list_is_read_in_the_order_of_the_classes() {
    check(&flat(VAL_LIST).1);
    check(&flat(&VAL_LIST.replace('\n', "\r\n")).1);
    check(&flat(&format!("\u{feff}{VAL_LIST}")).1);
}

#[test]
fn a_list_may_lack_classes_but_not_have_others() {
    let (_root, fewer) = flat("n03\nn03\nn01\nn03\nn01\nn03\n");
    let splits = open(&fewer).unwrap();
    let labels: Vec<u32> = (0..6).map(|position| splits.test.label(position)).collect();
    assert_eq!(labels, [0, 0, 2, 2, 2, 2]);
    assert_eq!(splits.test.class_names(), ["n01", "n02", "n03"]);
    let message = refusal(&flat("n03\nn03\nn01\nn09\nn01\nn03\n").1);
    assert!(message.contains("only the former has `n09`"), "{message}");
}

#[test]
fn lists_that_do_not_fit_are_refused() {
    for (list, expected) in [
        ("n01\nn02\n", "(2 lines)"),
        ("1\n2\n3\n1\n2\n3\n", "development kit's"),
        ("x.JPEG 1\ny.JPEG 2\n", "read line 1 of the list"),
        ("ImageId,PredictionString\nx,n01 1 2 3 4\n", "there is none for image"),
        ("ImageId,PredictionString\nx\n", "read line 2"),
    ] {
        let message = refusal(&flat(list).1);
        assert!(message.contains(expected), "{list:?}: {message}");
    }
    let (_root, unlisted) = flat(VAL_LIST);
    let message = refusal(&DataConfig { val_labels: None, ..unlisted });
    assert!(message.contains("set `data.val_labels`"), "{message}");
}

#[test]
fn classes_must_agree() {
    let root = unpacked();
    let val = root.path().join("val");
    let refused = |count, difference| {
        let message = refusal(&config(root.path()));
        assert!(message.contains(count) && message.contains(difference), "{message}");
    };
    let add = |class: &str| {
        fs::create_dir(val.join(class)).unwrap();
        fs::write(val.join(class).join("x.JPEG"), "x").unwrap();
    };
    add("n04");
    refused("(4)", "only the former has `n04`; it may have fewer, but no others");
    add("n06");
    add("n05");
    refused("(6)", "only the former has `n04`, `n05` and `n06`");
}

#[test]
fn a_validation_part_may_lack_classes() {
    let root = unpacked();
    fs::remove_dir_all(root.path().join("val/n02")).unwrap();
    let splits = open(&config(root.path())).unwrap();
    let expected: Vec<_> = val().into_iter().filter(|(class, ..)| class != "n02").collect();
    assert!(content(&splits.test) == expected);
    assert_eq!(splits.test.class_names(), ["n01", "n02", "n03"]);
    assert_eq!(splits.test.class_counts(), Some(vec![2, 0, 2]));
    assert_eq!(splits.test.empty_classes(), ["n02"]);
    assert!(splits.train.empty_classes().is_empty());
    let note = "the validation part has no images of 1 of the 3 classes: `n02`";
    assert_eq!(splits.notes, [note]);
}

#[test]
fn folders_of_classes_match_in_two_unicode_forms() {
    let (composed, decomposed) = ("ha\u{ef}ti", "hai\u{308}ti");
    let root = unpacked();
    for (part, name) in [("train", composed), ("val", decomposed)] {
        let part = root.path().join(part);
        fs::rename(part.join("n03"), part.join(name)).unwrap();
        fs::rename(part.join("n02"), part.join("haz")).unwrap();
    }
    let splits = open(&config(root.path())).unwrap();
    // In bytes, `haz` is between the two forms.
    assert_eq!(splits.train.class_names(), ["haz", composed, "n01"]);
    assert_eq!(splits.test.class_names(), splits.train.class_names());
    let labels: Vec<u32> = (0..6).map(|position| splits.test.label(position)).collect();
    assert_eq!(labels, [1, 1, 0, 0, 2, 2]);
    let named = |name: &str| splits.test.dataset().name(0).contains(name);
    assert!(named(decomposed) && named("00000002"), "{}", splits.test.dataset().name(0));
    assert!(splits.notes.is_empty(), "{:?}", splits.notes);
    // Both in one part are two folders for what is one class.
    fs::rename(root.path().join("train/n01"), root.path().join("train").join(decomposed)).unwrap();
    let message = refusal(&config(root.path()));
    assert!(message.contains("in two Unicode forms; merge them"), "{message}");
    assert!(message.contains("/train`"), "{message}");
    // Also where nothing is beside it.
    let alone = DataConfig {
        dataset: DatasetKind::Folder,
        val_fraction: 0.25,
        ..config(root.path().join("train"))
    };
    let message = refusal(&alone);
    assert!(message.contains("in two Unicode forms; merge them"), "{message}");
}

#[test]
fn places_without_images_are_named() {
    let root = unpacked();
    fs::remove_dir_all(root.path().join("train/n02")).unwrap();
    fs::create_dir(root.path().join("train/n02")).unwrap();
    let message = refusal(&config(root.path()));
    assert!(message.contains("class `n02`") && message.contains("unpack it again"), "{message}");
    let empty = tempfile::tempdir().unwrap();
    assert!(refusal(&config(empty.path())).contains("docs/data.md lists the layouts"));
    assert!(refusal(&config(empty.path().join("absent"))).contains("absent"));
    let without = DataConfig { path: None, ..config("") };
    assert!(refusal(&without).contains("`data.path` is not set"));
}

#[test]
fn counts_that_are_not_imagenets_are_noted() {
    let root = unpacked();
    let imagenet = DataConfig { dataset: DatasetKind::Imagenet, ..config(root.path()) };
    let notes = check(&imagenet).notes;
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert!(notes[1].contains("12 training images") && notes[1].contains("1281167"), "{notes:?}");
}

#[test]
fn a_file_that_goes_away_is_named() {
    let root = unpacked();
    let splits = open(&config(root.path())).unwrap();
    fs::remove_file(root.path().join("train/n02/n02_10.JPEG")).unwrap();
    let message = splits.train.image(5).unwrap_err().to_string();
    assert!(message.contains("n02_10.JPEG"), "{message}");
    assert!(Path::new(&splits.train.dataset().name(5)).is_absolute());
}
