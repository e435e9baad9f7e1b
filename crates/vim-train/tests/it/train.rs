//! `train` and `eval` of the built binary, on `configs/debug.toml`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use strum::VariantArray;
use tempfile::TempDir;
use vim_kernels::{Discretization, KERNEL_VARIABLE};

/// A folder for runs, and the binary on the debug configuration in it.
pub(crate) struct Bench {
    root: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn command(&self, what: &str, name: &str, more: &[&str]) -> Command {
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/debug.toml");
        let mut command = Command::new(env!("CARGO_BIN_EXE_vim-train"));
        command.arg(what).arg(config).args(["--set", &format!("run.name={name}")]);
        command.args(["--set", &format!("run.root={}", self.root.path().display())]);
        command.args(more).env_remove(KERNEL_VARIABLE);
        command
    }

    pub(crate) fn train(&self, name: &str, more: &[&str]) -> Output {
        self.command("train", name, more).output().unwrap()
    }

    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn metrics(&self, name: &str) -> String {
        fs::read_to_string(self.folder(name).join("metrics.jsonl")).unwrap()
    }

    /// The records of a kind, such as `train`.
    fn records(&self, name: &str, kind: &str) -> Vec<Value> {
        let lines = self.metrics(name);
        let records = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        records.filter(|record| record["kind"] == kind).collect()
    }

    fn exit(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.folder(name).join("exit.json")).unwrap()).unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
pub(crate) fn assert_code(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
}

#[test]
fn a_run_leaves_its_result_and_its_record() {
    let bench = Bench::new();
    let output = bench.train("a", &[]);
    assert_code(&output, 0);
    let test = bench.records("a", "eval").into_iter().find(|r| r["split"] == "test").unwrap();
    let top1 = test["top1"].as_f64().unwrap();
    let line = format!("test top-1 {:.2} %", top1 * 100.0);
    assert_eq!(text(&output.stdout).lines().last(), Some(line.as_str()));
    for file in ["config.toml", "env.json", "timing.jsonl", "log.txt", "checkpoints/best"] {
        assert!(bench.folder("a").join(file).is_file(), "{file}");
    }
    assert_eq!(bench.exit("a")["reason"], "finished");
    let log = fs::read_to_string(bench.folder("a").join("log.txt")).unwrap();
    assert!(log.contains("selective_scan: kernel") && log.contains("causal_conv1d: kernel"));

    // Twelve records of two steps each, three evaluations on val, one on test.
    let train = bench.records("a", "train");
    let steps: Vec<_> = train.iter().map(|r| r["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, (1..=12).map(|i| 2 * i).collect::<Vec<_>>());
    let losses: Vec<_> = train.iter().map(|r| r["loss"].as_f64().unwrap()).collect();
    // 24 steps of a toy model, augmented: a little below where it started, ln 12 = 2.485.
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    assert!(mean(&losses[9..]) < mean(&losses[..3]) - 0.01, "it does not learn: {losses:?}");
    assert_eq!(bench.records("a", "eval").len(), 4);

    // `eval` agrees with what training wrote, of the same weights.
    for (which, step) in [("best", test["step"].clone()), ("last", Value::from(24))] {
        let more = ["--checkpoint", which, "--json"];
        let output = bench.command("eval", "a", &more).output().unwrap();
        assert_code(&output, 0);
        let scores: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(scores["step"], step);
        if step == test["step"] {
            assert_eq!(scores["top1"], test["top1"]);
            assert_eq!(scores["loss"], test["loss"]);
        }
    }
}

#[test]
fn a_folder_with_a_run_is_not_touched_unasked() {
    let bench = Bench::new();
    assert_code(&bench.train("a", &[]), 0);
    let before = bench.metrics("a");
    let refused = bench.train("a", &[]);
    assert_code(&refused, 73);
    let said = text(&refused.stderr);
    assert!(said.contains("--resume auto") && said.contains("--fresh"), "{said}");

    let finished = bench.train("a", &["--resume", "auto"]);
    assert_code(&finished, 0);
    assert!(text(&finished.stderr).contains("is finished"));
    assert!(text(&finished.stdout).starts_with("test top-1 "));
    assert_eq!(bench.metrics("a"), before);

    assert_code(&bench.train("a", &["--fresh", "--set", "run.seed=1"]), 0);
    assert_eq!(bench.metrics("a.old-1"), before);
    assert_ne!(bench.metrics("a"), before, "another seed is another run");
}

#[test]
fn the_same_numbers_with_any_number_of_threads() {
    let bench = Bench::new();
    // Large enough for matrix products and the scan to be shared out among threads.
    let run = |name, workers, threads| {
        let (workers, threads) =
            (format!("data.workers={workers}"), format!("devices.threads={threads}"));
        let size = [
            "--set",
            "model.d_model=128",
            "--set",
            "train.batch_size=128",
            "--set",
            "model.patch_size=4",
        ];
        let more = [&size[..], &["--set", &workers, "--set", &threads, "--steps", "2"]].concat();
        assert_code(&bench.train(name, &more), 0);
        bench.metrics(name)
    };
    assert_eq!(run("a", 1, 1), run("b", 5, 3));
}

#[test]
fn every_method_trains_and_kernel_and_reference_agree() {
    let bench = Bench::new();
    for method in Discretization::VARIANTS {
        let method = format!("model.discretization={method}");
        let mut losses = Vec::new();
        for scan in ["kernel", "reference"] {
            let scan = format!("ssm.scan={scan}");
            let more = ["--set", &method, "--set", &scan, "--steps", "4", "--fresh"];
            assert_code(&bench.train("a", &more), 0);
            let log = fs::read_to_string(bench.folder("a").join("log.txt")).unwrap();
            // A process of its own says what ran in it: each operation as chosen, and nothing else.
            let ran: Vec<_> = ["add_rms_norm", "causal_conv1d", "selective_scan"]
                .map(|operation| scan.replace("ssm.scan=", &format!("{operation}: ")))
                .to_vec();
            let said: Vec<_> = log
                .lines()
                .filter(|line| line.ends_with(": kernel") || line.ends_with(": reference"))
                .collect();
            assert_eq!(said.len(), 3, "{log}");
            assert!(said.iter().zip(&ran).all(|(said, ran)| said.ends_with(ran)), "{said:?}");
            losses.push(bench.records("a", "train")[1]["loss"].as_f64().unwrap());
        }
        // Three steps of f32 that differ in rounding only; the loss is about 2.5.
        assert!((losses[0] - losses[1]).abs() < 1e-4, "{method}: {losses:?}");
    }
}

#[test]
fn the_environment_chooses_the_scan_and_set_overrules_it() {
    let bench = Bench::new();
    let ran = |more: &[&str], flag: &str| {
        let more = [&["--steps", "1", "--fresh"], more].concat();
        let output =
            bench.command("train", "a", &more).env(KERNEL_VARIABLE, flag).output().unwrap();
        assert_code(&output, 0);
        let log = fs::read_to_string(bench.folder("a").join("log.txt")).unwrap();
        log.contains("selective_scan: kernel")
    };
    assert!(ran(&[], "1") && !ran(&[], "0"));
    assert!(ran(&["--set", "ssm.scan=kernel"], "0"));
}

#[test]
fn divergence_stops_with_the_step_and_keeps_the_last_checkpoint() {
    let bench = Bench::new();
    // The rate climbs over four steps to one that no model survives; the first step is saved.
    let more = ["--set", "optim.lr=1e18", "--set", "optim.warmup_lr=1e-3", "--set"];
    let more = [&more[..], &["checkpoint.every=\"1st\""]].concat();
    assert_code(&bench.train("a", &more), 76);
    let exit = bench.exit("a");
    assert_eq!((exit["reason"].as_str(), exit["exit_code"].as_u64()), (Some("diverged"), Some(76)));
    let error = exit["error"].as_str().unwrap();
    let saved =
        bench.folder("a").join(format!("checkpoints/step-{:08}", exit["step"].as_u64().unwrap()));
    assert!(
        error.contains("diverged at step") && error.contains(saved.to_str().unwrap()),
        "{error}"
    );
    assert!(saved.join("model.safetensors").is_file());
    let more = ["--checkpoint", saved.to_str().unwrap()];
    assert_code(&bench.command("eval", "a", &more).output().unwrap(), 0);
    assert!(!bench.metrics("a").contains("null"), "no number that is not one is recorded");
}

#[test]
fn what_is_not_there_has_a_code_of_its_own() {
    let bench = Bench::new();
    if !cfg!(feature = "cuda") {
        let output = bench.train("a", &["--set", "devices.backend=cuda"]);
        assert_code(&output, 69);
        assert!(text(&output.stderr).contains("--features cuda"));
    }
    let missing = ["--set", "data.dataset=cifar100", "--set", "data.path=/no/such/archive"];
    assert_code(&bench.train("a", &missing), 65);
    let wrong_size = bench.train("a", &["--set", "model.image_size=64"]);
    assert_code(&wrong_size, 78);
    assert!(text(&wrong_size.stderr).contains("model.image_size"));
    assert_code(&bench.train("a", &["--set", "train.batch_size=1000"]), 78);
    assert_code(&bench.command("eval", "a", &[]).output().unwrap(), 74);
    assert!(!bench.folder("a").exists(), "a mistake leaves no folder behind");

    assert_code(&bench.train("a", &["--steps", "1"]), 0);
    let other = ["--checkpoint", "last", "--set", "model.discretization=foh"];
    let output = bench.command("eval", "a", &other).output().unwrap();
    assert_code(&output, 78);
    assert!(
        text(&output.stderr).contains("model.discretization"),
        "weights look the same under any method"
    );
    let last = bench.folder("a").join("checkpoints/step-00000001");
    let other = ["--checkpoint", last.to_str().unwrap(), "--set", "model.d_model=48"];
    let output = bench.command("eval", "a", &other).output().unwrap();
    assert_code(&output, 65);
    assert!(text(&output.stderr).contains("cls_token (expected [1, 1, 48], got [1, 1, 32])"));
}

#[test]
fn cifar_archives_train_as_they_were_downloaded() {
    let bench = Bench::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/make_cifar_archive.py");
    for format in ["binary", "python"] {
        let archive = bench.folder(&format!("cifar-100-{format}.tar.gz"));
        let made = Command::new("python3")
            .arg(&script)
            .args(["--dataset", "cifar100", "--format", format, "--train", "128", "--test", "32"])
            .arg("--out")
            .arg(&archive)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", text(&made.stderr));
        let path = format!("data.path={}", archive.display());
        let more = ["--set", "data.dataset=cifar100", "--set", &path];
        assert_code(&bench.train(format, &more), 0);
        assert_eq!(bench.records(format, "train").len(), 6);
    }
    // The two versions hold the same images, so the runs are the same.
    assert_eq!(bench.metrics("binary"), bench.metrics("python"));
}
