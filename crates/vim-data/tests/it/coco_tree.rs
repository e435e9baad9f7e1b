//! Procedural images with objects, and the same in files, laid out as COCO is.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use vim_data::mask_ops::rle_to_string;
use vim_data::{
    Batch, DataConfig, DataError, DatasetKind, Detection, EvalScene, EvalScenes, ImageObjects,
    Loader, LoaderConfig, Mask, ObjectRecipe, OnBad, Purpose, ShapesConfig, Split, Splits, Stage,
    encode_png,
};

pub(crate) const SIDE: usize = 48;

pub(crate) fn shapes(train: usize) -> DataConfig {
    let shapes =
        ShapesConfig { image_size: SIDE, train, val: 0, test: 6, seed: 5, ..Default::default() };
    DataConfig { shapes, ..DataConfig::default() }
}

pub(crate) fn drawn() -> Splits {
    vim_data::open::<ImageObjects>(&shapes(16)).unwrap()
}

pub(crate) fn scenes(split: &Split) -> Vec<EvalScene> {
    let all = EvalScenes::new(split, (0..split.len()).collect(), 3, OnBad::Fail).unwrap();
    all.map(|scene| scene.unwrap().unwrap()).collect()
}

/// Number of the category of a class: with gaps.
pub(crate) fn category(class: u32) -> u64 {
    3 * u64::from(class) + 2
}

/// The annotations of a part, in an order that is not that of the numbers; polygons around the
/// boxes where `polygons` says so.
pub(crate) fn annotations(split: &Split, polygons: bool) -> Value {
    let mut categories: Vec<Value> = (0..)
        .zip(split.class_names())
        .map(|(class, name)| json!({ "id": category(class), "name": name }))
        .collect();
    categories.reverse();
    let (mut images, mut objects) = (Vec::new(), Vec::new());
    for scene in scenes(split) {
        let ImageObjects { id, objects: of_image, .. } = scene.objects;
        images.push(json!({ "id": id, "height": SIDE, "width": SIDE, "file_name": file(id) }));
        for object in of_image {
            let [x, y, width, height] = object.bbox;
            let (right, below) = (x + width, y + height);
            let Some(Mask::Runs(rle)) = &object.mask else { panic!("{object:?}") };
            let mask = match polygons && !object.crowd {
                true => json!([[x, y, right, y, right, below, x, below]]),
                false => json!({ "size": [rle.h, rle.w], "counts": rle_to_string(rle) }),
            };
            objects.push(json!({
                "id": object.id, "image_id": id, "category_id": category(object.class),
                "bbox": object.bbox, "area": object.area, "iscrowd": u8::from(object.crowd),
                "segmentation": mask,
            }));
        }
    }
    images.reverse();
    json!({ "images": images, "categories": categories, "annotations": objects })
}

pub(crate) fn file(id: u64) -> String {
    format!("{id:012}.png")
}

pub(crate) const PARTS: [&str; 2] = ["train2017", "val2017"];

/// The scenes as files by name, in COCO's folders.
pub(crate) fn files(polygons: bool) -> Vec<(String, Vec<u8>)> {
    let Splits { train, test, .. } = drawn();
    let mut files = Vec::new();
    for (name, split) in PARTS.into_iter().zip([&train, &test]) {
        for scene in scenes(split) {
            let image = encode_png(&scene.image).unwrap();
            files.push((format!("{name}/{}", file(scene.objects.id)), image));
        }
        let text = annotations(split, polygons).to_string();
        files.push((format!("annotations/instances_{name}.json"), text.into_bytes()));
    }
    files
}

pub(crate) fn write_folder(root: &Path, files: &[(String, Vec<u8>)]) {
    for (name, bytes) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// The three zips as published.
pub(crate) fn write_zips(root: &Path, files: &[(String, Vec<u8>)]) {
    fs::create_dir_all(root).unwrap();
    for (zip, folder) in [
        ("train2017.zip", "train2017/"),
        ("val2017.zip", "val2017/"),
        ("annotations_trainval2017.zip", "annotations/"),
    ] {
        let mut writer = zip::ZipWriter::new(fs::File::create(root.join(zip)).unwrap());
        for (name, bytes) in files.iter().rev().filter(|(name, _)| name.starts_with(folder)) {
            let options = zip::write::SimpleFileOptions::default();
            writer.start_file(name.as_str(), options).unwrap();
            writer.write_all(bytes).unwrap();
        }
        writer.finish().unwrap();
    }
}

pub(crate) fn config(path: &Path) -> DataConfig {
    DataConfig {
        dataset: DatasetKind::Coco,
        path: Some(path.to_owned()),
        stage: Stage::Off,
        ..DataConfig::default()
    }
}

pub(crate) fn open(path: &Path) -> Result<Splits, DataError> {
    vim_data::open::<ImageObjects>(&config(path))
}

pub(crate) fn training(workers: usize) -> LoaderConfig {
    LoaderConfig {
        batch_size: 4,
        size: [SIDE; 2],
        workers,
        readers: workers,
        prefetch: 2,
        seed: 9,
        shards: vim_data::Shards::WHOLE,
        purpose: Purpose::Objects(ObjectRecipe::default()),
        on_bad: OnBad::Replace,
        fill: [0; 3],
    }
}

pub(crate) fn epoch(split: &Split, config: LoaderConfig) -> Vec<Batch> {
    let loader = Loader::new(split.clone(), config).unwrap();
    loader.epoch(1, 0).map(Result::unwrap).collect()
}

/// The files with the value at `pointer` of a part's annotations replaced.
pub(crate) fn spoiled(
    part: &str,
    polygons: bool,
    pointer: &str,
    value: Value,
) -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let mut files = files(polygons);
    let name = format!("annotations/instances_{part}.json");
    let (_, bytes) = files.iter_mut().find(|(other, _)| *other == name).unwrap();
    let mut content: Value = serde_json::from_slice(bytes).unwrap();
    *content.pointer_mut(pointer).expect("the place is there") = value;
    *bytes = content.to_string().into_bytes();
    let folder = root.path().join("tree");
    write_folder(&folder, &files);
    (root, folder)
}

/// The objects of a split that are no crowds, as if a model had found them.
pub(crate) fn as_annotated(split: &Split) -> impl Iterator<Item = Detection> + use<> {
    let categories = split.dataset().object_classes().unwrap().categories.clone();
    scenes(split).into_iter().flat_map(move |scene| {
        let (image, categories) = (scene.objects.id, categories.clone());
        let seen = scene.objects.objects.into_iter().filter(|object| !object.crowd);
        seen.map(move |object| Detection {
            image,
            category: categories[object.class as usize].unwrap(),
            score: 0.5,
            bbox: object.bbox,
            mask: object.mask,
        })
    })
}
