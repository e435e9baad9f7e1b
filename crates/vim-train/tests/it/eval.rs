//! `eval`: its batches, its predictions.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{
    Bench, assert_code, assert_parts, assert_says, parsed, read_json, repository, run, stdout,
};

/// The 64 test images at once, in batches that do not divide them, one by one, and in one that is
/// larger than all.
#[test]
fn the_batch_changes_nothing() {
    let bench = Bench::new();
    assert_code(&bench.train("a", &["--steps", "4"]), 0);
    let scores = |batch: &[&str]| bench.scores("a", &[&["--checkpoint", "last"], batch].concat());
    let as_trained = scores(&[]);
    assert_eq!(as_trained["images"], 64);
    for batch in ["1", "7", "64", "100"] {
        let other = scores(&["--batch", batch]);
        for key in ["images", "top1", "top5"] {
            assert_eq!(other[key], as_trained[key], "{key} of batches of {batch}");
        }
        // Products of other sizes may be summed in another order: f32 of the order of 1.
        let loss = |scores: &Value| scores["loss"].as_f64().unwrap();
        let difference = (loss(&other) - loss(&as_trained)).abs();
        assert!(difference < 1e-6, "batches of {batch}: {difference}");
    }
}

/// The records of a CSV file, with its header first.
fn table(path: &Path) -> Vec<csv::StringRecord> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_path(path).unwrap();
    reader.records().map(Result::unwrap).collect()
}

#[test]
fn classes_add_up_to_the_predictions_and_two_models_are_compared() {
    let bench = Bench::new();
    assert_code(&bench.train("a", &["--steps", "6"]), 0);
    let path = |name: &str| bench.folder(name);
    let text = |name: &str| path(name).display().to_string();
    let files = [
        ["--predictions", &text("a.csv")],
        ["--per-class", &text("classes.csv")],
        ["--confusion", &text("confusion.csv")],
    ];
    let args = [&["--checkpoint", "last", "--json"], files.as_flattened()].concat();
    let scores = parsed(&bench.eval("a", &args));
    assert_code(&bench.eval("a", &args), 73);

    let (classes, matrix) = (table(&path("classes.csv")), table(&path("confusion.csv")));
    assert_eq!((classes.len(), matrix.len(), matrix[0].len()), (13, 13, 13));
    assert_eq!(
        (&classes[1][1], &matrix[1][0], &matrix[0][2]),
        ("solid disk", "solid disk", "striped disk")
    );
    let number = |text: &str| text.parse::<f64>().unwrap();
    let correct: f64 = classes[1..].iter().map(|row| number(&row[3])).sum();
    assert_eq!(scores["top1"], correct / 64.0);
    let predictions = table(&path("a.csv"));
    for (class, row) in classes[1..].iter().enumerate() {
        let said = |column: usize| {
            predictions[1..].iter().filter(|row| row[column] == class.to_string()).count()
        };
        assert_eq!((number(&row[2]), number(&row[5])), (said(2) as f64, said(3) as f64));
        assert_eq!(row[3], matrix[class + 1][class + 1]);
        let all: f64 = matrix[class + 1].iter().skip(1).map(number).sum();
        assert_eq!(all, number(&row[2]), "a row of the matrix is a class");
    }

    let figure = ["--checkpoint", "last", "--confusion", &text("confusion.svg")];
    assert_code(&bench.eval("a", &figure), 0);
    let figure = fs::read_to_string(path("confusion.svg")).unwrap();
    assert_parts(&figure, &["checkered cross", "predicted class", "test, 64 images"]);
    let wrong = ["--checkpoint", "last", "--confusion", &text("confusion.png")];
    assert_says(&bench.eval("a", &wrong), 2, &[".csv or .svg"]);

    // Another model: every image is said to be of class 0.
    let (mut other, mut right) = (csv::Writer::from_path(path("b.csv")).unwrap(), 0);
    for (number, row) in predictions.iter().enumerate() {
        let mut row: Vec<&str> = row.iter().collect();
        if number > 0 {
            row[3] = "0";
            right += usize::from(row[2] == "0");
        }
        other.write_record(row).unwrap();
    }
    other.flush().unwrap();
    let (a, b, images) = (text("a.csv"), text("b.csv"), text("differ.csv"));
    let compare = |more: &[&str]| run(&[&["eval", "compare", &a, &b], more].concat());
    let report = parsed(&compare(&["--json", "--images", &images]));
    let count = |key: &str| report[key].as_u64().unwrap();
    assert_eq!(count("both") + count("only_second"), right as u64);
    assert_eq!((count("both") + count("only_first")) as f64, correct);
    let differing = count("only_first") + count("only_second");
    assert_eq!(table(Path::new(&images)).len() as u64, 1 + differing);
    assert_parts(&stdout(&compare(&[])), &["McNemar's exact test p = ", "only second"]);
    let output = run(&["eval", "compare", &a, &text("classes.csv")]);
    assert_says(&output, 65, &["has no column `index`"]);
    assert_code(&run(&["eval"]), 2);
}

#[test]
fn a_device_on_the_command_line_is_over_the_configurations() {
    let bench = Bench::new();
    // LibTorch is in no build that is tested.
    let other = ["--set", "devices.backend=tch"];
    let here = [&other[..], &["--device", "cpu"]].concat();
    assert_code(&bench.train("a", &[&here[..], &["--steps", "2"]].concat()), 0);
    assert!(bench.read("a", "config.toml").contains("backend = \"cpu\""));
    let last = ["--checkpoint", "last"];
    assert_code(&bench.eval("a", &[&here[..], &last].concat()), 0);
    assert_code(&bench.eval("a", &[&other[..], &last].concat()), 69);
    let shown = bench.command("config", "a", &["--origin", "--device", "cpu"]).output().unwrap();
    assert_parts(&stdout(&shown), &["backend = \"cpu\"  # --set"]);
    let picture = repository("crates/vim-train/tests/it/fixtures/grey.png");
    let checkpoint = bench.folder("a").join("checkpoints/step-00000002");
    let [picture, checkpoint] = [picture, checkpoint].map(|path| path.display().to_string());
    let predict =
        |device| run(&["predict", &picture, "--checkpoint", &checkpoint, "--device", device]);
    assert_code(&predict("cpu"), 0);
    assert_says(&predict("tch"), 69, &["--device: this build has no tch"]);
}

#[test]
fn top_5_of_four_classes_is_not_measured() {
    let bench = Bench::new();
    let four = ["--set", "data.shapes.textures=1"];
    assert_code(&bench.train("a", &[&four[..], &["--set", "train.epochs=1"]].concat()), 0);
    let records = bench.records("a", "eval");
    assert!(records.len() > 1);
    for record in &records {
        assert!(record["top1"].is_f64() && record.get("top5").is_none(), "{record}");
    }
    let scores = bench.scores("a", &four);
    assert!(scores["top1"].is_f64() && scores.get("top5").is_none(), "{scores}");
    let printed = stdout(&bench.eval("a", &four));
    assert!(printed.contains("top-1") && !printed.contains("top-5"), "{printed}");
    // The classes of a table are as many as there are.
    let file = bench.folder("out.csv");
    let path = file.display().to_string();
    assert_code(&bench.eval("a", &[&four[..], &["--predictions", &path]].concat()), 0);
    let table = fs::read_to_string(&file).unwrap();
    let first: Vec<&str> = table.lines().nth(1).unwrap().split(',').collect();
    assert_eq!(first[5].split(' ').count(), 4, "{table}");
}

#[test]
fn predictions_agree_with_the_scores() {
    let bench = Bench::new();
    assert_code(&bench.train("a", &["--steps", "4"]), 0);
    let file = bench.folder("out.csv");
    let path = file.display().to_string();
    let eval = |more: &[&str]| {
        let args = [&["--checkpoint", "last", "--json", "--predictions", &path], more].concat();
        bench.eval("a", &args)
    };
    let output = eval(&[]);
    assert_code(&output, 0);
    let scores = parsed(&output);
    let mut reader = csv::Reader::from_path(&file).unwrap();
    let header: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let expected = ["index", "image", "label", "predicted", "probability", "top5"];
    assert_eq!(header, [&expected[..], &["label_name", "predicted_name"]].concat());
    let names: Vec<String> =
        serde_json::from_value(read_json(bench.folder("a/classes.json"))).unwrap();
    assert_eq!((names.len(), &*names[1]), (12, "striped disk"));
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(scores["images"], rows.len());
    let (mut top1, mut top5) = (0, 0);
    for row in &rows {
        let best: Vec<&str> = row[5].split(' ').collect();
        assert_eq!((best.len(), best[0]), (5, &row[3]));
        for (class, name) in [(2, 6), (3, 7)] {
            assert_eq!(names[row[class].parse::<usize>().unwrap()], row[name]);
        }
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
