//! Commands that measure and check on several ranks, here on the CPU: `doctor --ranks`, `bench
//! scaling`, `bench phases --ranks`.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::{
    assert_code, assert_parts, assert_says, parsed, python, read_json, repository, run, set,
    stderr, stdout, vim_train,
};

fn doctor(args: &[&str]) -> Command {
    let mut command = vim_train(&["doctor", "--device", "cpu"]);
    command.args(args).env_remove("NCCL_COMM_ID").env_remove("VIM_TRAIN_SHARE_GPU");
    command
}

fn check<'a>(document: &'a Value, what: &str) -> &'a Value {
    let found = document["checks"].as_array().unwrap().iter().find(|one| one["what"] == what);
    found.unwrap_or_else(|| panic!("no line of {what} in {document}"))
}

#[test]
fn ranks_are_joined_checked_and_timed() {
    let output = doctor(&["--ranks", "3", "--json"]).output().unwrap();
    assert_code(&output, 0);
    let document = parsed(&output);
    let detail = check(&document, "ranks")["detail"].as_str().unwrap();
    assert!(detail.starts_with("3, joined in ") && detail.contains("; 2 cpu on "), "{detail}");
    let nccl = check(&document, "nccl")["detail"].as_str().unwrap();
    assert_eq!(nccl, "not used: ranks on cpu exchange by Unix sockets");
    for what in ["nccl variables", "network", "infiniband", "sums"] {
        assert_eq!(check(&document, what)["verdict"], "pass", "{document}");
    }
    for (what, bytes) in
        [("sum of 4 B", 4), ("sum of 1.0 MB", 1e6 as u64), ("sum of 8.0 MB", 8e6 as u64)]
    {
        let figures = &check(&document, what)["figures"];
        let figure = |name: &str| figures[name].as_f64().unwrap();
        assert_eq!(figures["bytes"], bytes);
        let speed = bytes as f64 / figure("ms") * 1e-6;
        assert!((figure("gb_s") / speed - 1.0).abs() < 1e-9, "{figures}");
        assert!((figure("bus_gb_s") / speed - 4.0 / 3.0).abs() < 1e-9, "{figures}");
    }
    assert_eq!(document["summary"]["failed"], 0);
    // Two where nothing says how many, in lines.
    let output = doctor(&["--ranks"]).output().unwrap();
    assert_code(&output, 0);
    let text = stdout(&output);
    assert!(text.contains("\npass  ranks               2, joined in "), "{text}");
    assert!(text.ends_with(", 0 failed\n"), "{text}");
    assert!(!text.contains("scan zoh"), "nothing but ranks is checked: {text}");
    // One alone has nobody to exchange with, and says so.
    let output = doctor(&["--ranks", "1"]).output().unwrap();
    assert_code(&output, 0);
    assert!(stdout(&output).contains("warn  sums                one rank exchanges nothing"));
}

#[test]
fn what_keeps_ranks_from_being_checked_is_a_line() {
    let output = doctor(&["--ranks", "2"]).env("NCCL_COMM_ID", "localhost:1").output().unwrap();
    assert_says(&output, 1, &[" failed: 1 of 9 checks failed: nccl variables"]);
    assert!(stdout(&output).contains("fail  nccl variables"));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    let output = run(&["doctor", "--ranks", "2", "--device", "wgpu"]);
    assert_says(&output, 69, &["--ranks 2: wgpu computes on one device"]);
    let output = run(&["doctor", "--ranks", "2", "--performance"]);
    assert_says(&output, 2, &["cannot be used with"]);
    assert_code(&run(&["doctor", "--ranks", "0"]), 2);
    if cfg!(not(feature = "cuda")) {
        let output = run(&["doctor", "--ranks", "--device", "cuda"]);
        assert_says(&output, 69, &["--ranks: this build has no cuda"]);
    }
}

fn scaling(more: &[&str]) -> Output {
    let few = ["--device", "cpu", "--warmup", "1", "--steps", "2", "--classes", "12"];
    let mut command = vim_train(&["bench", "scaling"]);
    command.arg(repository("configs/debug.toml")).args(few).args(more).output().unwrap()
}

#[test]
fn a_step_is_timed_on_several_numbers_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scaling.json");
    let more = ["--gpus", "2,1,2", "--batch", "4,2", "-o", file.to_str().unwrap()];
    let output = scaling(&more);
    assert_code(&output, 0);
    let document = read_json(&file);
    assert_eq!(
        (&document["command"], &document["method"]),
        (&json!("bench scaling"), &json!("zoh"))
    );
    let rows = document["results"].as_array().unwrap();
    let keys: Vec<_> = rows.iter().map(|row| (&row["gpus"], &row["batch"])).collect();
    let [one, two, four] = [json!(1), json!(2), json!(4)];
    assert_eq!(keys, [(&one, &two), (&one, &four), (&two, &two), (&two, &four)]);
    let speed = |row: &Value| row["throughput"]["img_s"].as_f64().unwrap();
    for row in rows {
        let [gpus, batch] = ["gpus", "batch"].map(|key| row[key].as_u64().unwrap());
        assert!(row.get("error").is_none(), "{row}");
        assert_eq!(row["throughput"]["images"], 2 * batch * gpus);
        assert!(row["latency"]["median_ms"].as_f64() > Some(0.0), "{row}");
        assert!(row["peak_memory_bytes"].as_u64() > Some(0), "{row}");
        let base = rows.iter().find(|of| of["gpus"] == 1 && of["batch"] == batch).unwrap();
        let efficiency = speed(row) / (gpus as f64 * speed(base));
        assert!((row["efficiency"].as_f64().unwrap() / efficiency - 1.0).abs() < 1e-9, "{row}");
    }
    let table = stdout(&output);
    assert_eq!(table.lines().filter(|line| line.starts_with("    ")).count(), 4, "{table}");
    assert_code(&scaling(&more), 73);
}

#[test]
fn a_number_of_gpus_that_does_not_run_gives_its_reason() {
    let rates = set(&["optim.warmup_lr=1e38", "optim.lr=1e38"]);
    let output = scaling(&[&["--gpus", "2", "--batch", "1,2", "--json"], &rates[..]].concat());
    assert_code(&output, 0);
    let document = parsed(&output);
    let error = |row: usize| document["results"][row]["error"].as_str().unwrap();
    // All ranks meet the same fault; the one that is seen to end first is named.
    assert!(["rank 0 (node ", "rank 1 (node "].iter().any(|rank| error(0).starts_with(rank)));
    let reason = "the loss is NaN: a step that is not finite is not timed";
    assert!(error(0).ends_with(reason), "{}", error(0));
    assert_eq!(error(1), "not tried: a smaller batch did not run");
    assert!(document["results"][0].get("latency").is_none(), "{document}");
    for wrong in [["--gpus", "0"], ["--batch", "1,x"], ["--device", "gpu"]] {
        assert_code(&scaling(&wrong), 2);
    }
    let output = scaling(&["--device", "wgpu"]);
    assert_code(&output, 2);
    let mut command = vim_train(&["bench", "scaling", "--device", "wgpu"]);
    let output = command.arg(repository("configs/debug.toml")).output().unwrap();
    assert_says(&output, 69, &["--gpus 2: wgpu computes on one device"]);
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
}

fn phases_of(more: &[&str]) -> Output {
    let mut command = vim_train(&["bench", "phases"]);
    command.arg(repository("configs/debug.toml")).args(set(&["devices.backend=cpu"]));
    command.args(["--steps", "3", "--warmup", "1", "--classes", "5"]).args(more).output().unwrap()
}

#[test]
fn the_share_of_the_exchange_in_a_step_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.json");
    let output =
        phases_of(&["--ranks", "2", "--batch", "8", "--json", "--trace", trace.to_str().unwrap()]);
    assert_code(&output, 0);
    let document = parsed(&output);
    assert_eq!(document["ranks"], 2);
    let record = &document["results"][0];
    let phases = record["phases_ms"].as_array().unwrap();
    let names: Vec<&str> = phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["forward", "backward", "pack", "exchange", "update"]);
    let (exchange, step) = (phases[3]["ms"].as_f64().unwrap(), record["step_ms"].as_f64().unwrap());
    assert!(exchange > 0.0, "{record}");
    let share = record["exchange_share"].as_f64().unwrap();
    assert!((share * step / exchange - 1.0).abs() < 1e-9, "{record}");
    assert_eq!(read_json(&trace)["traceEvents"].as_array().unwrap().len(), 5 * 3);
    let table = stdout(&phases_of(&["--ranks", "2", "--batch", "2"]));
    assert!(table.contains(", 2 ranks\n") && table.contains("exchange %"), "{table}");
    // Not of one rank, and not of a batch that cannot be shared.
    let one = parsed(&phases_of(&["--batch", "2", "--json"]));
    assert!(one["results"][0].get("exchange_share").is_none(), "{one}");
    let output = phases_of(&["--ranks", "2", "--batch", "3"]);
    assert_says(&output, 78, &["train.batch_size: 3 does not go with 2 ranks"]);
}

#[test]
fn the_comparison_with_a_peer_joins_what_is_written() {
    let output = python("compare/peer_ddp.py", &["--selftest"]);
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "peer_ddp: ok\n");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (ours, theirs) = (path("ours.json"), path("theirs.jsonl"));
    assert_code(&scaling(&["--gpus", "1", "--batch", "2", "-o", &ours]), 0);
    std::fs::write(&theirs, "").unwrap();
    let output = python("compare/peer_ddp.py", &["--table", &ours, &theirs]);
    assert_code(&output, 0);
    assert_parts(
        &stdout(&output),
        &["| efficiency | MiB each |", " zoh f32 | 1 | 2 | ", "| 1.0000 |"],
    );
    // What is wrong is said before anything is looked for.
    let script = repository("scripts/compare/compare_ddp.sh");
    let run = |args: &[&str]| Command::new(&script).args(args).output().unwrap();
    assert_parts(&stdout(&run(&["--help"])), &["scripts/compare/compare_ddp.sh --size small"]);
    for args in [&["--dtype", "f16"][..], &["--size", "huge"], &["--gpus"], &["x"]] {
        let output = run(args);
        assert_says(&output, 2, &["error: "]);
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    }
}

#[test]
fn the_storm_of_ranks_knows_its_arguments() {
    let script = repository("scripts/ranks_storm.sh");
    let run = |args: &[&str]| Command::new(&script).args(args).output().unwrap();
    assert_parts(&stdout(&run(&["--help"])), &["scripts/ranks_storm.sh BINARY --short", "builds"]);
    for args in [&[][..], &["--ranks", "3", "/bin/true"], &["--kills", "0", "/bin/true"], &["--x"]]
    {
        assert_says(&run(args), 2, &["error: "]);
    }
}
