//! `vim-train data`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use tempfile::TempDir;

/// Two classes in both parts, and as many bad files in each as asked for.
fn dataset(bad: usize) -> TempDir {
    let odd = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vim-data/tests/golden/odd");
    let root = tempfile::tempdir().unwrap();
    for part in ["train", "val"] {
        for class in ["a", "b"] {
            let folder = root.path().join(part).join(class);
            fs::create_dir_all(&folder).unwrap();
            for name in ["444.jpg", "gray.png", "png.JPEG"] {
                fs::copy(odd.join(name), folder.join(name)).unwrap();
            }
        }
        for number in 0..bad {
            let name = format!("bad{number}.jpg");
            fs::copy(odd.join("half.jpg"), root.path().join(part).join("b").join(name)).unwrap();
        }
    }
    root
}

fn run(args: &[&str], root: &Path) -> Output {
    let path = format!("data.path={}", root.display());
    let mut command = Command::cargo_bin("vim-train").unwrap();
    command.arg("data").args(args).args(["--set", "data.dataset=folder", "--set", &path]);
    command.env_remove("SLURM_TMPDIR").output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn scan_counts_and_names_what_is_odd() {
    let root = dataset(0);
    let text = run(&["scan"], root.path());
    assert_eq!(text.status.code(), Some(0), "{}", stderr(&text));
    for part in ["6 of 2 classes", "png.JPEG is a PNG", "grey PNG", "fingerprint"] {
        assert!(stdout(&text).contains(part), "{part} in {}", stdout(&text));
    }
    let report = json(&run(&["scan", "--json", "--part", "val"], root.path()));
    assert_eq!((&report["val"]["images"], &report["train"]), (&6.into(), &serde_json::Value::Null));
    assert_eq!(report["val"]["kinds"]["grey PNG"], 2);
}

#[test]
fn verify_ends_with_65_if_an_image_is_bad() {
    let good = run(&["verify"], dataset(0).path());
    assert_eq!((good.status.code(), stderr(&good).as_str()), (Some(0), ""));

    let root = dataset(1);
    let bad = run(&["verify"], root.path());
    assert_eq!(bad.status.code(), Some(65));
    assert!(stdout(&bad).contains("bad0.jpg is a JPEG cut short"), "{}", stdout(&bad));
    assert!(stderr(&bad).starts_with("error: 2 of 14 images cannot be used"), "{}", stderr(&bad));
    let again = json(&run(&["verify", "--json"], root.path()));
    assert_eq!((&again["train"]["known"], &again["train"]["bytes"]), (&7.into(), &0.into()));
    let anew = json(&run(&["verify", "--json", "--again", "--workers", "3"], root.path()));
    assert_eq!(anew["train"]["known"], 0);
    assert_eq!(anew["train"]["bad"][0]["class"], "b");
}

#[test]
fn a_pack_has_the_fingerprint_of_its_source() {
    let root = dataset(0);
    let target: PathBuf = root.path().join("packed");
    let pack = || run(&["pack", "-o", target.to_str().unwrap(), "--shard-size=20KiB"], root.path());
    let packed = pack();
    assert_eq!(packed.status.code(), Some(0), "{}", stderr(&packed));
    let of = |path: &Path| json(&run(&["scan", "--json"], path));
    let (source, copy) = (of(root.path()), of(&target));
    for part in ["train", "val"] {
        assert_eq!(source[part]["fingerprint"], copy[part]["fingerprint"]);
        assert_eq!(source[part]["bytes"], copy[part]["bytes"]);
    }
    let again = pack();
    assert_eq!(again.status.code(), Some(73));
    assert!(stderr(&again).contains("it is there already"), "{}", stderr(&again));
}

#[test]
fn what_cannot_be_looked_at_is_one_line() {
    let empty = tempfile::tempdir().unwrap();
    let output = run(&["scan"], empty.path());
    assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(65), 1));
    let output = run(&["verify", "--set", "data.dataset=shapes"], empty.path());
    assert_eq!(output.status.code(), Some(65), "the last --set counts: {}", stderr(&output));
    let mut command = Command::cargo_bin("vim-train").unwrap();
    let output = command.args(["data", "scan"]).output().unwrap();
    assert_eq!(output.status.code(), Some(78));
    assert!(stderr(&output).contains("imagenet or folder"), "{}", stderr(&output));
}
