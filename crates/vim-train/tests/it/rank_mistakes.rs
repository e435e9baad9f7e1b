//! What several devices refuse, each with one line and an exit code: the table of
//! docs/distributed.md, as far as a CPU can show it.

use std::fs;
use std::process::{Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::support::{Bench, assert_code, assert_says, set, stderr};

/// A driver of Vulkan may have its say where others are looked for.
const CPU: [&str; 1] = ["devices.backend=cpu"];

/// It ended with `code` and a line on stderr that has `words`, and made no folder of a run.
#[track_caller]
fn assert_refused(bench: &Bench, output: &Output, code: i32, words: &[&str]) {
    assert_says(output, code, words);
    let errors = stderr(output).lines().filter(|line| line.starts_with("error: ")).count();
    assert_eq!(errors, 1, "{}", stderr(output));
    assert!(!bench.folder("x").exists(), "{}", stderr(output));
}

#[test]
fn backends_with_one_device_take_no_more() {
    let bench = Bench::new();
    for backend in ["wgpu", "tch"] {
        let key = format!("devices.backend={backend}");
        let expected = format!("expected 1: devices.backend = \"{backend}\" trains on one device");
        for gpus in ["devices.gpus=2", "devices.gpus=[0,1]"] {
            let output = bench.train("x", &set(&[&key, gpus]));
            assert_refused(&bench, &output, 78, &["devices.gpus: ", &expected]);
        }
    }
}

#[test]
fn gpus_that_are_not_there_are_not_replaced() {
    if cfg!(feature = "cuda") {
        // A machine with GPUs would train.
        return;
    }
    let bench = Bench::new();
    let output = bench.train("x", &set(&["devices.backend=auto", "devices.gpus=4"]));
    let words = ["devices.gpus: 4, and no CUDA GPU is here", "devices.backend=cpu"];
    assert_refused(&bench, &output, 69, &words);
    let output = bench.train("x", &set(&["devices.backend=cuda", "devices.gpus=4"]));
    assert_refused(&bench, &output, 69, &["devices.backend: this build has no cuda"]);
    // The CPU has no GPUs to count.
    let output = bench.train(
        "cpu",
        &[&set(&["devices.backend=cpu", "devices.gpus=4"])[..], &["--steps", "1"]].concat(),
    );
    assert_code(&output, 0);
}

#[test]
fn shards_fit_the_batch_its_parts_and_its_pairs() {
    let bench = Bench::new();
    for (ranks, sets, words) in [
        ("3", &["train.shards=4"][..], "3 devices cannot share train.shards = 4 evenly"),
        ("2", &["train.shards=5"], "train.shards: 5 is out of range: expected 1 or more, and a"),
        ("1", &["train.shards=8", "train.accumulate=3"], "a divisor of 4, the images of a shard"),
    ] {
        let ranks = if ranks == "1" { Vec::new() } else { vec!["--ranks", ranks] };
        let output = bench.train("x", &[&ranks[..], &set(sets), &set(&CPU)].concat());
        assert_refused(&bench, &output, 78, &[words]);
    }
    // 15 images of a shard cannot be mixed in pairs.
    let odd = set(&["train.batch_size=30", "train.shards=2", "augment.mixup=0.8"]);
    for ranks in [&[][..], &["--ranks", "2"]] {
        let output = bench.train("x", &[ranks, &odd, &set(&CPU)].concat());
        assert_refused(&bench, &output, 78, &["train.batch_size", "an even number of images"]);
    }
}

#[test]
fn a_place_where_ranks_cannot_meet_is_named() {
    let bench = Bench::new();
    let file = bench.folder("file");
    fs::write(&file, "no folder").unwrap();
    let root = format!("run.root={}", file.join("runs").display());
    let output = bench.train("x", &[&["--ranks", "2"], &set(&[&root, CPU[0]])[..]].concat());
    assert_refused(&bench, &output, 74, &["cannot make ", "file/runs/.ranks/"]);
}

#[test]
fn a_socket_without_a_place_is_explained() {
    let bench = Bench::new();
    let root = bench.folder(&"r".repeat(120));
    let key = format!("run.root={}", root.display());
    let mut command =
        bench.command("train", "x", &[&["--ranks", "2"], &set(&[&key, CPU[0]])[..]].concat());
    let output = command.env("TMPDIR", bench.folder("absent")).output().unwrap();
    let words = ["cannot make ", "/absent/vim-", "run.root", "TMPDIR"];
    assert_refused(&bench, &output, 74, &words);
}

#[test]
fn a_rank_that_cannot_connect_is_told_once() {
    let bench = Bench::new();
    let ranks = bench.folder(".ranks");
    for _ in 0..5 {
        let mut command =
            bench.command("train", "x", &[&["--ranks", "2"], &set(&CPU)[..]].concat());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // The socket is there a moment before rank 1 looks where it is.
        while child.try_wait().unwrap().is_none() {
            let attempts = fs::read_dir(&ranks).into_iter().flatten().flatten();
            if attempts.into_iter().any(|at| fs::remove_file(at.path().join("socket")).is_ok()) {
                break;
            }
            sleep(Duration::from_millis(1));
        }
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            // Rank 1 was faster.
            fs::remove_dir_all(bench.folder("x")).unwrap();
            continue;
        }
        let words = ["error: rank 1 (node ", "cpu) failed: cannot connect to "];
        assert_refused(&bench, &output, 74, &words);
        return;
    }
    println!("skipped: rank 1 was faster each time");
}
