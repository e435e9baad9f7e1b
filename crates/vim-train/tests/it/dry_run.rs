//! `train --dry-run` and `eval --predictions`.

use std::fs;

use serde_json::Value;

use crate::train::{Bench, assert_code};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_dry_run_makes_nothing() {
    let bench = Bench::new();
    let output = bench.train("a", &["--dry-run", "--steps", "4"]);
    assert_code(&output, 0);
    assert!(!bench.folder("a").exists());
    let said = text(&output.stdout);
    let expected = format!("run {}: a new run\n", bench.folder("a").display());
    assert!(said.starts_with(&expected), "{said}");
    for part in [
        "\nsteps 24, 8 an epoch, 3 epochs, stops after 4\n",
        " compute thread",
        "\nbatch ",
        "\nmemory ",
        " for checkpoints, ",
        "\nnothing was started\n",
    ] {
        assert!(said.contains(part), "{part:?}\n{said}");
    }

    // What was recorded is what was said.
    assert_code(&bench.train("a", &["--steps", "4"]), 0);
    let log = fs::read_to_string(bench.folder("a").join("log.txt")).unwrap();
    for line in said.lines().filter(|line| line.starts_with("data ") || line.contains(" compute "))
    {
        assert!(log.contains(line), "{line}\n{log}");
    }
    let found = |more: &[&str]| -> Value {
        let output = bench.train("a", &[&["--dry-run", "--json"], more].concat());
        assert_code(&output, 0);
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        json["found"].clone()
    };
    let before = bench.metrics("a");
    assert_eq!(found(&["--resume", "auto"]), "run");
    assert_eq!(found(&["--fresh"]), "to_move_aside");
    assert_eq!(bench.metrics("a"), before);
    assert!(!bench.folder("a.old-1").exists());
}

#[test]
fn a_dry_run_finds_what_training_would() {
    let bench = Bench::new();
    assert_code(&bench.train("a", &["--dry-run", "--resume", "must"]), 78);
    let missing = ["--dry-run", "--set", "data.dataset=cifar10", "--set", "data.path=/no/such"];
    assert_ne!(bench.train("a", &missing).status.code(), Some(0));
    assert_code(&bench.train("a", &["--dry-run", "--set", "devices.backend=tch"]), 69);
    assert!(!bench.folder("a").exists());
    assert_code(&bench.train("a", &["--steps", "2"]), 0);
    assert_code(&bench.train("a", &["--dry-run"]), 73);
    let other = ["--dry-run", "--resume", "auto", "--set", "optim.lr=0.5"];
    assert_code(&bench.train("a", &other), 78);
}

#[test]
fn predictions_agree_with_the_scores() {
    let bench = Bench::new();
    assert_code(&bench.train("a", &["--steps", "4"]), 0);
    let file = bench.folder("out.csv");
    let path = file.display().to_string();
    let eval = |more: &[&str]| {
        let args = [&["--checkpoint", "last", "--json", "--predictions", &path], more].concat();
        bench.command("eval", "a", &args).output().unwrap()
    };
    let output = eval(&[]);
    assert_code(&output, 0);
    let scores: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut reader = csv::Reader::from_path(&file).unwrap();
    let header: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    assert_eq!(header, ["index", "image", "label", "predicted", "probability", "top5"]);
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(scores["images"], rows.len());
    let (mut top1, mut top5) = (0, 0);
    for row in &rows {
        let best: Vec<&str> = row[5].split(' ').collect();
        assert_eq!((best.len(), best[0]), (5, &row[3]));
        let probability: f64 = row[4].parse().unwrap();
        assert!(probability > 1.0 / 12.0 - 1e-6 && probability <= 1.0, "{probability}");
        top1 += usize::from(row[2] == row[3]);
        top5 += usize::from(best.contains(&&row[2]));
    }
    let share = |count: usize| count as f64 / rows.len() as f64;
    assert_eq!(scores["top1"], share(top1));
    assert_eq!(scores["top5"], share(top5));

    let before = fs::read(&file).unwrap();
    assert_code(&eval(&[]), 73);
    assert_code(&eval(&["--force", "--batch", "7"]), 0);
    assert_eq!(fs::read(&file).unwrap().len(), before.len());
}
