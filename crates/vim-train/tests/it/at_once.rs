//! Processes that write one place at once, or one right after the other.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::ranks::{assert_none_left, end_of, start};
use crate::support::{Bench, assert_code, assert_says, json_lines, send, set, state, stderr};
use crate::sweep::Study;

/// Starts all, then waits for all.
fn all_at_once(commands: impl Iterator<Item = Command>) -> Vec<Output> {
    let started: Vec<Child> = commands
        .map(|mut command| {
            command.stdout(Stdio::null()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    started.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

/// The names in a folder, but for those of runs.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn one_sweep_is_planned_by_several_at_once() {
    for fresh in [&[][..], &["--fresh"]] {
        let study = Study::new();
        let plan = || {
            let mut command = study.command(&["plan"]);
            command.arg(study.file()).args(fresh);
            command
        };
        for output in all_at_once((0..4).map(|_| plan())) {
            assert_code(&output, 0);
        }
        assert_eq!(names(&study.folder()), ["configs", "plan.jsonl", "sweep.toml"]);
        assert_eq!(json_lines(&study.read("plan.jsonl")).len(), 4);
        assert_eq!(names(&study.folder().join("configs")).len(), 4);
    }
}

/// Path and number of each file of a plan: a file that is replaced has another number.
fn numbers(study: &Study) -> BTreeMap<String, u64> {
    let folder = study.folder();
    let configs = names(&folder.join("configs")).into_iter().map(|name| format!("configs/{name}"));
    let all = configs.chain(["plan.jsonl", "sweep.toml"].map(String::from));
    all.map(|name| (name.clone(), fs::metadata(folder.join(name)).unwrap().ino())).collect()
}

#[test]
fn planning_again_writes_what_differs_alone() {
    let study = Study::new();
    assert_code(&study.of_file("plan", &[]), 0);
    let first = numbers(&study);
    // What a planner leaves that was killed when all was written.
    let lock = study.folder().join("plan.lock");
    fs::write(&lock, "").unwrap();
    assert_says(&study.of_file("plan", &[]), 0, &["nothing new"]);
    assert_eq!(numbers(&study), first);
    assert!(!lock.exists());
    // One that is not what was planned.
    let damaged = study.folder().join(first.keys().next().unwrap());
    fs::write(&damaged, "").unwrap();
    assert_code(&study.of_file("plan", &[]), 0);
    assert!(fs::read_to_string(&damaged).unwrap().contains("[model]"));
    let second = numbers(&study);
    let same = |name: &str| first[name] == second[name];
    assert!(first.keys().skip(1).filter(|name| *name != "sweep.toml").all(|name| same(name)));
    // A key that changes no result, in all runs; and a further run.
    assert_code(&study.of_file("plan", &["--set", "data.prefetch=3"]), 0);
    let third = numbers(&study);
    assert_eq!(third["plan.jsonl"], second["plan.jsonl"]);
    let is_config = |name: &&String| name.starts_with("configs/");
    assert!(second.keys().filter(is_config).all(|name| second[name] != third[name]));
    assert!(study.read("sweep.toml").contains("data.prefetch=3"));
    assert!(!lock.exists());
}

#[test]
fn one_summary_is_written_by_several_at_once() {
    let study = Study::new();
    assert_code(&study.of_file("run", &["-j", "2"]), 0);
    let alone = study.of_folder("summarize", &[]);
    let written = study.read("summary.csv");
    let command = || {
        let mut command = study.command(&["summarize"]);
        command.arg(study.folder());
        command
    };
    for output in all_at_once((0..4).map(|_| command())) {
        assert_eq!(output.status.code(), alone.status.code(), "{}", stderr(&output));
        assert!(!stderr(&output).contains("cannot write"), "{}", stderr(&output));
        assert_eq!(study.read("summary.csv"), written);
    }
    assert!(names(&study.folder()).iter().all(|name| !name.starts_with(".tmp-")));
}

#[test]
fn one_file_is_exported_by_several_at_once() {
    let bench = Bench::new();
    for (seed, name) in ["a", "b"].into_iter().enumerate() {
        let key = format!("run.seed={seed}");
        assert_code(&bench.train(name, &[&["--steps", "1"], &set(&[&key])[..]].concat()), 0);
    }
    let out = bench.folder("out");
    fs::create_dir(&out).unwrap();
    let file = out.join("x.pth");
    for _ in 0..3 {
        let command = |index: usize| {
            let mut command = crate::support::vim_train(&["export"]);
            command.arg(bench.folder(["a", "b"][index % 2])).arg("-o").arg(&file).arg("--force");
            command
        };
        for output in all_at_once((0..4).map(command)) {
            assert_code(&output, 0);
        }
        assert!(state(&file).iter().count() > 10);
        assert_eq!(names(&out), ["x.pth"]);
    }
}

#[test]
fn a_run_goes_on_at_once_after_its_supervisor_was_killed() {
    let bench = Bench::new();
    let more = ["--ranks", "2", "--resume", "auto", "--set", "checkpoint.every=\"1st\""];
    for attempt in 0..4 {
        let child = start(&bench, "x", &more);
        let begin = Instant::now();
        while !bench.folder("x").join("LOCK").exists() && begin.elapsed() < Duration::from_secs(60)
        {
            sleep(Duration::from_millis(1));
        }
        sleep(Duration::from_millis(50 * attempt));
        let supervisor = child.id();
        send(&child, Signal::KILL);
        // Its streams stay open as long as a rank: it is not waited for.
        let again = bench.train("x", &[&more[..], &["--steps", "1"]].concat());
        assert_code(&again, 0);
        drop(end_of(child));
        assert_none_left(supervisor);
    }
    assert_code(&bench.train("x", &more), 0);
    assert!(!bench.folder(".ranks").exists(), "what the killed ones left is gone");
}

#[test]
fn a_second_start_is_refused_soon() {
    let bench = Bench::new();
    let slow = ["--set", "model.d_model=64", "--ranks", "2"];
    let child = start(&bench, "x", &slow);
    let begin = Instant::now();
    let has_begun = || bench.folder("x").join("metrics.jsonl").exists();
    while !has_begun() && begin.elapsed() < Duration::from_secs(60) {
        sleep(Duration::from_millis(1));
    }
    let asked = Instant::now();
    let output = bench.train("x", &[&slow[..2], &["--resume", "auto"]].concat());
    let waited = asked.elapsed();
    assert_says(&output, 73, &["is in use by process ", "end it (kill "]);
    // One that was killed is waited for 30 s.
    assert!(waited < Duration::from_secs(25), "{waited:?}");
    assert_code(&end_of(child), 0);
}
