//! `eval-golden` on arrays of segmenters, of detectors and of their operations, and
//! `check-golden`'s folder of them.

use std::process::Output;

use crate::support::{
    assert_code, assert_parts, fixture, folder, refused, repository, stdout, vim_golden,
};

/// Compares the arrays `name` of this crate's fixtures.
fn compare(name: &str, args: &[&str]) -> Output {
    let mut command = vim_golden(&["eval-golden", "--device", "cpu"]);
    for (flag, ending) in [("--weights", "pth"), ("--arrays", "npz"), ("--variant", "json")] {
        command.arg(flag).arg(fixture(&format!("{name}.{ending}")));
    }
    command.args(args).output().unwrap()
}

/// All arrays of `name` are within the default tolerances, `count` of them.
#[track_caller]
fn all_are_within(name: &str, count: usize) {
    let output = compare(name, &["--grads"]);
    assert_code(&output, 0);
    assert_parts(
        &stdout(&output),
        &[&format!("{count} of {count} arrays within tolerance, on cpu")],
    );
}

#[test]
fn segmenters_are_within_the_default_tolerances() {
    all_are_within("seg/a_tiny", 177);
    // One block's feature for all four levels of the pyramid.
    all_are_within("seg/one_level", 174);
}

#[test]
fn detectors_are_within_the_default_tolerances() {
    all_are_within("det/a_cascade", 267);
    // Two samples of a bin along each axis, and pixels' centres on their edges.
    all_are_within("det/fixed_roi", 233);
    // The last norm is read, and has a gradient.
    all_are_within("det/last_norm", 234);
}

#[test]
fn the_operations_are_within_their_tolerances() {
    // `more` has other samplings of boxes and powers of rates.
    for (folder, count) in [("seg", 54), ("det", 144), ("more", 14)] {
        let mut command = vim_golden(&["eval-golden", "--device", "cpu", "--operations"]);
        let output = command.arg(fixture(folder)).output().unwrap();
        assert_code(&output, 0);
        assert_parts(&stdout(&output), &[&format!("{count} of {count} comparisons within")]);
    }
}

#[test]
fn what_describes_a_segmentation_model_must_be_its_own() {
    let of = |name: &str| repository("crates/vim-model/tests/fixtures").join(name);
    let (weights, arrays) = (of("a_mid.pth"), of("a_mid.npz"));
    let compare = |variant: &str, args: &[&str]| {
        let files = folder(&[("variant.json", variant)]);
        let mut command = vim_golden(&["eval-golden", "--weights"]);
        command.arg(&weights).arg("--arrays").arg(&arrays);
        command.arg("--variant").arg(files.path().join("variant.json"));
        command.args(args).output().unwrap()
    };
    let variant = |last: &str, indices: &str| {
        format!(
            "{{\"variant\": {{\"img\": 64, \"patch\": 16, \"d_state\": 16, \"d_model\": 64, \
             \"depth\": 4, \
             \"out_indices\": {indices}, \"use_residual_as_feature\": true, \
             \"last_layer_process\": \"{last}\", \"rope\": false, \"rope_residual\": false, \
             \"channels\": 8, \"aux_channels\": 8, \"classes\": 7, \"batch\": 3}}, \
             \"losses\": {{\"decode.loss_ce\": 1.8}}}}"
        )
    };
    refused(&compare("{", &[]), 65, &["variant.json", "EOF"]);
    refused(&compare("{}", &[]), 65, &["variant.json", "missing field `variant`"]);
    // Without blocks to take, it is a detector's.
    refused(&compare("{\"variant\": {\"img\": 64}}", &[]), 65, &["variant.json", "missing field"]);
    refused(&compare(&variant("sum", "[0, 1, 2, 3]"), &[]), 65, &["variant.json", "`sum`"]);
    let output = compare(&variant("add", "[0, 1, 2, 4]"), &[]);
    refused(&output, 78, &["segmentation.out_indices", "model.depth = 4"]);
    // A classifier's weights are not a segmentation model's.
    let output = compare(&variant("add", "[0, 1, 2, 3]"), &[]);
    refused(&output, 65, &["a_mid.pth", "missing: backbone.patch_embed"]);
    let both = compare(&variant("add", "[0, 1, 2, 3]"), &["--config", "model.toml"]);
    assert_code(&both, 2);
}

#[test]
fn settings_beside_the_model_s_are_checked() {
    let refused_by = |name: &str, key: &str, value: &str, words: &[&str]| {
        let text = std::fs::read_to_string(fixture(&format!("{name}.json"))).unwrap();
        let mut about: serde_json::Value = serde_json::from_str(&text).unwrap();
        about["variant"][key] = serde_json::from_str(value).unwrap();
        let files = folder(&[("v.json", &about.to_string())]);
        let mut command = vim_golden(&["eval-golden", "--device", "cpu", "--weights"]);
        command.arg(fixture(&format!("{name}.pth"))).arg("--arrays");
        command.arg(fixture(&format!("{name}.npz"))).arg("--variant");
        refused(&command.arg(files.path().join("v.json")).output().unwrap(), 65, words);
    };
    refused_by("seg/a_tiny", "slide", "{\"stride\": 0}", &["v.json", "`slide`"]);
    refused_by("seg/a_tiny", "slide", "{\"stride\": 9, \"crop\": 32}", &["`slide`"]);
    refused_by("det/last_norm", "sizes", "[]", &["v.json", "`sizes`"]);
    refused_by("det/last_norm", "sizes", "[[999, 1], [1, 1]]", &["image0", "above [96, 96]"]);
    refused_by("seg/a_tiny", "hue", "1", &["`hue`"]);
}
