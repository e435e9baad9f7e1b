//! A small ImageNet, laid out in every way that is read.
//!
//! Its "images" are a few bytes each: none is decoded here.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use vim_data::{DataConfig, DataError, DatasetKind, EnvPaths, Split, Splits, Stage};

/// Class, file name and content of an image.
pub(crate) type Image = (String, String, Vec<u8>);

/// Training images in the order expected: by class, then by the bytes of the name.
pub(crate) fn train() -> Vec<Image> {
    let of_class =
        |class| ["1", "10", "2", "x"].map(|number| image(class, format!("{class}_{number}.JPEG")));
    ["n01", "n02", "n03"].into_iter().flat_map(of_class).collect()
}

/// Validation images, likewise; by name alone their classes would alternate.
pub(crate) fn val() -> Vec<Image> {
    let places = [("n01", 3), ("n01", 5), ("n02", 1), ("n02", 6), ("n03", 2), ("n03", 4)];
    let named = |(class, number)| image(class, format!("ILSVRC2012_val_{number:08}.JPEG"));
    places.map(named).into()
}

fn image(class: &str, name: String) -> Image {
    let bytes = bytes(&name);
    (class.to_owned(), name, bytes)
}

/// The classes of [`val`] in the order of the names, a line each.
pub(crate) const VAL_LIST: &str = "n02\nn03\nn01\nn03\nn01\nn02\n";

/// A content of its own for every name, of many lengths, one of them a multiple of a tar's block.
fn bytes(name: &str) -> Vec<u8> {
    let hash = *blake3::hash(name.as_bytes()).as_bytes();
    let length = if name.contains("_10") { 1024 } else { 40 + 9 * usize::from(hash[0]) };
    [b"\xff\xd8".as_slice(), &hash, &vec![hash[1]; length - 34]].concat()
}

/// Writes images to `root/class/name`.
pub(crate) fn folder(root: &Path, images: &[Image]) {
    for (class, name, bytes) in images {
        fs::create_dir_all(root.join(class)).unwrap();
        fs::write(root.join(class).join(name), bytes).unwrap();
    }
}

/// A tar of files by name, in the order given.
pub(crate) fn tar_of(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, bytes.as_slice()).unwrap();
    }
    tar.into_inner().unwrap()
}

/// The training archive as published: a tar for each class, in a tar. The order is not the sorted
/// one.
pub(crate) fn nested_tar(images: &[Image]) -> Vec<u8> {
    let mut classes: Vec<&String> = images.iter().map(|(class, ..)| class).collect();
    classes.dedup();
    let inner = classes.iter().rev().map(|&class| {
        let of_class = images.iter().filter(|(other, ..)| other == class).rev();
        (format!("{class}.tar"), flat_tar(&of_class.cloned().collect::<Vec<_>>()))
    });
    tar_of(&inner.collect::<Vec<_>>())
}

/// The validation archive as published: all images side by side.
pub(crate) fn flat_tar(images: &[Image]) -> Vec<u8> {
    let files: Vec<_> =
        images.iter().map(|(_, name, bytes)| (name.clone(), bytes.clone())).collect();
    tar_of(&files)
}

/// A folder with `ILSVRC2012_img_train.tar`, `ILSVRC2012_img_val.tar` and `val.txt`.
pub(crate) fn published() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("ILSVRC2012_img_train.tar"), nested_tar(&train())).unwrap();
    fs::write(path("ILSVRC2012_img_val.tar"), flat_tar(&val())).unwrap();
    fs::write(path("val.txt"), VAL_LIST).unwrap();
    folder
}

/// A folder with `train` and `val`.
pub(crate) fn unpacked() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    folder(&root.path().join("train"), &train());
    folder(&root.path().join("val"), &val());
    root
}

/// A configuration of the data at `path`.
pub(crate) fn config(path: impl Into<PathBuf>) -> DataConfig {
    let (dataset, stage) = (DatasetKind::Folder, Stage::Off);
    DataConfig { dataset, stage, path: Some(path.into()), ..DataConfig::default() }
}

/// Opens with nothing around.
pub(crate) fn open(config: &DataConfig) -> Result<Splits, DataError> {
    vim_data::open_in::<vim_data::Class>(config, &EnvPaths::default())
}

/// Every image of a split as it is read; names without what is before them.
pub(crate) fn content(split: &Split) -> Vec<Image> {
    (0..split.len())
        .map(|position| {
            let class = split.class_names()[split.label(position) as usize].clone();
            let name = split.dataset().name(split.index(position));
            let name = name.rsplit(['/', ':']).next().unwrap().to_owned();
            (class, name, split.image(position).unwrap())
        })
        .collect()
}

/// Opens `config` and compares both parts with what there is.
pub(crate) fn check(config: &DataConfig) -> Splits {
    let splits = open(config).unwrap_or_else(|error| panic!("failed to {error}"));
    assert!(content(&splits.train) == train(), "{config:?}");
    assert!(content(&splits.test) == val(), "{config:?}");
    splits
}

/// The error of a configuration that cannot be opened, as users see it.
pub(crate) fn refusal(config: &DataConfig) -> String {
    format!("failed to {}", open(config).expect_err("it opens"))
}
