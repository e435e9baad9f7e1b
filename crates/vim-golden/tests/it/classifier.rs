//! `eval-golden` on a classifier's numbers, and on files that are not what they should be.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Output;

use npyz::{AutoSerialize, NpyFile, WriteOptions, WriterBuilder};
use tempfile::TempDir;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::support::{
    assert_code, assert_parts, folder, parsed, refused, repository, stdout, vim_golden,
};

const A_MID: &str =
    "[model]\nimage_size = 64\ndepth = 4\nd_model = 64\n[devices]\nbackend = \"cpu\"\n";
const H_V1: &str = "[model]\nimage_size = 64\ndepth = 3\nd_model = 64\nbimamba = \"v1\"\n";

fn fixture(name: &str) -> PathBuf {
    repository("crates/vim-model/tests/fixtures").join(name)
}

/// Compares `weights` with `arrays` as `config` says.
fn compare(config: &str, weights: &Path, arrays: &Path, args: &[&str]) -> Output {
    let files = folder(&[("model.toml", config)]);
    let mut command = vim_golden(&["eval-golden", "--weights"]);
    command.arg(weights).arg("--arrays").arg(arrays);
    command.arg("--config").arg(files.path().join("model.toml")).args(args).output().unwrap()
}

#[test]
fn the_original_s_numbers_are_within_the_default_tolerances() {
    let headcls = A_MID.replace("depth = 4", "depth = 3\nclass_token = \"head\"");
    // Logits, loss, dx; seven parameters beside the layers, and those of each layer.
    for (name, config, arrays) in [
        ("a_mid", A_MID, 3 + 7 + 4 * 17),
        ("d_headcls", headcls.as_str(), 3 + 7 + 3 * 17),
        ("h_v1", H_V1, 3 + 7 + 3 * 11),
    ] {
        let (weights, file) = (fixture(&format!("{name}.pth")), fixture(&format!("{name}.npz")));
        let output = compare(config, &weights, &file, &["--grads", "--device", "cpu"]);
        let table = stdout(&output);
        assert_code(&output, 0);
        assert_parts(&table, &[&format!("{arrays} of {arrays} arrays within tolerance, on cpu")]);
        assert_eq!(table.lines().count(), arrays + 2, "{table}");

        let output = compare(config, &weights, &file, &["--json", "--device", "cpu"]);
        let json = parsed(&output);
        assert_eq!(json["within"], true, "{name}");
        assert_eq!(json["comparisons"].as_array().unwrap().len(), 2, "{name}");
    }
}

#[test]
fn what_is_off_is_named_and_fails() {
    let (weights, arrays) = (fixture("a_mid.pth"), fixture("a_mid.npz"));
    let output = compare(A_MID, &weights, &arrays, &["--tol", "1e-9"]);
    refused(&output, 1, &["arrays are off by more than their tolerance, the worst: l"]);
    assert_parts(&stdout(&output), &["exceeded"]);
    // Another method has the same parameters and other numbers.
    let args = ["--grads", "--set", "model.discretization=bilinear", "--json"];
    let output = compare(A_MID, &weights, &arrays, &args);
    refused(&output, 1, &["of 78 arrays", ", …"]);
    let json = parsed(&output);
    assert_eq!(json["within"], false);
    // The exact gradient of the gate has a part that the original loses.
    let exact = format!("{H_V1}[ssm]\nv1_gate_gradient = \"exact\"\n");
    let output = compare(&exact, &fixture("h_v1.pth"), &fixture("h_v1.npz"), &["--grads"]);
    refused(&output, 1, &["mixer.in_proj.weight"]);
}

/// Compressed, as by `numpy.savez_compressed`.
fn add<T: AutoSerialize>(
    to: &mut ZipWriter<File>,
    name: &str,
    shape: &[u64],
    values: impl IntoIterator<Item = T>,
) {
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    to.start_file(name, options).unwrap();
    let options = WriteOptions::new().default_dtype().shape(shape);
    let mut writer = options.writer(to).begin_nd().unwrap();
    writer.extend(values).unwrap();
    writer.finish().unwrap();
}

/// The entry of the array `name`.
fn entry(name: &str) -> String {
    format!("{name}.npy")
}

/// Copies `a_mid.npz` without `left_out` and with an array `added`; f32 becomes f64.
fn rewritten(folder: &TempDir, left_out: &str, added: Option<&str>) -> PathBuf {
    let path = folder.path().join("arrays.npz");
    let mut from = ZipArchive::new(File::open(fixture("a_mid.npz")).unwrap()).unwrap();
    let mut to = ZipWriter::new(File::create(&path).unwrap());
    let names: Vec<String> = from.file_names().map(|name| name.unwrap().into_owned()).collect();
    for name in names.iter().filter(|name| **name != entry(left_out)) {
        let array = NpyFile::new(from.by_name(name).unwrap()).unwrap();
        let shape = array.shape().to_vec();
        if *name == entry("y") {
            add(&mut to, name, &shape, array.into_vec::<i64>().unwrap());
        } else {
            let values: Vec<f64> = match array.try_data::<f32>() {
                Ok(values) => values.map(|x| f64::from(x.unwrap())).collect(),
                Err(array) => array.into_vec().unwrap(),
            };
            add(&mut to, name, &shape, values);
        }
    }
    if let Some(name) = added {
        add(&mut to, &entry(name), &[1], [1.0_f32]);
    }
    to.finish().unwrap();
    path
}

#[test]
fn missing_and_extra_arrays_are_errors() {
    let weights = fixture("a_mid.pth");
    for (left_out, added, args, words) in [
        ("logits", None, &[][..], "logits is missing"),
        ("y", None, &[], "y is missing"),
        ("dx", None, &["--grads"], "dx is missing"),
        ("g.norm_f.weight", None, &["--grads"], "g.norm_f.weight is missing"),
        ("", Some("features"), &[], "not expected of this model: features"),
        ("", Some("g.layers.4.mixer.D"), &[], "not expected of this model: g.layers.4.mixer.D"),
        ("", Some("g.gamma"), &["--grads"], "not expected of this model: g.gamma"),
        // Of another shape.
        (
            "g.cls_token",
            Some("g.cls_token"),
            &["--grads"],
            "g.cls_token is [1], the model's is [1, 1, 64]",
        ),
    ] {
        let folder = folder(&[]);
        let arrays = rewritten(&folder, left_out, added);
        refused(&compare(A_MID, &weights, &arrays, args), 65, &["arrays.npz", words]);
    }
    // Without gradients they may be absent; and f64 is as good as f32.
    let folder = folder(&[]);
    let arrays = rewritten(&folder, "g.norm_f.weight", None);
    assert_code(&compare(A_MID, &weights, &arrays, &[]), 0);
}

#[test]
fn files_that_do_not_fit_are_errors() {
    let (weights, arrays) = (fixture("a_mid.pth"), fixture("a_mid.npz"));
    let deeper = A_MID.replace("depth = 4", "depth = 5");
    refused(&compare(&deeper, &weights, &arrays, &[]), 65, &["a_mid.pth", "missing: layers.4."]);
    let larger = A_MID.replace("64\ndepth", "80\ndepth");
    let output = compare(&larger, &weights, &arrays, &[]);
    refused(&output, 65, &["a_mid.npz", "x is [3, 3, 64, 64], the model's is [3, 3, 80, 80]"]);
    refused(&compare(A_MID, &weights, &weights, &[]), 65, &["a_mid.pth", "x is missing"]);
    refused(&compare(A_MID, &arrays, &arrays, &[]), 65, &["a_mid.npz"]);
    let absent = Path::new("absent.npz");
    refused(&compare(A_MID, &weights, absent, &[]), 74, &["absent.npz"]);
    let folder = folder(&[]);
    let cut = folder.path().join("cut.npz");
    let bytes = fs::read(&arrays).unwrap();
    fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    refused(&compare(A_MID, &weights, &cut, &[]), 65, &["cut.npz", "not an .npz file"]);
    let wrong = "[model]\nimage_size = 64\nrope = \"hidden\"\nclass_token = \"double\"\n";
    let output = compare(wrong, &weights, &arrays, &[]);
    refused(&output, 78, &["model.toml:3:8: model.rope: hidden does not go with"]);
}
