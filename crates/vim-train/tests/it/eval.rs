//! `eval` at batch sizes of its own.

use serde_json::Value;

use crate::train::{Bench, assert_code};

/// The 64 test images at once, in batches that do not divide them, one by one, and in one that is
/// larger than all.
#[test]
fn the_batch_changes_nothing() {
    let bench = Bench::new();
    assert_code(&bench.train("a", &["--steps", "4"]), 0);
    let scores = |batch: &[&str]| -> Value {
        let more = [&["--checkpoint", "last", "--json"], batch].concat();
        let output = bench.command("eval", "a", &more).output().unwrap();
        assert_code(&output, 0);
        serde_json::from_slice(&output.stdout).unwrap()
    };
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
fn no_batch_is_no_batch() {
    let bench = Bench::new();
    for batch in ["0", "-1", "x"] {
        let output = bench.command("eval", "a", &["--batch", batch]).output().unwrap();
        assert_code(&output, 2);
    }
}
