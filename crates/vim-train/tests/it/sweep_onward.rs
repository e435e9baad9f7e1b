//! Studies that go on from what others left: one that was cut, on another machine; and one whose
//! runs start from the weights of another's.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::old_runs::copy;
use crate::support::{
    assert_code, assert_parts, assert_says, folder, json_lines, parsed, set, vim_train,
};
use crate::sweep::{Study, wait_until};

/// What `summarize` says of the sweep in `folder`, but for times.
fn summary(folder: &Path) -> Value {
    let output = vim_train(&["sweep", "summarize", "--json"]).arg(folder).output().unwrap();
    assert_code(&output, 0);
    let mut all = parsed(&output);
    for group in all["summary"]["groups"].as_array_mut().unwrap() {
        group.as_object_mut().unwrap().remove("seconds").unwrap();
    }
    all.as_object_mut().unwrap().remove("runs").unwrap();
    all
}

#[test]
fn a_study_that_is_cut_goes_on_elsewhere_from_what_was_copied() {
    let study = Study::new();
    let longer = ["train.epochs=12", "model.d_model=64"];
    let mut command = study.command(&["run"]);
    command.arg(study.file()).args(set(&longer)).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let is_there = |path: &str| study.folder().join(path).exists();
    wait_until("one run that is finished and one at work", || {
        let checkpoints = fs::read_dir(study.folder().join("zoh-s1/checkpoints"));
        is_there("zoh-s0/exit.json") && checkpoints.is_ok_and(|inside| inside.count() > 0)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the end of its runs", || !study.states().contains(&"running".into()));
    assert_eq!(study.states(), ["finished", "interrupted", "missing", "missing"]);

    // Of the finished run what its results are in, of the other all.
    let place = folder(&[]);
    let there = place.path().join("copied");
    copy(&study.folder().join("configs"), &there.join("configs"));
    copy(&study.folder().join("zoh-s1"), &there.join("zoh-s1"));
    fs::create_dir(there.join("zoh-s0")).unwrap();
    let finished = ["config.toml", "metrics.jsonl", "predictions.csv", "exit.json"];
    let finished = finished.map(|name| format!("zoh-s0/{name}"));
    for file in finished.iter().map(String::as_str).chain(["plan.jsonl", "sweep.toml"]) {
        fs::copy(study.folder().join(file), there.join(file)).unwrap();
    }
    let sweep = |args: &[&str]| vim_train(&["sweep"]).args(args).arg(&there).output().unwrap();
    assert_says(&sweep(&["run"]), 0, &["3 runs to train, 1 finished", "4 of 4 runs finished"]);
    assert_says(&sweep(&["task", "--index", "0"]), 0, &["is finished: nothing to resume"]);
    assert!(!there.join("zoh-s0/checkpoints").exists(), "it was trained again");
    let log = fs::read_to_string(there.join("zoh-s1/log.txt")).unwrap();
    assert_parts(&log, &["resumed at step "]);

    // As where it was, and as a run that was never cut.
    assert_code(&study.of_folder("run", &[]), 0);
    for name in ["zoh-s0", "zoh-s1", "rk4-s0", "rk4-s1"] {
        for file in ["metrics.jsonl", "predictions.csv"] {
            let file = format!("{name}/{file}");
            assert_eq!(fs::read_to_string(there.join(&file)).unwrap(), study.read(&file), "{file}");
        }
    }
    assert_eq!(summary(&there), summary(&study.folder()));
    let sets = ["model.discretization=zoh", "run.seed=1"];
    study.assert_as_by_itself("zoh-s1", &[&longer[..], &sets].concat());
}

#[test]
fn each_run_may_start_from_weights_of_its_own() {
    let study = Study::new();
    assert_code(&study.of_file("run", &["--set", "sweep.seeds=[0]"]), 0);
    let from = study.folder().display().to_string();
    let init = format!("train.init={from}/{{model.discretization}}-s0");
    let sets = set(&[&init, "sweep.name=tuned"]);
    let output = study.of_file("run", &[&["-j", "2"][..], &sets].concat());
    assert_says(&output, 0, &["4 of 4 runs finished"]);
    let tuned = study.folder().with_file_name("tuned");
    let plan = json_lines(&fs::read_to_string(tuned.join("plan.jsonl")).unwrap());
    for (run, method) in plan.iter().zip(["zoh", "zoh", "rk4", "rk4"]) {
        let [config, name] = ["config", "name"].map(|key| run[key].as_str().unwrap());
        let frozen = fs::read_to_string(tuned.join(config)).unwrap();
        assert_parts(&frozen, &[&format!("init = \"{from}/{method}-s0\"")]);
        let init = fs::read_to_string(tuned.join(name).join("init.json")).unwrap();
        assert_parts(&init, &[&format!("/study/{method}-s0")]);
    }
    // The id is that of a run whose path is written out.
    let written = format!("train.init={from}/zoh-s0");
    let one = ["--dry-run", "--json", "--set", &written, "--set", "sweep.name=other"];
    let ids = parsed(&study.of_file("plan", &one));
    assert_eq!(ids["runs"][0]["id"], plan[0]["id"]);
    let unknown = ["--set", "train.init=runs/{model.discretisation}", "--dry-run"];
    let said = ["train.init", "`model.discretisation`", "did you mean `model.discretization`"];
    assert_says(&study.of_file("plan", &unknown), 78, &said);
}
