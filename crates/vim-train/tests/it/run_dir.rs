use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use vim_engine::Error;
use vim_engine::config::Config;
use vim_engine::run_folder;
use vim_engine::train::environment::Environment;
use vim_run::{ExitReason, ExitRecord, Opened, Resume, RunDir, RunError};

use crate::support::{assert_parts, read_json};

fn config(root: &Path, sets: &[&str]) -> Config {
    let root = format!("run.root={}", root.display());
    let sets: Vec<String> =
        sets.iter().copied().chain([root.as_str()]).map(str::to_owned).collect();
    Config::from_defaults(&sets).unwrap()
}

fn open(config: &Config, resume: Resume) -> Result<RunDir, Error> {
    match run_folder::open(config, resume, false)? {
        Opened::Run(run) => Ok(run),
        Opened::Finished { path, .. } => panic!("{} is finished", path.display()),
    }
}

/// A root with a run that was started and left.
fn with_run() -> (TempDir, Config, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let config = config(root.path(), &[]);
    let path = open(&config, Resume::Never).unwrap().path().to_owned();
    (root, config, path)
}

fn exit(reason: ExitReason) -> ExitRecord {
    let scores = [("top1", 0.5)].into_iter().collect();
    ExitRecord { reason, step: 7, scores, error: None, exit_code: 0 }
}

#[test]
fn a_new_run_records_its_configuration() {
    let root = tempfile::tempdir().unwrap();
    let config = config(root.path(), &["model.discretization=rk4", "run.seed=3"]);
    let run = open(&config, Resume::Never).unwrap();
    assert_eq!(run.path(), root.path().join("rk4-s3"));
    assert!(!run.is_resumed());
    let text = fs::read_to_string(run.path().join("config.toml")).unwrap();
    assert_eq!(Config::from_toml(&text).unwrap(), config);
}

#[test]
fn a_second_run_is_refused_with_the_ways_out() {
    let (_root, config, _path) = with_run();
    let error = open(&config, Resume::Never).unwrap_err();
    assert_eq!(error.exit_code(), 73);
    assert_parts(&error.to_string(), &["--resume auto", "--fresh"]);
}

#[test]
fn resuming() {
    let (root, config, path) = with_run();
    for resume in [Resume::Auto, Resume::Must] {
        let run = open(&config, resume).unwrap();
        assert!(run.is_resumed());
        assert_eq!(run.path(), path);
    }
    let other = self::config(root.path(), &["run.seed=1"]);
    let error = open(&other, Resume::Must).unwrap_err();
    assert_eq!(error.exit_code(), 78);
    assert!(!root.path().join("zoh-s1").exists(), "a refusal leaves nothing behind");
    assert!(!open(&other, Resume::Auto).unwrap().is_resumed());
}

#[test]
fn fresh_moves_the_old_run_aside_and_deletes_nothing() {
    let (root, config, path) = with_run();
    fs::write(path.join("metrics.jsonl"), "old").unwrap();
    for number in 1..=2 {
        let Opened::Run(run) = run_folder::open(&config, Resume::Never, true).unwrap() else {
            panic!()
        };
        let aside = root.path().join(format!("zoh-s0.old-{number}"));
        assert_eq!(run.moved_aside(), Some(aside.as_path()));
        assert!(aside.join("config.toml").exists());
        assert!(!run.is_resumed() && !run.metrics().exists());
    }
    assert_eq!(fs::read_to_string(root.path().join("zoh-s0.old-1/metrics.jsonl")).unwrap(), "old");
    let elsewhere = self::config(root.path(), &["run.seed=1"]);
    assert!(
        run_folder::open(&elsewhere, Resume::Never, true).is_ok(),
        "with nothing to move as well"
    );
}

#[test]
fn a_finished_run_is_not_worked_on() {
    let (_root, config, _path) = with_run();
    let run = open(&config, Resume::Auto).unwrap();
    run.write_exit(&exit(ExitReason::Finished)).unwrap();
    drop(run);
    for resume in [Resume::Auto, Resume::Must] {
        let Opened::Finished { exit, .. } = run_folder::open(&config, resume, false).unwrap()
        else {
            panic!("a finished run was opened for work")
        };
        assert_eq!((exit.step, exit.scores.get("top1")), (7, Some(0.5)));
    }
    assert_eq!(open(&config, Resume::Never).unwrap_err().exit_code(), 73);
}

#[test]
fn other_ends_can_be_gone_on_from() {
    for reason in [ExitReason::Interrupted, ExitReason::Diverged, ExitReason::Failed] {
        let (_root, config, path) = with_run();
        let run = open(&config, Resume::Auto).unwrap();
        run.write_exit(&exit(reason)).unwrap();
        drop(run);
        let _run = open(&config, Resume::Auto).unwrap();
        assert!(!path.join("exit.json").exists(), "the run is no longer at its end");
    }
}

#[test]
fn another_configuration_is_refused_by_key() {
    let (root, _config, _path) = with_run();
    let sets = ["optim.lr=5e-4", "train.epochs=10", "run.name=zoh-s0", "train.clip_grad=1"];
    let error = open(&config(root.path(), &sets), Resume::Auto).unwrap_err();
    assert_eq!(error.exit_code(), 78);
    let text = error.to_string();
    let parts = [
        "optim.lr (recorded 0.001, now 0.0005)",
        "train.epochs (recorded 300, now 10)",
        "train.clip_grad (recorded not set, now 1.0)",
    ];
    assert_parts(&text, &parts);
    assert!(!text.contains("run.name (recorded"), "{text}");
}

#[test]
fn what_changes_no_result_may_change() {
    let (root, _config, path) = with_run();
    let sets = [
        "run.name=zoh-s0",
        "log.every=1st",
        "devices.threads=1",
        "data.workers=1",
        "data.path=/elsewhere",
        "checkpoint.every=1st",
        "checkpoint.keep_last=5",
    ];
    let changed = config(root.path(), &sets);
    assert!(open(&changed, Resume::Auto).unwrap().is_resumed());
    let text = fs::read_to_string(path.join("config.toml")).unwrap();
    assert_eq!(Config::from_toml(&text).unwrap(), changed, "the record follows");
}

#[test]
fn what_changes_rounding_alone_may_change_and_is_told() {
    let (root, config, path) = with_run();
    assert_eq!(open(&config, Resume::Auto).unwrap().rounding(), [""; 0]);
    let changed = self::config(root.path(), &["train.accumulate=4", "log.every=1st"]);
    let run = open(&changed, Resume::Auto).unwrap();
    assert!(run.is_resumed());
    assert_eq!(run.rounding(), ["train.accumulate (recorded 1, now 4)"]);
    drop(run);
    let text = fs::read_to_string(path.join("config.toml")).unwrap();
    assert_eq!(Config::from_toml(&text).unwrap(), changed, "the record follows");
    // Of a batch that is another one it is no matter of rounding.
    let other = self::config(root.path(), &["train.accumulate=2", "train.batch_size=64"]);
    let text = open(&other, Resume::Auto).unwrap_err().to_string();
    assert_parts(&text, &["train.batch_size (recorded 128, now 64); restore"]);
}

#[test]
fn a_record_that_cannot_be_read_is_named() {
    let (_root, config, path) = with_run();
    fs::write(path.join("config.toml"), "[future]\nkey = 1\n").unwrap();
    let error = open(&config, Resume::Auto).unwrap_err();
    assert_eq!(error.exit_code(), 78);
    assert_parts(&error.to_string(), &["zoh-s0/config.toml", "future"]);
}

#[test]
fn a_run_keeps_its_folder_until_dropped() {
    let (_root, config, _path) = with_run();
    let first = open(&config, Resume::Auto).unwrap();
    let error = open(&config, Resume::Auto).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(RunError::InUse { .. })));
    drop(first);
    assert!(open(&config, Resume::Auto).is_ok());
}

#[test]
fn the_environment_is_recorded() {
    let (_root, config, path) = with_run();
    let run = open(&config, Resume::Auto).unwrap();
    run.write_environment(&Environment::of_this_process("cpu (flex)", 2, 24)).unwrap();
    let record = read_json(path.join("env.json"));
    assert_eq!(record["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(record["backend"], "cpu (flex)");
    assert!(record["cpus"].as_u64().unwrap() >= 1);
    assert!(record["target"].as_str().unwrap().contains('-'), "{record}");
    assert!(!record["host"].as_str().unwrap().is_empty());
    assert!(!record["command"].as_array().unwrap().is_empty());
}
