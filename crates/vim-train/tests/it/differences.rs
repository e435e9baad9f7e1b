//! Which images a sweep's methods differ on: the predictions that runs record, and the report.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use csv::StringRecord;

use crate::support::{
    assert_code, assert_parts, assert_says, parsed, python, repository, run, stderr,
};
use crate::sweep::Study;

/// The records of a CSV file behind its header.
fn rows(path: PathBuf) -> Vec<StringRecord> {
    csv::Reader::from_path(path).unwrap().records().map(Result::unwrap).collect()
}

/// Makes every second right prediction of a file wrong and every second wrong one right.
fn change_half(path: &Path) {
    let text = fs::read_to_string(path).unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let mut writer = csv::Writer::from_path(path).unwrap();
    writer.write_record(reader.headers().unwrap()).unwrap();
    for (number, record) in reader.records().enumerate() {
        let record = record.unwrap();
        let mut fields: Vec<&str> = record.iter().collect();
        let wrong = if &record[2] == "0" { "1" } else { "0" };
        if number % 2 == 0 {
            fields[3] = if record[2] == record[3] { wrong } else { &record[2] };
        }
        writer.write_record(fields).unwrap();
    }
    writer.flush().unwrap();
}

#[test]
fn methods_are_compared_image_by_image() {
    let study = Study::new();
    assert_code(&study.of_file("run", &["-j", "2"]), 0);
    let file = |name: &str| study.folder().join(name);
    let text = |name: &str| file(name).display().to_string();

    // What a run records is what `eval` of it says.
    let again = text("again.csv");
    for name in ["zoh-s0", "rk4-s1"] {
        let evaluated = run(&["eval", &text(name), "--predictions", &again, "--force"]);
        assert_code(&evaluated, 0);
        let recorded = fs::read_to_string(file(name).join("predictions.csv")).unwrap();
        assert_eq!(recorded.lines().count(), 65);
        assert_eq!(recorded, fs::read_to_string(&again).unwrap(), "{name}");
    }

    // Toys that agree on every image show little: one of them changes its mind about half of these.
    change_half(&file("rk4-s1").join("predictions.csv"));
    assert_code(&study.of_folder("summarize", &[]), 0);
    let pairs = rows(file("pairs.csv"));
    assert_eq!(pairs.len(), 2);
    for (seed, row) in pairs.iter().enumerate() {
        let named = [format!("rk4-s{seed}"), format!("zoh-s{seed}")];
        assert_eq!([&row[0], &row[1]], named);
        let [ours, base] = named.map(|name| text(&format!("{name}/predictions.csv")));
        let compared = parsed(&run(&["eval", "compare", &base, &ours, "--json"]));
        for (column, key) in
            [(5, "images"), (6, "both"), (7, "only_first"), (8, "only_second"), (9, "neither")]
        {
            assert_eq!(row[column], compared[key].to_string(), "{key}");
        }
        assert_eq!(row[10].parse::<f64>().unwrap(), compared["p"].as_f64().unwrap());
    }

    let images = rows(file("differing_images.csv"));
    assert!(images.len() >= 32);
    let number = |text: &str| text.parse::<usize>().unwrap();
    let sum = |column: usize| images.iter().map(|row| number(&row[column])).sum::<usize>();
    let alone = |column: usize| pairs.iter().map(|row| number(&row[column])).sum::<usize>();
    assert_eq!((sum(6), sum(7)), (alone(7), alone(8)), "of the baseline, and of rk4");
    let differ: Vec<usize> = images.iter().map(|row| number(&row[5])).collect();
    assert!(differ.is_sorted_by(|a, b| a >= b));

    let page = fs::read_to_string(file("report.html")).unwrap();
    let shown = images.len().min(20);
    assert_eq!(page.matches("<img class=\"thumb\" alt=\"\" src=\"data:image/png;").count(), shown);
    assert_parts(&page, &["What differs between methods", "p (McNemar)", &images[0][1]]);
    assert!(!page.contains("Without predictions"));
    if Command::new("chromium").arg("--version").output().is_ok() {
        let checked = python("report_check.py", &[&text("report.html")]);
        assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    }
}

/// Two methods with two seeds of the smallest segmentation.
const PIXELS: &str = r#"
extends = "FIXTURE"

[run]
root = "ROOT"

[train]
epochs = 1

[devices]
backend = "cpu"

[sweep]
name = "study"
grid = { "model.discretization" = ["zoh", "rk4"] }
seeds = [0, 1]

[sweep.report]
metric = "val/miou"
baseline = { "model.discretization" = "zoh" }
"#;

#[test]
fn methods_of_a_segmentation_are_compared_class_by_class() {
    let fixture = repository("crates/vim-train/tests/it/fixtures/segment.toml");
    let study = Study::of(&PIXELS.replace("FIXTURE", &fixture.display().to_string()));
    assert_code(&study.of_file("run", &["-j", "2"]), 0);
    let file = |name: &str| study.folder().join(name);

    // What a run records is what `eval` of it says.
    let (run_folder, again) = (file("rk4-s1"), file("again.csv"));
    let (run_folder, again) = (run_folder.to_str().unwrap(), again.to_str().unwrap());
    assert_code(&run(&["eval", run_folder, "--per-class", again]), 0);
    let recorded = fs::read_to_string(file("rk4-s1/per_class.csv")).unwrap();
    assert_eq!(recorded, fs::read_to_string(again).unwrap());

    let iou = |name: &str, class: usize| {
        let rows = rows(file(&format!("{name}/per_class.csv")));
        rows[class][5].parse::<f64>().ok()
    };
    assert_code(&study.of_folder("summarize", &[]), 0);
    let table = rows(file("classes.csv"));
    assert_eq!(table.len(), 12 * 2, "a row for each class and method");
    let mut paired = 0;
    for row in table.iter().filter(|row| &row[2] == "rk4") {
        let class: usize = row[0].parse().unwrap();
        let differences = [0, 1].map(|seed| {
            Some(iou(&format!("rk4-s{seed}"), class)? - iou(&format!("zoh-s{seed}"), class)?)
        });
        let known: Vec<f64> = differences.into_iter().flatten().collect();
        assert_eq!(row[6], if known.is_empty() { String::new() } else { known.len().to_string() });
        if let Ok(mean) = row[7].parse::<f64>() {
            let expected = known.iter().sum::<f64>() / known.len() as f64;
            assert!((mean - expected).abs() < 1e-9, "{row:?}");
            paired += 1;
        }
    }
    assert!(paired > 0, "no class has an IoU in both");

    let page = fs::read_to_string(file("report.html")).unwrap();
    assert_parts(&page, &["What differs between methods", "12 of 12 classes", "minus zoh, points"]);
    fs::remove_file(file("zoh-s0/per_class.csv")).unwrap();
    assert_code(&study.of_folder("summarize", &[]), 0);
    let page = fs::read_to_string(file("report.html")).unwrap();
    let how = "Without scores of classes: zoh-s0. <code>vim-train eval RUN --per-class";
    assert_parts(&page, &[how]);
}

#[test]
fn runs_without_predictions_are_named() {
    let study = Study::new();
    assert_code(&study.of_file("run", &["-j", "2"]), 0);
    let file = |name: &str| study.folder().join(name).join("predictions.csv");
    fs::remove_file(file("zoh-s0")).unwrap();
    fs::write(file("rk4-s1"), "index,image\n").unwrap();
    assert_says(&study.of_folder("summarize", &[]), 0, &["4 runs: 4 finished"]);
    assert_eq!(rows(study.folder().join("pairs.csv")).len(), 0);
    let page = fs::read_to_string(study.folder().join("report.html")).unwrap();
    let how = "Without predictions: zoh-s0. <code>vim-train eval RUN --predictions";
    let unfit =
        ["Not compared: rk4-s1: ", "predictions.csv holds no predictions: it has no column"];
    assert_parts(&page, &[&[how, "No two finished runs of one seed"][..], &unfit].concat());
}
