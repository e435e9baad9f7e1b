//! Weights in and out: `import`, `export`, `eval` and `predict` of files, `train.init`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use vim_kernels::KERNEL_VARIABLE;

use crate::train::{Bench, assert_code};

/// The small model of the original's that vim-model is tested with: 64 px, 10 classes, 75 tensors.
fn original() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../vim-model/tests/fixtures/a_mid.pth")
}

fn vim_train(args: &[&dyn AsRef<std::ffi::OsStr>]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vim-train"));
    command.args(args.iter().map(|arg| arg.as_ref())).env_remove(KERNEL_VARIABLE);
    command.output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    assert_code(output, 0);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn import_export_import_is_bit_identical() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let first = json(&vim_train(&[&"import", &original(), &"-o", &at("1.safetensors"), &"--json"]));
    assert_eq!((&first["tensors"], &first["num_classes"]), (&75.into(), &10.into()));
    assert_eq!(first["description"], "inferred from the shapes");
    assert_eq!((&first["model"]["image_size"], &first["model"]["depth"]), (&64.into(), &4.into()));
    assert_eq!(first["ignored"], serde_json::json!(["epoch", "args"]));
    for (name, back) in [("2.pth", "2.safetensors"), ("3.safetensors", "4.safetensors")] {
        assert_code(&vim_train(&[&"export", &at("1.safetensors"), &"-o", &at(name)]), 0);
        assert_code(&vim_train(&[&"import", &at(name), &"-o", &at(back)]), 0);
        let same = fs::read(at("1.safetensors")).unwrap() == fs::read(at(back)).unwrap();
        assert!(same, "{name}");
    }
    assert_code(&vim_train(&[&"export", &at("1.safetensors"), &"-o", &at("5.pth")]), 0);
    assert!(fs::read(at("5.pth")).unwrap() == fs::read(at("2.pth")).unwrap(), "the same bytes");

    let again = vim_train(&[&"export", &at("1.safetensors"), &"-o", &at("5.pth")]);
    assert_code(&again, 73);
    assert!(stderr(&again).contains("is there already"));
    let forced = vim_train(&[&"export", &at("1.safetensors"), &"-o", &at("5.pth"), &"--force"]);
    assert_code(&forced, 0);
    assert_code(&vim_train(&[&"export", &at("1.safetensors"), &"-o", &at("6.onnx")]), 2);
}

#[test]
fn every_disagreement_is_a_line_and_the_error_one_more() {
    let output = vim_train(&[&"import", &original(), &"--preset", &"tiny"]);
    assert_code(&output, 65);
    let text = stderr(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.contains(&"of another shape: head.weight (expected [10, 192], got [10, 64])"));
    assert!(lines.contains(&"missing: layers.23.mixer.D_b [384]"));
    let (last, before) = lines.split_last().unwrap();
    // Twenty layers of 17 tensors are missing, everything there is but head.bias is too small.
    assert_eq!(before.len(), 20 * 17 + 74);
    assert!(last.starts_with("error: ") && last.contains("in 414 places (listed above)"), "{last}");

    let absent = vim_train(&[&"import", &"absent.pth"]);
    assert_code(&absent, 74);
    let ema = vim_train(&[&"import", &original(), &"--ema"]);
    assert_code(&ema, 65);
    assert!(stderr(&ema).contains("has no entry `model_ema`"), "{}", stderr(&ema));
    let unknown = vim_train(&[&"import", &original(), &"--preset", &"huge"]);
    assert_code(&unknown, 2);
}

#[test]
fn a_head_of_other_classes_is_made_anew_where_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("x.safetensors");
    let args = ["--classes", "3"];
    assert_code(&vim_train(&[&"import", &original(), &args[0], &args[1]]), 65);
    let allowed = vim_train(&[
        &"import",
        &original(),
        &args[0],
        &args[1],
        &"--allow",
        &"head",
        &"-o",
        &output,
    ]);
    assert_code(&allowed, 0);
    assert!(stdout(&allowed).contains("head of 10 classes replaced by a new one of 3 classes"));
}

#[test]
fn a_run_is_exported_evaluated_and_used_as_a_start() {
    let bench = Bench::new();
    assert_code(&bench.train("a", &["--set", "train.epochs=1"]), 0);
    let exported = bench.folder("a.pth");
    let record = json(&vim_train(&[&"export", &bench.folder("a"), &"-o", &exported, &"--json"]));
    assert_eq!(record["step"], 8);

    // The same scores from the run's checkpoint and from the file that was exported.
    let eval = |checkpoint: &str| {
        let more = ["--set", "train.epochs=1", "--json", "--checkpoint", checkpoint];
        json(&bench.command("eval", "a", &more).output().unwrap())
    };
    let (best, file) = (eval("best"), eval(exported.to_str().unwrap()));
    for key in ["loss", "top1", "top5", "images"] {
        assert_eq!(best[key], file[key], "{key}");
    }
    assert_eq!(file["step"], Value::Null);

    // Fine-tuning on larger images, with slower layers.
    let init = format!("train.init={}", exported.display());
    let size = ["--set", "model.image_size=48", "--set", "data.shapes.image_size=48"];
    let more = [&["--set", &init, "--set", "train.layer_decay=0.7"][..], &size].concat();
    let tuned = bench.train("b", &[&more[..], &["--steps", "4"]].concat());
    assert_code(&tuned, 0);
    let log = fs::read_to_string(bench.folder("b").join("log.txt")).unwrap();
    assert!(log.contains("positions resized from 4 x 4 to 6 x 6 patches (middle_aware)"), "{log}");
    let blake3 = blake3::hash(&fs::read(&exported).unwrap()).to_hex().to_string();
    assert!(log.contains(&blake3));
    let record: Value =
        serde_json::from_slice(&fs::read(bench.folder("b/init.json")).unwrap()).unwrap();
    assert_eq!(record["blake3"], blake3);
    let losses: Vec<f64> = bench
        .metrics("b")
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|record| record["kind"] == "train")
        .map(|record| record["loss"].as_f64().unwrap())
        .collect();
    assert!(!losses.is_empty() && losses.iter().all(|loss| loss.is_finite()), "{losses:?}");

    // It goes on without the file: the checkpoint is what counts now.
    fs::rename(&exported, bench.folder("moved.pth")).unwrap();
    let resumed = bench.train("b", &[&more[..], &["--resume", "must", "--steps", "2"]].concat());
    assert_code(&resumed, 0);
    // A fresh one cannot start.
    let fresh = bench.train("c", &more);
    assert_code(&fresh, 74);
    assert!(!bench.folder("c").exists(), "found before there is a folder");
}

#[test]
fn weights_of_another_model_cannot_start_a_run() {
    let bench = Bench::new();
    let init = format!("train.init={}", original().display());
    let output = bench.train("a", &["--set", &init]);
    assert_code(&output, 65);
    assert!(stderr(&output).contains("of another shape: patch_embed.proj.weight"));
    assert_code(&bench.train("a", &["--set", "train.layer_decay=1.5"]), 78);
}

#[test]
fn predict_names_what_it_sees() {
    let bench = Bench::new();
    assert_code(&bench.train("a", &["--set", "train.epochs=1"]), 0);
    // A grey PNG of 2 × 2 pixels, as small as they come.
    let image = bench.folder("x.png");
    fs::write(&image, include_bytes!("fixtures/grey.png")).unwrap();
    let result = json(&vim_train(&[
        &"predict",
        &image,
        &"--checkpoint",
        &bench.folder("a"),
        &"--top",
        &"12",
        &"--json",
    ]));
    let guesses = result[0]["predictions"].as_array().unwrap();
    assert_eq!(guesses.len(), 12);
    let probabilities: Vec<f64> =
        guesses.iter().map(|guess| guess["probability"].as_f64().unwrap()).collect();
    assert!(probabilities.is_sorted_by(|a, b| a >= b));
    assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    assert!(guesses.iter().any(|guess| guess["name"] == "striped disk" && guess["class"] == 1));

    let names = bench.folder("names.txt");
    fs::write(&names, "one\ntwo\n").unwrap();
    let args = |classes: &Path| {
        vim_train(&[
            &"predict",
            &image,
            &"--checkpoint",
            &bench.folder("a"),
            &"--classes",
            &classes,
        ])
    };
    assert_code(&args(&names), 65);
    fs::write(&names, "x\n".repeat(12)).unwrap();
    let output = args(&names);
    assert_code(&output, 0);
    assert_eq!(stdout(&output).lines().count(), 6, "the image and five classes");

    let broken = vim_train(&[&"predict", &names, &"--checkpoint", &bench.folder("a")]);
    assert_code(&broken, 65);
    assert!(stderr(&broken).contains("names.txt begins with `"));
    let absent = vim_train(&[&"predict", &"absent.png", &"--checkpoint", &bench.folder("a")]);
    assert_code(&absent, 74);
}
