//! What is wrong with a sweep, and what may be missing for it, before anything is started.

use std::fs;

use crate::support::{assert_code, assert_lines, assert_says, set, stderr, stdout};
use crate::sweep::Study;

#[test]
fn mistakes_are_found_before_anything_starts() {
    let study = Study::new();
    let text = fs::read_to_string(study.file()).unwrap();
    let grid = "grid = { \"model.discretization\" = [\"zoh\", \"rk4\"] }";
    assert!(text.contains(grid));
    for (replacement, expected) in [
        ("grid = { \"model.discretizatin\" = [\"zoh\"] }", "did you mean `discretization`"),
        (
            "grid = { \"train.epochs\" = [1, 2] }",
            "train.epochs is in sweep.grid and in sweep.must_match",
        ),
        ("grid = { \"model.depth\" = [1, 2] }", "would both be in the folder `zoh-s0`"),
        ("grid = { \"data.workers\" = [1, 2] }", "are the same run"),
        ("grid = { \"model.discretization\" = [\"zoh\"] }\nmax_parallel = 0", "sweep.max_parallel"),
        ("grid = { \"train.ema\" = [0.9, 0.99] }", ""),
        ("gird = {}", "did you mean `grid`"),
        ("grid = { \"train.accumulate\" = [1, 3] }", "a divisor of train.batch_size = 16"),
        (
            "grid = { \"model.discretization\" = [\"zoh\", \"rk4\"] }\nmust_match = [\"augment\"]",
            "",
        ),
        (
            "grid = { \"model.discretization\" = [\"zoh\"], \"augment.preset\" = [\"none\", \"three\"] }\nmust_match = [\"augment.hflip\"]",
            "the runs are not like for like: augment.hflip is",
        ),
        (
            "grid = { \"model.discretization\" = [\"zoh\", \"rk4\"] }\nexclude = [{ \"run.seed\" = 7 }]",
            "sweep.exclude: no run has run.seed = 7",
        ),
    ] {
        let mut changed = text.replace(grid, replacement);
        if expected.starts_with("sweep.exclude") {
            changed = changed
                .replace("[sweep.report]\nbaseline = { \"model.discretization\" = \"zoh\" }", "");
        }
        if !replacement.contains("model.discretizati") {
            changed = changed.replace("baseline = { \"model.discretization\" = \"zoh\" }", "");
        }
        if replacement.contains("train.ema") {
            // A key that is not set but by the grid.
            changed = changed.replace("[run]", "[run]\nname = \"{train.ema}-s{run.seed}\"");
        }
        if replacement.contains("augment.preset") {
            changed = changed.replace("[run]", "[run]\nname = \"{augment.preset}-s{run.seed}\"");
        }
        fs::write(study.file(), changed).unwrap();
        let output = study.of_file("plan", &["--dry-run"]);
        if expected.is_empty() {
            assert_code(&output, 0);
            continue;
        }
        assert_says(&output, 78, &[expected]);
        assert!(!study.folder().exists(), "{replacement}");
    }
}

#[test]
fn a_reports_metric_is_checked_when_the_sweep_is_planned() {
    let study = Study::new();
    for (metric, expected) in
        [("val/eam/top1", Some("did you mean `val/ema/top1`?")), ("test/top5", None)]
    {
        let set = format!("sweep.report.metric={metric}");
        let output = study.of_file("plan", &["--dry-run", "--set", &set]);
        let (code, words) = expected.map_or((0, ""), |expected| (78, expected));
        assert_says(&output, code, &[words]);
    }
    let averaged = set(&["train.ema=0.5", "sweep.report.metric=val/ema/top1"]);
    assert_code(&study.of_file("plan", &[&["--dry-run"], &averaged[..]].concat()), 0);
}

#[test]
fn data_that_are_not_here_are_warned_of_once() {
    let study = Study::new();
    let sets = set(&["data.dataset=folder", "data.path=/no/such"]);
    let warning = "warning: data.path: /no/such is not on this machine: it must be there where the run starts";
    let times = |text: &str| text.lines().filter(|line| *line == warning).count();
    let planned = study.of_file("plan", &[&["--dry-run"], &sets[..]].concat());
    assert_code(&planned, 0);
    assert_eq!(times(&stderr(&planned)), 1, "{}", stderr(&planned));
    let submitted = study.of_file("submit", &[&["--dry-run"], &sets[..]].concat());
    assert_code(&submitted, 0);
    assert_eq!(times(&stderr(&submitted)), 1, "{}", stderr(&submitted));
    assert!(stdout(&submitted).starts_with("#!/bin/bash"), "{}", stdout(&submitted));
    // Where it is, there is nothing to say.
    let here = format!("data.path={}", study.folder().display());
    let planned = study.of_folder("submit", &["--dry-run"]);
    assert_eq!(times(&stderr(&planned)), 1, "of the frozen configurations, too");
    let output =
        study.of_file("plan", &["--dry-run", "--set", "data.dataset=folder", "--set", &here]);
    assert_code(&output, 0);
    assert!(!stderr(&output).contains("warning"), "{}", stderr(&output));
}

#[test]
fn help_says_what_retry_selects() {
    let study = Study::new();
    let help = stdout(&study.command(&["retry", "--help"]).output().unwrap());
    let lines = [
        "  (nothing)   failed: it ended with an error, or its job did",
        "  --failed    the same",
        "  --missing   missing: never started; interrupted: stopped or killed; failed only with --failed",
        "  --id ID     this run, be it failed, missing or interrupted; others only with --failed, --missing",
    ];
    assert_lines(&help, &lines);
}
