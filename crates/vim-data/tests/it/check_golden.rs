//! `check_golden`: what it accepts, what it reports, what it refuses.

use std::{fs, path::Path};

use serde_json::{Value, json};
use vim_data::{GoldenOutcome, GoldenReport, check_golden};

use crate::golden::{bytes, sha256};

const SIDE: usize = 32;

/// A folder with an image, what some operations make of it by their definitions, and the numbers of
/// fixtures.
struct Fixture {
    dir: tempfile::TempDir,
    manifest: Value,
}

impl Fixture {
    fn new() -> Self {
        let image = bytes("in2.rgb");
        let mut fixture = Self { dir: tempfile::tempdir().unwrap(), manifest: json!({}) };
        let inverted: Vec<u8> = image.iter().map(|value| 255 - value).collect();
        let input = fixture.file("in.rgb", &image);
        let mut invert = fixture.file("invert.rgb", &inverted);
        invert["input"] = json!(0);
        invert["op"] = json!("invert");
        invert["args"] = json!([]);
        let mut moved = fixture.file("moved.rgb", &moved_left(&image, [9, 8, 7]));
        moved["input"] = json!(0);
        moved["matrix"] = json!([1, 0, 3, 0, 1, 0]);
        moved["fill"] = json!([9, 8, 7]);
        let mix: Value = serde_json::from_str(include_str!("../fixtures/golden_mix.json")).unwrap();
        let samplers: Value =
            serde_json::from_str(include_str!("../fixtures/golden_samplers.json")).unwrap();
        fixture.manifest = json!({
            "inputs": [input],
            "ops": [invert],
            "affine": [moved],
            "sampler": samplers,
            "mix": { "mixup_target": mix["mixup_target"], "bbox": mix["bbox"] },
            "loss": mix["loss"],
        });
        fixture
    }

    /// Writes a file, and gives what a manifest says of it.
    fn file(&self, name: &str, data: &[u8]) -> Value {
        fs::write(self.dir.path().join(name), data).unwrap();
        json!({ "file": name, "shape": [SIDE, SIDE, 3], "dtype": "uint8", "sha256": sha256(data) })
    }

    fn check(&self) -> GoldenReport {
        fs::write(self.path("manifest.json"), self.manifest.to_string()).unwrap();
        check_golden(self.dir.path()).unwrap()
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }
}

/// Three columns to the left.
fn moved_left(image: &[u8], fill: [u8; 3]) -> Vec<u8> {
    let rows = image.chunks_exact(3 * SIDE);
    rows.flat_map(|row| [&row[9..], &fill, &fill, &fill].concat()).collect()
}

fn failures(report: &GoldenReport) -> Vec<&str> {
    report.failures().map(|entry| entry.name.as_str()).collect()
}

// The orders of PyTorch's and the original's samplers, and timm's boxes, targets and losses.
#[test]
fn everything_right_passes() {
    let report = Fixture::new().check();
    assert_eq!(failures(&report), [""; 0]);
    assert_eq!(report.skipped().count(), 0);
    let counts = report.counts();
    let passed: Vec<_> = counts.iter().map(|count| (count.kind.as_str(), count.passed)).collect();
    let expected =
        [("files", 3), ("affine", 1), ("loss", 3), ("mix", 7), ("ops", 1), ("sampler", 56)];
    assert_eq!(passed, expected);
    // Targets and losses were computed in f32, of numbers up to 2.1.
    assert!(counts.iter().all(|count| count.max_difference < 3e-7), "{counts:?}");
}

#[test]
fn other_pixels_and_numbers_fail() {
    let mut fixture = Fixture::new();
    let mut wrong = moved_left(&bytes("in2.rgb"), [9, 8, 7]);
    wrong[100] ^= 4;
    fixture.manifest["affine"][0]["sha256"] = fixture.file("moved.rgb", &wrong)["sha256"].clone();
    fixture.manifest["mix"]["bbox"][2]["yh"] = json!(188);
    fixture.manifest["mix"]["mixup_target"]["lam"] = json!(0.31);
    fixture.manifest["loss"]["soft"] = json!(2.0034);
    fixture.manifest["sampler"][3]["head"][5] = json!(1);
    fixture.manifest["sampler"][4]["len"] = json!(383);
    fixture.manifest["sampler"][5]["sha256"] = json!("00");
    let report = fixture.check();
    let expected = [
        "affine[0]",
        "loss.soft",
        "mix.bbox2",
        "mix.mixup_target",
        "sampler[3]",
        "sampler[4]",
        "sampler[5]",
    ];
    assert_eq!(failures(&report), expected);
    let moved = report.failures().next().unwrap();
    let GoldenOutcome::Compared { max_difference, .. } = moved.outcome else { panic!("{moved:?}") };
    assert_eq!(max_difference, 4.0);
}

#[test]
fn damaged_and_missing_files_fail() {
    let fixture = Fixture::new();
    fs::write(fixture.path("invert.rgb"), [1, 2, 3]).unwrap();
    fs::remove_file(fixture.path("moved.rgb")).unwrap();
    let report = fixture.check();
    assert_eq!(failures(&report), ["invert.rgb", "moved.rgb", "affine[0]", "ops[0]"]);
}

#[test]
fn what_is_not_understood_fails_and_unknown_kinds_are_told() {
    for (key, value, reason) in [
        ("op", json!("cutout"), "`cutout`"),
        ("args", json!([1.0]), "[1.0]"),
        ("args", Value::Null, "not understood"),
        ("input", json!(7), "`inputs` has no file 7"),
        ("file", json!("../secret"), "not a file of the folder"),
        ("file", json!("manifest.json"), "SHA-256"),
    ] {
        let mut fixture = Fixture::new();
        fixture.manifest["ops"][0][key] = value;
        let report = fixture.check();
        let failed = report.failures().find(|entry| entry.name == "ops[0]").unwrap();
        let GoldenOutcome::Failed { reason: found } = &failed.outcome else { panic!("{failed:?}") };
        assert!(found.contains(reason), "{found}");
    }
    let mut fixture = Fixture::new();
    fixture.manifest["sampler"][0]["kind"] = json!("RandomSampler");
    fixture.manifest["detection"] = json!([{ "file": "x" }]);
    fixture.manifest["eval"] = json!([]);
    let report = fixture.check();
    assert_eq!(failures(&report), ["sampler[0]"]);
    let skipped: Vec<&str> = report.skipped().map(|entry| entry.name.as_str()).collect();
    assert_eq!(skipped, ["detection[0]"]);
}

#[test]
fn a_folder_without_a_manifest_is_an_error() {
    let error = check_golden(Path::new("/nowhere")).unwrap_err().to_string();
    assert!(error.contains("manifest.json"), "{error}");
}
