//! `runs list`, `show` and `compare`, on runs of the debug configuration and on what is none.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::support::{
    Bench, assert_code, assert_parts, assert_says, parsed, read_json, run, set, stderr, stdout,
    write,
};

fn runs(args: &[&str]) -> Output {
    run(&[&["runs"], args].concat())
}

/// What `runs` prints.
fn printed(args: &[&str]) -> String {
    let output = runs(args);
    assert_code(&output, 0);
    stdout(&output)
}

/// What `runs` prints as JSON.
fn document(args: &[&str]) -> Value {
    parsed(&runs(&[args, &["--json"]].concat()))
}

fn named<'a>(rows: &'a Value, name: &str) -> &'a Value {
    let rows = rows.as_array().unwrap();
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}: {rows:?}"))
}

const FOH: [&str; 2] = ["model.discretization=foh", "optim.lr=1e-3"];

/// A finished run of zoh, a paused one of foh below another folder.
fn bench() -> (Bench, String) {
    let bench = Bench::new();
    assert_code(&bench.train("a", &[]), 0);
    let foh = [&set(&FOH)[..], &["--steps", "5"]].concat();
    assert_code(&bench.train("sub/b", &foh), 0);
    let root = bench.folder("").display().to_string();
    (bench, root)
}

#[test]
fn list_says_how_far_how_good_and_how_it_ended() {
    let (bench, root) = bench();
    let rows = document(&["list", &root]);
    assert_eq!(rows.as_array().unwrap().len(), 2);
    let (a, b) = (named(&rows, "a"), named(&rows, "sub/b"));
    assert_eq!((&a["status"], &b["status"]), (&"finished".into(), &"paused".into()));
    assert_eq!((&a["method"], &b["method"]), (&"zoh".into(), &"foh".into()));
    assert_eq!((&a["step"], &b["step"]), (&24.into(), &5.into()));
    assert_eq!((&a["total_steps"], &b["total_steps"]), (&24.into(), &24.into()));
    assert_eq!(a["problems"], Value::Array(Vec::new()));
    let exit = read_json(bench.folder("a").join("exit.json"));
    assert_eq!(a["test_top1"], exit["top1"]);
    assert_eq!(a["best"]["top1"], exit["best_top1"]);

    let table = printed(&["list", &root]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    let top1 = format!("{:.2} %", 100.0 * exit["top1"].as_f64().unwrap());
    assert_parts(lines[1], &["a ", "finished", "zoh", "shapes", "24/24", &top1]);
    assert!(lines[2].starts_with("sub/b") && lines[2].contains("5/24"), "{table}");

    let names = |more: &[&str]| -> Vec<String> {
        let rows = document(&[&["list", &root], more].concat());
        let rows = rows.as_array().unwrap().iter();
        rows.map(|row| row["name"].as_str().unwrap().to_owned()).collect()
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
    let status = || named(&document(&["list", &root]), "sub/b")["status"].clone();
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
    let goes_on = [&set(&FOH)[..], &["--resume", "must"]].concat();
    assert_code(&bench.train("sub/b", &goes_on), 0);
    assert_eq!(status(), "finished");
}

#[test]
fn folders_that_are_odd_are_listed_with_what_is_wrong() {
    let (bench, root) = bench();
    let write = |name: &str, file: &str, text: &[u8]| write(&bench.folder(name).join(file), text);
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
    let rows = document(&["list", &root]);
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
        assert_parts(&problems(name), said);
        if name != "empty" && name != "foreign" {
            assert_parts(&printed(&["show", name, "--root", &root]), &["problem ", said[0]]);
        }
    }
    // What can be read of it is shown.
    assert_eq!(named(&rows, "other")["method"], "rk4");
    assert_eq!(named(&rows, "other")["seed"], 3);
    assert_eq!(named(&rows, "torn")["step"], 2);
    assert_eq!(rows.as_array().unwrap().len(), 8);
    let table = printed(&["list", &root]);
    assert_parts(&table, &["\ntorn: config.toml is missing\n"]);
    assert_parts(&printed(&["show", "torn", "--root", &root]), &["loss not finite"]);
    // Comparing with such a one goes as far as it can.
    let figure = bench.folder("odd.svg");
    let output =
        runs(&["compare", "a", "torn", "--root", &root, "--plot", figure.to_str().unwrap()]);
    assert_parts(&stdout(&output), &["train loss, last"]);
    assert_says(&output, 0, &["warning: torn: config.toml is missing"]);
}

#[test]
fn show_tells_all_of_a_run() {
    let (bench, root) = bench();
    let by_folder = printed(&["show", bench.folder("a").to_str().unwrap()]);
    let by_name = printed(&["show", "a", "--root", &root]);
    let without_folder = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with("folder")).map(str::to_owned).collect()
    };
    assert_eq!(without_folder(&by_folder), without_folder(&by_name));
    let parts = [
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
    ];
    assert_parts(&by_name, &parts);
    let spark = by_name.lines().find(|line| line.starts_with("loss ")).unwrap();
    assert_eq!(spark.chars().filter(|c| ('▁'..='█').contains(c)).count(), 12);

    let shown = document(&["show", "a", "--root", &root]);
    assert_eq!(shown["config"]["model.d_model"], 32);
    assert_eq!(shown["val"].as_array().unwrap().len(), 3);
    assert_eq!(shown["exit"]["reason"], "finished");

    let missing = runs(&["show", "sub/c", "--root", &root]);
    assert_says(&missing, 65, &["is it `sub/b`?"]);
    assert_eq!(stderr(&missing).lines().count(), 1);
    assert_code(&runs(&["list", "/no/such/folder"]), 74);
}

#[test]
fn compare_names_what_differs_and_draws_the_curves() {
    let (bench, root) = bench();
    let file = |name: &str| bench.folder(name).display().to_string();
    let svg = file("curves.svg");
    let text = printed(&["compare", "a", "sub/b", "--root", &root, "--plot", &svg]);
    let line = |start: &str| -> Vec<&str> {
        let line = text.lines().find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("{start}: {text}")).split_whitespace().collect()
    };
    assert_eq!(line("result"), ["result", "a", "b"]);
    assert_eq!(line("status"), ["status", "finished", "paused"]);
    assert_eq!(line("model.discretization"), ["model.discretization", "zoh", "foh"]);
    assert_eq!(line("optim.lr"), ["optim.lr", "0.002", "0.001"]);
    assert!(!text.contains("run.name") && !text.contains("train.epochs"), "{text}");
    let differ = "note: not method and seed alone differ: optim.lr\n";
    assert_parts(&text, &["note: b is not finished: paused", differ]);

    let figure = fs::read_to_string(&svg).unwrap();
    let titles = ["<svg", "training loss", "validation top-1, %", "step"];
    assert_parts(&figure, &[&titles[..], &[">a</text>", ">b</text>"]].concat());
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
        assert_says(&output, 2, &["the name must end in .svg"]);
        assert_eq!(stderr(&output).contains("convert it"), name == "x.png");
        assert!(!Path::new(name).exists());
    }
    assert_code(&runs(&["compare", "--root", &root]), 2);

    let compared = document(&["compare", "a", "sub/b", "--root", &root]);
    assert_eq!(compared["differences"]["model.discretization"], json!(["zoh", "foh"]));
    assert_eq!(compared["runs"][0]["run"]["step"], 24);
}
