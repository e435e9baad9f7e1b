//! `check-golden` on a folder of arrays; vim-data's tests have the rest.

use std::fs;

use crate::support::{assert_code, assert_parts, folder, parsed, repository, stdout, vim_golden};

#[test]
fn a_folder_of_arrays_is_checked() {
    let fixtures = repository("crates/vim-data/tests/fixtures");
    let read = |name: &str| fs::read_to_string(fixtures.join(name)).unwrap();
    let manifest = format!("{{\"sampler\": {}}}", read("golden_samplers.json"));
    let arrays = folder(&[("manifest.json", &manifest)]);
    let dir = arrays.path().to_str().unwrap();
    let output = vim_golden(&["check-golden", dir]).output().unwrap();
    assert_code(&output, 0);
    assert_parts(&stdout(&output), &["sampler", "JPEGs were decoded by"]);
    let output = vim_golden(&["check-golden", dir, "--json"]).output().unwrap();
    assert_eq!(parsed(&output)["passed"], true);

    fs::write(arrays.path().join("manifest.json"), "{\"sampler\": [{}]}").unwrap();
    let output = vim_golden(&["check-golden", dir]).output().unwrap();
    assert_code(&output, 1);
    assert_parts(&stdout(&output), &["the entry is not understood"]);
}
