//! `runs list`, `show` and `compare`, on runs of the debug configuration and on what is none.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::train::{Bench, assert_code};

fn runs(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vim-train")).arg("runs").args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert_code(output, 0);
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap()
}

fn named<'a>(rows: &'a Value, name: &str) -> &'a Value {
    let rows = rows.as_array().unwrap();
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}: {rows:?}"))
}

/// A finished run of zoh, a paused one of foh below another folder.
fn bench() -> (Bench, String) {
    let bench = Bench::new();
    assert_code(&bench.train("a", &[]), 0);
    let foh = ["--set", "model.discretization=foh", "--set", "optim.lr=1e-3", "--steps", "5"];
    assert_code(&bench.train("sub/b", &foh), 0);
    let root = bench.folder("").display().to_string();
    (bench, root)
}

#[test]
fn list_says_how_far_how_good_and_how_it_ended() {
    let (bench, root) = bench();
    let rows = json(&runs(&["list", &root, "--json"]));
    assert_eq!(rows.as_array().unwrap().len(), 2);
    let (a, b) = (named(&rows, "a"), named(&rows, "sub/b"));
    assert_eq!((&a["status"], &b["status"]), (&"finished".into(), &"paused".into()));
    assert_eq!((&a["method"], &b["method"]), (&"zoh".into(), &"foh".into()));
    assert_eq!((&a["step"], &b["step"]), (&24.into(), &5.into()));
    assert_eq!((&a["total_steps"], &b["total_steps"]), (&24.into(), &24.into()));
    assert_eq!(a["problems"], Value::Array(Vec::new()));
    let exit = fs::read(bench.folder("a").join("exit.json")).unwrap();
    let exit: Value = serde_json::from_slice(&exit).unwrap();
    assert_eq!(a["test_top1"], exit["top1"]);
    assert_eq!(a["best"]["top1"], exit["best_top1"]);

    let table = stdout(&runs(&["list", &root]));
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    let top1 = format!("{:.2} %", 100.0 * exit["top1"].as_f64().unwrap());
    for part in ["a ", "finished", "zoh", "shapes", "24/24", &top1] {
        assert!(lines[1].contains(part), "{part}: {table}");
    }
    assert!(lines[2].starts_with("sub/b") && lines[2].contains("5/24"), "{table}");

    let names = |more: &[&str]| -> Vec<String> {
        let rows = json(&runs(&[&["list", &root, "--json"], more].concat()));
        let rows = rows.as_array().unwrap().clone();
        rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&["--method", "foh"]), ["sub/b"]);
    assert_eq!(names(&["--status", "finished", "--status", "failed"]), ["a"]);
    assert_eq!(names(&["--sort", "steps"]), ["a", "sub/b"]);
    assert_eq!(names(&["--sort", "steps", "--reverse"]), ["sub/b", "a"]);
    assert_eq!(names(&["--sort", "test"]), ["a", "sub/b"], "what is not known comes last");
    assert_eq!(names(&["--method", "rk4"]), Vec::<String>::new());
}

#[test]
fn a_run_at_work_is_told_from_one_that_was_killed() {
    let (bench, root) = bench();
    let status = || named(&json(&runs(&["list", &root, "--json"])), "sub/b")["status"].clone();
    // As a process that is killed leaves it: unlocked, with its name in it.
    let mut holder = File::create(bench.folder("sub/b").join("LOCK")).unwrap();
    holder.write_all(br#"{"host":"a","pid":7,"started":"2026-01-31T08:15:00Z"}"#).unwrap();
    holder.lock().unwrap();
    assert_eq!(status(), "running");
    drop(holder);
    assert_eq!(status(), "paused", "the record of the end before");
    fs::remove_file(bench.folder("sub/b").join("exit.json")).unwrap();
    assert_eq!(status(), "stale");
    // Looking leaves no trace, and keeps nobody out.
    assert_code(
        &bench.train(
            "sub/b",
            &["--resume", "must", "--set", "model.discretization=foh", "--set", "optim.lr=1e-3"],
        ),
        0,
    );
    assert_eq!(status(), "finished");
}

#[test]
fn folders_that_are_odd_are_listed_with_what_is_wrong() {
    let (bench, root) = bench();
    let write = |name: &str, file: &str, text: &[u8]| {
        let path = bench.folder(name).join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    fs::create_dir(bench.folder("empty")).unwrap();
    fs::create_dir_all(bench.folder("foreign/deep/er")).unwrap();
    write("foreign", "thesis.txt", b"words");
    write("half", "config.toml", b"[run\n");
    write(
        "other",
        "config.toml",
        b"[run]\nseed = 3\nflavour = 1\n[model]\ndiscretization = \"rk4\"\n",
    );
    write(
        "torn",
        "metrics.jsonl",
        b"{\"kind\":\"train\",\"step\":2,\"loss\":null,\"lr\":1e-3}\n\xff\xfe\n\nx\n{\"kind\":\"tr",
    );
    write("torn", "exit.json", b"{");
    write("torn", "env.json", b"[1");
    write("torn", "checkpoints/.bad-step-00000002/state.json", b"");
    write("folders", "metrics.jsonl/x", b"");
    write("folders", "config.toml", b"");
    let rows = json(&runs(&["list", &root, "--json"]));
    let problems = |name: &str| named(&rows, name)["problems"].to_string();
    for (name, status, said) in [
        ("empty", "unknown", &["no run"][..]),
        ("foreign", "unknown", &["no run"]),
        ("half", "stale", &["config.toml is not TOML"]),
        ("other", "stale", &["not of this version", "flavour"]),
        (
            "torn",
            "unknown",
            &[
                "config.toml is missing",
                "metrics.jsonl: line 2 and 2 more",
                "exit.json cannot",
                "env.json cannot",
                "set aside: 1",
            ],
        ),
        ("folders", "stale", &["metrics.jsonl cannot be read"]),
    ] {
        assert_eq!(named(&rows, name)["status"], status, "{name}");
        for part in said {
            assert!(problems(name).contains(part), "{name}, {part}: {}", problems(name));
        }
        if name != "empty" && name != "foreign" {
            let shown = stdout(&runs(&["show", name, "--root", &root]));
            assert!(shown.contains("problem ") && shown.contains(said[0]), "{shown}");
        }
    }
    // What can be read of it is shown.
    assert_eq!(named(&rows, "other")["method"], "rk4");
    assert_eq!(named(&rows, "other")["seed"], 3);
    assert_eq!(named(&rows, "torn")["step"], 2);
    assert_eq!(rows.as_array().unwrap().len(), 8);
    let table = stdout(&runs(&["list", &root]));
    assert!(table.contains("\ntorn: config.toml is missing\n"), "{table}");
    assert!(stdout(&runs(&["show", "torn", "--root", &root])).contains("loss not finite"));
    // Comparing with such a one goes as far as it can.
    let figure = bench.folder("odd.svg");
    let output =
        runs(&["compare", "a", "torn", "--root", &root, "--plot", figure.to_str().unwrap()]);
    assert!(stdout(&output).contains("train loss, last"));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("warning: torn: config.toml is missing")
    );
}

#[test]
fn show_tells_all_of_a_run() {
    let (bench, root) = bench();
    let by_folder = stdout(&runs(&["show", bench.folder("a").to_str().unwrap()]));
    let by_name = stdout(&runs(&["show", "a", "--root", &root]));
    let without_folder = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with("folder")).map(str::to_owned).collect()
    };
    assert_eq!(without_folder(&by_folder), without_folder(&by_name));
    for part in [
        "status      finished, exit code 0",
        "steps       24/24, epoch 3 of 3",
        "method      zoh",
        "d_model 32",
        "dataset shapes",
        "batch_size 32",
        "machine     host ",
        "train       step 24: loss ",
        "val         step 24 (last): loss ",
        "best top-1  ",
        "test        step ",
        " img/s",
        "loss        ",
        "val top-1   ",
        "checkpoint  step-00000024",
        "the best",
    ] {
        assert!(by_name.contains(part), "{part}: {by_name}");
    }
    let spark = by_name.lines().find(|line| line.starts_with("loss ")).unwrap();
    assert_eq!(spark.chars().filter(|c| ('▁'..='█').contains(c)).count(), 12);

    let json = json(&runs(&["show", "a", "--root", &root, "--json"]));
    assert_eq!(json["config"]["model.d_model"], 32);
    assert_eq!(json["val"].as_array().unwrap().len(), 3);
    assert_eq!(json["exit"]["reason"], "finished");

    let missing = runs(&["show", "sub/c", "--root", &root]);
    assert_code(&missing, 65);
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(said.contains("is it `sub/b`?") && said.lines().count() == 1, "{said}");
    assert_code(&runs(&["list", "/no/such/folder"]), 74);
}

#[test]
fn compare_names_what_differs_and_draws_the_curves() {
    let (bench, root) = bench();
    let file = |name: &str| bench.folder(name).display().to_string();
    let svg = file("curves.svg");
    let text = stdout(&runs(&["compare", "a", "sub/b", "--root", &root, "--plot", &svg]));
    let line = |start: &str| -> Vec<&str> {
        let line = text.lines().find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("{start}: {text}")).split_whitespace().collect()
    };
    assert_eq!(line("result"), ["result", "a", "b"]);
    assert_eq!(line("status"), ["status", "finished", "paused"]);
    assert_eq!(line("model.discretization"), ["model.discretization", "zoh", "foh"]);
    assert_eq!(line("optim.lr"), ["optim.lr", "0.002", "0.001"]);
    assert!(!text.contains("run.name") && !text.contains("train.epochs"), "{text}");
    assert!(text.contains("note: b is not finished: paused"), "{text}");
    assert!(text.contains("note: not method and seed alone differ: optim.lr\n"), "{text}");

    let figure = fs::read_to_string(&svg).unwrap();
    for part in ["<svg", "training loss", "validation top-1, %", "step", ">a</text>", ">b</text>"] {
        assert!(figure.contains(part), "{part}");
    }
    // A line in the legend and one for the losses; one for the accuracies where there were any.
    let lines = |class: &str| {
        let groups = figure.split("<g class=").filter(|group| group.starts_with(class));
        groups.filter(|group| group.contains("class=\"line\"")).count()
    };
    assert_eq!((lines("\"c0\""), lines("\"c1\"")), (3, 2), "{figure}");

    let again = ["compare", "a", "sub/b", "--root", &root, "--plot", &svg];
    assert_code(&runs(&again), 73);
    assert_code(&runs(&[&again[..], &["--force"]].concat()), 0);
    for name in ["x.pdf", "x.png"] {
        let output = runs(&["compare", "a", "sub/b", "--root", &root, "--plot", name]);
        assert_code(&output, 2);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("the name must end in .svg"), "{said}");
        assert_eq!(said.contains("convert it"), name == "x.png", "{said}");
        assert!(!Path::new(name).exists());
    }
    assert_code(&runs(&["compare", "a", "--root", &root]), 2);

    let json = json(&runs(&["compare", "a", "sub/b", "--root", &root, "--json"]));
    assert_eq!(json["differences"]["model.discretization"], serde_json::json!(["zoh", "foh"]));
    assert_eq!(json["runs"][0]["run"]["step"], 24);
}
