//! `features`: its values against the library's own, the arrays of its file, and what it refuses.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use burn::tensor::{Device, Tensor, TensorData};
use npyz::{Deserialize, NpyFile};
use serde_json::{Value, json};
use vim_data::{Exif, read_picture};
use vim_engine::weights::place::Place;
use vim_engine::weights::source::WeightsSource;
use vim_model::{LoadOptions, Vim};
use zip::ZipArchive;

use crate::support::{
    Bench, assert_code, assert_parts, assert_says, parsed, repository, run, stderr, stdout,
};

/// Odd files that are images, of vim-data's tests, in folders of classes.
const IMAGES: [(&str, &str); 3] =
    [("cat/a.jpg", "444.jpg"), ("cat/deep/b.png", "gray.png"), ("dög/c.JPEG", "png.JPEG")];

/// A run of a few steps, and a folder of images.
fn trained() -> (Bench, PathBuf) {
    let bench = Bench::new();
    assert_code(&bench.train("a", &["--steps", "4"]), 0);
    let pets = bench.folder("pets");
    for (to, from) in IMAGES {
        fs::create_dir_all(pets.join(to).parent().unwrap()).unwrap();
        copy(from, &pets.join(to));
    }
    (bench, pets)
}

fn copy(name: &str, to: &Path) {
    fs::copy(repository("crates/vim-data/tests/golden/odd").join(name), to).unwrap();
}

fn features(bench: &Bench, images: &Path, more: &[&str]) -> Output {
    let (run_folder, images) = (bench.folder("a/checkpoints/last"), images.display().to_string());
    run(&[&["features", &images, "--checkpoint", run_folder.to_str().unwrap()], more].concat())
}

/// The file's array `name`: its shape and its values.
pub(crate) fn array<T: Deserialize>(path: &Path, name: &str) -> (Vec<u64>, Vec<T>) {
    let mut file = ZipArchive::new(File::open(path).unwrap()).unwrap();
    let entry = file.by_name(&format!("{name}.npy"));
    let array = NpyFile::new(entry.unwrap_or_else(|why| panic!("{name}: {why}"))).unwrap();
    (array.shape().to_vec(), array.into_vec().unwrap())
}

fn floats(path: &Path, name: &str) -> (Vec<u64>, Vec<f32>) {
    array(path, name)
}

fn texts(path: &Path, name: &str) -> Vec<String> {
    array(path, name).1
}

fn integers(path: &Path, name: &str) -> Vec<i64> {
    array(path, name).1
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter().collect()
}

/// The model of the last checkpoint, and the images of [`IMAGES`], normalized here.
fn library(bench: &Bench, pets: &Path) -> (Vim, Tensor<4>) {
    let place = Place::find(&bench.folder("a/checkpoints/last"), pets, None).unwrap();
    let source = WeightsSource::open(&place, None).unwrap();
    let classes = source.arrays.state.array("head.bias").unwrap().values.len();
    let config = source.recorded.as_ref().unwrap().vim().with_classes(classes).unwrap();
    let model = config.init(&Device::flex(), 0).unwrap();
    let (model, _) = model.load(&source.arrays.state, LoadOptions::default()).unwrap();
    let by = source.run.unwrap().data.statistics();
    let mut values = Vec::new();
    for (name, _) in IMAGES {
        let pixels = read_picture(&pets.join(name), [32, 32], Exif::Ignore).unwrap();
        for channel in 0..3 {
            let (mean, std) = (by.mean[channel], by.std[channel]);
            let plane = pixels.iter().skip(channel).step_by(3);
            values.extend(plane.map(|&byte| (f32::from(byte) / 255.0 - mean) / std));
        }
    }
    (model, Tensor::from_data(TensorData::new(values, [3, 3, 32, 32]), &Device::flex()))
}

#[track_caller]
fn assert_close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    let error = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    // Batches of other sizes round otherwise.
    assert!(scale > 0.0 && error < 1e-5 * scale, "{error:.1e} of {scale:.1e}");
}

#[test]
fn vectors_are_what_the_head_reads() {
    let (bench, pets) = trained();
    let path = bench.folder("out.npz");
    let output = features(&bench, &pets, &["-o", path.to_str().unwrap(), "--batch", "2"]);
    assert_code(&output, 0);
    let arrays = "features [3, 32], names [3], layers [1], labels [3], classes [2]";
    assert_eq!(stdout(&output), format!("wrote {}: {arrays}\n", path.display()));

    let (model, images) = library(&bench, &pets);
    let (shape, found) = floats(&path, "features");
    assert_eq!(shape, [3, 32]);
    let found_tensor = TensorData::new(found.clone(), [3, 32]);
    let found_tensor = Tensor::<2>::from_data(found_tensor, &Device::flex());
    let logits = numbers(model.forward(images.clone()).unwrap());
    assert_close(&numbers(model.head.as_ref().unwrap().forward(found_tensor)), &logits);
    let pooled = model.pooled_features(images, &[1]).unwrap().swap_remove(0);
    assert_close(&found, &numbers(pooled));

    let named = |name: &str| pets.join(name).display().to_string();
    assert_eq!(texts(&path, "names"), IMAGES.map(|(name, _)| named(name)));
    assert_eq!(texts(&path, "classes"), ["cat", "dög"]);
    assert_eq!((integers(&path, "labels"), integers(&path, "layers")), (vec![0, 0, 1], vec![1]));

    // The same bytes again, and nothing else in the folder.
    let (bytes, again) = (fs::read(&path).unwrap(), bench.folder("again.npz"));
    let output = features(&bench, &pets, &["-o", again.to_str().unwrap(), "--batch", "2"]);
    assert_code(&output, 0);
    assert!(fs::read(&again).unwrap() == bytes);
    let mut files: Vec<String> = fs::read_dir(bench.folder(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, ["a", "again.npz", "out.npz", "pets"]);
    read_by_numpy(&path, &found);
}

/// Where Python has NumPy, it reads the same.
fn read_by_numpy(path: &Path, features: &[f32]) {
    let script = "import json, sys, numpy as np; a = np.load(sys.argv[1])\n\
        print(json.dumps({k: [str(v.dtype.kind), v.ravel().tolist()] for k, v in a.items()}))";
    let read = Command::new("python3").args(["-c", script]).arg(path).output();
    let Ok(read) = read else { return };
    if stderr(&read).contains("No module named 'numpy'") {
        return;
    }
    assert_code(&read, 0);
    let read = parsed(&read);
    assert_eq!(read["classes"], json!(["U", ["cat", "dög"]]));
    assert_eq!(read["labels"], json!(["i", [0, 0, 1]]));
    assert_eq!(read["features"][0], "f");
    let values: Vec<f32> = serde_json::from_value(read["features"][1].clone()).unwrap();
    assert_eq!(values, features);
}

#[test]
fn maps_of_several_layers_have_the_blocks_outputs() {
    let (bench, pets) = trained();
    let path = bench.folder("maps.npz");
    copy("half.jpg", &pets.join("cat/half.jpg"));
    let name = path.to_str().unwrap();
    let args = ["-o", name, "--maps", "--layers", "-1,0", "--json"];
    let output = features(&bench, &pets, &args);
    let said = ["cat/half.jpg ", "1 of 4 images cannot be used (named above)"];
    assert_says(&output, 65, &said);
    let report: Value = parsed(&output);
    assert_eq!((&report["images"], &report["layers"]), (&json!(3), &json!([1, 0])));
    assert_eq!(report["arrays"]["layer_0"], json!([3, 32, 4, 4]));

    let (model, images) = library(&bench, &pets);
    let maps = model.feature_maps(images, &[1, 0]).unwrap();
    for (map, name) in maps.into_iter().zip(["layer_1", "layer_0"]) {
        let (shape, found) = floats(&path, name);
        assert_eq!(shape, [3, 32, 4, 4]);
        assert_close(&found, &numbers(map));
    }
    assert_eq!(texts(&path, "names").len(), 3);

    // An image in no folder of the folder: there are no classes.
    let output = features(&bench, &pets.join("cat"), &["-o", name, "--force"]);
    assert_code(&output, 65);
    assert_parts(&stdout(&output), &["features [2, 32], names [2], layers [1]\n"]);
    let file = ZipArchive::new(File::open(&path).unwrap()).unwrap();
    assert_eq!(file.index_for_name("labels.npy"), None);
}

#[test]
fn what_cannot_be_written_is_said_before_any_work() {
    let (bench, pets) = trained();
    let there = bench.folder("there.npz");
    fs::write(&there, "mine").unwrap();
    for (args, code, said) in [
        (&["-o", "x.csv"][..], 2, "the name must end in .npz"),
        (&["-o", there.to_str().unwrap()], 73, "is there already"),
        (&["-o", "/nowhere/x.npz"], 74, "there is no folder /nowhere: make it"),
        (&["-o", "x.npz", "--layers", "0,2"], 2, "--layers 2: the model has 2 blocks, 0 to 1 or"),
        (&["-o", "x.npz", "--layers", "-3"], 2, "--layers -3: the model has 2 blocks"),
        (&["-o", "x.npz", "--layers", "1,-1"], 2, "block 1 is named twice"),
        (&["-o", "x.npz", "--maps", "--pooled"], 2, "cannot be used with"),
    ] {
        assert_says(&features(&bench, &pets, args), code, &[said]);
    }
    assert_eq!(fs::read_to_string(there).unwrap(), "mine");
}
