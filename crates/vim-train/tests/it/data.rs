//! `vim-train data`, and training on image files: odd ones, bad ones, from a folder and from an
//! archive.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    Bench, assert_code, assert_parts, assert_says, json_lines, parsed, repository, set, stderr,
    stdout, vim_train,
};

/// Odd files that are images: all that Pillow reads too.
const GOOD: [&str; 4] = ["444.jpg", "gray.png", "png.JPEG", "cmyk.jpg"];

/// Copies an odd file of vim-data's tests.
fn copy(name: &str, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(repository("crates/vim-data/tests/golden/odd").join(name), to).unwrap();
}

/// Two classes in both parts, and as many bad files in each as asked for.
fn dataset(bad: usize) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for part in ["train", "val"].map(|part| root.path().join(part)) {
        for (class, name) in
            ["a", "b"].into_iter().flat_map(|class| GOOD[..3].iter().map(move |name| (class, name)))
        {
            copy(name, &part.join(class).join(name));
        }
        for number in 0..bad {
            copy("half.jpg", &part.join(format!("b/bad{number}.jpg")));
        }
    }
    root
}

fn run(args: &[&str], root: &Path) -> Output {
    let path = format!("data.path={}", root.display());
    let sets = set(&["data.dataset=folder", &path]);
    let mut command = vim_train(&[&["data"], args, &sets].concat());
    command.env_remove("SLURM_TMPDIR").output().unwrap()
}

#[test]
fn scan_counts_and_names_what_is_odd() {
    let root = dataset(0);
    let text = run(&["scan"], root.path());
    assert_code(&text, 0);
    let parts = ["6 of 2 classes", "png.JPEG is a PNG", "grey PNG", "fingerprint"];
    assert_parts(&stdout(&text), &parts);
    let report = parsed(&run(&["scan", "--json", "--part", "val"], root.path()));
    assert_eq!((&report["val"]["images"], &report["train"]), (&6.into(), &Value::Null));
    assert_eq!(report["val"]["kinds"]["grey PNG"], 2);
}

#[test]
fn verify_ends_with_65_if_an_image_is_bad() {
    let good = run(&["verify"], dataset(0).path());
    assert_eq!((good.status.code(), stderr(&good).as_str()), (Some(0), ""));

    let root = dataset(1);
    let bad = run(&["verify"], root.path());
    assert_code(&bad, 65);
    assert_parts(&stdout(&bad), &["bad0.jpg is a JPEG cut short"]);
    assert!(stderr(&bad).starts_with("error: 2 of 14 images cannot be used"), "{}", stderr(&bad));
    // What was bad may have been mended: it is read again, and alone.
    let again = parsed(&run(&["verify", "--json"], root.path()));
    let length = fs::metadata(root.path().join("train/b/bad0.jpg")).unwrap().len();
    assert_eq!((&again["train"]["known"], &again["train"]["bytes"]), (&7.into(), &length.into()));
    let anew = parsed(&run(&["verify", "--json", "--again", "--workers", "3"], root.path()));
    assert_eq!(anew["train"]["known"], 0);
    assert_eq!(anew["train"]["bad"][0]["class"], "b");
}

/// Six GiB of which the disk has a few bytes.
#[test]
fn a_file_that_is_larger_than_any_image_is_named() {
    let root = dataset(0);
    let path = root.path().join("train/a/huge.png");
    fs::write(&path, "\u{89}PNG").unwrap();
    File::options().write(true).open(&path).unwrap().set_len(6 << 30).unwrap();
    let expected = ["huge.png", "larger than 256 MiB, the most that an image may have"];
    let verified = run(&["verify"], root.path());
    assert_code(&verified, 65);
    assert_parts(&stdout(&verified), &expected);
    let scanned = run(&["scan"], root.path());
    assert_code(&scanned, 0);
    assert_parts(&stdout(&scanned), &expected);
    let target = root.path().join("packed");
    assert_says(&run(&["pack", "-o", target.to_str().unwrap()], root.path()), 65, &expected);
}

#[test]
fn a_pack_has_the_fingerprint_of_its_source() {
    let root = dataset(0);
    let target = root.path().join("packed");
    let pack = || run(&["pack", "-o", target.to_str().unwrap(), "--shard-size=20KiB"], root.path());
    let packed = pack();
    assert_code(&packed, 0);
    let of = |path: &Path| parsed(&run(&["scan", "--json"], path));
    let (source, copy) = (of(root.path()), of(&target));
    for part in ["train", "val"] {
        assert_eq!(source[part]["fingerprint"], copy[part]["fingerprint"]);
        assert_eq!(source[part]["bytes"], copy[part]["bytes"]);
    }
    assert_says(&pack(), 73, &["it is there already"]);
}

#[test]
fn what_cannot_be_looked_at_is_one_line() {
    let empty = tempfile::tempdir().unwrap();
    let output = run(&["scan"], empty.path());
    assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(65), 1));
    let output = run(&["verify", "--set", "data.dataset=shapes"], empty.path());
    assert_code(&output, 65);
    let output = vim_train(&["data", "scan"]).output().unwrap();
    assert_says(&output, 78, &["imagenet or folder"]);
}

/// Two classes with 24 images each in training, four in validation, and the bad files given in the
/// first one's training.
fn folder(bad: &[&str]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (part, copies) in [("train", 6), ("val", 1)] {
        for class in ["a", "b"] {
            let folder = root.path().join(part).join(class);
            for (number, name) in (0..copies).flat_map(|number| GOOD.map(|name| (number, name))) {
                copy(name, &folder.join(format!("{number}-{name}")));
            }
        }
    }
    for name in bad {
        copy(name, &root.path().join("train/a").join(name));
    }
    root
}

/// As one archive for each part, of folders of classes.
fn archived(folder: &Path) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for part in ["train", "val"] {
        let file = File::create(root.path().join(format!("{part}.tar"))).unwrap();
        let mut archive = tar::Builder::new(file);
        archive.append_dir_all(".", folder.join(part)).unwrap();
        archive.finish().unwrap();
    }
    root
}

/// The original's recipe on images in folders.
const RECIPE: [&str; 4] =
    ["data.dataset=folder", "augment.preset=deit", "model.image_size=40", "train.batch_size=8"];

/// Trains on the images at `path` for four steps with the original's recipe.
fn train(bench: &Bench, name: &str, path: &Path, more: &[&str]) -> Output {
    let path = format!("data.path={}", path.display());
    let args = [set(&RECIPE), set(&[&path, "train.epochs=2"]), more.to_vec()];
    bench.train(name, &args.concat())
}

#[test]
fn a_run_over_odd_and_bad_files_ends_well_and_names_them() {
    let bench = Bench::new();
    let bad = ["half.jpg", "tiny.jpg", "empty.jpg"];
    let root = folder(&bad);
    let output = train(&bench, "odd", root.path(), &[]);
    assert_code(&output, 0);
    let records = json_lines(&bench.read("odd", "bad_samples.jsonl"));
    assert!(!records.is_empty(), "{}", stderr(&output));
    for record in &records {
        let name = record["name"].as_str().unwrap();
        assert!(bad.iter().any(|bad| name.ends_with(bad)), "{name}");
        assert!(!record["reason"].as_str().unwrap().is_empty());
        assert!(stderr(&output).contains(name), "the log names {name}");
    }
    let repeat = train(&bench, "again", root.path(), &["--set", "data.workers=3"]);
    assert_code(&repeat, 0);
    assert_eq!(bench.metrics("odd"), bench.metrics("again"));

    // Another order is another run. With repeats the original's takes whole 256s of images, of
    // which there are none here.
    let once = ["--set", "augment.repeats=1"];
    assert_code(&train(&bench, "keyed", root.path(), &once), 0);
    let reference = [&once[..], &["--data-order", "reference"]].concat();
    assert_code(&train(&bench, "reference", root.path(), &reference), 0);
    assert_ne!(bench.metrics("keyed"), bench.metrics("reference"));
    let output = train(&bench, "unknown", root.path(), &["--data-order", "referense"]);
    assert_says(&output, 78, &["did you mean `reference`"]);

    let output = train(&bench, "strict", root.path(), &["--set", "data.bad_train=fail"]);
    assert_code(&output, 65);
    assert_parts(stderr(&output).lines().last().unwrap(), &[".jpg"]);
}

#[test]
fn a_name_cannot_move_the_cursor_or_make_up_a_line() {
    const SHOWN: &str = r"x\nwarning: \u{1b}[2J.jpg";
    let root = dataset(0);
    copy("half.jpg", &root.path().join("train/b/x\nwarning: \u{1b}[2J.jpg"));
    let verified = run(&["verify"], root.path());
    assert_code(&verified, 65);
    assert_parts(&stdout(&verified), &[SHOWN]);
    let bench = Bench::new();
    // Too few images for the batch, and so the one line of an error.
    let failed = train(&bench, "a", root.path(), &["--set", "run.name=\"a\\nb\""]);
    assert_says(&failed, 78, &[r"a\nb"]);
    let more = set(&["augment.preset=none", "train.batch_size=7", "train.epochs=1"]);
    let trained = train(&bench, "b", root.path(), &more);
    assert_code(&trained, 0);
    assert_says(&trained, 0, &[SHOWN]);
    for text in [stdout(&verified), stderr(&failed), stderr(&trained), bench.read("b", "log.txt")] {
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(!text.lines().any(|line| line.starts_with("warning: \\u")), "{text}");
    }
    assert_eq!(stderr(&failed).lines().count(), 1, "{}", stderr(&failed));
}

#[test]
fn images_of_all_sizes_are_resized_for_a_small_model() {
    let bench = Bench::new();
    let root = folder(&[]);
    let small = ["model.image_size=32", "model.patch_size=8", "augment.preset=cifar"];
    let plan = |more: &[&str]| {
        let sets = set(&[&small[..], more].concat());
        let output = train(&bench, "a", root.path(), &[&sets[..], &["--dry-run"]].concat());
        assert_code(&output, 0);
        stdout(&output)
    };
    let resized = "2 classes, crop resized; evaluation resized to cover 32x32 px";
    assert_parts(&plan(&[]), &[resized]);
    assert_parts(&plan(&["augment.preset=deit"]), &[resized]);
    let padded = plan(&["augment.crop=pad"]);
    assert_parts(&padded, &["crop pad;", "note: augment.crop = \"pad\" trains on pieces of 32 px"]);
    let shapes = bench.train("s", &["--dry-run"]);
    assert_parts(&stdout(&shapes), &["12 classes, crop pad\n"]);
}

#[test]
fn an_archive_trains_as_its_folder() {
    let bench = Bench::new();
    let root = folder(&[]);
    let archive = archived(root.path());
    assert_code(&train(&bench, "folder", root.path(), &[]), 0);
    assert_code(&train(&bench, "archive", archive.path(), &[]), 0);
    assert_eq!(bench.metrics("folder"), bench.metrics("archive"));
}

fn data(what: &str, path: &Path, more: &[&str]) -> Output {
    let path = format!("data.path={}", path.display());
    let mut command = vim_train(&["data", what, "--set", &path]);
    command.arg(repository("configs/debug.toml")).args(set(&RECIPE)).args(more).output().unwrap()
}

#[test]
fn a_batch_is_shown_as_a_picture_and_as_plans() {
    let root = folder(&[]);
    let place = tempfile::tempdir().unwrap();
    let picture = place.path().join("sheet.png");
    let out = ["--out", picture.to_str().unwrap(), "--count", "6"];
    let output = data("show", root.path(), &out);
    assert_code(&output, 0);
    // A batch of 8 with 3 draws an image: three rows of evaluation and draws, of images of 40 px
    // enlarged four times, and the gaps around them.
    let size = [(4 * 164 + 4_u32).to_be_bytes(), (3 * 164 + 4_u32).to_be_bytes()].concat();
    assert_eq!(fs::read(&picture).unwrap()[16..24], size);
    let text = stdout(&output);
    assert_eq!(text.lines().count(), 1 + 3 + 8 + 1);
    assert_parts(&text, &["crop resized; evaluation resized to cover 45x45 px", "  draw 3: "]);
    assert!(!text.contains(['{', '}']), "{text}");
    let page = fs::read_to_string(picture.with_extension("html")).unwrap();
    assert_eq!(page.matches("<img ").count(), 3 + 8);
    assert_parts(&page, &["<th>draw 3</th>", "width=\"160\"", "% of the area"]);

    let output = data("show", root.path(), &[&out[..], &["--json", "--force"]].concat());
    assert_code(&output, 0);
    let plans = parsed(&output);
    assert_eq!(plans.as_array().unwrap().len(), 8);
    // Repeated three times: the same image under other plans.
    assert_eq!(plans[0]["index"], plans[2]["index"]);
    assert_ne!(plans[0]["plan"], plans[1]["plan"]);
    assert!(plans[0]["mixed"].is_object() || plans[0]["mixed"] == "none", "{}", plans[0]);

    let output = data("show", root.path(), &[&out[..], &["--batch", "6", "--force"]].concat());
    assert_says(&output, 1, &["there is no batch 6"]);
}

#[test]
fn a_shown_batch_replaces_nothing_that_was_not_named() {
    let root = folder(&[]);
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::write(at("report.html"), "mine").unwrap();
    let shown = |path: &Path, more: &[&str]| {
        data("show", root.path(), &[&["--out", path.to_str().unwrap()], more].concat())
    };
    assert_says(&shown(&at("report.png"), &[]), 73, &["report.html is there already"]);
    assert_eq!(fs::read(at("report.html")).unwrap(), b"mine");
    assert!(!at("report.png").exists());
    assert_code(&shown(&at("report.png"), &["--force"]), 0);
    assert!(fs::read_to_string(at("report.html")).unwrap().starts_with("<!DOCTYPE html>"));

    let image = root.path().join("train/a/0-gray.png");
    let before = fs::read(&image).unwrap();
    assert_says(&shown(&image, &["--force"]), 73, &["is read by this command"]);
    assert_eq!(fs::read(&image).unwrap(), before);
    // A new one would be one more image of a class; beside the parts nothing is read.
    for inside in ["train/a/sheet.png", "train/sheet.png", "val/b/sheet.png"] {
        let path = root.path().join(inside);
        assert_says(&shown(&path, &[]), 73, &["lies in what is"]);
        assert!(!path.exists());
    }
    for more in [&[][..], &["--force"]] {
        assert_code(&shown(&root.path().join("sheet.png"), more), 0);
    }
}

#[test]
fn a_pack_is_no_part_of_its_images() {
    let root = dataset(0);
    let pack = |target: &Path| run(&["pack", "-o", target.to_str().unwrap()], root.path());
    for inside in ["train", "train/new", "val/a"] {
        assert_says(&pack(&root.path().join(inside)), 73, &["lies in what is"]);
    }
    assert_says(&pack(Path::new("/proc/packed")), 74, &["error: cannot write /proc/packed/train"]);
}

#[test]
fn a_pack_that_is_interrupted_leaves_nothing() {
    let root = dataset(0);
    for number in 0..16 {
        let image = root.path().join(format!("train/a/long{number}.png"));
        copy("gray.png", &image);
        File::options().write(true).open(&image).unwrap().set_len(16 << 20).unwrap();
    }
    let target = tempfile::tempdir().unwrap();
    let path = format!("data.path={}", root.path().display());
    let args = ["data", "pack", "-o", target.path().to_str().unwrap()];
    let start = |more: &[&str]| {
        let sets = set(&["data.dataset=folder", &path]);
        let mut command = vim_train(&[&args[..], &sets, more].concat());
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let partial = || {
        let names = fs::read_dir(target.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().contains("partial")).count()
    };
    // One that is killed before it has its lock stays for a day.
    let is_begun = || {
        let mut all = fs::read_dir(target.path()).unwrap();
        all.any(|entry| entry.unwrap().path().join(".lock").exists())
    };
    for (signal, code) in [(Signal::INT, Some(130)), (Signal::TERM, Some(75)), (Signal::KILL, None)]
    {
        // A machine that is busy may not look here while it packs.
        let is_met = (0..10).any(|_| {
            let mut child = start(&[]);
            while !is_begun() && child.try_wait().unwrap().is_none() {
                thread::sleep(Duration::from_millis(1));
            }
            if child.try_wait().unwrap().is_none() {
                kill_process(Pid::from_child(&child), signal).unwrap();
            }
            let ended = child.wait().unwrap().code();
            if ended == Some(0) {
                fs::remove_dir_all(target.path()).unwrap();
                fs::create_dir(target.path()).unwrap();
                return false;
            }
            assert_eq!(ended, code);
            true
        });
        if !is_met {
            println!("skipped: {signal:?}: each pack ended before it could be interrupted");
            return;
        }
        assert_eq!(partial(), usize::from(code.is_none()), "{signal:?}");
    }
    let output = start(&["--shard-size=64MiB"]).wait_with_output().unwrap();
    assert_says(&output, 0, &["note: removed ", ".train.partial-"]);
    assert_eq!(partial(), 0);
}

#[test]
fn the_loader_is_timed_alone() {
    let root = folder(&[]);
    let output = data("bench", root.path(), &["--seconds", "1", "--json"]);
    assert_code(&output, 0);
    let report = parsed(&output);
    assert!(report["images_per_second"].as_f64().unwrap() > 0.0);
    assert_eq!(report["images"], report["batches"].as_u64().unwrap() * 8);
    assert!(report["decoded"].as_u64().unwrap() < report["images"].as_u64().unwrap());
    assert_eq!(report["stages_ms"].as_array().unwrap().len(), 4);
    let output = data("bench", root.path(), &["--seconds", "1", "--split", "test"]);
    assert_code(&output, 0);
    assert_parts(&stdout(&output), &["bottleneck: "]);
    let slowly = ["--seconds", "1", "--step-ms", "300", "--json"];
    let report = parsed(&data("bench", root.path(), &slowly));
    assert!(report["batches"].as_u64().unwrap() <= 4, "{report}");
    assert_code(&data("bench", root.path(), &["--split", "val"]), 1);
}
