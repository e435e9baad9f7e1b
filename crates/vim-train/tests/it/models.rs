//! `vim-train models` and `vim-train flops`.

use std::process::Output;

use assert_cmd::Command;
use strum::VariantArray;
use vim_kernels::{Discretization, KERNEL_VARIABLE};
use vim_model::{Preset, REGISTERED};

fn run(args: &[&str]) -> Output {
    let mut command = Command::cargo_bin("vim-train").unwrap();
    command.args(args).env_remove(KERNEL_VARIABLE).output().unwrap()
}

fn stdout(args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&stdout(args)).unwrap()
}

#[test]
fn models_are_listed_with_their_registered_names() {
    let text = stdout(&["models"]);
    for name in Preset::names().chain(REGISTERED.iter().map(|model| model.name)) {
        assert!(text.contains(name), "{name} in {text}");
    }
    let rows = json(&["models", "--json"]);
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), Preset::VARIANTS.len());
    assert_eq!(rows[0]["name"], "tiny");
    assert_eq!(rows[0]["parameters"], 7_148_008);
    assert_eq!((&rows[0]["image_size"], &rows[0]["tokens"]), (&224.into(), &197.into()));
    let names: usize = rows.iter().map(|row| row["registered"].as_array().unwrap().len()).sum();
    assert_eq!(names, REGISTERED.len());
}

#[test]
fn a_registered_name_is_a_preset() {
    let name = "vim_base_patch16_224_bimambav2_poly";
    let text = stdout(&["config", "--set", &format!("model.preset={name}")]);
    for line in ["preset = \"base_depth12\"", "discretization = \"poly\"", "depth = 12"] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let output = run(&["config", "--set", "model.preset=vim_base_patch16_224_bimambav2_polly"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78));
    assert!(error.contains(&format!("did you mean `{name}`")), "{error}");
}

#[test]
fn flops_are_those_of_the_components() {
    let tiny = json(&["flops", "--preset", "tiny", "--json"]);
    let components = tiny["components"].as_array().unwrap();
    for key in ["parameters", "macs", "flops"] {
        let sum: u64 = components.iter().map(|c| c[key].as_u64().unwrap()).sum();
        assert_eq!(tiny[key].as_u64(), Some(sum), "{key}");
    }
    assert_eq!(tiny["parameters"], 7_148_008);
    let text = stdout(&["flops"]);
    assert!(text.contains("224 px, 197 tokens, 1000 classes, zoh"), "{text}");
    for component in ["patch_embed", "in_proj", "scan", "total"] {
        assert!(text.lines().any(|line| line.starts_with(component)), "{component} in {text}");
    }
    // The method changes the scan and nothing else.
    for &method in Discretization::VARIANTS {
        let set = format!("model.discretization={method}");
        let other = json(&["flops", "--set", &set, "--json"]);
        for (a, b) in components.iter().zip(other["components"].as_array().unwrap()) {
            assert_eq!(a["name"], b["name"]);
            let same = a["name"] != "scan" || method == Discretization::Zoh;
            assert_eq!(a == b, same, "{method}: {}", a["name"]);
        }
    }
}

#[test]
fn flops_of_a_file_and_of_what_cannot_be_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.toml");
    std::fs::write(&path, "[model]\nimage_size = [32, 64]\n").unwrap();
    let path = path.to_str().unwrap();
    let text = stdout(&["flops", "--config", path, "--classes", "100"]);
    assert!(text.contains("[32, 64] px, 9 tokens, 100 classes"), "{text}");
    assert_eq!(run(&["flops", "--config", path, "--preset", "tiny"]).status.code(), Some(2));
    let full = ["flops", "--set", "ssm.a=full", "--set", "model.discretization=bilinear"];
    let output = run(&full);
    assert_eq!(output.status.code(), Some(78));
    assert!(String::from_utf8(output.stderr).unwrap().contains("only a diagonal A is counted"));
}
