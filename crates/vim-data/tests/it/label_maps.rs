//! Pairs as other tools lay them out and number their classes, and what label maps are found to
//! hold.

use std::path::Path;
use std::{fs, thread, time::Duration};

use png::{BitDepth, ColorType};
use vim_data::{
    DataConfig, DataError, DatasetKind, EnvPaths, KnownImages, LabelMap, Pixels, SourceError,
    Splits, Stage, encode_png,
};

use crate::pairs::{all_of, grey_png, labels_png, pairs, write_files};

pub(crate) type Files = Vec<(String, Vec<u8>)>;

/// An image of 2 × 4 pixels that is this bright.
pub(crate) fn image(brightness: u8) -> Vec<u8> {
    encode_png(&Pixels { height: 2, width: 4, data: vec![brightness; 24] }).unwrap()
}

/// Its label map.
fn map(values: [u8; 8]) -> Vec<u8> {
    labels_png([2, 4], &values)
}

fn text(name: &str, text: &str) -> (String, Vec<u8>) {
    (name.to_owned(), text.as_bytes().to_vec())
}

pub(crate) fn config(path: &Path) -> DataConfig {
    DataConfig {
        dataset: DatasetKind::Pairs,
        path: Some(path.to_owned()),
        stage: Stage::Off,
        ..DataConfig::default()
    }
}

fn open(config: &DataConfig) -> Result<Splits, DataError> {
    vim_data::open::<LabelMap>(config)
}

fn error(config: &DataConfig) -> String {
    open(config).unwrap_err().to_string()
}

/// Brightness and first label of every pair of both parts.
pub(crate) fn seen(splits: &Splits) -> [Vec<(u8, u8)>; 2] {
    [&splits.train, &splits.test].map(|split| {
        pairs(split).iter().map(|pair| (pair.image.data[0], pair.map.labels[0])).collect()
    })
}

/// Pairs of these stems in folders of both parts, the brightness of each being its label.
pub(crate) fn of_stems(stems: &[&str], image_name: &str, map_name: &str) -> Files {
    let mut files = vec![text("classes.txt", "a\nb\nc\nd\n")];
    for part in ["train", "val"] {
        for (label, stem) in (0..).zip(stems) {
            let name = |name: &str| name.replace("PART", part).replace("STEM", stem);
            files.push((name(image_name), image(label)));
            files.push((name(map_name), map([label; 8])));
        }
    }
    files
}

#[test]
fn a_name_that_begins_another_is_no_other() {
    let root = tempfile::tempdir().unwrap();
    let stems = ["a", "a.mirror", "a-b", "a b"];
    let mut files = of_stems(&stems, "images/PART/STEM.png", "masks/PART/STEM.png");
    // Of another extension, before and after the dot and the letters of the longer name.
    for (name, _) in files.iter_mut().filter(|(name, _)| name.ends_with("images/train/a.png")) {
        *name = "images/train/a.jpg".to_owned();
    }
    for path in all_of(root.path(), &files) {
        let [mut train, val] = seen(&open(&config(&path)).unwrap());
        train.sort_unstable();
        assert_eq!(train, [(0, 0), (1, 1), (2, 2), (3, 3)], "{}", path.display());
        assert_eq!(val.len(), 4);
        assert!(val.iter().all(|(image, label)| image == label), "{val:?}");
    }
}

#[test]
fn suffixes_and_folders_have_keys() {
    let key = |value: &str| Some(value.to_owned());
    let stems = ["bild ä0", "b", "b_mask2"];
    for (images, maps, keys) in [
        ("PART/photos/STEM.png", "PART/groundtruth/STEM_mask.png", ["photos", "groundtruth", ""]),
        ("x/PART/STEM.png", "y/z/PART/STEM_mask.png", ["x", "y/z/", ""]),
        ("PART/STEM.png", "PART/STEM_mask.png", [".", ".", ""]),
        ("PART/STEM.png", "PART_masks/STEM_mask.png", ["*", "*_masks", ""]),
        ("images/PART/STEM_left.png", "labels/PART/STEM_mask.png", ["images", "labels", "_left"]),
    ] {
        let root = tempfile::tempdir().unwrap();
        let mut files = of_stems(&stems, images, maps);
        files.push((maps.replace("PART", "train").replace("STEM_mask", "b_color"), vec![0]));
        for path in all_of(root.path(), &files) {
            let without = config(&path);
            let is_usual = images.starts_with("images");
            assert!(error(&without).contains(if is_usual { "pair `" } else { "images/training" }));
            let [of_images, of_maps, suffix] = keys;
            let with = DataConfig {
                images: key(of_images),
                label_maps: key(of_maps),
                label_suffix: key("_mask"),
                image_suffix: (!suffix.is_empty()).then(|| suffix.to_owned()),
                ..without
            };
            // In one folder, what is no label map is an image.
            if keys[0] == "." {
                assert!(error(&with).contains("b_color"), "{}", error(&with));
                continue;
            }
            let splits = open(&with).unwrap();
            let [mut train, _] = seen(&splits);
            train.sort_unstable();
            assert_eq!(train, [(0, 0), (1, 1), (2, 2)], "{images}");
            let [note] = &splits.notes[..] else { panic!("{:?}", splits.notes) };
            let says = "no label maps by data.label_suffix: 1 of 4 files, the first";
            assert!(note.starts_with(says), "{note}");
        }
    }
}

#[test]
fn images_and_label_maps_may_lie_in_one_folder() {
    let root = tempfile::tempdir().unwrap();
    let files = of_stems(&["a", "b"], "PART/STEM.png", "PART/STEM_mask.png");
    for path in all_of(root.path(), &files) {
        let here = Some(".".to_owned());
        let (images, label_maps) = (here.clone(), here);
        let label_suffix = Some("_mask".to_owned());
        let config = DataConfig { images, label_maps, label_suffix, ..config(&path) };
        let splits = open(&config).unwrap();
        assert_eq!(seen(&splits), [[(0, 0), (1, 1)], [(0, 0), (1, 1)]]);
        assert!(splits.notes.is_empty(), "{:?}", splits.notes);
    }
}

#[test]
fn what_is_not_paired_says_why() {
    let root = tempfile::tempdir().unwrap();
    write_files(root.path(), &of_stems(&["a", "b"], "img/PART/STEM.png", "masks/PART/STEM_m.png"));
    let text = error(&config(root.path()));
    assert!(text.contains("img/train/a.png"), "{text}");
    assert!(text.contains("set `data.label_suffix = \"_m\"`"), "{text}");
    let named = DataConfig { images: Some("photos".to_owned()), ..config(root.path()) };
    let text = error(&named);
    assert!(text.contains("training images") && text.contains("photos/training"), "{text}");

    // Two images of one name, and one label map.
    let root = tempfile::tempdir().unwrap();
    let mut files = of_stems(&["a", "b"], "img/PART/x/STEM.png", "masks/PART/x/STEM.png");
    files.push(("img/train/y/a.png".to_owned(), image(1)));
    write_files(root.path(), &files);
    let error = open(&config(root.path())).unwrap_err();
    assert!(matches!(error, DataError::Source(SourceError::PairedTwice { .. })), "{error}");
    // Each in its folder.
    write_files(root.path(), &[("masks/train/y/a.png".to_owned(), map([1; 8]))]);
    let [train, _] = seen(&open(&config(root.path())).unwrap());
    assert_eq!(train, [(0, 0), (1, 1), (1, 1)]);
}

/// Pairs as VOC has them, with these label maps; the first two are for training.
pub(crate) fn voc(maps: &[Vec<u8>]) -> Files {
    let mut files = Vec::new();
    for (number, map) in (0..).zip(maps) {
        files.push((format!("JPEGImages/2007_{number}.png"), image(number)));
        files.push((format!("SegmentationClass/2007_{number}.png"), map.clone()));
    }
    files.push(("JPEGImages/2007_99.png".to_owned(), image(99)));
    files.push(text("ImageSets/Segmentation/train.txt", "2007_1\n2007_0\n"));
    files.push(text("ImageSets/Segmentation/val.txt", "2007_2\n\n"));
    files
}

/// A label map with a palette, whose entries are all black.
fn palette(values: &[u8], depth: BitDepth) -> Vec<u8> {
    grey_png([2, 4], values, ColorType::Indexed, depth)
}

#[test]
fn vocs_lists_choose_and_its_palette_is_of_classes() {
    let root = tempfile::tempdir().unwrap();
    let maps = [
        palette(&[20, 0, 0, 0, 0, 0, 0, 255], BitDepth::Eight),
        palette(&[0xf0, 0x12, 0x34, 0x50], BitDepth::Four),
        palette(&[0b1000_0000, 0b0110_0000], BitDepth::One),
    ];
    let mut splits = None;
    // As the archive as published has it.
    let mut nested = voc(&maps);
    nested.iter_mut().for_each(|(name, _)| *name = format!("VOCdevkit/VOC2012/{name}"));
    let (plain, published) = (root.path().join("plain"), root.path().join("published"));
    fs::create_dir_all(&plain).unwrap();
    fs::create_dir_all(&published).unwrap();
    let all = all_of(&plain, &voc(&maps)).into_iter().chain(all_of(&published, &nested));
    for path in all {
        for _ in 0..2 {
            let opened = open(&config(&path)).unwrap();
            assert_eq!(seen(&opened), [vec![(0, 20), (1, 15)], vec![(2, 1)]]);
            assert_eq!(opened.train.class_names()[20], "tvmonitor");
            let [note] = &opened.notes[..] else { panic!("{:?}", opened.notes) };
            assert!(note.contains("taken for VOC's 21"), "{note}");
            let maps: Vec<_> = pairs(&opened.train).into_iter().map(|pair| pair.map).collect();
            assert_eq!(maps[0].labels, [20, 0, 0, 0, 0, 0, 0, 255]);
            assert_eq!(maps[1].labels, [15, 0, 1, 2, 3, 4, 5, 0]);
            assert_eq!(pairs(&opened.test)[0].map.labels, [1, 0, 0, 0, 0, 1, 1, 0]);
            let fingerprint = opened.train.dataset().fingerprint();
            assert_eq!(*splits.get_or_insert(fingerprint), fingerprint);
        }
    }

    // Both parts know what was verified, and a scan is of the listed files.
    let folder = plain.join("tree");
    let sources = || vim_data::open_pairs(&config(&folder), &EnvPaths::default()).unwrap();
    fs::write(folder.join("SegmentationClass/2007_1.png"), "?").unwrap();
    let train = sources().train;
    assert_eq!(vim_data::verify_pairs(&train, 2, &|_| {}).unwrap().bad[0].index, 1);
    let val = sources().val.unwrap();
    assert_eq!(vim_data::verify_pairs(&val, 2, &|_| {}).unwrap().good, 1);
    let [images, _] = vim_data::scan_pairs(&val, 2, [&|_| {}, &|_| {}]).unwrap();
    assert_eq!((images.images, images.classes), (1, 21));
    let bad = KnownImages::of_all(&sources().train, "images", 2, &|_| {}).unwrap().bad;
    assert_eq!((bad.len(), bad[0].index), (1, 1));
}

#[test]
fn cvats_export_has_names_and_colours() {
    let colours = |colours: [[u8; 3]; 8]| {
        grey_png([2, 4], colours.as_flattened(), ColorType::Rgb, BitDepth::Eight)
    };
    let (sky, road) = ([1, 2, 3], [250, 50, 83]);
    let black = [0; 3];
    let maps = [
        colours([sky, black, black, road, road, [224, 224, 192], black, black]),
        colours([road; 8]),
        palette(&[2; 8], BitDepth::Eight),
    ];
    let mut files = voc(&maps);
    let list =
        "# label:color_rgb:parts:actions\nbackground:0,0,0::\nroad:250,50,83::\nsky:1,2,3::\n";
    files.push(text("labelmap.txt", list));
    // With the names and the case of CVAT.
    for (name, _) in &mut files {
        *name = name.replace("train.txt", "Train.txt").replace("val.txt", "Validation.txt");
    }
    let root = tempfile::tempdir().unwrap();
    for path in all_of(root.path(), &files) {
        let splits = open(&config(&path)).unwrap();
        assert_eq!(splits.train.class_names(), ["background", "road", "sky"]);
        assert_eq!(seen(&splits), [vec![(0, 2), (1, 1)], vec![(2, 2)]], "{}", path.display());
        assert_eq!(pairs(&splits.train)[0].map.labels, [2, 0, 0, 1, 1, 255, 0, 0]);
        assert!(splits.notes.is_empty(), "{:?}", splits.notes);
        let known = KnownImages::of_split(&splits.train, "images", 2, &|_| {}).unwrap();
        assert_eq!(known.labels.unwrap().classes[1].pixels, 10);
    }
    // Another colour than those of the list.
    let folder = root.path().join("tree");
    fs::write(folder.join("SegmentationClass/2007_0.png"), colours([[9, 9, 10]; 8])).unwrap();
    let train = open(&config(&folder)).unwrap().train;
    let known = KnownImages::of_split(&train, "images", 2, &|_| {}).unwrap();
    let what = &known.bad[0].what;
    assert!(what.contains("has a label map that has the colour #09090a"), "{what}");
    // Colours are counted anew by another list.
    fs::write(folder.join("labelmap.txt"), list.replace("sky:1,2,3", "sky:9,9,10")).unwrap();
    let train = open(&config(&folder)).unwrap().train;
    let known = KnownImages::of_split(&train, "images", 2, &|_| {}).unwrap();
    assert!(known.bad.is_empty(), "{:?}", known.bad);
    assert_eq!(known.labels.unwrap().classes[2].pixels, 8);
}

#[test]
fn lists_that_cannot_be_used_say_why() {
    let maps = [map([0; 8]), map([1; 8]), map([2; 8])];
    for (name, content, expected) in [
        ("train.txt", Some("2007_0\n2007_7\n"), "it names `2007_7`, and no image"),
        ("train.txt", Some("\n"), "it names none"),
        ("val.txt", None, "train.txt`: `val.txt` is not beside it; give each part a list"),
        ("validation.txt", Some("2007_1\n"), "one of the same part"),
        ("val.txt", Some("2007_99\n"), "none has its name"),
    ] {
        let root = tempfile::tempdir().unwrap();
        write_files(root.path(), &voc(&maps));
        let path = root.path().join("ImageSets/Segmentation").join(name);
        match content {
            Some(content) => fs::write(path, content).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
        let text = error(&config(root.path()));
        assert!(text.contains(expected), "{text}");
    }
    let root = tempfile::tempdir().unwrap();
    write_files(root.path(), &voc(&maps));
    let list = root.path().join("ImageSets/Segmentation/val.txt");
    fs::write(&list, "\u{feff}2007_2.png\r\n\"2007_2\"\r\n").unwrap();
    fs::write(list.with_file_name("Test.txt"), "2007_99\n").unwrap();
    let splits = open(&config(root.path())).unwrap();
    assert_eq!(splits.test.len(), 1);
    let says = "Test.txt` is not read: the validation images are the test images";
    assert!(splits.notes.join("\n").contains(says), "{:?}", splits.notes);
}

/// What is said of label maps of these values, of classes `bg` and `fg` (and `x`).
fn said(classes: &str, maps: &[[u8; 8]]) -> Vec<String> {
    let root = tempfile::tempdir().unwrap();
    write_files(root.path(), &of_maps(classes, maps));
    notes(root.path())
}

fn of_maps(classes: &str, maps: &[[u8; 8]]) -> Files {
    let mut files = vec![text("classes.txt", classes)];
    for part in ["train", "val"] {
        for (number, &values) in (0..).zip(maps) {
            files.push((format!("images/{part}/{number}.png"), image(number)));
            files.push((format!("masks/{part}/{number}.png"), map(values)));
        }
    }
    files
}

fn notes(path: &Path) -> Vec<String> {
    let train = open(&config(path)).unwrap().train;
    KnownImages::of_split(&train, "training images", 2, &|_| {}).unwrap().notes
}

#[test]
fn what_keeps_classes_from_being_learned_is_said() {
    let (two, three) = ("bg\nfg\n", "bg\nfg\nx\n");
    for (classes, maps, expected) in [
        (two, [[0, 0, 0, 1, 1, 1, 1, 255], [0; 8]], None),
        (
            two,
            [[0, 0, 255, 255, 255, 255, 0, 0], [0; 8]],
            Some(
                "the label maps of the 2 training images are masks of 0 and 255, and 255 is ignored \
                 (25.0 % of the pixels): `bg` alone is learned and class `fg` occurs in no label \
                 map; write a class's number for 255",
            ),
        ),
        (
            two,
            [[0, 0, 255, 255, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1, 0, 0]],
            Some("1 of the 2 training images have label maps of 0 and 255 alone"),
        ),
        (
            three,
            [[0, 0, 1, 1, 1, 1, 1, 255], [1; 8]],
            Some("class `x` occurs in no label map of the 2 training images"),
        ),
        (
            three,
            [[0; 8], [0; 8]],
            Some(
                "2 of 3 classes occur in no label map (`fg` and `x`) of the 2 training images: \
                 `bg` is the only class",
            ),
        ),
        (two, [[255; 8], [255; 8]], Some("not one pixel of the 2 training images has a class")),
        (
            two,
            [[0, 1, 255, 255, 255, 255, 255, 255], [0, 1, 0, 1, 255, 255, 255, 255]],
            Some("62.5 % of the pixels of the 2 training images are ignored"),
        ),
    ] {
        let notes = said(classes, &maps);
        match expected {
            Some(expected) => {
                assert!(notes.len() == 1 && notes[0].starts_with(expected), "{notes:#?}")
            }
            None => assert!(notes.is_empty(), "{notes:?}"),
        }
    }
    let many: String = (0..9).map(|number| format!("c{number}\n")).collect();
    let notes = said(&many, &[[0, 1, 0, 1, 0, 1, 0, 1]]);
    assert!(notes[0].starts_with("7 of 9 classes occur in no label map (`c2`, `c3` and `c4` …)"));
}

#[test]
fn label_maps_are_counted_once_and_again_when_they_are_mended() {
    let root = tempfile::tempdir().unwrap();
    let maps = [[0, 0, 0, 0, 255, 255, 255, 255], [0; 8]];
    let [folder, _, zip] = all_of(root.path(), &of_maps("bg\nfg\n", &maps));
    assert!(notes(&zip)[0].contains("masks of 0 and 255"));
    assert!(notes(&folder)[0].contains("masks of 0 and 255"));
    // As the note advises, in the place of the file: its folder is as it was.
    thread::sleep(Duration::from_millis(20));
    fs::write(folder.join("masks/train/0.png"), map([0, 0, 0, 0, 1, 1, 1, 1])).unwrap();
    assert!(notes(&folder).is_empty());
    let sources = vim_data::open_pairs(&config(&folder), &EnvPaths::default()).unwrap();
    let [images, maps] = vim_data::scan_pairs(&sources.train, 2, [&|_| {}, &|_| {}]).unwrap();
    let labels = images.labels.unwrap();
    assert_eq!((labels.maps, labels.pixels, labels.ignored), (2, 16, 0));
    let of_class: Vec<_> =
        labels.classes.iter().map(|one| (&*one.class, one.pixels, one.images)).collect();
    assert_eq!(of_class, [("bg", 12, 2), ("fg", 4, 1)]);
    assert_eq!((images.classes, images.smallest_class.images, maps.classes), (2, 1, 0));
    assert_eq!(images.fingerprint, vim_data::Dataset::fingerprint(&sources.train));
    let verified = vim_data::verify_pairs(sources.val.as_ref().unwrap(), 2, &|_| {}).unwrap();
    assert!(verified.notes[0].contains("masks of 0 and 255"), "{:?}", verified.notes);
}
