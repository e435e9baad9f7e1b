//! `export` of graphs of ONNX: what is refused, and what a file carries. Graphs are run by
//! `scripts/verify_export.py`, their inputs and outputs are tested in vim-onnx.

use std::fs;

use crate::support::{
    Bench, assert_code, assert_parts, assert_says, read_json, repository, run, set, stdout,
};

#[test]
fn a_run_becomes_a_graph_with_all_that_is_known_of_it() {
    let bench = Bench::new();
    let values = ["model.discretization=tustin"];
    assert_code(&bench.train("a", &[&set(&values)[..], &["--steps", "4"]].concat()), 0);
    let folder = bench.folder("a").display().to_string();
    let export = |name: &str, more: &[&str]| {
        let path = bench.folder(name);
        let output = run(&[&["export", &folder, "-o", path.to_str().unwrap()], more].concat());
        (output, path)
    };
    let (said, path) = export("a.onnx", &["--pixels"]);
    assert_code(&said, 0);
    assert_parts(&stdout(&said), &["a graph of ONNX"]);
    let bytes = fs::read(path).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    let names = read_json(bench.folder("a/classes.json")).to_string();
    let kept = ["vim-train", "tustin", "probabilities", "pixels", "weights_blake3", "vim_train"];
    assert_parts(&text, &kept);
    let first = names.split('"').nth(1).unwrap();
    assert!(text.contains(first), "the names of the classes: {first}");
    // Whatever the file is called.
    let (said, again) = export("b.graph", &["--format", "onnx", "--pixels"]);
    assert_code(&said, 0);
    assert!(fs::read(again).unwrap() == bytes, "the same bytes");
    let (_, half) = export("half.onnx", &["--fp16"]);
    assert!(fs::read(half).unwrap().len() < bytes.len(), "half the size");
}

#[test]
fn what_makes_no_graph_is_one_line() {
    let bench = Bench::new();
    assert_code(&bench.train("a", &["--steps", "2"]), 0);
    let folder = bench.folder("a").display().to_string();
    let refused = |weights: &str, name: &str, more: &[&str]| {
        let path = bench.folder(name).display().to_string();
        let output = run(&[&["export", weights, "-o", &path], more].concat());
        assert!(!bench.folder(name).exists());
        output
    };
    for (more, words) in [
        (&["--opset", "12"][..], ["opset 12", "use 13 to 27"]),
        (&["--opset", "99"], ["opset 99", "no later one has been tried"]),
        (&["--opset", "21", "--scan", "attention"], ["opset 21", "LinearAttention"]),
        (&["--scan", "node"], ["--scan", "attention"]),
    ] {
        assert_says(&refused(&folder, "x.onnx", more), 2, &words);
    }
    let other = refused(&folder, "x.pth", &["--pixels"]);
    assert_says(&other, 2, &["--pixels is for a graph of ONNX"]);
    let bare = repository("crates/vim-model/tests/fixtures/a_mid.pth").display().to_string();
    assert_says(&refused(&bare, "x.onnx", &[]), 65, &["a_mid.pth records no model", "--config"]);
}
