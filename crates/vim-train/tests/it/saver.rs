//! What a run saves and when.

use std::fs;

use serde_json::Value;

use crate::train::{Bench, assert_code};

/// The steps whose checkpoints a run left.
fn steps(bench: &Bench, name: &str) -> Vec<u64> {
    let names = fs::read_dir(bench.folder(name).join("checkpoints")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut steps: Vec<u64> =
        names.filter_map(|name| name.strip_prefix("step-")?.parse().ok()).collect();
    steps.sort_unstable();
    steps
}

#[test]
fn checkpoints_by_steps_epochs_and_minutes() {
    let bench = Bench::new();
    // An epoch has 8 steps; an evaluation is saved if it is the best, so there is none before the
    // last.
    let without = [
        "--set",
        "data.val_fraction=0",
        "--set",
        "data.shapes={ train = 256, test = 64, val = 0 }",
    ];
    for (name, every, expected) in [
        ("steps", "7st", vec![7, 14, 21, 24]),
        ("epochs", "0.5ep", vec![4, 8, 12, 16, 20, 24]),
        // 6 µs: no step is so short.
        ("minutes", "0.0000001min", (1..=24).collect()),
    ] {
        let every = format!("checkpoint.every={every}");
        let more = [&without[..], &["--set", &every, "--set", "checkpoint.keep_last=99"]].concat();
        assert_code(&bench.train(name, &more), 0);
        assert_eq!(steps(&bench, name), expected, "{every}");
        assert_eq!(bench.metrics(name), bench.metrics("steps"), "saving changes no result");
    }
    let timing = fs::read_to_string(bench.folder("minutes").join("timing.jsonl")).unwrap();
    for line in timing.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let stall = record["save_stall_s"].as_f64().unwrap();
        assert!(stall >= 0.0 && stall <= record["elapsed_s"].as_f64().unwrap(), "{line}");
    }
}

#[test]
fn archived_checkpoints_stay() {
    let bench = Bench::new();
    let more = ["--set", "checkpoint.archive=\"5st\"", "--set", "checkpoint.every=2st", "--set"];
    let more = [&more[..], &["train.eval_every=3ep"]].concat();
    assert_code(&bench.train("a", &more), 0);
    // The archived, the newest two, and the best, which is the last.
    assert_eq!(steps(&bench, "a"), [5, 10, 15, 20, 22, 24]);
    let list = fs::read_to_string(bench.folder("a").join("checkpoints/archive")).unwrap();
    let names: Vec<_> = [5, 10, 15, 20].map(|step| format!("step-{step:08}")).to_vec();
    assert_eq!(list.lines().collect::<Vec<_>>(), names);

    let refused = bench.train("b", &["--set", "checkpoint.archive=0ep"]);
    assert_code(&refused, 78);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("checkpoint.archive"));
}
