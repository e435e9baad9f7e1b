//! `vim-train sweep` of the built binary: from a file to the table.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use vim_kernels::KERNEL_VARIABLE;

use crate::train::assert_code;

/// Two methods with two seeds of a model that trains in a second.
const FILE: &str = r#"
[run]
root = "ROOT"

[model]
image_size = 16
patch_size = 8
depth = 1
d_model = 16
d_state = 2

[data]
dataset = "shapes"
shapes = { train = 128, val = 64, test = 64 }

[augment]
preset = "none"

[train]
epochs = 4
batch_size = 16

[optim]
lr = 2e-3
warmup = "4st"

[devices]
backend = "cpu"

[checkpoint]
every = "2st"

[log]
every = "2st"

[sweep]
name = "study"
grid = { "model.discretization" = ["zoh", "rk4"] }
seeds = [0, 1]

[sweep.report]
baseline = { "model.discretization" = "zoh" }
"#;

/// A folder with a sweep's file and its runs.
pub(crate) struct Study {
    place: TempDir,
}

impl Study {
    pub(crate) fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let text = FILE.replace("ROOT", &place.path().display().to_string());
        fs::write(place.path().join("study.toml"), text).unwrap();
        Self { place }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.place.path().join("study.toml")
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.place.path().join("study")
    }

    pub(crate) fn command(&self, what: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vim-train"));
        command.arg("sweep").args(what).env_remove(KERNEL_VARIABLE);
        command
    }

    /// A subcommand on the file.
    pub(crate) fn of_file(&self, what: &str, more: &[&str]) -> Output {
        self.command(&[what]).arg(self.file()).args(more).output().unwrap()
    }

    /// A subcommand on the folder.
    pub(crate) fn of_folder(&self, what: &str, more: &[&str]) -> Output {
        self.command(&[what]).arg(self.folder()).args(more).output().unwrap()
    }

    fn json(&self, what: &str, more: &[&str]) -> Value {
        let output = self.of_folder(what, &[more, &["--json"]].concat());
        assert_code(&output, 0);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn states(&self) -> Vec<String> {
        let status = self.json("status", &[]);
        let runs = status["runs"].as_array().unwrap();
        runs.iter().map(|run| run["state"].as_str().unwrap().to_owned()).collect()
    }

    fn metrics(&self, name: &str) -> String {
        fs::read_to_string(self.folder().join(name).join("metrics.jsonl")).unwrap()
    }

    /// What plain `train` of a run's assignments leaves, with other threads than the sweep's.
    fn assert_as_by_itself(&self, name: &str, sets: &[&str]) {
        let other = self.place.path().join("alone.toml");
        let text = fs::read_to_string(self.file()).unwrap();
        fs::write(&other, text.split("[sweep]").next().unwrap()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_vim-train"));
        command.arg("train").arg(other).env_remove(KERNEL_VARIABLE);
        for set in ["devices.threads=2", &format!("run.name=alone-{name}")].iter().chain(sets) {
            command.args(["--set", set]);
        }
        assert_code(&command.output().unwrap(), 0);
        let alone = self.place.path().join(format!("alone-{name}")).join("metrics.jsonl");
        assert_eq!(fs::read_to_string(alone).unwrap(), self.metrics(name), "{name}");
    }
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn shown(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn terminate(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(120), "{what} does not come about");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn from_a_file_to_the_table() {
    let study = Study::new();
    let planned = study.of_file("plan", &[]);
    assert_code(&planned, 0);
    assert_eq!(shown(&planned).lines().count(), 5, "{}", shown(&planned));
    let plan = fs::read_to_string(study.folder().join("plan.jsonl")).unwrap();
    assert_eq!(study.states(), ["missing"; 4]);

    let output = study.of_file("run", &["-j", "2"]);
    assert_code(&output, 0);
    assert!(said(&output).contains("4 of 4 runs are finished"), "{}", said(&output));
    assert_eq!(study.states(), ["finished"; 4]);
    assert_eq!(plan, fs::read_to_string(study.folder().join("plan.jsonl")).unwrap());
    study.assert_as_by_itself("rk4-s1", &["model.discretization=rk4", "run.seed=1"]);
    study.assert_as_by_itself("zoh-s0", &["model.discretization=zoh", "run.seed=0"]);

    let table = study.of_folder("summarize", &["--md"]);
    assert_code(&table, 0);
    let text = shown(&table);
    assert!(text.contains("| zoh | 2/2 |") && text.contains("| rk4 | 2/2 |"), "{text}");
    assert_eq!(text, fs::read_to_string(study.folder().join("summary.md")).unwrap());
    let summary = study.json("summarize", &[]);
    let last = |name: &str| -> f64 {
        let lines = study.metrics(name);
        let mut records = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        records.rfind(|record| record["split"] == "val").unwrap()["top1"].as_f64().unwrap()
    };
    for (group, method) in ["zoh", "rk4"].iter().enumerate() {
        let values = [0, 1].map(|seed| last(&format!("{method}-s{seed}")));
        let mean = summary["summary"]["groups"][group]["sample"]["mean"].as_f64().unwrap();
        assert!((mean - (values[0] + values[1]) / 2.0).abs() < 1e-12, "{method}");
    }
    let difference = &summary["summary"]["groups"][1]["comparison"]["paired"];
    let mean: f64 = [0, 1]
        .map(|seed| last(&format!("rk4-s{seed}")) - last(&format!("zoh-s{seed}")))
        .iter()
        .sum::<f64>()
        / 2.0;
    assert!((difference["mean"].as_f64().unwrap() - mean).abs() < 1e-12);
    let page = fs::read_to_string(study.folder().join("report.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.matches("<svg").count() == 6);
    assert!(fs::read_to_string(study.folder().join("summary.csv")).unwrap().lines().count() == 3);

    // Again there is nothing to do, and more seeds are only added.
    let output = study.of_file("run", &[]);
    assert_code(&output, 0);
    assert!(said(&output).contains("0 runs to train, 4 finished"), "{}", said(&output));
    let grown = study.of_file("plan", &["--set", "sweep.seeds=[0,1,2]"]);
    assert_code(&grown, 0);
    assert!(said(&grown).contains("2 are new"), "{}", said(&grown));
    let longer = fs::read_to_string(study.folder().join("plan.jsonl")).unwrap();
    assert!(longer.starts_with(&plan), "indices stay");
    assert_eq!(study.states()[4..], ["missing", "missing"]);
    let text = shown(&study.of_folder("summarize", &["--md"]));
    assert!(text.contains("| zoh | 2/3 |") && text.contains("s2 missing"), "{text}");
}

#[test]
fn a_sweep_that_is_stopped_goes_on() {
    let study = Study::new();
    // Long enough to be hit, slow enough not to be over.
    let sets = ["--set", "train.epochs=12", "--set", "model.d_model=64"];
    let start = || {
        let mut command = study.command(&["run", "-j", "2"]);
        command.arg(study.file()).args(sets).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let has_begun = |name: &str| {
        let file = study.folder().join(name).join("metrics.jsonl");
        fs::metadata(file).is_ok_and(|file| file.len() > 0)
    };
    // SIGTERM is passed on, and the runs at work save.
    let mut child = start();
    wait_until("the first run", || has_begun("zoh-s0") || has_begun("zoh-s1"));
    terminate(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(75));
    let states = study.states();
    assert!(states.contains(&"interrupted".into()) && !states.contains(&"running".into()));
    assert!(states.contains(&"missing".into()), "{states:?}");
    // Killed, it cannot pass anything on: its runs notice, and save.
    let mut child = start();
    wait_until("a run at work", || study.states().contains(&"running".into()));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the end of its runs", || !study.states().contains(&"running".into()));
    // One that was only starting when its runner died may hold its folder a moment longer, and is
    // waited for.
    assert_eq!(start().wait().unwrap().code(), Some(0));
    assert_eq!(study.states(), ["finished"; 4]);
    for (name, method, seed) in [("zoh-s0", "zoh", 0), ("rk4-s1", "rk4", 1)] {
        let more = [format!("model.discretization={method}"), format!("run.seed={seed}")]
            .map(String::from);
        let more = more.iter().map(String::as_str);
        let all: Vec<&str> =
            ["train.epochs=12", "model.d_model=64"].into_iter().chain(more).collect();
        study.assert_as_by_itself(name, &all);
    }
}

#[test]
fn failures_are_listed_and_retried() {
    let study = Study::new();
    assert_code(&study.of_file("plan", &[]), 0);
    // One run's configuration is damaged after it was planned.
    let plan = fs::read_to_string(study.folder().join("plan.jsonl")).unwrap();
    let entry: Value = serde_json::from_str(plan.lines().next().unwrap()).unwrap();
    let config = study.folder().join(entry["config"].as_str().unwrap());
    let good = fs::read_to_string(&config).unwrap();
    fs::write(&config, good.replace("[train]", "[train]\nsurprise = 1")).unwrap();

    let output = study.of_folder("run", &["-j", "2"]);
    assert_code(&output, 1);
    let text = said(&output);
    assert!(text.contains("zoh-s0: exit code 78: ") && text.contains("unknown key"), "{text}");
    assert!(text.contains("1 of 4 runs did not finish"), "{text}");
    assert_eq!(study.states(), ["failed", "finished", "finished", "finished"]);
    let table = shown(&study.of_folder("summarize", &["--md"]));
    assert!(table.contains("| zoh | 1/2 |") && table.contains("s0 failed (78)"), "{table}");

    fs::write(&config, good).unwrap();
    let output = study.of_folder("retry", &["--failed"]);
    assert_code(&output, 0);
    assert!(said(&output).contains("1 runs to train"), "{}", said(&output));
    assert_eq!(study.states(), ["finished"; 4]);
    assert!(said(&study.of_folder("retry", &["--failed"])).contains("no such runs"));
    assert_code(&study.of_folder("retry", &["--id", "nothing"]), 65);
}

#[test]
fn a_failure_may_stop_the_others() {
    let study = Study::new();
    assert_code(&study.of_file("plan", &[]), 0);
    let plan = fs::read_to_string(study.folder().join("plan.jsonl")).unwrap();
    let entry: Value = serde_json::from_str(plan.lines().next().unwrap()).unwrap();
    fs::write(study.folder().join(entry["config"].as_str().unwrap()), "nonsense").unwrap();
    assert_code(&study.of_folder("run", &["--fail-fast"]), 1);
    assert_eq!(study.states(), ["failed", "missing", "missing", "missing"]);
}

#[test]
fn a_sweep_is_not_a_run_and_a_run_is_no_sweep() {
    let study = Study::new();
    let train = |file: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vim-train"));
        command.arg("train").arg(file).output().unwrap()
    };
    let output = train(&study.file());
    assert_code(&output, 78);
    assert!(said(&output).contains("vim-train sweep run"), "{}", said(&output));
    let debug = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/debug.toml");
    let output = study.command(&["plan"]).arg(debug).output().unwrap();
    assert_code(&output, 78);
    assert!(said(&output).contains("has no [sweep] section"), "{}", said(&output));
    let output = study.command(&["status"]).arg(study.place.path()).output().unwrap();
    assert_code(&output, 65);
    assert!(said(&output).contains("holds no sweep"), "{}", said(&output));
    let output = study.of_file("plan", &["--set", "run.seed=3"]);
    assert_code(&output, 78);
    assert!(said(&output).contains("--set run.seed: the sweep varies it"), "{}", said(&output));
}

#[test]
fn what_was_planned_is_not_changed_by_the_way() {
    let study = Study::new();
    assert_code(&study.of_file("plan", &[]), 0);
    let output = study.of_file("plan", &["--set", "train.epochs=5"]);
    assert_code(&output, 78);
    assert!(said(&output).contains("train.epochs (planned 4, now 5)"), "{}", said(&output));
    let output = study.of_file("plan", &["--set", "sweep.seeds=[0]"]);
    assert_code(&output, 78);
    assert!(said(&output).contains("zoh-s1 is no longer asked for"), "{}", said(&output));
    let output = study.of_file("plan", &["--set", "train.epochs=5", "--fresh"]);
    assert_code(&output, 0);
    assert!(study.place.path().join("study.old-1/plan.jsonl").is_file());
    let config = fs::read_dir(study.folder().join("configs")).unwrap().next().unwrap().unwrap();
    assert!(fs::read_to_string(config.path()).unwrap().contains("epochs = 5"));
}

#[test]
fn the_studies_that_come_along_can_be_planned() {
    for (file, runs) in [("shapes", 12), ("cifar100", 30), ("imagenet", 30)] {
        let place = tempfile::tempdir().unwrap();
        let config = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../../configs/ablation/{file}.toml"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_vim-train"));
        command.args(["sweep", "plan"]).arg(config).args(["--dry-run", "--json"]);
        command.args(["--set", &format!("run.root={}", place.path().display())]);
        let output = command.output().unwrap();
        assert_code(&output, 0);
        let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(plan["runs"].as_array().unwrap().len(), runs, "{file}");
    }
}
