//! What the tests of segmentation and of detection share.

use std::fs;

use vim_data::{DataConfig, Pixels, ShapesConfig, encode_png};

use crate::support::{Bench, assert_code, assert_parts, assert_says, json_lines, run};

/// Steps of the run.
pub(crate) const LAST: u64 = 12;

/// Same records, weights, statistics and averages.
#[track_caller]
fn assert_same(bench: &Bench, one: &str, other: &str) {
    assert_eq!(bench.metrics(one), bench.metrics(other), "{one} and {other}");
    for file in ["model.safetensors", "ema.safetensors", "optimizer.safetensors"] {
        let saved = |name| bench.saved(name, LAST, file);
        assert!(saved(one) == saved(other), "{file} of {one} and {other}");
    }
}

/// Trains a run `whole`, and one like it in parts: both are the same, with the `arrays` among their
/// weights and the `scores`, 0 to 1, in their evaluations.
#[track_caller]
pub(crate) fn assert_resumes(bench: &Bench, arrays: &[&str], scores: &[&str]) {
    assert_code(&bench.train("whole", &["--set", "train.accumulate=2"]), 0);
    for steps in ["5", "3", "9"] {
        let more = ["--set", "train.accumulate=2", "--resume", "auto", "--steps", steps];
        assert_code(&bench.train("paused", &more), 0);
    }
    assert_same(bench, "whole", "paused");
    let saved = bench.saved("whole", LAST, "model.safetensors");
    assert_parts(&String::from_utf8_lossy(&saved), arrays);
    let records = json_lines(&bench.metrics("whole"));
    let evaluations: Vec<_> = records.iter().filter(|record| record["split"] == "val").collect();
    assert_eq!(evaluations.len(), 6, "of the weights and of their average");
    for record in &evaluations {
        for score in scores {
            assert!((0.0..=1.0).contains(&record[score].as_f64().unwrap()), "{record}");
        }
    }
}

/// Trains on one rank and on two: both runs are the same.
#[track_caller]
pub(crate) fn assert_same_on_ranks(bench: &Bench) {
    let set = ["--set", "train.shards=2", "--set", "devices.threads=1"];
    assert_code(&bench.train("one", &set), 0);
    assert_code(&bench.train("two", &[&set[..], &["--ranks", "2"]].concat()), 0);
    assert_same(bench, "one", "two");
}

/// Writes a picture of another size than the models': 48 px.
pub(crate) fn write_picture(path: &str) {
    let shapes = ShapesConfig { image_size: 48, ..ShapesConfig::default() };
    let drawn =
        vim_data::open::<vim_data::Class>(&DataConfig { shapes, ..DataConfig::default() }).unwrap();
    let image = Pixels { height: 48, width: 48, data: drawn.test.image(0).unwrap() };
    fs::write(path, encode_png(&image).unwrap()).unwrap();
}

/// Each of these values is refused over `config`, in these words.
#[track_caller]
pub(crate) fn assert_refused(config: &str, values: &[(&str, &[&str])]) {
    for (set, words) in values {
        let mut args = vec!["train", config, "--dry-run", "--set", set];
        if set.contains("cifar10") {
            args.extend(["--set", "data.path=/"]);
        }
        assert_says(&run(&args), 78, words);
    }
}
