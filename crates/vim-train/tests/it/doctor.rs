//! `vim-train doctor` as built.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use strum::VariantArray;
use vim_kernels::Discretization;

use crate::support::{
    assert_code, assert_parts, folder, parsed, path_from, run, set, stderr, stdout, vim_train,
    write_program,
};

fn methods() -> impl Iterator<Item = &'static str> {
    Discretization::VARIANTS.iter().map(<&str>::from)
}

/// On `device`, with runs in a folder of its own, in no job.
fn doctor_on(device: &str, folder: &Path, args: &[&str]) -> Command {
    let root = format!("run.root={}", folder.join("runs").display());
    let mut command = vim_train(&["doctor", "--device", device, "--set", &root]);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SLURM_") {
            command.env_remove(name);
        }
    }
    command.args(args);
    command
}

fn doctor(folder: &Path, args: &[&str]) -> Output {
    doctor_on("cpu", folder, args).output().unwrap()
}

fn checks(output: &Output) -> Vec<Value> {
    parsed(output)["checks"].as_array().unwrap().clone()
}

fn check<'a>(checks: &'a [Value], what: &str) -> &'a Value {
    let found = checks.iter().find(|check| check["what"] == what);
    found.unwrap_or_else(|| panic!("no line of {what} in {checks:?}"))
}

#[test]
fn a_machine_that_will_do() {
    let folder = folder(&[]);
    let output = doctor(folder.path(), &[]);
    let text = stdout(&output);
    assert_code(&output, 0);
    for what in ["program", "cpu", "memory", "backend cpu", "device", "run.root", "data.path"] {
        let line = text.lines().find(|line| line.get(6..).is_some_and(|l| l.starts_with(what)));
        let verdict = line.and_then(|line| line.get(..4));
        assert!(matches!(verdict, Some("pass" | "warn")), "{what}:\n{text}");
    }
    for method in methods() {
        assert_parts(&text, &[&format!("pass  scan {method}")]);
    }
    assert!(text.lines().last().unwrap().ends_with(" 0 failed"), "{text}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "something was left behind");
}

#[test]
fn the_document_says_the_same() {
    let folder = folder(&[]);
    let output = doctor(folder.path(), &["--json"]);
    assert_code(&output, 0);
    let document = parsed(&output);
    assert_eq!(document["command"], "doctor");
    assert_eq!(document["summary"]["failed"], 0);
    assert_eq!(document["summary"]["passed"], true);
    let checks = checks(&output);
    assert_eq!(document["summary"]["checks"], checks.len());
    let warned = checks.iter().filter(|check| check["verdict"] == "warn");
    for check in warned.clone() {
        assert!(check["advice"].as_str().is_some_and(|advice| !advice.is_empty()), "{check}");
    }
    assert_eq!(document["summary"]["warnings"], warned.count());
    assert_eq!(check(&checks, "run.root locks")["verdict"], "pass");
    assert!(check(&checks, "device")["detail"].as_str().is_some_and(|name| name == "cpu"));
}

#[test]
fn what_would_not_work_fails() {
    let folder = folder(&[]);
    let sets = set(&["data.dataset=imagenet", "data.path=/no/such/images"]);
    let output = doctor(folder.path(), &[&["--json"], &sets[..]].concat());
    assert_code(&output, 1);
    let missing = checks(&output);
    let data = check(&missing, "data.path");
    assert_eq!(data["verdict"], "fail");
    assert!(data["detail"].as_str().unwrap().contains("/no/such/images"));
    assert!(data["advice"].as_str().unwrap().contains("docs/data.md"));
    let stderr = stderr(&output);
    // Where there is a SLURM that does not answer, that is said before.
    let last = stderr.lines().last().unwrap();
    assert!(last.starts_with("error: 1 of ") && last.contains("data.path"), "{stderr}");

    let unset = checks(&doctor(folder.path(), &["--json", "--set", "data.dataset=cifar100"]));
    assert_eq!(check(&unset, "data.path")["verdict"], "fail");
}

#[test]
fn a_sweeps_file_is_taken_without_its_grid() {
    let folder = folder(&[("sweep.toml", "[sweep]\nseeds = [0, 1]\n")]);
    let file = folder.path().join("sweep.toml");
    let output = doctor(folder.path(), &["--json", &file.display().to_string()]);
    assert_code(&output, 0);
}

/// SLURM's commands while its controller is away: one hangs.
#[test]
fn a_controller_that_is_away_is_said_to_be_waited_for_and_not_for_long() {
    let folder = folder(&[]);
    for (name, script) in [("sbatch", "echo slurm 22.05.8"), ("scontrol", "exec sleep 120")] {
        write_program(&folder.path().join(name), script);
    }
    let mut command = doctor_on("cpu", folder.path(), &["--json"]);
    let output = command.env("PATH", path_from(folder.path())).output().unwrap();
    assert_code(&output, 0);
    let all = checks(&output);
    let found = check(&all, "slurm commands");
    assert_eq!(found["verdict"], "warn");
    let detail = found["detail"].as_str().unwrap();
    assert!(detail.ends_with("`scontrol show config` gave no answer in 10 s"), "{detail}");
    let said = stderr(&output);
    let line = "waiting for SLURM's controller, for 10 s at most";
    assert_eq!(said.lines().filter(|said| *said == line).count(), 1, "{said}");
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_device_that_is_not_built_in_fails() {
    let folder = folder(&[]);
    let output = doctor_on("cuda", folder.path(), &["--json"]).output().unwrap();
    assert_code(&output, 1);
    let checks = checks(&output);
    let device = check(&checks, "device");
    assert_eq!(device["verdict"], "fail");
    assert!(device["detail"].as_str().unwrap().contains("--features cuda"), "{device}");
    // There is nothing to run kernels on.
    assert!(!checks.iter().any(|one| one["what"].as_str().unwrap().starts_with("scan ")));
}

/// Small enough for a test; the original's sizes are the default on a GPU.
const SIZES: [&str; 8] = ["--batch", "1", "--dim", "8", "--seqlen", "16", "--dstate", "4"];

fn numbered(checks: &[Value], number: u8) -> Vec<&Value> {
    let start = format!("{number} ");
    checks.iter().filter(|one| one["what"].as_str().unwrap().starts_with(&start)).collect()
}

#[test]
fn the_seven_checks_of_performance() {
    let folder = folder(&[]);
    let output = doctor(folder.path(), &[&["--performance", "--json"], &SIZES[..]].concat());
    assert_code(&output, 0);
    let document = parsed(&output);
    let sizes = serde_json::json!({ "batch": 1, "dim": 8, "seqlen": 16, "dstate": 4 });
    assert_eq!(document["performance"], sizes);
    let all = checks(&output);

    // Eight tensors, and B and C along time.
    assert_eq!(numbered(&all, 1).len(), 8 + 2);
    let b = check(&all, "1 input b");
    assert_eq!(b["figures"]["shape"], serde_json::json!([1, 16, 4]));
    assert_eq!(b["figures"]["dtype"], "f32");
    assert!(b["figures"]["blake3"].as_str().is_some_and(|hash| hash.len() == 12), "{b}");
    assert_eq!(check(&all, "1 input b[t]")["verdict"], "pass");

    // Calls on a CPU return when they are done.
    assert_eq!(check(&all, "2 synchronisation")["verdict"], "pass");
    assert!(check(&all, "3 threads")["figures"]["cores"].as_u64() > Some(0));
    assert!(check(&all, "5 warm-up")["figures"]["first_ms"].as_f64() > Some(0.0));
    for what in ["6 sum", "6 exponential", "6 reciprocal", "6 product"] {
        let figures = &check(&all, what)["figures"];
        assert!(figures["share_of_peak"].as_f64() > Some(0.0), "{what}: {figures}");
    }
    for method in methods() {
        let path = check(&all, &format!("4 path {method}"));
        assert_eq!([&path["verdict"], &path["figures"]["implementation"]], ["pass", "kernel"]);
        assert!(path["figures"]["backward_error"].as_f64() < Some(1e-4), "{path}");
        let scan = &check(&all, &format!("7 scan {method}"))["figures"];
        let median = |pass: &str| scan[pass]["median_ms"].as_f64().unwrap();
        assert!(median("forward") > 0.0, "{scan}");
        assert!(median("forward_backward") > median("forward"), "{scan}");
        let tokens = scan["tokens_per_s"].as_f64().unwrap();
        assert!((tokens * median("forward_backward") / 16e3 - 1.0).abs() < 1e-9, "{scan}");
        assert_eq!(scan["over_zoh"] == 1.0, method == "zoh", "{scan}");
    }
}

#[test]
fn checks_are_left_out_by_number_and_inputs_are_the_same_each_time() {
    let folder = folder(&[]);
    let skip = ["--skip", "2,3,5", "--skip", "6,7", "--set", "ssm.scan=reference"];
    let args = [&["--performance", "--json"], &skip[..]].concat();
    let run = || checks(&doctor(folder.path(), &[&args[..], &SIZES[..]].concat()));
    let (one, two) = (run(), run());
    for number in [2, 3, 5, 6, 7] {
        assert!(numbered(&one, number).is_empty(), "{number}");
    }
    assert_eq!(numbered(&one, 1), numbered(&two, 1));
    let paths = numbered(&one, 4);
    assert_eq!(paths.len(), Discretization::VARIANTS.len());
    for path in paths {
        assert_eq!(path["figures"]["implementation"], "reference");
        assert_eq!(path["verdict"], "pass");
    }
    let plain = checks(&doctor(folder.path(), &["--json"]));
    assert!(numbered(&plain, 1).is_empty(), "only where asked for");
}

#[test]
fn variables_that_threads_do_not_follow_are_warned_of() {
    let folder = folder(&[]);
    let args = ["--json", "--performance", "--skip", "1,2,4,5,6,7", "--set", "devices.threads=2"];
    let mut command = doctor_on("cpu", folder.path(), &args);
    let all = checks(&command.env("OMP_NUM_THREADS", "1").output().unwrap());
    let threads = check(&all, "3 threads");
    assert_eq!(threads["verdict"], "warn");
    assert_eq!(threads["figures"]["variables"]["OMP_NUM_THREADS"], "1");
    assert!(threads["advice"].as_str().is_some_and(|advice| !advice.is_empty()), "{threads}");
    assert!(check(&all, "3 pace")["figures"]["share"].as_f64() > Some(0.0));
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_check_without_its_device_fails() {
    let folder = folder(&[]);
    let output = doctor_on("cuda", folder.path(), &["--json", "--performance"]).output().unwrap();
    assert_code(&output, 1);
    let all = checks(&output);
    for number in [1, 2, 4, 5, 6, 7] {
        let lines = numbered(&all, number);
        assert_eq!(lines.len(), 1, "{number}");
        assert_eq!(lines[0]["verdict"], "fail", "{number}");
    }
    assert_eq!(numbered(&all, 3).len(), 2);
}

#[test]
fn what_cannot_be_asked_for() {
    let folder = folder(&[]);
    for (args, code) in [
        (&["--device", "tpu"][..], 2),
        (&["no-such.toml"], 78),
        (&["--set", "run.sede=1"], 78),
        (&["--performance", "--skip", "8"], 2),
        (&["--skip", "1"], 2),
        (&["--performance", "--seqlen", "0"], 2),
    ] {
        assert_code(&run(&[&["doctor"], args].concat()), code);
    }
    let help = stdout(&doctor(folder.path(), &["--help"]));
    let codes = "Exit codes: 0 nothing failed, 1 something did";
    assert_parts(&help, &["Examples:", codes, "run.root", "--skip 4,6"]);
}
