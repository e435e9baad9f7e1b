//! Runs and a sweep that were recorded under version 1 of the configuration: they end in the bytes
//! that the program of their time made of them (on another kind of processor, in its numbers), and
//! the same keys of today are refused.
//!
//! `fixtures/old_runs` is of commit 22baed7: a run of each task, paused after two steps, a sweep of
//! which one run is missing, and in `expected` what that commit's own continuation left.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use crate::layers::vim_train;
use crate::support::{
    assert_code, assert_says, folder, json_lines, parsed, repository, set, without_largest,
};

/// A copy of the recorded folder, to work in.
struct Old(TempDir);

impl Old {
    fn new() -> Self {
        let old = Self(folder(&[]));
        let fixtures = repository("crates/vim-train/tests/it/fixtures/old_runs");
        copy(&fixtures, old.0.path());
        old
    }

    fn run(&self, args: &[&str]) -> Output {
        vim_train(self.0.path(), args).output().unwrap()
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// The run in `run` left what `expected/name` says.
    ///
    /// On another kind of processor than the recorder's the last bits of a loss differ (an AMD EPYC
    /// with AVX-512, 2026-11-29, commit d123732), as the order differs in which products are
    /// summed: there the numbers are compared.
    fn assert_as_then(&self, run: &str, name: &str) {
        let expected = format!("expected/{name}");
        let metrics = |folder: &str| self.read(&format!("{folder}/metrics.jsonl"));
        let [found, recorded] = [run, &expected].map(metrics);
        let found = without_largest(&found);
        if found != recorded {
            eprintln!("{name}: another kind of processor than the recorder's, compared by numbers");
            assert_near(&found, &recorded, name);
            return;
        }
        let checkpoints = fs::read_dir(self.path(&format!("{run}/checkpoints"))).unwrap();
        let names = checkpoints.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let last = names.filter(|name| name.starts_with("step-")).max().unwrap();
        let found = self.read(&format!("{run}/checkpoints/{last}/MANIFEST"));
        // Hash, size and name of each file.
        let expected = self.read(&format!("{expected}/MANIFEST"));
        let arrays: Vec<&str> =
            expected.lines().filter(|line| line.ends_with(".safetensors")).collect();
        assert!(arrays.len() >= 2, "{expected}");
        for array in arrays {
            assert!(found.lines().any(|line| line == array), "{name}: {array}\n{found}");
        }
    }

    /// Ids and names of the runs that planning `file` lists.
    fn ids(&self, file: &str, sets: &[&str]) -> Vec<(String, String)> {
        let args = [&["sweep", "plan", file, "--dry-run", "--json"][..], &set(sets)].concat();
        let output = self.run(&args);
        assert_code(&output, 0);
        named(parsed(&output)["runs"].as_array().unwrap())
    }
}

/// Two files of records are the same but for a thousandth of each number; of a detector, where a
/// last bit decides which boxes are drawn, but for half.
fn assert_near(found: &str, recorded: &str, name: &str) {
    let records = |text: &str| -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let (found, recorded) = (records(found), records(recorded));
    assert_eq!(found.len(), recorded.len(), "{name}");
    let share = if name == "detection" { 0.5 } else { 1e-3 };
    for (one, other) in found.iter().zip(&recorded) {
        let (one, other) = (one.as_object().unwrap(), other.as_object().unwrap());
        assert!(one.keys().eq(other.keys()), "{name}: {one:?}, then {other:?}");
        for (key, value) in one {
            let is_near = match (value.as_f64(), other[key].as_f64()) {
                (Some(now), Some(then)) => (now - then).abs() <= share * then.abs().max(0.01),
                _ => *value == other[key],
            };
            assert!(is_near, "{name}: {key} is {value}, and was {}", other[key]);
        }
    }
}

fn named(runs: &[Value]) -> Vec<(String, String)> {
    let text = |run: &Value, key: &str| run[key].as_str().unwrap().to_owned();
    runs.iter().map(|run| (text(run, "id"), text(run, "name"))).collect()
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            // Not `fs::copy`: a checkout may be read-only.
            fs::write(to, fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

#[test]
fn runs_of_each_task_go_on_to_the_same_bytes() {
    let old = Old::new();
    for task in ["classification", "segmentation", "detection"] {
        let run = format!("runs/{task}");
        let output = old.run(&["train", &format!("{run}/config.toml"), "--resume", "auto"]);
        assert_says(&output, 0, &["resumed at step 2"]);
        old.assert_as_then(&run, task);
    }
}

/// Checkpoints of that time have no record of their own: their run's files say the same.
#[test]
fn weights_of_then_know_what_they_were_trained_for() {
    let old = Old::new();
    let eval = |more: &[&str]| {
        let which: &[&str] =
            if more.contains(&"--checkpoint") { &[] } else { &["--checkpoint", "last"] };
        old.run(&[&["eval", "runs/classification"], which, more].concat())
    };
    assert_code(&eval(&[]), 0);
    assert_code(&eval(&["--split", "val"]), 0);
    let method = eval(&["--set", "model.discretization=foh"]);
    assert_says(&method, 78, &["model.discretization (recorded \"zoh\", now \"foh\")"]);
    let split = eval(&["--split", "val", "--set", "data.val_seed=0"]);
    assert_says(&split, 78, &["data.val_seed (recorded 3, now 0)", "--allow split"]);
    assert_code(&eval(&["--set", "data.val_seed=0"]), 0);
    let exported = old.run(&["export", "runs/classification", "-o", "a.safetensors"]);
    assert_code(&exported, 0);
    let other = ["--checkpoint", "a.safetensors", "--set", "model.rope=both"];
    assert_says(&eval(&other), 78, &["model.rope", "--allow model"]);
}

#[test]
fn what_starts_anew_under_version_1_ends_in_the_same_bytes() {
    let old = Old::new();
    for task in ["classification", "segmentation", "detection"] {
        let file = format!("{task}.toml");
        let train = ["train", &file];
        let name = format!("run.name={task}");
        let sets = set(&["version=1", "run.root=anew", &name]);
        assert_code(&old.run(&[&train[..], &sets].concat()), 0);
        old.assert_as_then(&format!("anew/{task}"), task);
    }
}

#[test]
fn the_same_file_without_a_version_is_another_run() {
    let old = Old::new();
    for task in ["classification", "segmentation", "detection"] {
        let file = format!("{task}.toml");
        let train = |more: &[&str]| {
            old.run(&[&["train", &file, "--resume", "auto", "--dry-run"], more].concat())
        };
        let starts = "model.patch_init (recorded \"truncated\", now \"timm\")";
        let differs =
            ["data.val_seed (recorded 3, now 0)", "data.val_rule (recorded \"rounded\"", starts];
        assert_says(&train(&[]), 78, &differs);
        assert_says(&train(&set(&["version=2"])), 78, &differs);
        assert_code(&train(&set(&["version=1"])), 0);
        // With nothing held out, it starts otherwise.
        let none = train(&set(&["data.val_fraction=0"]));
        assert_says(&none, 78, &["data.val_fraction (recorded 0.25, now 0", starts]);
    }
}

#[test]
fn a_sweep_is_finished_under_its_ids() {
    let old = Old::new();
    let (plan, finished) = ("runs/study/plan.jsonl", "runs/study/zoh-s1/metrics.jsonl");
    let (planned, before) = (old.read(plan), old.read(finished));
    let known = named(&json_lines(&planned));
    assert_eq!(old.ids("study.toml", &["version=1"]), known);
    let command = ["sweep", "plan", "study.toml"];
    let refused = [
        "data.val_seed (planned not set, now 0)",
        "model.patch_init (planned not set, now \"timm\")",
        "the plan is of version 1, and the file of version 3: write `version = 1` in study.toml",
        "--fresh",
    ];
    assert_says(&old.run(&command), 78, &refused);
    assert_eq!(old.read(plan), planned);

    let output = old.run(&["sweep", "run", "runs/study", "-j", "1"]);
    assert_says(&output, 0, &["1 run to train, 1 finished", "2 of 2 runs finished"]);
    old.assert_as_then("runs/study/zoh-s2", "zoh-s2");
    assert_eq!(old.read(finished), before);

    // Planned again, it is frozen in the words of this version, and means the same.
    let study = format!("version = 1\n{}", old.read("study.toml"));
    fs::write(old.path("study.toml"), study).unwrap();
    assert_says(&old.run(&command), 0, &["2 finished; nothing new"]);
    assert_eq!(old.read(plan), planned);
    let frozen = old.read("runs/study/configs/340312bafd.toml");
    let meant =
        ["version = 3", "val_seed = 2", "val_rule = \"rounded\"", "patch_init = \"truncated\""];
    for line in meant {
        assert!(frozen.lines().any(|found| found == line), "{line} is not in\n{frozen}");
    }
    assert_says(&old.run(&["sweep", "run", "study.toml"]), 0, &["0 runs to train, 2 finished"]);
    // A file says one version.
    let both = ["from --set version=2: version: 2 here, and 1 in study.toml:1:11"];
    assert_says(&old.run(&[&command[..], &set(&["version=2"])].concat()), 78, &both);
    assert_code(&old.run(&["sweep", "summarize", "runs/study"]), 0);
}

#[test]
fn ids_are_those_that_were_planned() {
    let old = Old::new();
    // As 22baed7 prints them, without anything held out and with a quarter.
    let recorded = [
        (
            "classification",
            ["74a1606e99", "785a8d8ab5", "9569c0fb76", "69942e8dde"],
            ["9b58341c7e", "1e87c47f0e", "dfe9413961", "dc4cf652c8"],
        ),
        (
            "segmentation",
            ["4af73c4412", "c774dd52c6", "33351445b4", "5a11da5e89"],
            ["0fb7425693", "7fae25f89f", "4967271d04", "f298350c76"],
        ),
        (
            "detection",
            ["80c4c3cf4c", "20eb8f9990", "388418c7cb", "f95e1094a4"],
            ["b1cbf30165", "a8377c09c1", "3e1b42d10d", "fb99d14643"],
        ),
    ];
    for (task, none, quarter) in recorded {
        let text = format!(
            "extends = \"{task}.toml\"\n[run]\nname = \"{{model.discretization}}-s{{run.seed}}\"\n\
             [sweep]\nname = \"other\"\nseeds = [0, 3]\n\
             grid = {{ \"model.discretization\" = [\"zoh\", \"rk4\"] }}\nmust_match = [\"data\"]\n"
        );
        fs::write(old.path("other.toml"), text).unwrap();
        let ids = |sets: &[&str]| -> Vec<String> {
            old.ids("other.toml", sets).into_iter().map(|(id, _)| id).collect()
        };
        let truncated = "model.patch_init=truncated";
        for meant in [&["version=1"][..], &[truncated], &["version=2", truncated]] {
            assert_eq!(ids(&[meant, &["data.val_fraction=0"]].concat()), none, "{task}");
        }
        assert_eq!(ids(&["version=1"]), quarter, "{task}");
        // They start otherwise, and other images are held out: other runs.
        for (sets, then) in [(&["data.val_fraction=0"][..], none), (&[], quarter)] {
            let now = ids(sets);
            assert!(now.iter().all(|id| !then.contains(&id.as_str())), "{task}");
        }
        // The seed that version 1 took from the run, written out, is the same run.
        let same = ["data.val_seed=3", "data.val_rule=rounded", truncated];
        let written = ids(&same);
        assert_eq!((&written[1], &written[3]), (&quarter[1].to_owned(), &quarter[3].to_owned()));
        assert!(written[0] != quarter[0] && written[2] != quarter[2], "{task}");
    }
}
