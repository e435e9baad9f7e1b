//! What is known of images before they are decoded: by headers, annotations and verifications.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::Ordering;

use serde_json::json;
use vim_data::{
    BadRule, BadTest, BadTrain, DataError, EnvPaths, Finding, KnownImages, Splits, VerifyOptions,
};

use crate::memory::Memory;
use crate::{coco_tree, pairs, trees};

/// The bad images among those of both parts.
fn bad(splits: &Splits) -> [Vec<Finding>; 2] {
    [&splits.train, &splits.test]
        .map(|split| KnownImages::of_split(split, "images", 2, &|_| {}).unwrap().bad)
}

/// What is said of one bad image of `images` in all.
fn said(count: usize, images: usize, rule: BadRule) -> Result<Vec<String>, DataError> {
    let one = |index: usize| Finding {
        index,
        name: format!("{index}.png"),
        class: String::new(),
        what: "is empty".to_owned(),
    };
    let (what, notes) = ("test images".to_owned(), vec!["a note".to_owned()]);
    let bad = (0..count).map(one).collect();
    KnownImages { what, images, bad, is_io: false, notes, labels: None }.check(rule)
}

#[test]
fn an_error_is_what_would_end_the_work() {
    let (fail, replace) = (BadTrain::Fail, BadTrain::Replace);
    for (count, images, rule, advice) in [
        (1, 6, BadRule::Test(BadTest::Fail), Some("data.bad_test")),
        (1, 6, BadRule::Test(BadTest::Wrong), None),
        (1, 6, BadRule::Train(fail, 6), Some("data.bad_train")),
        // Not all images are drawn: perhaps not this one.
        (1, 6, BadRule::Train(fail, 5), None),
        (10, 20, BadRule::Train(replace, 100), None),
        (11, 20, BadRule::Train(replace, 100), Some("that number")),
        (11, 20, BadRule::Train(replace, 19), None),
        (11, 200_000, BadRule::Train(replace, 1_000_000), None),
        (21, 200_000, BadRule::Train(replace, 1_000_000), Some("that number")),
    ] {
        match (said(count, images, rule), advice) {
            (Ok(notes), None) => {
                assert_eq!(notes[0], "a note");
                assert!(notes[1].starts_with(&format!("{count} of {images} test images")));
                assert!(notes[1].contains("0.png: it is empty"), "{notes:?}");
            }
            (Err(error), Some(advice)) => {
                let text = error.to_string();
                assert!(text.contains(advice) && text.contains("0.png, the first, is empty"));
                assert!(matches!(error, DataError::KnownBad { .. }));
            }
            (found, _) => panic!("{rule:?}: {found:?}"),
        }
    }
    assert_eq!(said(0, 6, BadRule::Test(BadTest::Fail)).unwrap(), ["a note"]);
}

#[test]
fn headers_tell_of_pairs_that_do_not_fit() {
    let (map, area) = ("annotations/validation/ADE_val_00000003.png", pairs::SIDE * pairs::SIDE);
    let smaller = pairs::labels_png([pairs::SIDE, 4], &[1; 4 * pairs::SIDE]);
    let (grey, sixteen) = (png::ColorType::Grayscale, png::BitDepth::Sixteen);
    let deep = pairs::grey_png([pairs::SIDE; 2], &vec![1; 2 * area], grey, sixteen);
    for (name, bytes, expected) in [
        (map, smaller, "a label map of 32 × 4"),
        (map, deep, "grey PNG of 16 bits"),
        (map, pairs::labels_png([pairs::SIDE; 2], &vec![13; area]), "the value 13"),
        (map, b"?".to_vec(), "has a label map that begins with `?`"),
        ("images/validation/ADE_val_00000003.png", Vec::new(), "is empty"),
    ] {
        let (_root, folder) = pairs::spoiled(name, bytes);
        for _ in 0..2 {
            let [train, test] = bad(&pairs::open(&folder).unwrap());
            assert_eq!((train.len(), test.len(), test[0].index), (0, 1, 2), "{expected}");
            assert!(test[0].what.contains(expected), "{}", test[0].what);
            assert!(test[0].name.ends_with("ADE_val_00000003.png"), "{}", test[0].name);
        }
        // A scan says the same.
        let sources = vim_data::open_pairs(&pairs::of_path(&folder), &EnvPaths::default()).unwrap();
        let [images, _] =
            vim_data::scan_pairs(sources.val.as_ref().unwrap(), 2, [&|_| {}, &|_| {}]).unwrap();
        assert_eq!(images.odd.len(), 1, "{:?}", images.odd);
    }
}

#[test]
fn a_scan_names_all_that_is_wrong_with_an_image() {
    let other = crate::golden::bytes("odd/444.jpg");
    let (_root, folder) = pairs::spoiled("images/validation/ADE_val_00000003.png", other);
    let sources = vim_data::open_pairs(&pairs::of_path(&folder), &EnvPaths::default()).unwrap();
    let [images, _] =
        vim_data::scan_pairs(sources.val.as_ref().unwrap(), 2, [&|_| {}, &|_| {}]).unwrap();
    let [kind, size] = &images.odd[..] else { panic!("{:?}", images.odd) };
    assert_eq!(kind.what, "is a JPEG by its content");
    assert!(size.what.contains("a label map of 32 × 32"), "{}", size.what);
}

#[test]
fn a_disk_that_fails_is_no_bad_image() {
    let known = |kind| {
        let images = Memory { failure: kind, ..Memory::files(4) };
        images.failures[2].store(u32::MAX, Ordering::SeqCst);
        KnownImages::of_all(&images, "test images", 2, &|_| {}).unwrap()
    };
    let failed = known(ErrorKind::Other);
    assert_eq!((failed.bad.len(), failed.bad[0].index), (1, 2));
    let error = failed.clone().check(BadRule::Test(BadTest::Fail)).unwrap_err();
    assert!(error.is_io() && error.to_string().contains("see to the disk"), "{error}");
    assert!(failed.check(BadRule::Test(BadTest::Wrong)).is_ok());
    let error = known(ErrorKind::InvalidData).check(BadRule::Test(BadTest::Fail)).unwrap_err();
    assert!(!error.is_io() && error.to_string().contains("replace or remove them"), "{error}");
}

#[test]
fn headers_are_read_once_from_folders_and_archives() {
    let root = tempfile::tempdir().unwrap();
    let [folder, tar, zip] = pairs::laid_out(root.path());
    for path in [&folder, &tar, &zip] {
        assert_eq!(bad(&pairs::open(path).unwrap()).map(|bad| bad.len()), [0, 0]);
    }
    // In the place of a file, so that its folder is as it was.
    let spoil = |name: &str| {
        let path = folder.join("ADEChallengeData2016/images/validation").join(name);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, "?").unwrap();
        (path, whole)
    };
    let (path, whole) = spoil("ADE_val_00000002.png");
    let [_, test] = bad(&pairs::open(&folder).unwrap());
    assert_eq!((test.len(), test[0].index), (1, 1), "it was written to since");
    // Another content that nothing tells of: of the same length and time.
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, &whole).unwrap();
    fs::File::options().append(true).open(&path).unwrap().set_modified(time).unwrap();
    assert!(bad(&pairs::open(&folder).unwrap())[1].is_empty());
    fs::write(&path, vec![b'?'; whole.len()]).unwrap();
    fs::File::options().append(true).open(&path).unwrap().set_modified(time).unwrap();
    assert!(bad(&pairs::open(&folder).unwrap())[1].is_empty(), "it is not looked at again");

    // A verification sees it, and from then on it is known.
    let sources = vim_data::open_pairs(&pairs::of_path(&folder), &EnvPaths::default()).unwrap();
    assert_eq!(
        vim_data::verify_pairs(sources.val.as_ref().unwrap(), 2, &|_| {}).unwrap().bad.len(),
        1
    );
    let [_, test] = bad(&pairs::open(&folder).unwrap());
    assert_eq!((test.len(), test[0].index), (1, 1));
    // What has been mended is good.
    fs::write(&path, whole).unwrap();
    assert!(bad(&pairs::open(&folder).unwrap())[1].is_empty());
}

#[test]
fn annotations_and_sizes_of_objects_are_known() {
    for (pointer, value, expected) in [
        ("/images/0/height", json!(47), "48 × 48 pixels, and 47 × 48 in the annot"),
        ("/images/0/width", json!(64), "48 × 48 pixels, and 48 × 64 in the annot"),
    ] {
        let (_root, folder) = coco_tree::spoiled("val2017", true, pointer, value);
        let [train, test] = bad(&coco_tree::open(&folder).unwrap());
        assert_eq!((train.len(), test.len()), (0, 1), "{expected}: {test:?}");
        assert!(test[0].what.contains(expected), "{test:?}");
    }
    let zips = tempfile::tempdir().unwrap();
    coco_tree::write_zips(zips.path(), &coco_tree::files(false));
    assert_eq!(bad(&coco_tree::open(zips.path()).unwrap()).map(|bad| bad.len()), [0, 0]);
}

/// EXIF data that say this orientation: a little-endian directory of one entry, tag 0x112, a short.
pub(crate) fn exif(orientation: u8) -> Vec<u8> {
    let exif = [b'I', b'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, orientation, 0];
    [&exif[..], &[0; 6]].concat()
}

/// The PNG with EXIF data that say this orientation.
pub(crate) fn turned(file: &[u8], orientation: u8) -> Vec<u8> {
    let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut pixels).unwrap();
    let mut info = reader.info().clone();
    info.exif_metadata = Some(exif(orientation).into());
    let mut bytes = Vec::new();
    let encoder = png::Encoder::with_info(&mut bytes, info).unwrap();
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
    bytes
}

/// Turns the first images of a folder.
fn turn(folder: &Path, orientations: &[u8]) {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = entries.collect();
    paths.sort();
    for (path, &orientation) in paths.iter().zip(orientations) {
        fs::write(path, turned(&fs::read(path).unwrap(), orientation)).unwrap();
    }
}

#[test]
fn orientations_are_counted_where_they_matter() {
    let root = tempfile::tempdir().unwrap();
    coco_tree::write_folder(root.path(), &coco_tree::files(false));
    turn(&root.path().join("val2017"), &[1, 6, 3]);
    let splits = coco_tree::open(root.path()).unwrap();
    for _ in 0..2 {
        let known = KnownImages::of_split(&splits.test, "test images", 2, &|_| {}).unwrap();
        let [note] = &known.notes[..] else { panic!("{:?}", known.notes) };
        assert!(note.starts_with("2 of 6 test images have an EXIF orientation"), "{note}");
        assert!(known.bad.is_empty());
    }
    let sources =
        vim_data::open_coco(&coco_tree::config(root.path()), &EnvPaths::default()).unwrap();
    let verified = vim_data::verify_objects(sources.val.as_ref().unwrap(), 2, &|_| {}).unwrap();
    let scanned = vim_data::scan_objects(sources.val.as_ref().unwrap(), 2, &|_| {}).unwrap();
    for notes in [verified.notes, scanned.notes] {
        assert!(notes[0].starts_with("2 of 6 images have an EXIF"), "{notes:?}");
    }

    let [folder, ..] = pairs::laid_out(root.path());
    turn(&folder.join("ADEChallengeData2016/images/training"), &[8]);
    let train = pairs::open(&folder).unwrap().train;
    let known = KnownImages::of_split(&train, "training images", 2, &|_| {}).unwrap();
    assert!(known.notes[0].starts_with("1 of 24 training images"), "{:?}", known.notes);
}

#[test]
fn verdicts_of_a_verification_are_known_of_classes() {
    let root = trees::unpacked();
    let open = || trees::open(&trees::config(root.path())).unwrap();
    assert_eq!(bad(&open()).map(|bad| bad.len()), [0, 0], "no file is read");
    let config = trees::config(root.path());
    let mut sources = vim_data::open_images(&config, &EnvPaths::default()).unwrap();
    let options = VerifyOptions { workers: 2, again: false };
    let report = vim_data::verify(sources.val.as_mut().unwrap(), options, &|_| {}).unwrap();
    assert!(!report.bad.is_empty(), "the files are no images");
    let [train, test] = bad(&open());
    assert!(train.is_empty());
    assert_eq!(test, report.bad);
}
