//! `vim-train profile` as built, and the scripts that compare with a peer.

use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::support::{assert_code, assert_parts, python, run, stdout};

fn profile(args: &[&str]) -> Output {
    run(&[&["profile"], args, &["--device", "cpu", "--trials", "3"]].concat())
}

fn text(output: &Output) -> String {
    assert_code(output, 0);
    stdout(output)
}

#[test]
fn scan_times_methods_shapes_and_implementations() {
    let shapes = ["--shape", "1x8x5", "--shape", "2x3x7", "--dstate", "4"];
    let output = profile(&[&["scan", "--methods", "bilinear,zoh", "--json"][..], &shapes].concat());
    let document: Value = serde_json::from_str(&text(&output)).unwrap();
    let results = document["results"].as_array().unwrap();
    assert_eq!(results.len(), 2 * 2 * 2);
    for record in results {
        for pass in ["forward", "forward_saving", "backward"] {
            let pass = &record[pass];
            let number = |name: &str| pass[name].as_f64().unwrap();
            assert!(number("min_ms") > 0.0 && number("min_ms") <= number("p10_ms"));
            assert!(number("p10_ms") <= number("median_ms"));
            assert!(number("median_ms") <= number("p90_ms"));
            assert!(number("back_to_back_ms") > 0.0 && number("gb_per_s") > 0.0);
            assert_eq!(pass["timer"], "clock");
        }
        let one = record["method"] == "zoh";
        assert_eq!(record["speedup_over_zoh"] == 1.0, one, "{record}");
        assert!(record["speedup_over_reference"].is_number());
    }
    let first = &results[0];
    assert_eq!((&first["method"], &first["seqlen"]), (&Value::from("zoh"), &Value::from(5)));
    // u, delta, z, y of 40, B and C of 20; A, D, bias of 48 and the state of 32.
    assert_eq!(first["forward"]["work"]["bytes"], 4 * (160 + 40 + 48 + 32));
    assert!(document["peaks"]["copy_bytes"].as_f64() > Some(0.0));
}

#[test]
fn the_tables_are_tables() {
    let scan = text(&profile(&["scan", "--shape", "1x8x5", "--methods", "zoh"]));
    let row = "zoh              kernel          bwd";
    assert_parts(&scan, &["peaks: copy ", "B=1 D=8 L=5 N=16 f32 exact", row]);
    let ops = text(&profile(&["ops", "--batch", "1", "--dim", "16", "--seqlen", "5"]));
    let parts = [
        "exponential",
        "coefficients of foh",
        "x_proj 5x16x33 dw",
        "conv1d",
        "add + RMS norm, kernel bwd",
        "add + RMS norm, reference bwd",
        "full scan 16x16, kernel bwd",
    ];
    assert_parts(&ops, &parts);
}

#[test]
fn the_join_of_ours_and_theirs() {
    assert_eq!(text(&python("compare/join_scan.py", &["--selftest"])), "join_scan: ok\n");
}

/// What `profile scan --json` prints is what the join reads.
#[test]
fn the_join_reads_our_document() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (folder.path().join("ours.json"), folder.path().join("theirs.jsonl"));
    let document = profile(&["scan", "--shape", "1x8x5", "--methods", "zoh,foh", "--json"]);
    fs::write(&ours, &document.stdout).unwrap();
    let times = r#"{"median_ms": 1000.0, "back_to_back_ms": 1000.0}"#;
    let peer = format!(
        r#"{{"batch": 1, "dim": 8, "seqlen": 5, "dstate": 16, "dtype": "f32", "forward": {times}, "backward": {times}}}"#
    );
    fs::write(&theirs, peer + "\n").unwrap();
    let table =
        text(&python("compare/join_scan.py", &[ours.to_str().unwrap(), theirs.to_str().unwrap()]));
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("1x8x5")).collect();
    assert_eq!(rows.len(), 4, "{table}");
    assert!(rows[2].contains("foh") && rows[2].contains("1000.000"), "{table}");
}

#[test]
fn the_peer_takes_the_same_arguments() {
    assert_code(&python("compare/peer_scan.py", &["--shape", "1x2"]), 2);
    assert_parts(&text(&python("compare/peer_scan.py", &["--help"])), &["--shape BxDxL"]);
}
