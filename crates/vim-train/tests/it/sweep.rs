//! `vim-train sweep` of the built binary: from a file to the table.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use vim_slurm::JobId;
use vim_slurm::submissions::{self, Submission};

use crate::support::{
    assert_code, assert_parts, assert_says, folder, json_lines, parsed, repository, send, set,
    stderr, stdout, vim_train,
};

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
        Self::of(FILE)
    }

    /// Of a file whose runs go to ROOT.
    pub(crate) fn of(text: &str) -> Self {
        let place = folder(&[]);
        let text = text.replace("ROOT", &place.path().display().to_string());
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
        vim_train(&[&["sweep"], what].concat())
    }

    /// A subcommand on the file.
    pub(crate) fn of_file(&self, what: &str, more: &[&str]) -> Output {
        self.command(&[what]).arg(self.file()).args(more).output().unwrap()
    }

    /// A subcommand on the folder.
    pub(crate) fn of_folder(&self, what: &str, more: &[&str]) -> Output {
        self.command(&[what]).arg(self.folder()).args(more).output().unwrap()
    }

    pub(crate) fn json(&self, what: &str, more: &[&str]) -> Value {
        let output = self.of_folder(what, &[more, &["--json"]].concat());
        assert_code(&output, 0);
        parsed(&output)
    }

    pub(crate) fn states(&self) -> Vec<String> {
        let status = self.json("status", &[]);
        let runs = status["runs"].as_array().unwrap();
        runs.iter().map(|run| run["state"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.folder().join(file)).unwrap()
    }

    pub(crate) fn metrics(&self, name: &str) -> String {
        self.read(&format!("{name}/metrics.jsonl"))
    }

    /// The configuration that the first run was frozen with.
    fn first_config(&self) -> PathBuf {
        let first = json_lines(&self.read("plan.jsonl")).swap_remove(0);
        self.folder().join(first["config"].as_str().unwrap())
    }

    /// The report's figures are files of XML.
    fn assert_figures(&self) {
        let figures = fs::read_dir(self.folder().join("figures")).unwrap();
        let figures: Vec<PathBuf> = figures.map(|figure| figure.unwrap().path()).collect();
        let parse = "import sys, xml.dom.minidom as dom\n\
                     for path in sys.argv[1:]: assert dom.parse(path).documentElement.tagName == 'svg'";
        let parsed = Command::new("python3").args(["-c", parse]).args(&figures).output().unwrap();
        assert_code(&parsed, 0);
        assert_eq!(figures.len(), 6, "{figures:?}");
    }

    /// What plain `train` of a run's assignments leaves, with other threads than the sweep's.
    pub(crate) fn assert_as_by_itself(&self, name: &str, sets: &[&str]) {
        let other = self.place.path().join("alone.toml");
        let text = fs::read_to_string(self.file()).unwrap();
        fs::write(&other, text.split("[sweep]").next().unwrap()).unwrap();
        let own = ["devices.threads=2", &format!("run.name=alone-{name}")];
        let mut command = vim_train(&["train"]);
        command.arg(other).args(set(&own)).args(set(sets));
        assert_code(&command.output().unwrap(), 0);
        let alone = self.place.path().join(format!("alone-{name}")).join("metrics.jsonl");
        assert_eq!(fs::read_to_string(alone).unwrap(), self.metrics(name), "{name}");
    }
}

pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
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
    assert_eq!(stdout(&planned).lines().count(), 5, "{}", stdout(&planned));
    let plan = study.read("plan.jsonl");
    assert_eq!(study.states(), ["missing"; 4]);

    let output = study.of_file("run", &["-j", "2"]);
    assert_says(&output, 0, &["4 of 4 runs finished"]);
    assert_eq!(study.states(), ["finished"; 4]);
    assert_eq!(plan, study.read("plan.jsonl"));
    study.assert_as_by_itself("rk4-s1", &["model.discretization=rk4", "run.seed=1"]);
    study.assert_as_by_itself("zoh-s0", &["model.discretization=zoh", "run.seed=0"]);

    let table = study.of_folder("summarize", &["--md"]);
    assert_code(&table, 0);
    assert_parts(&stdout(&table), &["| zoh | 2/2 |", "| rk4 | 2/2 |"]);
    assert_eq!(stdout(&table), study.read("summary.md"));
    let table_in_latex = study.of_folder("summarize", &["--latex"]);
    assert_code(&table_in_latex, 0);
    assert_parts(&stdout(&table_in_latex), &["\\toprule\nrun & n & ", "\nrk4 & 2/2 & "]);
    study.assert_figures();
    let summary = study.json("summarize", &[]);
    let last = |name: &str| -> f64 {
        let records = json_lines(&study.metrics(name));
        let last = records.iter().rfind(|record| record["split"] == "val");
        last.unwrap()["top1"].as_f64().unwrap()
    };
    for (group, method) in ["zoh", "rk4"].iter().enumerate() {
        let values = [0, 1].map(|seed| last(&format!("{method}-s{seed}")));
        let mean = summary["summary"]["groups"][group]["sample"]["mean"].as_f64().unwrap();
        assert!((mean - (values[0] + values[1]) / 2.0).abs() < 1e-12, "{method}");
    }
    let difference = &summary["summary"]["groups"][1]["comparison"]["paired"];
    let differences =
        [0, 1].map(|seed| last(&format!("rk4-s{seed}")) - last(&format!("zoh-s{seed}")));
    let mean = (differences[0] + differences[1]) / 2.0;
    assert!((difference["mean"].as_f64().unwrap() - mean).abs() < 1e-12);
    // Two seeds whose differences are equal have nothing to say; the key is there.
    assert_eq!(summary["summary"]["comparisons"], 1);
    assert!(summary["summary"]["groups"][1]["comparison"].get("detectable").is_some());
    assert_parts(
        &stdout(&table),
        &["of 1 comparison with zoh show a difference", "| detectable |"],
    );
    let page = study.read("report.html");
    assert!(page.starts_with("<!doctype html>") && page.matches("<svg").count() == 6);
    assert_eq!(study.read("summary.csv").lines().count(), 3);

    // Again there is nothing to do, and more seeds are only added.
    assert_says(&study.of_file("run", &[]), 0, &["0 runs to train, 4 finished"]);
    let grown = study.of_file("plan", &["--set", "sweep.seeds=[0,1,2]"]);
    assert_says(&grown, 0, &["2 are new"]);
    assert!(study.read("plan.jsonl").starts_with(&plan), "indices stay");
    assert_eq!(study.states()[4..], ["missing", "missing"]);
    let text = stdout(&study.of_folder("summarize", &["--md"]));
    assert_parts(&text, &["| zoh | 2/3 |", "s2 missing"]);
}

#[test]
fn a_sweep_that_is_stopped_goes_on() {
    let study = Study::new();
    // Long enough to be hit, slow enough not to be over.
    let longer = ["train.epochs=12", "model.d_model=64"];
    let start = || {
        let mut command = study.command(&["run", "-j", "2"]);
        command.arg(study.file()).args(set(&longer)).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let has_begun = |name: &str| {
        let file = study.folder().join(name).join("metrics.jsonl");
        fs::metadata(file).is_ok_and(|file| file.len() > 0)
    };
    // SIGTERM is passed on, and the runs at work save.
    let child = start();
    wait_until("the first run", || has_begun("zoh-s0") || has_begun("zoh-s1"));
    send(&child, Signal::TERM);
    let ended = child.wait_with_output().unwrap();
    // What the runs reached, not how long this process ran.
    assert_says(
        &ended,
        75,
        &["SIGTERM: 2 runs to save after this step", "stopped: saved at step "],
    );
    assert!(!stderr(&ended).contains("stopped after"), "{}", stderr(&ended));
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
    assert_says(&start().wait_with_output().unwrap(), 0, &["run left"]);
    assert_eq!(study.states(), ["finished"; 4]);
    for (name, method, seed) in [("zoh-s0", "zoh", 0), ("rk4-s1", "rk4", 1)] {
        let (method, seed) = (format!("model.discretization={method}"), format!("run.seed={seed}"));
        study.assert_as_by_itself(name, &[&longer[..], &[&method, &seed]].concat());
    }
}

#[test]
fn failures_are_listed_and_retried() {
    let study = Study::new();
    assert_code(&study.of_file("plan", &[]), 0);
    // One run's configuration is damaged after it was planned.
    let config = study.first_config();
    let good = fs::read_to_string(&config).unwrap();
    fs::write(&config, good.replace("[train]", "[train]\nsurprise = 1")).unwrap();

    let output = study.of_folder("run", &["-j", "2"]);
    let said = ["zoh-s0: exit code 78: ", "unknown key", "1 of 4 runs did not finish"];
    assert_says(&output, 1, &said);
    assert_eq!(study.states(), ["failed", "finished", "finished", "finished"]);
    let table = stdout(&study.of_folder("summarize", &["--md"]));
    assert_parts(&table, &["| zoh | 1/2 |", "s0 failed (78)"]);

    fs::write(&config, good).unwrap();
    assert_says(&study.of_folder("retry", &["--failed"]), 0, &["1 run to train"]);
    assert_eq!(study.states(), ["finished"; 4]);
    assert!(stderr(&study.of_folder("retry", &["--failed"])).contains("nothing to retry"));
    assert_code(&study.of_folder("retry", &["--id", "nothing"]), 65);
}

#[test]
fn a_submitted_sweep_is_trained_here_only_if_asked_to() {
    let study = Study::new();
    assert_code(&study.of_file("plan", &[]), 0);
    let submission = Submission {
        job: JobId { job: 7, task: None },
        array: Some("0-3".into()),
        submitted: "then".into(),
        script: study.folder().join("slurm/tasks-from-0-1.sh"),
        output: None,
    };
    submissions::append(&study.folder(), &submission).unwrap();
    let missing = ["--missing", "--id", "zoh-s0"];
    let output = study.of_folder("retry", &missing);
    let folder = study.folder();
    let command = format!(
        "`vim-train sweep retry {} --missing --id zoh-s0 --submit` submits",
        folder.display()
    );
    assert_says(&output, 2, &["was submitted to SLURM", &command, "--local trains them here"]);
    assert_eq!(study.states(), ["missing"; 4]);
    assert_code(&study.of_folder("retry", &["--id", "zoh-s0", "--local"]), 0);
    // In a job it is at work on a compute node.
    let mut command = study.command(&["retry"]);
    command.arg(folder).args(["--id", "rk4-s0"]).env("SLURM_JOB_ID", "9");
    assert_code(&command.output().unwrap(), 0);
    let mut states = study.states();
    states.sort();
    assert_eq!(states, ["finished", "finished", "missing", "missing"]);
}

#[test]
fn all_gpus_of_a_job_get_a_run_each() {
    let run_of = |study: &Study, gpus: &str, seen: &str| {
        let mut command = study.command(&["run", "--gpus", gpus]);
        command.arg(study.file()).env("CUDA_VISIBLE_DEVICES", seen).output().unwrap()
    };
    let said = "no run computes on these GPUs (devices.backend = \"cpu\")";
    let study = Study::new();
    assert_says(&run_of(&study, "0,1", ""), 2, &[said]);
    assert_eq!(study.states(), ["missing"; 4]);

    // No machine has these GPUs, so that each run says that it has none.
    let study = Study::of(&FILE.replace("\"cpu\"", "\"auto\""));
    let run = |gpus: &str, seen: &str| run_of(&study, gpus, seen);
    let all = ["4 runs to train, 0 finished; 3 at a time", "=GPU-1f", "=903", "=905"];
    assert_says(&run("all", "GPU-1f,903,905"), 1, &all);
    let two = ["4 runs to train, 0 finished; 2 at a time", "=901", "=902"];
    assert_says(&run("901,902", ""), 1, &two);
    assert_says(&run("some", ""), 2, &["`some` is neither `all` nor a list as 0,1"]);
    assert_says(&run("all", ""), 69, &["--gpus all: "]);
}

#[test]
fn a_failure_may_stop_the_others() {
    let study = Study::new();
    assert_code(&study.of_file("plan", &[]), 0);
    fs::write(study.first_config(), "nonsense").unwrap();
    assert_code(&study.of_folder("run", &["--fail-fast"]), 1);
    assert_eq!(study.states(), ["failed", "missing", "missing", "missing"]);
}

#[test]
fn a_sweep_is_not_a_run_and_a_run_is_no_sweep() {
    let study = Study::new();
    let output = vim_train(&["train"]).arg(study.file()).output().unwrap();
    assert_says(&output, 78, &["vim-train sweep run"]);
    let debug = repository("configs/debug.toml");
    let output = study.command(&["plan"]).arg(debug).output().unwrap();
    assert_says(&output, 78, &["has no [sweep] section"]);
    let output = study.command(&["status"]).arg(study.place.path()).output().unwrap();
    assert_says(&output, 65, &["holds no sweep"]);
    let output = study.of_file("plan", &["--set", "run.seed=3"]);
    assert_says(&output, 78, &["--set run.seed: the sweep varies it"]);
}

#[test]
fn what_was_planned_is_not_changed_by_the_way() {
    let study = Study::new();
    assert_code(&study.of_file("plan", &[]), 0);
    let output = study.of_file("plan", &["--set", "train.epochs=5"]);
    assert_says(&output, 78, &["train.epochs (planned 4, now 5)"]);
    let output = study.of_file("plan", &["--set", "sweep.seeds=[0]"]);
    assert_says(&output, 78, &["zoh-s1 is no longer asked for"]);
    let output = study.of_file("plan", &["--set", "train.epochs=5", "--fresh"]);
    assert_code(&output, 0);
    assert!(study.place.path().join("study.old-1/plan.jsonl").is_file());
    let config = fs::read_dir(study.folder().join("configs")).unwrap().next().unwrap().unwrap();
    assert!(fs::read_to_string(config.path()).unwrap().contains("epochs = 5"));
}

#[test]
fn the_studies_that_come_along_can_be_planned() {
    for (file, runs) in [
        ("shapes", 12),
        ("segment_shapes", 12),
        ("collapse", 36),
        ("collapse_openclipart", 9),
        ("detect_shapes", 12),
        ("cifar100", 30),
        ("imagenet", 30),
        ("ten_methods", 30),
        ("ten_methods_cifar100", 50),
        ("fashion_mnist", 50),
        ("fashion_mnist_lr", 30),
        ("fashion_mnist_recipes", 6),
        ("fashion_mnist_p2", 25),
        ("openclipart", 9),
        ("openclipart_seg", 9),
        ("openclipart_det", 9),
    ] {
        let place = folder(&[]);
        let root = format!("run.root={}", place.path().display());
        let mut command = vim_train(&["sweep", "plan", "--dry-run", "--json", "--set", &root]);
        let output = command.arg(repository(&format!("configs/ablation/{file}.toml"))).output();
        let output = output.unwrap();
        assert_code(&output, 0);
        assert_eq!(parsed(&output)["runs"].as_array().unwrap().len(), runs, "{file}");
    }
}
