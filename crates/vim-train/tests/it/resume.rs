//! A run that is killed and resumed leaves the same bytes as one that is not.

use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::train::{Bench, assert_code};

/// Slow enough to be hit at a step: one thread, and a wider model.
const SLOW: [&str; 6] =
    ["--set", "model.d_model=64", "--set", "devices.threads=1", "--set", "data.workers=1"];

fn args<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SLOW.iter().chain(more).copied().collect()
}

/// The weights of the newest checkpoint.
fn weights(bench: &Bench, name: &str) -> Vec<u8> {
    let file = "checkpoints/step-00000024/model.safetensors";
    fs::read(bench.folder(name).join(file)).unwrap()
}

fn assert_same(bench: &Bench, name: &str) {
    assert_eq!(bench.metrics("whole"), bench.metrics(name));
    let table = |name| fs::read(bench.folder(name).join("metrics.csv")).unwrap();
    assert!(table("whole") == table(name), "the tables differ");
    assert!(weights(bench, "whole") == weights(bench, name), "the weights differ");
}

#[test]
fn killed_at_random_it_leaves_the_same_bytes() {
    let bench = Bench::new();
    assert_code(&bench.train("whole", &args(&[])), 0);
    // `timing.jsonl` is never cut back: each attempt is killed once it has written `records` more
    // lines, of two steps each, so between none and seven steps after it resumed, at any point of
    // one.
    let timing = bench.folder("killed").join("timing.jsonl");
    let written = || fs::read_to_string(&timing).map_or(0, |text| text.lines().count());
    for attempt in 0.. {
        let mut child = bench
            .command("train", "killed", &args(&["--resume", "auto"]))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let records = written() + [1, 2, 0, 3, 1, 2][attempt % 6];
        while written() < records && child.try_wait().unwrap().is_none() {
            sleep(Duration::from_millis(1));
        }
        sleep(Duration::from_millis(attempt as u64 * 7 % 40));
        let ended = child.try_wait().unwrap();
        if let Some(status) = ended {
            assert!(
                status.success() && attempt >= 2,
                "attempt {attempt} ended by itself: {status}"
            );
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(attempt < 60, "it never gets anywhere");
    }
    assert_same(&bench, "killed");
}

#[test]
fn signals_save_and_tell_by_the_exit_code() {
    let bench = Bench::new();
    assert_code(&bench.train("whole", &args(&[])), 0);
    for (signal, code) in
        [(Signal::TERM, 75), (Signal::USR1, 75), (Signal::USR2, 75), (Signal::INT, 130)]
    {
        let name = format!("signal-{code}-{}", signal.as_raw());
        // Without a checkpoint of its own before the signal comes.
        let more = ["--set", "checkpoint.every=\"24st\"", "--resume", "auto"];
        let mut child = bench
            .command("train", &name, &args(&more))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let metrics = bench.folder(&name).join("metrics.jsonl");
        while fs::metadata(&metrics).map_or(0, |file| file.len()) == 0 {
            assert!(child.try_wait().unwrap().is_none(), "it ended before the signal");
            sleep(Duration::from_millis(2));
        }
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        kill_process(pid, signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signal:?}");
        assert_code(&bench.train(&name, &args(&more)), 0);
        assert_same(&bench, &name);
    }
}

#[test]
fn steps_pause_and_resume_goes_on() {
    let bench = Bench::new();
    assert_code(&bench.train("whole", &args(&[])), 0);
    assert_code(&bench.train("paused", &args(&["--steps", "7"])), 0);
    let exit = fs::read_to_string(bench.folder("paused").join("exit.json")).unwrap();
    assert!(exit.contains("\"paused\""), "{exit}");
    assert_code(&bench.train("paused", &args(&["--resume", "must"])), 0);
    assert_same(&bench, "paused");
}

#[test]
fn a_damaged_checkpoint_is_passed_over() {
    let bench = Bench::new();
    assert_code(&bench.train("whole", &args(&[])), 0);
    assert_code(&bench.train("damaged", &args(&["--steps", "7"])), 0);
    let file = bench.folder("damaged").join("checkpoints/step-00000007/optimizer.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    let output = bench.train("damaged", &args(&["--resume", "auto"]));
    assert_code(&output, 0);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("damaged") && said.contains("resumed at step 6"), "{said}");
    assert_same(&bench, "damaged");
}

/// What the message of a device without memory advises, taken up where the run stood.
#[test]
fn a_run_goes_on_in_smaller_parts_up_to_rounding() {
    let bench = Bench::new();
    assert_code(&bench.train("whole", &args(&[])), 0);
    assert_code(&bench.train("parted", &args(&["--steps", "7"])), 0);
    let more = args(&["--resume", "auto", "--set", "train.accumulate=4"]);
    let output = bench.train("parted", &more);
    assert_code(&output, 0);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = "warning: train.accumulate (recorded 1, now 4): the numbers will differ in rounding";
    assert!(said.contains(line), "{said}");
    let losses = |name: &str| -> Vec<(u64, f64)> {
        let text = bench.metrics(name);
        let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let train = records.filter(|record| record["kind"] == "train");
        train.map(|r| (r["step"].as_u64().unwrap(), r["loss"].as_f64().unwrap())).collect()
    };
    let (whole, parted) = (losses("whole"), losses("parted"));
    assert_eq!((whole.len(), parted.len()), (12, 12));
    for (record, (want, got)) in whole.iter().zip(&parted).enumerate() {
        assert_eq!(want.0, got.0);
        // Two steps a record: the first three were made before the change.
        let most = if record < 3 { 0.0 } else { 1e-3 };
        assert!((want.1 - got.1).abs() <= most, "{want:?} {got:?}");
    }
    // Going on as before is no change.
    let again = bench.train("parted", &more);
    assert_code(&again, 0);
    assert!(!String::from_utf8_lossy(&again.stderr).contains("rounding"));
}
