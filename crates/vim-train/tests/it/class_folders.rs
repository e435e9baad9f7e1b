//! The parts of class folders: which a run takes, and that it keeps them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::provenance::{GREEN, RED, of_folder, photos};
use crate::support::{Bench, assert_code, assert_parts, assert_says, parsed, run, set, stderr};

const CLASSES: [(&str, [u8; 3]); 2] = [("cat", RED), ("dog", GREEN)];

/// `train/` and `val/` of two classes.
fn two(bench: &Bench) -> PathBuf {
    let data = bench.folder("photos");
    photos(&data, &CLASSES, [9, 3]);
    data
}

/// [`two`] with a `test/`.
fn three(bench: &Bench) -> PathBuf {
    let data = two(bench);
    photos(&bench.folder("more"), &CLASSES, [1, 2]);
    fs::rename(bench.folder("more/val"), data.join("test")).unwrap();
    data
}

fn with<'a>(data: &Path, more: &[&'a str], made: &'a mut Vec<String>) -> Vec<&'a str> {
    *made = of_folder(data);
    made.iter().map(String::as_str).chain(more.iter().copied()).collect()
}

fn train(bench: &Bench, name: &str, data: &Path, more: &[&str]) -> Output {
    bench.train(name, &with(data, more, &mut Vec::new()))
}

fn eval(bench: &Bench, name: &str, data: &Path, more: &[&str]) -> Output {
    let last = [&["--checkpoint", "last", "--json"], more].concat();
    bench.eval(name, &with(data, &last, &mut Vec::new()))
}

#[test]
fn a_run_records_the_parts_that_are_there_and_keeps_them() {
    let bench = Bench::new();
    let data = three(&bench);
    assert_code(&train(&bench, "three", &data, &["--steps", "1"]), 0);
    assert_parts(&bench.read("three", "log.txt"), &["data 18 train, 6 val, 4 test images"]);
    let recorded = bench.read("three", "config.toml");
    assert_parts(&recorded, &["version = 3\n", "parts = \"train_val_test\"\n"]);
    // What an older file meant, it means.
    let old = ["--set", "version=2", "--steps", "1"];
    assert_code(&train(&bench, "old", &data, &old), 0);
    assert_parts(&bench.read("old", "log.txt"), &["data 18 train, 0 val, 6 test images"]);
    assert_parts(&bench.read("old", "config.toml"), &["parts = \"train_val\"\n"]);
    let ends = ["--resume", "must"];
    assert_code(&train(&bench, "old", &data, &ends), 0);
    assert_eq!(parsed(&eval(&bench, "old", &data, &[]))["images"], 6);
    // The part that a run has is not another because another would be taken now.
    fs::rename(data.join("test"), data.join("other")).unwrap();
    let gone = train(&bench, "three", &data, &ends);
    assert_says(&gone, 65, &["find test images beside", "photos/train"]);
    fs::rename(data.join("other"), data.join("test")).unwrap();
    let named =
        train(&bench, "three", &data, &[&ends[..], &set(&["data.parts=train_val"])].concat());
    let differs = "data.parts (recorded \"train_val_test\", now \"train_val\")";
    assert_says(&named, 78, &[differs]);
    assert_code(&train(&bench, "three", &data, &ends), 0);
    for (split, images) in [("val", 6), ("test", 4)] {
        let report = parsed(&eval(&bench, "three", &data, &["--split", split]));
        assert_eq!(report["images"], images, "{split}");
    }
    // So are its validation images.
    let more = data.join("val/cat/more.png");
    fs::copy(data.join("val/cat/cat-0.png"), &more).unwrap();
    assert_code(&train(&bench, "grown", &data, &["--steps", "1"]), 0);
    fs::remove_file(&more).unwrap();
    let changed = train(&bench, "grown", &data, &ends);
    assert_says(&changed, 65, &["7 validation images were recorded, now there are 6"]);
}

#[test]
fn class_folders_alone_are_held_out_and_evaluated_as_trained() {
    let bench = Bench::new();
    let data = two(&bench).join("train");
    let none = train(&bench, "a", &data, &[]);
    assert_says(&none, 65, &["data.test_fraction", "data.val_fraction", "data.val_path"]);
    let same = format!("data.val_path={}", data.display());
    let same = train(&bench, "a", &data, &set(&[&same]));
    assert_says(&same, 65, &["tell validation from training images", "they are the same"]);
    let share = set(&["data.val_fraction=0.2"]);
    let dry = train(&bench, "a", &data, &[&share[..], &["--dry-run"]].concat());
    assert_parts(&crate::support::stdout(&dry), &["data 10 train, 4 val, 4 test images"]);
    assert_code(&train(&bench, "a", &data, &share), 0);
    let recorded = bench.read("a", "config.toml");
    assert_parts(&recorded, &["parts = \"train\"\n", "test_fraction = 0.2\n", "val_seed = 0\n"]);
    assert_parts(
        &bench.read("a", "checkpoints/step-00000001/provenance.toml"),
        &["test_fraction = 0.2\n"],
    );
    assert_eq!(parsed(&eval(&bench, "a", &data, &share))["images"], 4);
    let run_of = bench.folder("a").display().to_string();
    assert_code(&run(&["eval", &run_of, "--checkpoint", "last"]), 0);
    // Images that were trained on are no test.
    for other in ["data.val_seed=1", "data.test_fraction=0.4"] {
        let sets = [&share[..], &set(&[other])].concat();
        let key = other.split('=').next().unwrap();
        assert_says(&eval(&bench, "a", &data, &sets), 78, &[key, "--allow split"]);
    }
    for (wrong, expected) in [
        (&["data.test_fraction=1.5"][..], "data.test_fraction: 1.5 is out of range"),
        (&["data.dataset=shapes", "data.test_fraction=0.1"], "data.test_fraction: 0.1"),
        (&["data.dataset=shapes", "data.parts=train"], "data.parts: \"train\""),
        (&["data.parts=train_val_test", "data.val_fraction=0.1"], "data.val_fraction: 0.1"),
    ] {
        assert_says(&train(&bench, "x", &data, &set(wrong)), 78, &[expected]);
    }
}

#[test]
fn a_scan_has_every_part_and_names_what_is_not_read() {
    let bench = Bench::new();
    let data = three(&bench);
    fs::create_dir(data.join("unsorted")).unwrap();
    fs::write(data.join("train/cat/IMG_1.HEIC"), "x").unwrap();
    let path = format!("data.path={}", data.display());
    let index = format!("data.index_cache={}", bench.folder("index").display());
    let sets = set(&["data.dataset=folder", &path, &index]);
    let scan = |more: &[&str]| run(&[&["data", "scan"], more, &sets[..]].concat());
    let all = scan(&["--json"]);
    let report = parsed(&all);
    for (part, images) in [("train", 18), ("val", 6), ("test", 4)] {
        assert_eq!(report[part]["images"], images, "{part}");
    }
    assert_parts(&stderr(&all), &["`unsorted` beside", "1 .heic; convert .heic to JPEG or PNG"]);
    assert_eq!(parsed(&scan(&["--json", "--part", "test"]))["val"], serde_json::Value::Null);
    fs::remove_dir_all(data.join("test")).unwrap();
    assert_says(&scan(&["--part", "test"]), 65, &["there are no test images"]);
}
