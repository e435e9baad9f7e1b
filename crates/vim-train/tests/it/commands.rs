//! The built binary.

use std::fs;
use std::process::Output;

use assert_cmd::Command;
use clap::CommandFactory;
use strum::VariantArray;
use vim_kernels::{Discretization, KERNEL_VARIABLE};
use vim_train::config::Config;

fn vim_train(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("vim-train").unwrap();
    command.args(args).env_remove(KERNEL_VARIABLE);
    command
}

fn run(args: &[&str]) -> Output {
    vim_train(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn config_prints_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.toml");
    fs::write(&path, "[run]\nseed = 5\n").unwrap();
    let output = run(&["config", path.to_str().unwrap(), "--set", "model.discretization=foh"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stderr(&output), "");
    let config = Config::from_toml(&stdout(&output)).unwrap();
    assert_eq!((config.run.seed, config.model.depth), (5, 24));
    assert_eq!(config.model.discretization, Discretization::Foh);

    let json = run(&["config", path.to_str().unwrap(), "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["run"]["seed"], 5);
}

#[test]
fn a_bad_configuration_is_one_line_and_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.toml");
    fs::write(&path, "[run]\nsed = 5\n").unwrap();
    let output = run(&["config", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(78));
    assert_eq!(stdout(&output), "");
    let text = stderr(&output);
    let first = text.lines().next().unwrap();
    assert!(first.starts_with("error: ") && first.contains("x.toml:2:1: run.sed: unknown key"));
    assert!(text.ends_with("2 | sed = 5\n  | ^^^\n"), "{text}");

    for args in [&["config", "no-such.toml"][..], &["config", "--set", "run.seed=-1"]] {
        assert_eq!(run(args).status.code(), Some(78), "{args:?}");
    }
}

/// `ssm.scan` from a file, the environment variable and `--set`, each where given.
fn scan(file: Option<&str>, variable: Option<&str>, set: Option<&str>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.toml");
    fs::write(&path, file.map_or_else(String::new, |scan| format!("ssm.scan = \"{scan}\"\n")))
        .unwrap();
    let mut command = vim_train(&["config", path.to_str().unwrap(), "--json"]);
    if let Some(value) = variable {
        command.env(KERNEL_VARIABLE, value);
    }
    if let Some(value) = set {
        command.args(["--set", &format!("ssm.scan={value}")]);
    }
    let output = command.output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    json["ssm"]["scan"].as_str().unwrap().to_owned()
}

#[test]
fn the_environment_variable_stands_between_file_and_set() {
    for (file, variable, set, expected) in [
        (None, None, None, "auto"),
        (Some("kernel"), None, None, "kernel"),
        (None, Some("1"), None, "kernel"),
        (Some("kernel"), Some("0"), None, "reference"),
        (Some("reference"), Some("1"), None, "kernel"),
        (Some("kernel"), Some("0"), Some("auto"), "auto"),
        (None, Some("1"), Some("reference"), "reference"),
    ] {
        assert_eq!(scan(file, variable, set), expected, "{file:?} {variable:?} {set:?}");
    }
}

#[test]
fn the_schema_is_one() {
    let output = run(&["config", "--schema"]);
    assert_eq!(output.status.code(), Some(0));
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(schema["$schema"].as_str().unwrap().contains("draft-07"));
    assert!(schema["properties"]["checkpoint"].is_object());
}

#[test]
fn methods_lists_them_all() {
    let output = run(&["methods"]);
    assert_eq!(output.status.code(), Some(0));
    let json = run(&["methods", "--json"]);
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(rows.len(), Discretization::VARIANTS.len());
    for (row, method) in rows.iter().zip(Discretization::VARIANTS) {
        let name = method.to_string();
        assert_eq!(row["method"], name);
        assert_eq!(row["causal"], !method.form().two_way);
        let table = stdout(&output);
        let line = table.lines().find(|line| line.starts_with(&name)).unwrap();
        assert!(line.ends_with(method.form().formula), "{line}");
    }
}

#[test]
fn a_bad_command_line_is_2() {
    for args in [
        &[][..],
        &["trian"],
        &["train"],
        &["methods", "--jsno"],
        &["config", "--schema", "--json"],
        &["train", "x.toml", "--resume", "maybe"],
        &["train", "x.toml", "--resume", "auto", "--fresh"],
        &["eval", "x.toml", "--split", "train"],
        &["config", "--set"],
    ] {
        assert_eq!(run(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn help_teaches() {
    let output = run(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    for part in [
        "train",
        "eval",
        "config",
        "runs",
        "methods",
        "  75  interrupted",
        "  78  bad configuration",
    ] {
        assert!(stdout(&output).contains(part), "{part}");
    }
    for command in ["train", "eval", "config", "import", "export", "predict"] {
        let help = stdout(&run(&[command, "--help"]));
        assert!(help.contains("Examples:") && help.contains("--set"), "{help}");
    }
    assert_eq!(run(&["--version"]).status.code(), Some(0));
}

#[test]
fn every_command_has_examples_of_itself() {
    fn check(command: &clap::Command, path: &str) -> usize {
        let examples = command.get_after_help().or(command.get_after_long_help());
        let examples = examples.map(ToString::to_string).unwrap_or_default();
        let shown = examples.contains("Examples:") && examples.contains(path);
        assert!(shown, "{path}: {examples}");
        let below = command.get_subcommands().filter(|below| !below.is_hide_set());
        1 + below.map(|below| check(below, &format!("{path} {}", below.get_name()))).sum::<usize>()
    }
    let program = vim_train::cli::Cli::command();
    let all = program.get_subcommands().map(|c| check(c, &format!("vim-train {}", c.get_name())));
    assert!(all.sum::<usize>() > 40);
}

#[test]
fn a_cpu_is_not_warmed_up() {
    let output = run(&["warmup", "../../configs/debug.toml", "--set", "devices.backend=cpu"]);
    let message =
        "error: a CPU has nothing to warm up: kernels are compiled for GPUs; set devices.backend\n";
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(1), message));
}
