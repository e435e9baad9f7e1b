//! `vim-train verify` as built.

use std::collections::HashSet;
use std::process::Output;

use serde_json::Value;
use strum::VariantArray;
use vim_kernels::Discretization;

use crate::support::{assert_code, assert_parts, parsed, run, stderr, stdout};

fn verify(args: &[&str]) -> Output {
    run(&[&["verify", "--device", "cpu", "--quick"], args].concat())
}

fn names(document: &Value) -> Vec<String> {
    let checks = document["checks"].as_array().unwrap();
    checks.iter().map(|check| check["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_cpu_passes() {
    let output = verify(&["--json"]);
    assert_code(&output, 0);
    let document = parsed(&output);
    assert_eq!(document["device"], "cpu");
    let summary = &document["summary"];
    assert_eq!((&summary["failed"], &summary["passed"]), (&Value::from(0), &Value::from(true)));
    assert!(summary["worst"]["max"].as_f64() <= summary["worst"]["tolerance"].as_f64());

    let checks = document["checks"].as_array().unwrap();
    for method in Discretization::VARIANTS {
        for implementation in ["kernel", "reference"] {
            let check = checks.iter().find(|check| {
                check["name"]
                    == format!("oracle/selective_scan/{method}/exact/{implementation}/f32")
            });
            let rows = check.unwrap()["rows"].as_array().unwrap();
            let arrays: Vec<&str> = rows.iter().map(|row| row["array"].as_str().unwrap()).collect();
            let all = ["y", "last_state", "u", "delta", "a", "b", "c", "d", "z", "delta_bias"];
            assert_eq!(arrays, all, "{method} {implementation}");
            for row in rows {
                assert_eq!(row["verdict"], "pass");
                assert!(row["max"].as_f64() <= row["tolerance"].as_f64());
                assert!(row["mean"].as_f64() <= row["max"].as_f64());
                assert!(row["max"].as_f64() > Some(0.0), "f32 is not f64: {row}");
            }
        }
    }
    for part in [
        "oracle/causal_conv1d/kernel/f32",
        "oracle/add_rms_norm/kernel/f32",
        "oracle/full_scan/kernel/f32",
        "oracle/full_scan/reference/f32",
        "oracle/selective_scan_complex/rk4/taylor/reference/f32",
        "adjoint/causal_conv1d/oracle/f64",
        "adjoint/add_rms_norm/oracle/f64",
        "adjoint/full_scan/oracle/f64",
        "adjoint/selective_scan_complex/foh/taylor/oracle/f64",
        "order/selective_scan/tustin/exact/oracle/f64",
    ] {
        let check = checks.iter().find(|check| check["name"] == part).unwrap();
        assert_eq!(check["passed"], true, "{part}");
    }
    // The CPU has no kernel for complex A, and says so.
    let name = "oracle/selective_scan_complex/zoh/exact/kernel/f32";
    let check = checks.iter().find(|check| check["name"] == name).unwrap();
    let reason = check["skipped"].as_str().unwrap();
    assert!(reason.contains("complex A") && check["error"].is_null(), "{reason}");
}

#[test]
fn a_failing_check_is_exit_code_1() {
    // A millionth of the tolerance is below what f32 can do.
    let args = ["--methods", "zoh", "--tolerance", "1e-6"];
    let output = verify(&args);
    assert_code(&output, 1);
    assert!(stderr(&output).starts_with("error: "), "{}", stderr(&output));
    assert_parts(&stderr(&output), &["oracle/selective_scan/zoh"]);
    assert_parts(&stdout(&output), &["FAIL y: ", " failed"]);

    let output = verify(&[&args[..], &["--json"]].concat());
    assert_code(&output, 1);
    assert_eq!(parsed(&output)["summary"]["passed"], false);
}

#[test]
fn implementations_are_those_asked_for() {
    let run = |more: &[&str]| {
        names(&parsed(&verify(&[&["--json", "--methods", "bilinear"], more].concat())))
    };
    let of = |names: &[String], implementation: &str| -> Vec<String> {
        let part = format!("/{implementation}/");
        names.iter().filter(|name| name.contains(&part)).cloned().collect()
    };
    let (all, kernels) = (run(&[]), run(&["--implementations", "kernel"]));
    assert!(kernels.len() > 10 && kernels == of(&all, "kernel"), "{kernels:?}");
    assert_eq!(run(&["--implementations", "reference"]), of(&all, "reference"));
    let both = run(&["--implementations", "kernel,reference"]);
    assert_eq!(both.len(), all.len() - of(&all, "oracle").len(), "not the loops themselves");
}

#[test]
fn shards_are_disjoint_and_complete() {
    let run = |shard: &str| {
        names(&parsed(&verify(&["--json", "--methods", "bilinear", "--shard", shard])))
    };
    let (all, parts) = (run("1/1"), [run("1/2"), run("2/2")]);
    assert!(parts.iter().all(|part| part.len().abs_diff(all.len() / 2) <= 1));
    let together: HashSet<String> = parts.concat().into_iter().collect();
    assert_eq!(together.len(), all.len());
    assert_eq!(together, all.into_iter().collect());
    // A part without checks has shown nothing.
    let output = verify(&["--shard", "3000/3000"]);
    assert_code(&output, 1);
    assert_parts(&stderr(&output), &["nothing to check: --shard 3000/3000"]);
}

#[test]
fn the_table_says_what_it_is_of() {
    let output = verify(&["--methods", "zoh,rk4"]);
    let text = stdout(&output);
    assert_code(&output, 0);
    let parts = [
        "selective_scan against loops in f64",
        "zoh exact kernel f32",
        "causal_conv1d against loops in f64",
        "selective_scan_complex against loops in f64",
        "full_scan against loops in f64",
        "add_rms_norm against loops in f64",
        "skipped: no fused kernel for complex A",
        "against finite differences",
        "1 different, 0 same within rounding, 0 identical; each twice the same bits: yes",
        "1.000e-3",
        "reported",
    ];
    assert_parts(&text, &parts);
    let last = text.lines().last().unwrap();
    assert_parts(last, &[" checks, 0 failed", "worst "]);
}

#[test]
fn help_teaches() {
    let compiles = "first run on a GPU compiles";
    let codes = "Exit codes: 0 all checks passed, 1 a check failed";
    assert_parts(&stdout(&verify(&["--help"])), &["Examples:", "--shard", compiles, codes]);
}
