//! Training and looking at image files: odd ones, bad ones, from a folder and from an archive.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::train::{Bench, assert_code};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Odd files that are images: all that Pillow reads too.
const GOOD: [&str; 4] = ["444.jpg", "gray.png", "png.JPEG", "cmyk.jpg"];

/// Two classes with 24 images each in training, four in validation, and the bad files given in the
/// first one's training.
fn folder(bad: &[&str]) -> TempDir {
    let odd = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vim-data/tests/golden/odd");
    let root = tempfile::tempdir().unwrap();
    for (part, copies) in [("train", 6), ("val", 1)] {
        for class in ["a", "b"] {
            let folder = root.path().join(part).join(class);
            fs::create_dir_all(&folder).unwrap();
            for (copy, name) in (0..copies).flat_map(|copy| GOOD.map(|name| (copy, name))) {
                fs::copy(odd.join(name), folder.join(format!("{copy}-{name}"))).unwrap();
            }
        }
    }
    for name in bad {
        fs::copy(odd.join(name), root.path().join("train/a").join(name)).unwrap();
    }
    root
}

/// As one archive for each part, of folders of classes.
fn archived(folder: &Path) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for part in ["train", "val"] {
        let file = File::create(root.path().join(format!("{part}.tar"))).unwrap();
        let mut archive = tar::Builder::new(file);
        archive.append_dir_all(".", folder.join(part)).unwrap();
        archive.finish().unwrap();
    }
    root
}

/// Trains on the images at `path` for four steps with the original's recipe.
fn train(bench: &Bench, name: &str, path: &Path, more: &[&str]) -> Output {
    let path = format!("data.path={}", path.display());
    let mut args = vec!["--set", "data.dataset=folder", "--set", &path];
    args.extend(["--set", "augment.preset=deit", "--set", "model.image_size=40"]);
    args.extend(["--set", "train.batch_size=8", "--set", "train.epochs=2"]);
    args.extend(more);
    bench.train(name, &args)
}

#[test]
fn a_run_over_odd_and_bad_files_ends_well_and_names_them() {
    let bench = Bench::new();
    let bad = ["half.jpg", "tiny.jpg", "empty.jpg"];
    let root = folder(&bad);
    let output = train(&bench, "odd", root.path(), &[]);
    assert_code(&output, 0);
    let named = fs::read_to_string(bench.folder("odd").join("bad_samples.jsonl")).unwrap();
    let records: Vec<Value> =
        named.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!records.is_empty(), "{}", text(&output.stderr));
    for record in &records {
        let name = record["name"].as_str().unwrap();
        assert!(bad.iter().any(|bad| name.ends_with(bad)), "{name}");
        assert!(!record["reason"].as_str().unwrap().is_empty());
        assert!(text(&output.stderr).contains(name), "the log names {name}");
    }
    let repeat = train(&bench, "again", root.path(), &["--set", "data.workers=3"]);
    assert_code(&repeat, 0);
    assert_eq!(bench.metrics("odd"), bench.metrics("again"));

    // Another order is another run. With repeats the original's takes whole 256s of images, of
    // which there are none here.
    let once = ["--set", "augment.repeats=1"];
    assert_code(&train(&bench, "keyed", root.path(), &once), 0);
    let reference = [&once[..], &["--data-order", "reference"]].concat();
    assert_code(&train(&bench, "reference", root.path(), &reference), 0);
    assert_ne!(bench.metrics("keyed"), bench.metrics("reference"));
    let output = train(&bench, "unknown", root.path(), &["--data-order", "referense"]);
    assert_code(&output, 78);
    assert!(text(&output.stderr).contains("did you mean `reference`"), "{}", text(&output.stderr));

    let output = train(&bench, "strict", root.path(), &["--set", "data.bad_train=fail"]);
    assert_code(&output, 65);
    assert!(
        text(&output.stderr).lines().last().unwrap().contains(".jpg"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn an_archive_trains_as_its_folder() {
    let bench = Bench::new();
    let root = folder(&[]);
    let archive = archived(root.path());
    assert_code(&train(&bench, "folder", root.path(), &[]), 0);
    assert_code(&train(&bench, "archive", archive.path(), &[]), 0);
    assert_eq!(bench.metrics("folder"), bench.metrics("archive"));
}

fn data(what: &str, path: &Path, more: &[&str]) -> Output {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/debug.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vim-train"));
    command.args(["data", what]).arg(config);
    command.args([
        "--set",
        "data.dataset=folder",
        "--set",
        &format!("data.path={}", path.display()),
    ]);
    command.args(["--set", "augment.preset=deit", "--set", "model.image_size=40"]);
    command.args(["--set", "train.batch_size=8"]).args(more).output().unwrap()
}

#[test]
fn a_batch_is_shown_as_a_picture_and_as_plans() {
    let root = folder(&[]);
    let picture = root.path().join("sheet.png");
    let out = ["--out", picture.to_str().unwrap(), "--count", "6"];
    let output = data("show", root.path(), &out);
    assert_code(&output, 0);
    // Six pairs, four in a row of eight: two rows of images of 40 px and the gaps around them.
    let header = fs::read(&picture).unwrap();
    assert_eq!(
        header[16..24],
        [0, 0, 356_u16.to_be_bytes()[0], 356_u16.to_be_bytes()[1], 0, 0, 0, 92]
    );
    assert_eq!(text(&output.stdout).lines().count(), 7);

    let output = data("show", root.path(), &[&out[..], &["--json"]].concat());
    assert_code(&output, 0);
    let plans: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plans.len(), 6);
    // Repeated three times: the same image under other plans.
    assert_eq!(plans[0]["index"], plans[2]["index"]);
    assert_ne!(plans[0]["plan"], plans[1]["plan"]);
    assert!(plans[0]["mixed"].is_object() || plans[0]["mixed"] == "none", "{}", plans[0]);

    let output = data("show", root.path(), &["--batch", "6"]);
    assert_code(&output, 1);
    assert!(text(&output.stderr).contains("there is no batch 6"), "{}", text(&output.stderr));
}

#[test]
fn the_loader_is_timed_alone() {
    let root = folder(&[]);
    let output = data("bench", root.path(), &["--seconds", "1", "--json"]);
    assert_code(&output, 0);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["images_per_second"].as_f64().unwrap() > 0.0);
    assert_eq!(report["images"], report["batches"].as_u64().unwrap() * 8);
    assert!(report["decoded"].as_u64().unwrap() < report["images"].as_u64().unwrap());
    assert_eq!(report["stages_ms"].as_array().unwrap().len(), 4);
    let output = data("bench", root.path(), &["--seconds", "1", "--split", "test"]);
    assert_code(&output, 0);
    assert!(text(&output.stdout).contains("bottleneck: "), "{}", text(&output.stdout));
    let slowly = ["--seconds", "1", "--step-ms", "300", "--json"];
    let output = data("bench", root.path(), &slowly);
    assert_code(&output, 0);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["batches"].as_u64().unwrap() <= 4, "{report}");
    let output = data("bench", root.path(), &["--split", "val"]);
    assert_code(&output, 1);
}
