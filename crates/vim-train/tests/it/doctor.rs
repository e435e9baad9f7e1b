//! `vim-train doctor` as built.

use std::fs;
use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

/// On the CPU, in a folder of its own, in no job.
fn doctor(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::cargo_bin("vim-train").unwrap();
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SLURM_") {
            command.env_remove(name);
        }
    }
    let root = format!("run.root={}", folder.join("runs").display());
    command.args(["doctor", "--device", "cpu", "--set", &root]).args(args).output().unwrap()
}

fn checks(output: &Output) -> Vec<Value> {
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["checks"].as_array().unwrap().clone()
}

fn check<'a>(checks: &'a [Value], what: &str) -> &'a Value {
    let found = checks.iter().find(|check| check["what"] == what);
    found.unwrap_or_else(|| panic!("no line of {what} in {checks:?}"))
}

#[test]
fn a_machine_that_will_do() {
    let folder = tempfile::tempdir().unwrap();
    let output = doctor(folder.path(), &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    for what in ["program", "cpu", "memory", "backend cpu", "device", "run.root", "data.path"] {
        let line = text.lines().find(|line| line.get(6..).is_some_and(|l| l.starts_with(what)));
        let verdict = line.and_then(|line| line.get(..4));
        assert!(matches!(verdict, Some("pass" | "warn")), "{what}:\n{text}");
    }
    for method in ["zoh", "foh", "bilinear", "poly", "highorder", "rk4"] {
        assert!(text.contains(&format!("pass  scan {method}")), "{text}");
    }
    assert!(text.lines().last().unwrap().ends_with(" 0 failed"), "{text}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "something was left behind");
}

#[test]
fn the_document_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let output = doctor(folder.path(), &["--json"]);
    assert_eq!(output.status.code(), Some(0));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
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
    let folder = tempfile::tempdir().unwrap();
    let output = doctor(
        folder.path(),
        &["--json", "--set", "data.dataset=imagenet", "--set", "data.path=/no/such/images"],
    );
    assert_eq!(output.status.code(), Some(1));
    let missing = checks(&output);
    let data = check(&missing, "data.path");
    assert_eq!(data["verdict"], "fail");
    assert!(data["detail"].as_str().unwrap().contains("/no/such/images"));
    assert!(data["advice"].as_str().unwrap().contains("docs/data.md"));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("error: 1 of ") && stderr.contains("data.path"), "{stderr}");

    let unset = checks(&doctor(folder.path(), &["--json", "--set", "data.dataset=cifar100"]));
    assert_eq!(check(&unset, "data.path")["verdict"], "fail");
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_device_that_is_not_built_in_fails() {
    let folder = tempfile::tempdir().unwrap();
    let root = format!("run.root={}", folder.path().display());
    let mut command = Command::cargo_bin("vim-train").unwrap();
    let output = command.args(["doctor", "--json", "--device", "cuda", "--set", &root]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let checks = checks(&output);
    let device = check(&checks, "device");
    assert_eq!(device["verdict"], "fail");
    assert!(device["detail"].as_str().unwrap().contains("--features cuda"), "{device}");
    // There is nothing to run kernels on.
    assert!(!checks.iter().any(|one| one["what"].as_str().unwrap().starts_with("scan ")));
}

#[test]
fn what_cannot_be_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    for (args, code) in
        [(&["--device", "tpu"][..], 2), (&["no-such.toml"], 78), (&["--set", "run.sede=1"], 78)]
    {
        let output = Command::cargo_bin("vim-train").unwrap().arg("doctor").args(args).output();
        assert_eq!(output.unwrap().status.code(), Some(code), "{args:?}");
    }
    let help = String::from_utf8(doctor(folder.path(), &["--help"]).stdout).unwrap();
    for part in ["Examples:", "Exit codes: 0 nothing failed, 1 something did", "run.root"] {
        assert!(help.contains(part), "{part} is not in\n{help}");
    }
}
