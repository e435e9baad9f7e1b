//! What a run saves and when; killed and resumed, it leaves the same bytes as one that is not.

use std::fs;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{
    Bench, assert_code, assert_parts, assert_says, json_lines, send, set, stderr, stdout,
};

/// Slow enough to be hit at a step: one thread, and a wider model.
const SLOW: [&str; 6] =
    ["--set", "model.d_model=64", "--set", "devices.threads=1", "--set", "data.workers=1"];

pub(crate) fn args<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SLOW.iter().chain(more).copied().collect()
}

pub(crate) fn start(bench: &Bench, name: &str, more: &[&str]) -> Child {
    let mut command = bench.command("train", name, &args(more));
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

pub(crate) fn assert_same(bench: &Bench, name: &str) {
    assert_eq!(bench.metrics("whole"), bench.metrics(name));
    assert!(bench.read("whole", "metrics.csv") == bench.read(name, "metrics.csv"), "the tables");
    let weights = |name| bench.saved(name, 24, "model.safetensors");
    assert!(weights("whole") == weights(name), "the weights differ");
}

#[test]
fn killed_at_random_it_leaves_the_same_bytes() {
    let bench = Bench::new();
    assert_code(&bench.train("whole", &args(&[])), 0);
    // `timing.jsonl` is never cut back: each attempt is killed once it has written `records` more
    // lines, one at its start and then of two steps each, so between none and seven steps after it
    // resumed, at any point of one.
    let timing = bench.folder("killed").join("timing.jsonl");
    let written = || fs::read_to_string(&timing).map_or(0, |text| text.lines().count());
    for attempt in 0.. {
        let mut child = start(&bench, "killed", &["--resume", "auto"]);
        let records = written() + [2, 3, 1, 4, 2, 3][attempt % 6];
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
fn a_finished_run_is_lengthened_by_another() {
    let bench = Bench::new();
    let output = bench.train("a", &["--set", "train.epochs=1"]);
    assert_code(&output, 0);
    let (line, summary) = (stdout(&output), stderr(&output));
    assert!(line.starts_with("test top-1 ") && !summary.contains("test top-1"), "{summary}");
    let longer = ["--set", "train.epochs=2", "--resume", "auto"];
    let init = format!("train.init={}", bench.folder("a").display());
    let advice = format!("begin another run by --set run.name=a-longer --set {init} (");
    let said = bench.train("a", &longer);
    assert_says(&said, 78, &["train.epochs (recorded 1, now 2); it is finished", &advice]);
    assert_code(&bench.train("a-longer", &[&longer[..], &["--set", &init]].concat()), 0);
    let shorter = bench.train("a", &["--set", "train.steps=2", "--resume", "auto"]);
    assert_says(&shorter, 78, &["train.steps"]);
    assert!(!stderr(&shorter).contains("it is finished"), "{}", stderr(&shorter));

    // Of a run that is not finished, or that shall be shorter, the keys are restored.
    let paused = ["--set", "train.epochs=2", "--steps", "1"];
    assert_code(&bench.train("b", &paused), 0);
    for (name, epochs) in [("a", "train.epochs=0"), ("b", "train.epochs=3")] {
        let output = bench.train(name, &["--set", epochs, "--resume", "auto"]);
        assert_code(&output, 78);
        assert!(!stderr(&output).contains("it is finished"), "{}", stderr(&output));
    }
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
        let mut child = start(&bench, &name, &more);
        let metrics = bench.folder(&name).join("metrics.jsonl");
        while fs::metadata(&metrics).map_or(0, |file| file.len()) == 0 {
            assert!(child.try_wait().unwrap().is_none(), "it ended before the signal");
            sleep(Duration::from_millis(2));
        }
        send(&child, signal);
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
    assert_parts(&bench.read("paused", "exit.json"), &["\"paused\""]);
    assert_code(&bench.train("paused", &args(&["--resume", "must"])), 0);
    assert_same(&bench, "paused");
}

/// On a GPU in software.
#[cfg(feature = "wgpu")]
#[test]
fn a_run_goes_on_with_a_graph_and_without() {
    let bench = Bench::new();
    let train = |name, graph, more: &[&str]| {
        let graph = format!("devices.graph={graph}");
        let sets = set(&["devices.backend=wgpu", &graph, "train.ema=0.9"]);
        assert_code(&bench.train(name, &args(&[&sets[..], more].concat())), 0);
    };
    train("whole", "off", &[]);
    train("changed", "on", &["--steps", "7"]);
    train("changed", "off", &["--resume", "must", "--steps", "13"]);
    train("changed", "on", &["--resume", "must"]);
    assert_same(&bench, "changed");
    let mut records = json_lines(&bench.read("changed", "timing.jsonl"));
    let begun = records.extract_if(.., |record| record.get("graph_replays").is_none()).count();
    assert_eq!(begun, 3, "one for each process");
    let of = |name: &str, record: &Value| record[name].as_u64().unwrap();
    let replays = |from: u64, to: u64| {
        let those = records.iter().filter(|record| (from..=to).contains(&of("step", record)));
        those.map(|record| of("graph_replays", record)).max().unwrap()
    };
    assert_eq!((replays(1, 7), replays(8, 20)), (4, 0), "{records:?}");
    assert!(replays(21, 24) >= 1, "{records:?}");
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
    assert_parts(&stderr(&output), &["damaged", "resumed at step 6"]);
    assert_same(&bench, "damaged");
}

#[test]
fn altered_records_are_refused_and_go_on_once_restored() {
    let bench = Bench::new();
    assert_code(&bench.train("whole", &args(&[])), 0);
    assert_code(&bench.train("altered", &args(&["--steps", "7"])), 0);
    let records = bench.folder("altered").join("metrics.jsonl");
    let good = fs::read_to_string(&records).unwrap();
    for (bad, said) in [
        (good.replacen("\"step\":2", "\"step\":3", 1), "bytes are no longer those"),
        (format!("{{}}\n{good}"), "bytes are no longer those"),
        (good[1..].to_owned(), "bytes that the checkpoint knows"),
    ] {
        fs::write(&records, &bad).unwrap();
        let output = bench.train("altered", &args(&["--resume", "auto"]));
        assert_says(&output, 74, &["cannot go on with", "metrics.jsonl: it", said, "restore it"]);
        assert!(fs::read_to_string(&records).unwrap() == bad);
    }
    // What no checkpoint knows is written again.
    fs::write(&records, good + "{}\n").unwrap();
    assert_code(&bench.train("altered", &args(&["--resume", "auto"])), 0);
    assert_same(&bench, "altered");
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
    let line = "warning: train.accumulate (recorded 1, now 4): the numbers will differ in rounding";
    assert_parts(&stderr(&output), &[line]);
    let both = |key| ["whole", "parted"].map(|name| bench.numbers(name, "train", key));
    let ([whole, parted], [steps, steps_of_parted]) = (both("loss"), both("step"));
    assert_eq!((whole.len(), steps), (12, steps_of_parted));
    for (record, (want, got)) in whole.iter().zip(&parted).enumerate() {
        // Two steps a record: the first three were made before the change.
        let most = if record < 3 { 0.0 } else { 1e-3 };
        assert!((want - got).abs() <= most, "{want:?} {got:?}");
    }
    // Going on as before is no change.
    let again = bench.train("parted", &more);
    assert_code(&again, 0);
    assert!(!stderr(&again).contains("rounding"));
}

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
    let without = ["data.val_fraction=0", "data.shapes={ train = 256, test = 64, val = 0 }"];
    for (name, every, expected) in [
        ("steps", "7st", vec![7, 14, 21, 24]),
        ("epochs", "0.5ep", vec![4, 8, 12, 16, 20, 24]),
        // 6 µs: no step is so short.
        ("minutes", "0.0000001min", (1..=24).collect()),
    ] {
        let every = format!("checkpoint.every={every}");
        let sets = [&without[..], &[&every, "checkpoint.keep_last=99"]].concat();
        assert_code(&bench.train(name, &set(&sets)), 0);
        assert_eq!(steps(&bench, name), expected, "{every}");
        assert_eq!(bench.metrics(name), bench.metrics("steps"), "saving changes no result");
    }
    for record in &json_lines(&bench.read("minutes", "timing.jsonl"))[1..] {
        let stall = record["save_stall_s"].as_f64().unwrap();
        assert!(stall >= 0.0 && stall <= record["elapsed_s"].as_f64().unwrap(), "{record}");
    }
}

#[test]
fn archived_checkpoints_stay() {
    let bench = Bench::new();
    let sets = ["checkpoint.archive=\"5st\"", "checkpoint.every=2st", "train.eval_every=3ep"];
    assert_code(&bench.train("a", &set(&sets)), 0);
    // The archived, the newest two, and the best, which is the last.
    assert_eq!(steps(&bench, "a"), [5, 10, 15, 20, 22, 24]);
    let list = bench.read("a", "checkpoints/archive");
    let names: Vec<_> = [5, 10, 15, 20].map(|step| format!("step-{step:08}")).to_vec();
    assert_eq!(list.lines().collect::<Vec<_>>(), names);

    let refused = bench.train("b", &["--set", "checkpoint.archive=0ep"]);
    assert_says(&refused, 78, &["checkpoint.archive"]);
}
