//! What a run leaves to look at: its page, and the figure of `runs show`.

use std::fs;

use crate::support::{Bench, assert_code, assert_parts, assert_says, run, set, stderr, stdout};

const PAGE: &str = "results.html";

/// A page that needs no network, and is small.
#[track_caller]
fn check(page: &str) {
    for foreign in ["http://", "https://", "<script", "<link rel=\"stylesheet", "src=\"/"] {
        assert!(!page.contains(foreign), "{foreign} is in {page}");
    }
    assert!(page.len() < 2_000_000, "{}", page.len());
    assert!(page.matches("<img ").count() <= 40);
}

#[test]
fn a_finished_classifier_shows_curves_classes_mistakes_and_a_batch() {
    let bench = Bench::new();
    let trained = bench.train("a", &[]);
    assert_says(&trained, 0, &["loss curve", "top-1 curve", "results.html"]);
    let page = bench.read("a", PAGE);
    check(&page);
    let parts = [
        "<h1>a</h1>",
        "top-1 of the 64 test images",
        "aria-label=\"training loss\"",
        "aria-label=\"val top-1, %\"",
        "<h2>Classes</h2>",
        "<h2>Confusions</h2>",
        "<h2>The worst mistakes</h2>",
        "<h2>A training batch</h2>",
        "optim.lr",
    ];
    assert_parts(&page, &parts);
    // As many mistakes as the predictions have, or 24; and a batch.
    let wrong = bench.read("a", "predictions.csv");
    let wrong = wrong.lines().skip(1).filter(|row| {
        let fields: Vec<&str> = row.split(',').collect();
        fields[2] != fields[3]
    });
    assert_eq!(page.matches("<img ").count(), wrong.count().min(24) + 12);
    // The page changes nothing of what is recorded.
    assert_code(&bench.train("b", &set(&["run.page=false"])), 0);
    assert!(!bench.folder("b").join(PAGE).exists());
    assert_eq!(bench.metrics("a"), bench.metrics("b"));
    assert!(!bench.read("a", "config.toml").contains("\npage ="));
}

#[test]
fn dense_runs_show_what_they_draw() {
    for (fixture, class) in [("segment", "IoU, %"), ("detect", "AP, %")] {
        let bench = Bench::of(&format!("crates/vim-train/tests/it/fixtures/{fixture}.toml"));
        assert_code(&bench.train("a", &[]), 0);
        let page = bench.read("a", PAGE);
        check(&page);
        let parts = [class, "<h2>Predictions</h2>", "as annotated", "<h2>A training batch</h2>"];
        assert_parts(&page, &parts);
        // Four images twice, and the batch.
        assert!(page.matches("<img ").count() >= 8 + 4, "{fixture}");
        assert!(!page.contains("Confusions"), "{fixture}");
    }
}

#[test]
fn a_page_is_made_when_it_is_asked_for_and_costs_no_result() {
    let bench = Bench::new();
    assert_code(&bench.train("a", &["--steps", "30"]), 0);
    assert!(!bench.folder("a").join(PAGE).exists(), "--steps limits it");
    let asked = [&set(&["run.page=true"])[..], &["--steps", "5"]].concat();
    assert_code(&bench.train("b", &asked), 0);
    let page = bench.read("b", PAGE);
    check(&page);
    assert_parts(&page, &["5 of 24 steps", "<h2>A training batch</h2>"]);
    // Changing the wish is no other run.
    let goes_on = [&set(&["run.page=auto"])[..], &["--resume", "auto"]].concat();
    assert_code(&bench.train("b", &goes_on), 0);
    assert_parts(&bench.read("b", PAGE), &["24 of 24 steps"]);
    // Where it cannot be written, the run is as good.
    fs::create_dir_all(bench.folder("c").join(PAGE).join("x")).unwrap();
    let trained = bench.train("c", &[]);
    assert_says(&trained, 0, &["warning: no results.html is made: "]);
    assert_eq!(stderr(&trained).matches("warning: no results.html").count(), 1);
    let wrong = bench.train("d", &set(&["run.page=maybe"]));
    assert_says(&wrong, 78, &["run.page", "true or false"]);
}

#[test]
fn one_run_is_drawn() {
    let bench = Bench::new();
    assert_code(&bench.train("a", &[]), 0);
    let (root, svg) = (bench.folder(""), bench.folder("a.svg"));
    let (root, svg) = (root.display().to_string(), svg.display().to_string());
    let args = ["runs", "show", "a", "--root", &root, "--plot", &svg];
    let shown = run(&args);
    assert_code(&shown, 0);
    assert_parts(&stdout(&shown), &["finished", "loss  "]);
    assert_parts(&fs::read_to_string(&svg).unwrap(), &["<svg", "training loss", ">a</text>"]);
    assert_code(&run(&args), 73);
    assert_code(&run(&[&args[..], &["--force"]].concat()), 0);
}

/// Without `log.every`; of version 1 a short run has two records.
#[test]
fn a_short_run_has_a_curve() {
    let text = fs::read_to_string(crate::support::repository("configs/debug.toml")).unwrap();
    let text = text.replace("[log]\nevery = \"2st\"\n", "");
    let folder = crate::support::folder(&[
        ("new.toml", &text),
        ("old.toml", &format!("version = 1\n{text}")),
    ]);
    let steps = |file: &str| -> usize {
        let path = folder.path().join(file).display().to_string();
        let root = format!("run.root={}", folder.path().join("runs").display());
        let name = format!("run.name={file}");
        let sets = set(&[&root, &name, "run.page=false"]);
        assert_code(&run(&[&["train", &path][..], &sets].concat()), 0);
        let metrics = folder.path().join("runs").join(file).join("metrics.jsonl");
        let metrics = fs::read_to_string(metrics).unwrap();
        metrics.lines().filter(|line| line.contains("\"kind\":\"train\"")).count()
    };
    // 24 steps: a twentieth is one; 50 are more than all.
    assert_eq!((steps("new.toml"), steps("old.toml")), (24, 1));
}

#[test]
fn a_batch_to_be_sought_needs_a_gpu_and_one_run() {
    let bench = Bench::new();
    let auto = "train.batch_size=auto";
    for more in [&[][..], &["--dry-run"]] {
        let refused = bench.train("a", &[&set(&[auto, "devices.backend=cpu"])[..], more].concat());
        assert_says(&refused, 78, &["train.batch_size", "this run is on a CPU"]);
        assert!(!bench.folder("a").exists());
    }
    for (sets, said) in [
        (&["run.name=b{train.batch_size}"][..], "name the run otherwise"),
        (&["sweep.name=s", "sweep.grid={\"optim.lr\"=[1e-3]}"], "one batch size"),
        (&["slurm.nodes=2"], "on one machine"),
    ] {
        let refused = bench.train("b", &[&set(&[auto])[..], &set(sets)].concat());
        assert_says(&refused, 78, &[said]);
    }
    // A run that has its number goes on wherever it is.
    assert_code(&bench.train("c", &["--steps", "5"]), 0);
    let goes_on = [&set(&[auto])[..], &["--resume", "auto"]].concat();
    assert_code(&bench.train("c", &goes_on), 0);
    assert!(bench.read("c", "config.toml").contains("batch_size = 32"));
    assert_code(&bench.train("whole", &[]), 0);
    assert_eq!(bench.metrics("c"), bench.metrics("whole"));
    // What only needs some number takes one.
    assert_code(&bench.eval("c", &set(&[auto])), 0);
}

/// On an emulated GPU no batch is too large for the memory, but an epoch is.
#[cfg(feature = "wgpu")]
#[test]
fn a_batch_is_sought_once() {
    let bench = Bench::new();
    let sets = ["train.batch_size=auto", "devices.backend=wgpu", "data.shapes.train=64"];
    let begun = bench.train("a", &[&set(&sets)[..], &["--steps", "1"]].concat());
    assert_says(
        &begun,
        0,
        &["batch of 8: fits", "batch of 64: fits", "batch of 128: ", "as more cannot be trained ("],
    );
    assert!(bench.read("a", "config.toml").contains("batch_size = 64"));
    let goes_on = bench.train("a", &[&set(&sets)[..], &["--resume", "auto"]].concat());
    assert_code(&goes_on, 0);
    assert!(!stderr(&goes_on).contains("batch of"), "{}", stderr(&goes_on));
    // What else is wrong is said by the first trial, and leaves no run.
    let missing = [&sets[..], &["train.init=/no/such"]].concat();
    let refused = bench.train("b", &set(&missing));
    assert!(!refused.status.success());
    assert_parts(&stderr(&refused), &["error: ", "not even 8 images can be trained", "/no/such"]);
    assert_eq!(stderr(&refused).matches("batch of").count(), 1);
    assert!(!bench.folder("b").exists());
}
