//! Images with an EXIF orientation, as they are read with what belongs to them.

use std::fs;
use std::path::Path;

use image::codecs::webp::WebPEncoder;
use image::metadata::Orientation;
use image::{DynamicImage, ExtendedColorType, ImageEncoder, RgbImage};
use serde_json::json;
use tempfile::TempDir;
use vim_data::{
    Batch, Class, DataConfig, DatasetKind, EnvPaths, Exif, ImageObjects, KnownImages, LabelMap,
    Loader, LoaderConfig, OnBad, Pixels, Recipe, Split, Splits, Stage, encode_png,
    read_whole_picture,
};

use crate::{coco_tree, golden, known, pairs};

/// Height and width as seen.
const SEEN: [usize; 2] = [20, 28];

/// A picture as viewers show it, a different one for each number.
fn picture(number: u8) -> Pixels {
    let [height, width] = SEEN;
    let at = |at: usize| (at * (7 + usize::from(number)) + at / width * 5) as u8;
    Pixels { height, width, data: (0..3 * height * width).map(at).collect() }
}

/// The picture as a file with this orientation has it.
fn stored(Pixels { height, width, data }: Pixels, orientation: u8) -> Pixels {
    let image = RgbImage::from_raw(width as u32, height as u32, data).unwrap();
    let mut image = DynamicImage::ImageRgb8(image);
    let back = match orientation {
        6 => 8,
        8 => 6,
        other => other,
    };
    image.apply_orientation(Orientation::from_exif(back).unwrap());
    let (height, width) = (image.height() as usize, image.width() as usize);
    Pixels { height, width, data: image.into_bytes() }
}

fn png(pixels: Pixels, orientation: u8) -> Vec<u8> {
    known::turned(&encode_png(&stored(pixels, orientation)).unwrap(), orientation)
}

fn webp(pixels: Pixels, orientation: u8) -> Vec<u8> {
    let Pixels { height, width, data } = stored(pixels, orientation);
    let mut bytes = Vec::new();
    let mut encoder = WebPEncoder::new_lossless(&mut bytes);
    encoder.set_exif_metadata(known::exif(orientation)).unwrap();
    encoder.write_image(&data, width as u32, height as u32, ExtendedColorType::Rgb8).unwrap();
    bytes
}

/// Pictures of these orientations in COCO's folders, in both parts; annotated as they are seen, or
/// as they are stored.
fn coco(orientations: &[u8], as_stored: bool) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let (mut files, mut images, mut objects) = (Vec::new(), Vec::new(), Vec::new());
    for (id, &orientation) in (1_u8..).zip(orientations) {
        let bytes = match id % 2 {
            0 => webp(picture(id), orientation),
            _ => png(picture(id), orientation),
        };
        let [height, width] = match as_stored && orientation > 4 {
            true => [SEEN[1], SEEN[0]],
            false => SEEN,
        };
        let name = format!("{id}.{}", if id % 2 == 0 { "webp" } else { "png" });
        images.push(json!({ "id": id, "height": height, "width": width, "file_name": name }));
        objects.push(json!({
            "id": id, "image_id": id, "category_id": 1, "bbox": [1, 2, 9, 8], "area": 72,
            "iscrowd": 0, "segmentation": [[1, 2, 10, 2, 10, 10, 1, 10]],
        }));
        for part in coco_tree::PARTS {
            files.push((format!("{part}/{name}"), bytes.clone()));
        }
    }
    let categories = [json!({ "id": 1, "name": "thing" })];
    let text = json!({ "images": images, "categories": categories, "annotations": objects });
    for part in coco_tree::PARTS {
        files.push((format!("annotations/instances_{part}.json"), text.to_string().into()));
    }
    coco_tree::write_folder(root.path(), &files);
    root
}

fn open(root: &TempDir, exif: Option<Exif>) -> Splits {
    let config = DataConfig { exif, ..coco_tree::config(root.path()) };
    vim_data::open::<ImageObjects>(&config).unwrap()
}

fn known_of(split: &Split) -> KnownImages {
    KnownImages::of_split(split, "test images", 2, &|_| {}).unwrap()
}

const ALL: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

#[test]
fn objects_are_where_viewers_show_them() {
    let (turned, upright) = (coco(&ALL, false), coco(&[1; 8], false));
    let (turned, upright) = (open(&turned, None), open(&upright, None));
    let seen = coco_tree::scenes(&turned.test);
    assert_eq!(seen, coco_tree::scenes(&upright.test));
    assert_eq!(seen[4].image, picture(5));
    let training = coco_tree::training(2);
    let epoch = |splits: &Splits| coco_tree::epoch(&splits.train, training.clone());
    assert_eq!(epoch(&turned), epoch(&upright));
    let described = |splits: &Splits| {
        let loader = Loader::new(splits.train.clone(), training.clone()).unwrap();
        loader.describe(0).unwrap().into_iter().map(|one| one.source).collect::<Vec<_>>()
    };
    assert_eq!(described(&turned), described(&upright));
    let KnownImages { bad, notes, .. } = known_of(&turned.test);
    assert_eq!((bad.len(), notes.len()), (0, 1));
    let expected =
        "7 of 8 test images have an EXIF orientation, and are turned as viewers show them";
    assert!(notes[0].starts_with(expected), "{notes:?}");
}

#[test]
fn annotations_of_the_pixels_as_stored_are_told_by_the_size() {
    let root = coco(&ALL, true);
    let splits = open(&root, None);
    let scenes = coco_tree::scenes(&splits.test);
    for (scene, orientation) in scenes.iter().zip(ALL) {
        let upright = picture(orientation);
        let expected = if orientation > 4 { stored(upright, orientation) } else { upright };
        assert_eq!(scene.image, expected, "{orientation}");
    }
    let KnownImages { bad, notes, .. } = known_of(&splits.test);
    assert!(bad.is_empty(), "{bad:?}");
    let expected = "of which 3 are turned as viewers show them and 4 stay as stored, since their \
                    annotations are of that size; 3 fit either way and are turned";
    assert!(notes[0].contains(expected) && notes[0].contains("exif = \"ignore\""), "{notes:?}");

    // All as stored, as earlier versions did it.
    let ignoring = open(&root, Some(Exif::Ignore));
    for (scene, orientation) in coco_tree::scenes(&ignoring.test).iter().zip(ALL) {
        assert_eq!(scene.image, stored(picture(orientation), orientation), "{orientation}");
    }
    assert!(known_of(&ignoring.test).notes[0].contains("which is not applied"));
}

#[test]
fn what_only_a_turn_would_fit_is_said() {
    let root = coco(&[6, 3], false);
    let splits = open(&root, Some(Exif::Ignore));
    let bad = known_of(&splits.test).bad;
    assert_eq!(bad.len(), 1, "upside down fits");
    let expected = "28 × 20 pixels as stored, and 20 × 28, as what belongs to it, as its EXIF \
                    orientation 6 turns it; set data.exif = \"apply\"";
    assert!(bad[0].what.contains(expected), "{bad:?}");
}

/// Labels of a picture as it is seen.
fn labels() -> Vec<u8> {
    (0..SEEN[0] * SEEN[1]).map(|at| 1 + (at / 5 % 12) as u8).collect()
}

/// Labels as a file of this orientation has them.
fn labels_file(orientation: u8) -> Vec<u8> {
    let grey = labels().iter().flat_map(|&label| [label; 3]).collect();
    let of = stored(Pixels { height: SEEN[0], width: SEEN[1], data: grey }, orientation);
    let values: Vec<u8> = of.data.chunks_exact(3).map(|pixel| pixel[0]).collect();
    known::turned(&pairs::labels_png([of.height, of.width], &values), orientation)
}

#[test]
fn a_label_map_is_turned_by_its_own_orientation() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("pairs");
    // The images', and those of the label maps.
    let orientations = [(6, 1), (3, 1), (8, 8), (1, 6), (7, 3)];
    let mut files = Vec::new();
    for (number, (of_image, of_map)) in orientations.into_iter().enumerate() {
        for of in ["training", "validation"] {
            let name = |half: &str| format!("{half}/{of}/{number}.png");
            files.push((name("images"), png(picture(number as u8), of_image)));
            files.push((name("annotations"), labels_file(of_map)));
        }
    }
    pairs::write_files(&folder, &files);
    let splits = pairs::open(&folder).unwrap();
    assert!(known_of(&splits.test).bad.is_empty());
    for (number, pair) in pairs::pairs(&splits.test).into_iter().enumerate() {
        let zero_based: Vec<u8> = labels().iter().map(|label| label - 1).collect();
        assert_eq!(pair.image, picture(number as u8), "{number}");
        assert_eq!((pair.map.size(), pair.map.labels), (SEEN, zero_based), "{number}");
    }
    let config = DataConfig { exif: Some(Exif::Ignore), ..pairs::of_path(&folder) };
    let ignoring = vim_data::open::<LabelMap>(&config).unwrap();
    // Of the first and the fourth the sizes differ as stored, and of the last.
    assert_eq!(known_of(&ignoring.test).bad.len(), 3);
}

/// Pictures of these orientations in a folder of two classes.
fn classes(orientations: [u8; 8]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (number, orientation) in (0_u8..).zip(orientations) {
        for part in ["train", "val"] {
            let folder = root.path().join(part).join(["a", "b"][usize::from(number % 2)]);
            fs::create_dir_all(&folder).unwrap();
            let bytes = png(picture(number), orientation);
            fs::write(folder.join(format!("{number}.png")), bytes).unwrap();
        }
    }
    root
}

fn of_classes(root: &Path, exif: Option<Exif>) -> DataConfig {
    DataConfig {
        dataset: DatasetKind::Folder,
        path: Some(root.to_owned()),
        stage: Stage::Off,
        exif,
        ..DataConfig::default()
    }
}

#[test]
fn classes_are_turned_when_that_is_asked_for() {
    let (turned, upright) = (classes(ALL), classes([1; 8]));
    let batches = |root: &TempDir, exif| -> Vec<Batch> {
        let splits = vim_data::open::<Class>(&of_classes(root.path(), exif)).unwrap();
        let on_bad = OnBad::Fail;
        let test = LoaderConfig::evaluation(4, [16; 2], 2, 0.875);
        let train = LoaderConfig::training(4, [16; 2], 2, 3, Recipe::default());
        [(splits.test, test), (splits.train, train)]
            .into_iter()
            .flat_map(|(split, config)| {
                let loader = Loader::new(split, LoaderConfig { on_bad, ..config }).unwrap();
                loader.epoch(1, 0).map(Result::unwrap).collect::<Vec<_>>()
            })
            .collect()
    };
    let expected = batches(&upright, None);
    assert_eq!(batches(&turned, Some(Exif::Apply)), expected);
    assert_eq!(batches(&upright, Some(Exif::Apply)), expected);
    assert_ne!(batches(&turned, None), expected, "timm does not turn them");

    let notes = |exif| {
        let config = of_classes(turned.path(), exif);
        let sources = vim_data::open_images(&config, &EnvPaths::default()).unwrap();
        vim_data::scan(&sources.train, 2, &|_| {}).unwrap().notes
    };
    let count = "7 of 8 images have an EXIF orientation, ";
    assert!(notes(None)[0].starts_with(&format!("{count}which is not applied, as by timm")));
    assert!(notes(Some(Exif::Apply))[0].starts_with(&format!("{count}and are turned")));
}

#[test]
fn a_picture_is_read_either_way() {
    let path = golden::path("odd/exif6.jpg");
    let [plain, turned] =
        [Exif::Ignore, Exif::Apply].map(|exif| read_whole_picture(&path, exif).unwrap());
    assert_eq!(stored(turned.clone(), 6), plain);
    assert_ne!(turned, plain);
}

#[test]
fn the_key_is_recorded_where_it_matters() {
    let of = |dataset, exif| DataConfig { dataset, exif, ..DataConfig::default() }.effective().exif;
    let (apply, ignore) = (Some(Exif::Apply), Some(Exif::Ignore));
    for dataset in [DatasetKind::Coco, DatasetKind::Pairs, DatasetKind::Ade20k] {
        assert_eq!([None, apply, ignore].map(|exif| of(dataset, exif)), [apply, apply, ignore]);
    }
    for dataset in [DatasetKind::Folder, DatasetKind::Imagenet] {
        assert_eq!([None, apply, ignore].map(|exif| of(dataset, exif)), [None, apply, None]);
    }
    for dataset in [DatasetKind::Shapes, DatasetKind::Cifar10] {
        assert_eq!([None, apply, ignore].map(|exif| of(dataset, exif)), [None; 3]);
    }
}
