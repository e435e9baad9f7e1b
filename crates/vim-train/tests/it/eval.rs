//! `eval`: its batches, its predictions.

use std::fs;

use serde_json::Value;

use crate::support::{
    Bench, assert_code, assert_parts, assert_says, parsed, read_json, repository, run, stdout,
};

/// The 64 test images at once, in batches that do not divide them, one by one, and in one that is
/// larger than all.
#[test]
fn the_batch_changes_nothing() {
    let bench = Bench::new();
    assert_code(&bench.train("a", &["--steps", "4"]), 0);
    let scores = |batch: &[&str]| bench.scores("a", &[&["--checkpoint", "last"], batch].concat());
    let as_trained = scores(&[]);
    assert_eq!(as_trained["images"], 64);
    for batch in ["1", "7", "64", "100"] {
        let other = scores(&["--batch", batch]);
        for key in ["images", "top1", "top5"] {
            assert_eq!(other[key], as_trained[key], "{key} of batches of {batch}");
        }
        // Products of other sizes may be summed in another order: f32 of the order of 1.
        let loss = |scores: &Value| scores["loss"].as_f64().unwrap();
        let difference = (loss(&other) - loss(&as_trained)).abs();
        assert!(difference < 1e-6, "batches of {batch}: {difference}");
    }
}

#[test]
fn a_device_on_the_command_line_is_over_the_configurations() {
    let bench = Bench::new();
    // LibTorch is in no build that is tested.
    let other = ["--set", "devices.backend=tch"];
    let here = [&other[..], &["--device", "cpu"]].concat();
    assert_code(&bench.train("a", &[&here[..], &["--steps", "2"]].concat()), 0);
    assert!(bench.read("a", "config.toml").contains("backend = \"cpu\""));
    let last = ["--checkpoint", "last"];
    assert_code(&bench.eval("a", &[&here[..], &last].concat()), 0);
    assert_code(&bench.eval("a", &[&other[..], &last].concat()), 69);
    let shown = bench.command("config", "a", &["--origin", "--device", "cpu"]).output().unwrap();
    assert_parts(&stdout(&shown), &["backend = \"cpu\"  # --set"]);
    let picture = repository("crates/vim-train/tests/it/fixtures/grey.png");
    let checkpoint = bench.folder("a").join("checkpoints/step-00000002");
    let [picture, checkpoint] = [picture, checkpoint].map(|path| path.display().to_string());
    let predict =
        |device| run(&["predict", &picture, "--checkpoint", &checkpoint, "--device", device]);
    assert_code(&predict("cpu"), 0);
    assert_says(&predict("tch"), 69, &["--device: this build has no tch"]);
}

#[test]
fn predictions_agree_with_the_scores() {
    let bench = Bench::new();
    assert_code(&bench.train("a", &["--steps", "4"]), 0);
    let file = bench.folder("out.csv");
    let path = file.display().to_string();
    let eval = |more: &[&str]| {
        let args = [&["--checkpoint", "last", "--json", "--predictions", &path], more].concat();
        bench.eval("a", &args)
    };
    let output = eval(&[]);
    assert_code(&output, 0);
    let scores = parsed(&output);
    let mut reader = csv::Reader::from_path(&file).unwrap();
    let header: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let expected = ["index", "image", "label", "predicted", "probability", "top5"];
    assert_eq!(header, [&expected[..], &["label_name", "predicted_name"]].concat());
    let names: Vec<String> =
        serde_json::from_value(read_json(bench.folder("a/classes.json"))).unwrap();
    assert_eq!((names.len(), &*names[1]), (12, "striped disk"));
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(scores["images"], rows.len());
    let (mut top1, mut top5) = (0, 0);
    for row in &rows {
        let best: Vec<&str> = row[5].split(' ').collect();
        assert_eq!((best.len(), best[0]), (5, &row[3]));
        for (class, name) in [(2, 6), (3, 7)] {
            assert_eq!(names[row[class].parse::<usize>().unwrap()], row[name]);
        }
        let probability: f64 = row[4].parse().unwrap();
        assert!(probability > 1.0 / 12.0 - 1e-6 && probability <= 1.0, "{probability}");
        top1 += usize::from(row[2] == row[3]);
        top5 += usize::from(best.contains(&&row[2]));
    }
    let share = |count: usize| count as f64 / rows.len() as f64;
    assert_eq!(scores["top1"], share(top1));
    assert_eq!(scores["top5"], share(top5));

    let before = fs::read(&file).unwrap();
    assert_code(&eval(&[]), 73);
    assert_code(&eval(&["--force", "--batch", "7"]), 0);
    assert_eq!(fs::read(&file).unwrap().len(), before.len());
}
