//! Images with label maps: procedural ones, and the same in files, laid out as ADE20K is.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use vim_data::{
    BadTrain, Batch, Class, DataConfig, DataError, DatasetKind, DenseRecipe, EvalPair, EvalPairs,
    Floors, IGNORED, LabelMap, Loader, LoaderConfig, OnBad, Pixels, Purpose, Sample,
    ShapesBackground, ShapesConfig, SourceError, Split, Splits, Stage, encode_png,
};

use crate::trees::tar_of;

pub(crate) const SIDE: usize = 32;

pub(crate) fn scenes(background: ShapesBackground) -> Splits {
    let shapes = ShapesConfig {
        image_size: SIDE,
        train: 24,
        val: 0,
        test: 8,
        seed: 5,
        background,
        ..ShapesConfig::default()
    };
    vim_data::open::<LabelMap>(&DataConfig { shapes, ..DataConfig::default() }).unwrap()
}

/// A grey PNG of these values.
pub(crate) fn grey_png(
    size: [usize; 2],
    values: &[u8],
    color: png::ColorType,
    bits: png::BitDepth,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, size[1] as u32, size[0] as u32);
    encoder.set_color(color);
    encoder.set_depth(bits);
    if color == png::ColorType::Indexed {
        encoder.set_palette(vec![0; 3 * 256]);
    }
    encoder.write_header().unwrap().write_image_data(values).unwrap();
    bytes
}

pub(crate) fn labels_png(size: [usize; 2], values: &[u8]) -> Vec<u8> {
    grey_png(size, values, png::ColorType::Grayscale, png::BitDepth::Eight)
}

/// An image and its label map as the dataset gives them.
pub(crate) fn sample(split: &Split, position: usize) -> Sample {
    let mut sample = Sample::default();
    split.dataset().read(split.index(position), &mut sample).unwrap();
    sample
}

/// The scenes as files by name, in ADE20K's folders.
pub(crate) fn files() -> Vec<(String, Vec<u8>)> {
    let Splits { train, test, .. } = scenes(ShapesBackground::Ignored);
    let mut files = Vec::new();
    for (of, word, split) in [("training", "train", &train), ("validation", "val", &test)] {
        for number in 0..split.len() {
            let Sample { image, labels } = sample(split, number);
            let image = Pixels { height: SIDE, width: SIDE, data: image };
            let name = format!("ADE_{word}_{:08}", number + 1);
            let root = "ADEChallengeData2016";
            files.push((format!("{root}/images/{of}/{name}.png"), encode_png(&image).unwrap()));
            let labels = labels_png([SIDE; 2], &labels);
            files.push((format!("{root}/annotations/{of}/{name}.png"), labels));
        }
    }
    files.push(("ADEChallengeData2016/objectInfo150.txt".into(), b"Idx".to_vec()));
    files
}

pub(crate) fn write_files(root: &Path, files: &[(String, Vec<u8>)]) {
    for (name, bytes) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// The files in a folder, a tar and a zip: paths of the three.
pub(crate) fn laid_out(root: &Path) -> [PathBuf; 3] {
    let files = files();
    all_of(root, &files)
}

/// These files in a folder, a tar and a zip: paths of the three.
pub(crate) fn all_of(root: &Path, files: &[(String, Vec<u8>)]) -> [PathBuf; 3] {
    let [folder, tar, zip] = ["tree", "ade.tar", "ade.zip"].map(|name| root.join(name));
    write_files(&folder, files);
    // The order is not the sorted one.
    let reversed: Vec<_> = files.iter().rev().cloned().collect();
    fs::write(&tar, tar_of(&reversed)).unwrap();
    let mut writer = zip::ZipWriter::new(fs::File::create(&zip).unwrap());
    for (at, (name, bytes)) in reversed.iter().enumerate() {
        let method = [zip::CompressionMethod::Stored, zip::CompressionMethod::Deflated][at % 2];
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        writer.start_file(name.as_str(), options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap();
    [folder, tar, zip]
}

/// The configuration of pairs at `path` with the twelve classes of the scenes.
pub(crate) fn of_path(path: &Path) -> DataConfig {
    let classes = path.with_file_name("names.txt");
    fs::write(&classes, (1..=12).map(|class| format!("class {class}\n")).collect::<String>())
        .unwrap();
    DataConfig {
        dataset: DatasetKind::Pairs,
        path: Some(path.to_owned()),
        classes: Some(classes),
        reduce_zero_label: Some(true),
        stage: Stage::Off,
        ..DataConfig::default()
    }
}

pub(crate) fn open(path: &Path) -> Result<Splits, DataError> {
    vim_data::open::<LabelMap>(&of_path(path))
}

pub(crate) fn pairs(split: &Split) -> Vec<EvalPair> {
    let all = EvalPairs::new(split, (0..split.len()).collect(), 3, OnBad::Fail).unwrap();
    all.map(|pair| pair.unwrap().unwrap()).collect()
}

pub(crate) fn training(workers: usize) -> LoaderConfig {
    let recipe = DenseRecipe { scale: [4 * SIDE, SIDE], ..DenseRecipe::default() };
    LoaderConfig {
        batch_size: 4,
        size: [SIDE; 2],
        workers,
        readers: workers,
        prefetch: 2,
        seed: 9,
        shards: vim_data::Shards::WHOLE,
        purpose: Purpose::Dense(recipe),
        on_bad: OnBad::Replace,
        fill: [0; 3],
    }
}

pub(crate) fn epoch(split: &Split, config: LoaderConfig) -> Vec<Batch> {
    let loader = Loader::new(split.clone(), config).unwrap();
    loader.epoch(1, 0).map(Result::unwrap).collect()
}

/// If this fails, every published figure on them is void: change the version in the key instead.
#[test]
fn scenes_are_pinned() {
    let Splits { train, test, .. } = scenes(ShapesBackground::Ignored);
    let mut hasher = blake3::Hasher::new();
    for split in [&train, &test] {
        (0..split.len()).for_each(|at| {
            let Sample { image, labels } = sample(split, at);
            hasher.update(&image).update(&labels).update(&(image.len() as u64).to_le_bytes());
        });
    }
    assert_eq!(hasher.finalize().to_hex()[..16], *"67292fe70f6daa47");
}

#[test]
fn a_scene_has_figures_over_each_other_on_a_background_that_may_be_a_class() {
    let ignored = scenes(ShapesBackground::Ignored).train;
    let class = scenes(ShapesBackground::Class).train;
    assert_eq!((ignored.num_classes(), class.num_classes()), (12, 13));
    assert_eq!(class.class_names()[0], "background");
    assert_eq!(class.class_names()[1..], *ignored.class_names());
    let (ignored, class) = (pairs(&ignored), pairs(&class));
    let mut seen = BTreeSet::new();
    let mut figures = BTreeSet::new();
    for (a, b) in ignored.iter().zip(&class) {
        assert_eq!(a.image, b.image);
        for (&a, &b) in a.map.labels.iter().zip(&b.map.labels) {
            assert_eq!(b, if a == IGNORED { 0 } else { a + 1 });
        }
        let mut classes: Vec<u8> = b.map.labels.clone();
        classes.sort_unstable();
        classes.dedup();
        figures.insert(classes.len());
        seen.extend(classes);
    }
    assert_eq!(seen.len(), 13, "every class is somewhere in 24 scenes");
    assert!(figures.contains(&2) && figures.contains(&4), "{figures:?}");
}

#[test]
fn every_layout_gives_the_same_pairs() {
    let root = tempfile::tempdir().unwrap();
    let drawn = scenes(ShapesBackground::Ignored);
    let expected = [pairs(&drawn.train), pairs(&drawn.test)];
    let [folder, tar, zip] = laid_out(root.path());
    let inner = folder.join("ADEChallengeData2016");
    let mut fingerprints = BTreeSet::new();
    // Opened twice: the second time by the cached index.
    for path in [&folder, &inner, &tar, &zip, &tar, &zip] {
        let splits = open(path).unwrap();
        assert_eq!([pairs(&splits.train), pairs(&splits.test)], expected, "{}", path.display());
        fingerprints.insert(splits.train.dataset().fingerprint().to_string());
        assert_eq!(splits.train.class_names()[11], "class 12");
    }
    assert_eq!(fingerprints.len(), 1);
}

#[test]
fn archives_are_staged_once_and_folders_are_not() {
    let root = tempfile::tempdir().unwrap();
    let disk = tempfile::tempdir().unwrap();
    let [folder, _, zip] = laid_out(root.path());
    let paths = vim_data::EnvPaths { node_disk: Some(disk.path().to_owned()), cache: None };
    let staged = |path: &Path| DataConfig { stage: Stage::Require, ..of_path(path) };
    let sources = vim_data::open_pairs(&staged(&zip), &paths).unwrap();
    assert!(sources.staging.is_some());
    // The copy alone is left.
    fs::remove_file(&zip).unwrap();
    let split = Split::whole(std::sync::Arc::new(sources.train));
    assert_eq!(pairs(&split), pairs(&scenes(ShapesBackground::Ignored).train));
    let refused = vim_data::open_pairs(&staged(&folder), &paths).unwrap_err().to_string();
    assert!(refused.contains("folders of files are read where they are"), "{refused}");
}

#[test]
fn ade20k_knows_its_classes_and_tells_of_missing_pairs() {
    let root = tempfile::tempdir().unwrap();
    let [folder, ..] = laid_out(root.path());
    let config = DataConfig {
        dataset: DatasetKind::Ade20k,
        path: Some(folder),
        stage: Stage::Off,
        ..DataConfig::default()
    };
    let splits = vim_data::open::<LabelMap>(&config).unwrap();
    assert_eq!(splits.train.num_classes(), 150);
    let maps = splits.train.dataset().label_maps().unwrap();
    assert_eq!((maps.rule.reduce_zero, maps.colours[0]), (true, [120, 120, 120]));
    let notes = splits.notes.join("\n");
    assert!(notes.contains("24 training pairs; ADE20K as published has 20210"), "{notes}");
    let held = DataConfig { val_fraction: 0.25, ..config.clone() };
    let splits = vim_data::open::<LabelMap>(&held).unwrap();
    assert_eq!((splits.train.len(), splits.val.unwrap().len()), (18, 6));
    for refused in [
        vim_data::open::<Class>(&config).map(|_| ()),
        vim_data::dry_run::<Class>(&config).map(|_| ()),
    ] {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("ade20k") && error.contains("task = \"segmentation\""), "{error}");
    }
    let cifar = DataConfig { dataset: DatasetKind::Cifar10, ..DataConfig::default() };
    let error = vim_data::open::<LabelMap>(&cifar).unwrap_err().to_string();
    assert!(error.contains("a dataset with label maps"), "{error}");
}

#[test]
fn crops_do_not_depend_on_threads_or_on_where_the_pairs_are() {
    let root = tempfile::tempdir().unwrap();
    let [folder, _, zip] = laid_out(root.path());
    let drawn = epoch(&scenes(ShapesBackground::Ignored).train, training(1));
    assert_eq!(drawn.len(), 6);
    for path in [&folder, &zip] {
        assert_eq!(epoch(&open(path).unwrap().train, training(3)), drawn);
    }
    let maps: Vec<u8> =
        drawn.iter().flat_map(|batch| batch.label_maps.as_ref().unwrap().to_vec()).collect();
    assert_eq!(maps.len(), 24 * SIDE * SIDE);
    assert!(maps.iter().all(|&label| label < 12 || label == IGNORED));
    // Images drawn smaller than the crop are padded, and the boxes say where.
    assert!(drawn.iter().any(|batch| !batch.erased.is_empty()));
    // A later start makes the same.
    let loader = Loader::new(scenes(ShapesBackground::Ignored).train, training(2)).unwrap();
    let late: Vec<Batch> = loader.epoch(1, 4).map(Result::unwrap).collect();
    assert_eq!(late, drawn[4..]);
    // Shards are the batch's images, each once.
    let mut images = BTreeSet::new();
    for first in [0, 1] {
        let shards = vim_data::Shards { first, count: 1, of: 2 };
        let config = LoaderConfig { batch_size: 2, shards, ..training(1) };
        let batches = epoch(&scenes(ShapesBackground::Ignored).train, config);
        images.extend(batches.iter().flat_map(|batch| batch.indices.clone()));
    }
    assert_eq!(images.len(), 24);
}

/// A tree with one file replaced.
pub(crate) fn spoiled(name: &str, bytes: Vec<u8>) -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("tree");
    let mut files = files();
    let name = format!("ADEChallengeData2016/{name}");
    files.iter_mut().find(|(other, _)| *other == name).unwrap().1 = bytes;
    write_files(&folder, &files);
    (root, folder)
}

#[test]
fn bad_pairs_are_named_and_replaced() {
    let map = "annotations/training/ADE_train_00000003.png";
    let area = SIDE * SIDE;
    let (grey, eight) = (png::ColorType::Grayscale, png::BitDepth::Eight);
    for (name, bytes, expected) in [
        ("images/training/ADE_train_00000003.png", b"nothing".to_vec(), "no JPEG, PNG"),
        (map, Vec::new(), "has a label map that is empty"),
        (
            map,
            labels_png([SIDE, SIDE - 1], &vec![1; area - SIDE]),
            "32 × 32 pixels and a label map of 32 × 31",
        ),
        (
            map,
            labels_png([SIDE; 2], &vec![13; area]),
            "the value 13, and 12 classes are numbered 1 to 12",
        ),
        (
            map,
            grey_png([SIDE; 2], &vec![13; area], png::ColorType::Indexed, eight),
            "the value 13, and 12 classes",
        ),
        (
            map,
            grey_png([SIDE; 2], &vec![1; 2 * area], grey, png::BitDepth::Sixteen),
            "grey PNG of 16 bits",
        ),
        (
            map,
            grey_png([SIDE; 2], &vec![1; 3 * area], png::ColorType::Rgb, eight),
            "PNG of colours",
        ),
    ] {
        let (_root, folder) = spoiled(name, bytes);
        let train = open(&folder).unwrap().train;
        let loader = Loader::new(train.clone(), training(2)).unwrap();
        let mut batches = loader.epoch(1, 0);
        let made: Vec<Batch> = batches.by_ref().map(Result::unwrap).collect();
        assert!(made.iter().all(|batch| !batch.indices.contains(&2)), "{expected}");
        let bad = batches.take_bad();
        assert!(bad[0].reason.contains(expected), "{}", bad[0].reason);
        assert!(bad[0].name.ends_with("ADE_train_00000003.png"), "{}", bad[0].name);
        let fails = LoaderConfig { on_bad: BadTrain::Fail.into(), ..training(2) };
        let loader = Loader::new(train, fails).unwrap();
        assert!(loader.epoch(1, 0).any(|batch| batch.is_err()));
    }
}

#[test]
fn verification_and_a_scan_name_bad_pairs() {
    let (_root, folder) = spoiled("annotations/training/ADE_train_00000003.png", b"?".to_vec());
    let sources = vim_data::open_pairs(&of_path(&folder), &vim_data::EnvPaths::default()).unwrap();
    let report = vim_data::verify_pairs(&sources.train, 2, &|_| {}).unwrap();
    assert_eq!((report.images, report.good, report.bad.len()), (24, 23, 1));
    assert_eq!(report.bad[0].index, 2);
    assert!(report.bad[0].what.contains("label map that begins with `?`"), "{:?}", report.bad);
    let report = vim_data::verify_pairs(sources.val.as_ref().unwrap(), 2, &|_| {}).unwrap();
    assert_eq!((report.good, report.bad.len()), (8, 0));
    let report = vim_data::scan(sources.train.label_map_files(), 2, &|_| {}).unwrap();
    assert_eq!((report.images, report.odd.len(), report.kinds["grey PNG"]), (24, 1, 23));
}

#[test]
fn an_evaluation_fails_or_counts_a_bad_pair() {
    let (_root, folder) = spoiled("annotations/validation/ADE_val_00000002.png", b"?".to_vec());
    let test = open(&folder).unwrap().test;
    let all = |on_bad| EvalPairs::new(&test, (0..8).collect(), 2, on_bad).unwrap();
    let results: Vec<_> = all(OnBad::Fail).collect();
    assert!(
        matches!(&results[1], Err(DataError::BadImage { name, .. }) if name.contains("ADE_val_00000002"))
    );
    let results: Vec<_> = all(OnBad::CountAsWrong).map(Result::unwrap).collect();
    assert_eq!(results.iter().filter(|pair| pair.is_err()).count(), 1);
    assert_eq!(results[1].as_ref().unwrap_err().position, 1);
}

#[test]
fn files_without_partners_and_missing_folders_are_named() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("tree");
    let inner = folder.join("ADEChallengeData2016");
    write_files(&folder, &files());
    let config = DataConfig { classes: None, ..of_path(&folder) };
    let error = vim_data::open::<LabelMap>(&config).unwrap_err().to_string();
    assert!(error.contains("data.classes"), "{error}");
    fs::remove_file(inner.join("annotations/validation/ADE_val_00000005.png")).unwrap();
    let error = open(&folder).unwrap_err();
    assert!(matches!(error, DataError::Source(SourceError::Unpaired { missing: "label map", .. })));
    assert!(error.to_string().contains("ADE_val_00000005"), "{error}");
    fs::remove_file(inner.join("images/validation/ADE_val_00000005.png")).unwrap();
    fs::remove_file(inner.join("images/training/ADE_train_00000024.png")).unwrap();
    let error = open(&folder).unwrap_err();
    assert!(matches!(error, DataError::Source(SourceError::Unpaired { missing: "image", .. })));
    fs::remove_dir_all(inner.join("annotations")).unwrap();
    let error = open(&folder).unwrap_err().to_string();
    assert!(
        error.contains("training label maps") && error.contains("annotations/training"),
        "{error}"
    );

    let cut = root.path().join("cut.zip");
    fs::write(&cut, b"PK\x03\x04 and no more").unwrap();
    let error = open(&cut).unwrap_err();
    assert!(matches!(error, DataError::Source(SourceError::Zip { .. })), "{error}");
}

#[test]
fn neither_the_commonest_class_nor_colours_tell_the_figures() {
    let shapes = ShapesConfig {
        image_size: SIDE,
        train: 150,
        val: 0,
        test: 50,
        seed: 0,
        background: ShapesBackground::Class,
        ..ShapesConfig::default()
    };
    let config = DataConfig { shapes, ..DataConfig::default() };
    let Splits { train, test, .. } = vim_data::open::<LabelMap>(&config).unwrap();
    let Floors { majority, colour } = Floors::measure(&train, &test, 1000).unwrap();
    // The background alone is right.
    let scores = majority.class_scores();
    assert_eq!(scores.iter().filter(|score| score.correct > 0).count(), 1);
    assert!(
        scores[0].correct > 0
            && (majority.mean_iou() * 13.0 - scores[0].iou().unwrap()).abs() < 1e-9
    );
    assert!((0.01..0.15).contains(&colour.mean_iou()), "{}", colour.mean_iou());
}
