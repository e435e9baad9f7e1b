//! `vim-train bench`, `bench phases` and `bench compare` as built, and the scripts that compare
//! whole models with a peer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::{
    assert_code, assert_parts, assert_says, parsed, python, read_json, repository, run, set,
    stderr, stdout, vim_train, write,
};

/// `bench` on the debug configuration, on the CPU, two steps a row.
fn bench(more: &[&str]) -> Output {
    bench_on("cpu", more)
}

fn bench_on(device: &str, more: &[&str]) -> Output {
    let few = ["--device", device, "--warmup", "1", "--steps", "2", "--classes", "12"];
    let mut command = vim_train(&["bench"]);
    command.arg(repository("configs/debug.toml")).args(few).args(more).output().unwrap()
}

fn compare(files: &[&Path], folder: &Path, more: &[&str]) -> Output {
    let mut command = vim_train(&["bench", "compare"]);
    command.args(files).arg("-o").arg(folder).args(more).output().unwrap()
}

#[test]
fn rows_are_measured_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.json");
    let more = ["--batch", "4,1,4", "--methods", "bilinear,zoh", "-o", file.to_str().unwrap()];
    let output = bench(&more);
    assert_code(&output, 0);
    let document = read_json(&file);
    assert_eq!(document["command"], "bench");
    assert_eq!(document["environment"]["backend"], "cpu");
    let rows = document["results"].as_array().unwrap();
    let keys: Vec<_> = rows
        .iter()
        .map(|row| (row["method"].as_str().unwrap(), row["mode"].as_str().unwrap(), &row["batch"]))
        .collect();
    let (one, four) = (&json!(1), &json!(4));
    let of = |method, mode| [(method, mode, one), (method, mode, four)];
    let both = |method| [of(method, "infer"), of(method, "train")].concat();
    assert_eq!(keys, [both("zoh"), both("bilinear")].concat());

    // Parameters and operations are those of `flops`, of the same model.
    let mut flops = vim_train(&["flops", "--classes", "12", "--json", "--config"]);
    let flops = parsed(&flops.arg(repository("configs/debug.toml")).output().unwrap());
    for row in rows {
        assert!(row.get("error").is_none(), "{row}");
        assert_eq!(row["parameters"], flops["parameters"]);
        assert_eq!((&row["image_size"], &row["tokens"]), (&json!(32), &flops["tokens"]));
        let latency = |name: &str| row["latency"][name].as_f64().unwrap();
        assert_eq!(row["latency"]["steps"], 2);
        assert!(0.0 < latency("min_ms") && latency("min_ms") <= latency("median_ms"));
        assert!(latency("median_ms") <= latency("max_ms") && latency("std_ms") >= 0.0);
        let throughput = |name: &str| row["throughput"][name].as_f64().unwrap();
        assert_eq!(throughput("images"), 2.0 * row["batch"].as_f64().unwrap());
        let speed = throughput("images") / throughput("seconds");
        assert!((throughput("img_s") / speed - 1.0).abs() < 1e-9, "{row}");
        let passes = if row["mode"] == "train" { 3.0 } else { 1.0 };
        let rate = passes * row["flops_per_image"].as_f64().unwrap() * throughput("img_s");
        assert!((row["flop_s"].as_f64().unwrap() / rate - 1.0).abs() < 1e-9, "{row}");
        if cfg!(target_os = "linux") {
            assert!(row["peak_memory_bytes"].as_u64().unwrap() > 0, "{row}");
            assert_eq!(row["memory_of"], "host");
        }
    }
    assert_eq!(rows[0]["flops_per_image"], flops["flops"]);
    assert_ne!(rows[4]["flops_per_image"], flops["flops"], "bilinear is no zoh");

    // The table has a line for each row, and what is there is not written over.
    let table = stdout(&output);
    let lines =
        table.lines().filter(|line| line.starts_with("zoh") || line.starts_with("bilinear"));
    assert_eq!(lines.count(), 8, "{table}");
    assert_code(&bench(&more), 73);
}

#[test]
fn a_row_that_does_not_run_gives_its_reason_and_the_others_go_on() {
    // A learning rate from which weights become infinite: the second step's loss is not finite.
    let rates = set(&["optim.warmup_lr=1e38", "optim.lr=1e38"]);
    let output = bench(&[&["--batch", "1,2", "--json"], &rates[..]].concat());
    assert_code(&output, 0);
    let document = parsed(&output);
    let rows = document["results"].as_array().unwrap();
    let error = |row: usize| rows[row].get("error").map(|error| error.as_str().unwrap());
    assert_eq!((error(0), error(1)), (None, None), "inference is as ever");
    let reason = "the loss is NaN: a step that is not finite is not timed";
    assert_eq!(error(2), Some(reason), "{rows:?}");
    assert_eq!(error(3), Some("not tried: a batch of 1 did not run"));
    assert!(rows[3].get("latency").is_none() && rows[3].get("throughput").is_none());
}

/// Times the phases of a step on the CPU, on a few images that nobody reads.
fn phases(command: &[&str], more: &[&str]) -> Output {
    let mut command = vim_train(command);
    // A configuration whose images are not here.
    command.arg(repository("configs/vim_tiny_cifar100.toml"));
    let sets = ["devices.backend=cpu", "model.depth=1", "model.d_model=16", "data.path=nowhere"];
    command.args(set(&sets)).args(["--warmup", "1", "--classes", "5"]).args(more).output().unwrap()
}

#[test]
fn a_training_step_is_timed_by_phases_without_data() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.json");
    let parts = set(&["train.batch_size=4", "train.accumulate=2"]);
    let more = ["--batch", "2,4", "--steps", "3", "--json", "--trace", trace.to_str().unwrap()];
    let more = [&more[..], &parts].concat();
    let output = phases(&["bench", "phases"], &more);
    assert_code(&output, 0);
    let document = parsed(&output);
    assert_eq!(document["command"], "bench phases");
    let results = document["results"].as_array().unwrap();
    assert_eq!(results.iter().map(|r| r["batch"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 4]);
    let written = read_json(&trace);
    let events = written["traceEvents"].as_array().unwrap();
    assert!(events.iter().all(|event| event["ph"] == "X" && event["dur"].as_f64() > Some(0.0)));
    for record in results {
        let phases = record["phases_ms"].as_array().unwrap();
        let names: Vec<_> = phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["forward", "backward", "update"]);
        let number = |name: &str| record[name].as_f64().unwrap();
        assert!(0.0 < number("step_p10_ms") && number("step_p10_ms") <= number("step_ms"));
        assert!(number("step_ms") <= number("step_p90_ms"), "{record}");
        assert!(number("images_per_second") > 0.0 && number("first_step_s") > 0.0, "{record}");
        // Of each of three steps two passes of either kind, one after the other; a phase is their
        // sum, so that the median of three is one of three sums.
        let own: Vec<_> = events.iter().filter(|event| event["tid"] == record["batch"]).collect();
        assert_eq!(own.len(), 3 * (2 + 2 + 1));
        for phase in phases {
            let lengths = own.iter().filter(|event| event["name"] == phase["name"]);
            let lengths: Vec<f64> = lengths.map(|event| event["dur"].as_f64().unwrap()).collect();
            let mut sums: Vec<f64> =
                lengths.chunks(lengths.len() / 3).map(|step| step.iter().sum()).collect();
            sums.sort_by(f64::total_cmp);
            assert!((phase["ms"].as_f64().unwrap() * 1e3 / sums[1] - 1.0).abs() < 1e-9, "{phase}");
        }
    }
    // The trace is not written over, and that is said before anything is timed. The name that the
    // command had does the same.
    assert_code(&phases(&["profile", "train"], &more), 73);
    let output = phases(&["profile", "train"], &[&more[..], &["--force"]].concat());
    assert_code(&output, 0);
    let old = parsed(&output);
    assert_eq!(old["command"], "profile train");
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&old), keys(&document));
    assert_eq!(keys(&old["results"][0]), keys(&document["results"][0]));
    let help = stdout(&run(&["profile", "--help"]));
    assert!(!help.lines().any(|line| line.trim_start().starts_with("train ")), "{help}");
}

#[test]
fn a_step_that_is_not_finite_is_an_error() {
    let rates = set(&["optim.warmup_lr=1e38", "optim.lr=1e38"]);
    let reason = "the loss is NaN: a step that is not finite is not timed";
    // It is the second one.
    let more = [&["--batch", "2", "--steps", "1", "--json"], &rates[..]].concat();
    for command in [&["bench", "phases"][..], &["profile", "train"]] {
        let output = phases(command, &more);
        assert_says(&output, 1, &[reason]);
        assert_eq!(stdout(&output), "");
        let output = phases(command, &[&more[..], &["--ranks", "2"]].concat());
        assert_says(&output, 1, &[reason]);
    }
    let output = phases(&["bench", "--mode", "train"], &more);
    assert_code(&output, 0);
    assert_eq!(parsed(&output)["results"][0]["error"], reason);
}

#[test]
fn a_forward_pass_is_replayed_or_the_row_says_why_not() {
    let output = bench(&["--mode", "infer", "--graph", "--batch", "1,2", "--json"]);
    assert_code(&output, 0);
    let document = parsed(&output);
    for row in document["results"].as_array().unwrap() {
        assert_eq!((&row["graph"], row.get("latency")), (&json!(true), None));
        assert_eq!(row["error"], "the CPU replays no graph: its backend records no launches");
    }

    for mode in ["both", "train", "slide"] {
        let output = bench(&["--mode", mode, "--graph"]);
        assert_says(&output, 1, &["--graph: a forward pass alone is recorded: add --mode infer"]);
    }
    let mut command = vim_train(&["bench", "--mode", "infer", "--graph", "--batch", "1"]);
    command.args(["--device", "cpu", "--json"]).arg(repository("configs/segment_shapes.toml"));
    let document = parsed(&command.output().unwrap());
    let reason = "--graph: a forward pass is recorded of task = \"classification\" alone";
    assert_eq!(document["results"][0]["error"], reason);
}

// On lavapipe where no GPU is: the row compares the bits of the logits before it is timed.
#[cfg(feature = "wgpu")]
#[test]
fn a_graph_of_launches_is_timed() {
    let output = bench_on("wgpu", &["--mode", "infer", "--graph", "--batch", "1", "--json"]);
    assert_code(&output, 0);
    let document = parsed(&output);
    let row = &document["results"][0];
    assert!(row.get("error").is_none() && row["graph"] == true, "{row}");
    assert!(row["latency"]["median_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn another_image_size_is_another_model() {
    let output = bench(&["--mode", "infer", "--batch", "2", "--image-size", "64", "--json"]);
    assert_code(&output, 0);
    let document = parsed(&output);
    let row = &document["results"][0];
    assert_eq!((&row["image_size"], &row["tokens"]), (&json!(64), &json!(8 * 8 + 1)));
}

/// The heads are most of its work, and of a classifier on its backbone there is none.
#[test]
fn a_segmenter_is_timed_with_its_heads() {
    let run = |name: &str, more: &[&str]| {
        let mut command = vim_train(&[name]);
        parsed(&command.args(more).output().unwrap())
    };
    let config = repository("configs/segment_shapes.toml");
    let config = config.to_str().unwrap();
    let flops = run("flops", &["--config", config, "--classes", "13", "--json"]);
    let few = ["--device", "cpu", "--warmup", "1", "--steps", "1", "--batch", "2", "--json"];
    let time = |more: &[&str]| {
        run("bench", &[&[config, "--classes", "13"], &few[..], more].concat())["results"].clone()
    };
    let rows = [time(&[]), time(&["--mode", "slide", "--picture", "100x70"])];
    let rows: Vec<&Value> = rows.iter().flat_map(|rows| rows.as_array().unwrap()).collect();
    let modes: Vec<_> = rows.iter().map(|row| row["mode"].as_str().unwrap()).collect();
    assert_eq!(modes, ["infer", "train", "slide"]);
    for row in &rows {
        assert!(row.get("error").is_none(), "{row}");
        assert_eq!(row["parameters"], flops["parameters"]);
        assert_eq!(row["macs_per_image"], flops["macs"]);
    }
    assert_eq!(rows[2]["image_size"], json!([70, 100]));
    assert_eq!(rows[2].get("flop_s"), None, "the number of windows is not in the model's count");

    let set = ["--set", "devices.backend=cpu", "--steps", "1", "--warmup", "1", "--batch", "2"];
    let phases =
        run("bench", &[&["phases", config, "--classes", "13", "--json"], &set[..]].concat());
    assert_eq!(phases["parameters"], flops["parameters"]);

    // One row: a picture at a time.
    let output = bench(&["--mode", "slide", "--json"]);
    assert_code(&output, 0);
    let rows = &parsed(&output)["results"];
    assert_eq!((rows.as_array().unwrap().len(), &rows[0]["batch"]), (1, &json!(1)));
    let said = rows[0]["error"].as_str().unwrap();
    assert!(said.ends_with("windows slide over the pictures of task = \"segmentation\" alone"));
}

#[test]
fn a_detector_is_timed_with_its_heads() {
    let run = |name: &str, more: &[&str]| {
        let mut command = vim_train(&[name]);
        parsed(&command.args(more).output().unwrap())
    };
    let config = repository("crates/vim-train/tests/it/fixtures/detect.toml");
    let config = config.to_str().unwrap();
    let flops = run("flops", &["--config", config, "--json"]);
    assert_eq!(flops["num_classes"], 80);
    let few = ["--warmup", "1", "--steps", "1", "--batch", "2", "--json"];
    let all = ["--device", "cpu", "--set", "detection.score_threshold=0.0"];
    let rows = run("bench", &[&[config], &few[..], &all[..]].concat())["results"].clone();
    let rows = rows.as_array().unwrap();
    let modes: Vec<_> = rows.iter().map(|row| row["mode"].as_str().unwrap()).collect();
    assert_eq!(modes, ["infer", "train"]);
    for row in rows {
        assert!(row.get("error").is_none(), "{row}");
        assert_eq!(row["parameters"], flops["parameters"]);
        assert_eq!(row["macs_per_image"], flops["macs"]);
    }
    let set = ["--set", "devices.backend=cpu"];
    let phases = run("bench", &[&["phases", config], &few[..], &set[..]].concat());
    assert_eq!(phases["parameters"], flops["parameters"]);
}

#[test]
fn what_cannot_be_asked_for() {
    for args in [
        &["--batch", "0"][..],
        &["--batch", "1,x"],
        &["--methods", "euler"],
        &["--mode", "fast"],
        &["--steps", "0"],
        &["--budget", "-1"],
        &["--device", "gpu"],
    ] {
        assert_code(&bench(args), 2);
    }
    assert_code(&run(&["bench"]), 2);
    assert_code(&run(&["bench", "compare", "x.json"]), 2);
    assert_code(&bench(&["--image-size", "33", "--batch", "1"]), 0);
    assert_code(&bench(&["--image-size", "1"]), 78);
}

/// A document as `bench` writes it, with a row of each (method, mode, batch, median ms, img/s), or
/// a reason.
fn written(folder: &Path, name: &str, rows: &[(&str, &str, u64, f64, f64)]) -> PathBuf {
    let rows: Vec<Value> = rows
        .iter()
        .map(|&(method, mode, batch, ms, img_s)| {
            let mut row = json!({
                "method": method, "mode": mode, "batch": batch, "image_size": 224, "tokens": 197,
                "dtype": "f32", "parameters": 7_148_008, "macs_per_image": null,
                "flops_per_image": 3_000_000_000u64, "error": "it did not fit",
            });
            if ms > 0.0 {
                row["error"] = Value::Null;
                row["latency"] = json!({
                    "steps": 3, "median_ms": ms, "p10_ms": ms, "p90_ms": ms, "mean_ms": ms,
                    "std_ms": 0.0, "min_ms": ms / 2.0, "max_ms": ms * 2.0,
                });
                row["throughput"] = json!({"img_s": img_s, "images": 3 * batch, "seconds": 1.0});
            }
            row
        })
        .collect();
    let document = json!({
        "command": "bench", "config": "tiny.toml", "model": "tiny", "num_classes": 1000, "warmup": 1,
        "steps": 3, "budget_s": 1.0, "hardware": "a machine", "environment": {"backend": "cpu"},
        "overrides": [], "results": rows,
    });
    let path = folder.join(name);
    write(&path, document.to_string());
    path
}

#[test]
fn tables_have_the_originals_columns() {
    let folder = tempfile::tempdir().unwrap();
    let zoh = [("zoh", "infer", 1, 2.0, 400.0), ("zoh", "infer", 8, 4.0, 1900.0)];
    let foh = [("foh", "infer", 1, 4.0, 200.0), ("foh", "infer", 8, 0.0, 0.0)];
    let train = [("foh", "train", 8, 80.0, 99.0)];
    let zoh = written(folder.path(), "a.json", &zoh);
    let foh = written(folder.path(), "b.json", &[&foh[..], &train].concat());
    let out = folder.path().join("out");
    let output = compare(&[&zoh, &foh], &out, &[]);
    assert_code(&output, 0);
    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    assert_eq!(
        read("benchmark_comparison.csv"),
        "Method,Params (M),FLOPs (B),Latency (ms),Latency Min (ms),Latency Max (ms),Throughput (img/s),Batch Size,Model Size (MB)\n\
         zoh,7.148008,3.000000,2.000000,1.000000,4.000000,400.000000,1,27.267487\n\
         foh,7.148008,3.000000,4.000000,2.000000,8.000000,200.000000,1,27.267487\n"
    );
    // Of an image: 4 ms for eight.
    assert_eq!(
        read("benchmark_comparison_all_methods_all_batch_sizes.csv"),
        "Method,Batch Size,Latency (ms/img),Latency Min,Latency Max,Throughput (img/s),FLOPs (B),Params (M)\n\
         zoh,1,2.000000,1.000000,4.000000,400.000000,3.000000,7.148008\n\
         zoh,8,0.500000,0.250000,1.000000,1900.000000,3.000000,7.148008\n\
         foh,1,4.000000,2.000000,8.000000,200.000000,3.000000,7.148008\n"
    );
    assert_eq!(
        read("benchmark_pivot_latency.csv"),
        "Method,1,8\nzoh,2.000000,0.500000\nfoh,4.000000,\n"
    );
    assert_eq!(
        read("benchmark_pivot_throughput.csv"),
        "Method,1,8\nzoh,400.000000,1900.000000\nfoh,200.000000,\n"
    );
    assert_eq!(read("benchmark_pivot_latency_train.csv"), "Method,8\nfoh,10.000000\n");
    for name in ["throughput", "latency", "throughput_train", "latency_train"] {
        let svg = read(&format!("{name}.svg"));
        assert!(svg.starts_with("<svg"), "{svg}");
        assert_parts(&svg, &["foh", "batch size"]);
    }
    let page = read("benchmark.md");
    assert_eq!(stdout(&output), page);
    let failure = "- foh infer batch 8: it did not fit\n";
    assert_parts(&page, &["| zoh | 224 | f32 | 8 | 4.000 |", failure]);

    // What is there stays, unless it may go.
    assert_code(&compare(&[&zoh], &out, &[]), 73);
    assert!(read("benchmark.md").contains("foh"));
    assert_code(&compare(&[&zoh], &out, &["--force", "--batch-size", "8"]), 0);
    assert!(read("benchmark_comparison.csv").contains("\nzoh,7.148008,3.000000,0.500000"));
    let none = compare(&[&zoh], &out, &["--force", "--batch-size", "2"]);
    assert_says(&none, 1, &["was measured at 1, 8"]);
}

#[test]
fn rows_of_one_name_are_told_apart_by_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let rows = [("zoh", "infer", 1, 2.0, 400.0)];
    let [one, two, three] =
        ["x/a.json", "x/b.json", "y/a.json"].map(|name| written(folder.path(), name, &rows));
    let pivot = |files: &[&Path], out: &str| {
        let out = folder.path().join(out);
        assert_code(&compare(files, &out, &[]), 0);
        fs::read_to_string(out.join("benchmark_pivot_throughput.csv")).unwrap()
    };
    let stems = pivot(&[&one, &two], "1");
    assert_eq!(stems, "Method,1\nzoh (a),400.000000\nzoh (b),400.000000\n");
    let paths = pivot(&[&one, &three], "2");
    assert_parts(&paths, &["x/a.json)", "y/a.json)"]);
}

#[test]
fn what_is_no_benchmark_is_an_error_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let bad = folder.path().join("bad.json");
    for content in ["", "[]", "{\"command\": \"bench\"}", "\u{0}"] {
        fs::write(&bad, content).unwrap();
        let output = compare(&[&bad], &out, &[]);
        assert_says(&output, 65, &["bad.json is no result of"]);
        assert_eq!(stderr(&output).lines().count(), 1);
    }
    assert_code(&compare(&[&folder.path().join("none.json")], &out, &[]), 74);
    let failed = written(folder.path(), "failed.json", &[("zoh", "infer", 1, 0.0, 0.0)]);
    assert_code(&compare(&[&failed], &out, &[]), 1);
    assert!(!out.exists(), "nothing is written");
}

#[test]
fn a_measured_document_can_be_compared() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.json");
    assert_code(&bench(&["--batch", "1,2", "-o", file.to_str().unwrap()]), 0);
    let out = folder.path().join("out");
    assert_code(&compare(&[&file], &out, &[]), 0);
    assert_eq!(fs::read_dir(&out).unwrap().count(), 2 * 6 + 1);
}

#[test]
fn the_join_with_a_peer() {
    let output = python("compare/join_train.py", &["--selftest"]);
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "join_train: ok\n");

    // What `bench -o` writes is what the join reads.
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (folder.path().join("ours.json"), folder.path().join("theirs.jsonl"));
    let preset = ["--set", "model.preset=tiny", "--mode", "infer", "--batch", "2"];
    assert_code(&bench(&[&preset[..], &["-o", ours.to_str().unwrap()]].concat()), 0);
    let peer = json!({
        "model": "vim_tiny", "mode": "infer", "image_size": 32, "batch": 2, "dtype": "f32",
        "latency": {"median_ms": 1000.0}, "throughput": {"img_s": 0.5},
    });
    fs::write(&theirs, format!("{peer}\n")).unwrap();
    let output =
        python("compare/join_train.py", &[ours.to_str().unwrap(), theirs.to_str().unwrap()]);
    assert_code(&output, 0);
    assert_parts(&stdout(&output), &["| tiny zoh | vim_tiny | infer | 32 | 2 | f32 |"]);
}

#[test]
fn the_peers_say_what_is_missing() {
    for name in ["scripts/compare/peer_vim.py", "scripts/compare/peer_scan.py"] {
        // Without site-packages there is no torch.
        let mut hidden = Command::new("python3");
        let hidden = hidden.args(["-I", "-S"]).arg(repository(name)).output().unwrap();
        assert_code(&hidden, 1);
        let said = stderr(&hidden);
        assert!(said.starts_with("error: torch is not installed; install it"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn the_comparison_script_knows_its_arguments() {
    let script = repository("scripts/compare/compare_train.sh");
    let run = |args: &[&str]| Command::new(&script).args(args).output().unwrap();
    let help = run(&["--help"]);
    assert_code(&help, 0);
    assert_parts(&stdout(&help), &["scripts/compare/compare_train.sh --size tiny,small"]);
    for args in
        [&["--mode", "x"][..], &["--dtype", "f16"], &["--size", "huge"], &["--batch"], &["x"]]
    {
        let output = run(args);
        assert_code(&output, 2);
        let said = stderr(&output);
        assert!(said.starts_with("error: ") && said.lines().count() == 1, "{said}");
    }
}
