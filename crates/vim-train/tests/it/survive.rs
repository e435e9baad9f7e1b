//! What a run survives besides kills: a folder that is moved, streams that are gone, signals.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;

use crate::resume::{args, assert_same, start};
use crate::support::{
    Bench, assert_code, assert_parts, assert_says, read_json, run, send, set, stderr, vim_train,
};

/// Waits until the run has written its first record.
fn wait_for_records(bench: &Bench, name: &str, child: &mut Child) {
    let metrics = bench.folder(name).join("metrics.jsonl");
    while fs::metadata(&metrics).map_or(0, |file| file.len()) == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before its first record");
        sleep(Duration::from_millis(2));
    }
}

/// A run that has written its first record, and whose stderr is kept.
fn at_work(bench: &Bench, name: &str, more: &[&str]) -> Child {
    let mut command = bench.command("train", name, &args(more));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_records(bench, name, &mut child);
    child
}

#[test]
fn a_run_whose_folder_is_moved_writes_nothing_in_the_old_place() {
    let bench = Bench::new();
    assert_code(&bench.train("whole", &args(&[])), 0);
    let moved = bench.folder("moved.bak");
    let child = at_work(&bench, "moved", &[]);
    fs::rename(bench.folder("moved"), &moved).unwrap();
    let output = child.wait_with_output().unwrap();
    let to = format!("was moved to {} while", moved.display());
    assert_says(&output, 74, &[&to, "move it back", "--resume auto"]);
    assert!(!bench.folder("moved").exists() && !moved.join("exit.json").exists());
    assert_parts(&bench.read("moved.bak", "log.txt"), &[&to]);

    fs::rename(&moved, bench.folder("moved")).unwrap();
    assert_code(&bench.train("moved", &args(&["--resume", "auto"])), 0);
    assert_same(&bench, "moved");
}

#[test]
fn a_run_and_the_one_that_took_its_place_do_each_other_no_harm() {
    let bench = Bench::new();
    assert_code(&bench.train("whole", &args(&[])), 0);
    let first = at_work(&bench, "place", &["--set", "run.seed=5"]);
    fs::rename(bench.folder("place"), bench.folder("place.bak")).unwrap();
    let second = at_work(&bench, "place", &["--resume", "auto"]);
    assert_says(&first.wait_with_output().unwrap(), 74, &["was moved to"]);
    assert_code(&second.wait_with_output().unwrap(), 0);
    assert_same(&bench, "place");
    assert_eq!(read_json(bench.folder("place").join("exit.json"))["reason"], "finished");

    // The first one goes on under its new name.
    let more = args(&["--set", "run.seed=5", "--resume", "must"]);
    assert_code(&bench.train("place.bak", &more), 0);
    assert!(bench.metrics("place.bak") != bench.metrics("whole"), "it has its own seed");
}

#[test]
fn a_run_whose_folder_or_records_are_removed_ends() {
    let bench = Bench::new();
    let child = at_work(&bench, "removed", &[]);
    // A save in between may add to the folder while it is removed.
    while fs::remove_dir_all(bench.folder("removed")).is_err() {}
    let output = child.wait_with_output().unwrap();
    assert_says(&output, 74, &["the run's folder", "was removed or replaced while"]);
    assert!(!bench.folder("removed").exists());

    let child = at_work(&bench, "records", &[]);
    fs::remove_file(bench.folder("records").join("metrics.jsonl")).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_says(&output, 74, &["metrics.jsonl: it was removed or replaced", "--fresh"]);
    assert_eq!(read_json(bench.folder("records").join("exit.json"))["exit_code"], 74);
}

/// The streams of a process that nobody reads.
fn closed(command: &mut Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    child.wait_with_output().unwrap()
}

/// The streams of a process on a full disk.
fn full(command: &mut Command) -> Output {
    let disk = || File::options().write(true).open("/dev/full").unwrap();
    command.stdout(disk()).stderr(disk()).output().unwrap()
}

#[test]
fn a_run_goes_on_without_its_streams() {
    let bench = Bench::new();
    assert_code(&bench.train("whole", &args(&[])), 0);
    type Run = fn(&mut Command) -> Output;
    let streams: [(&str, Run); 2] = [("closed", closed), ("full", full)];
    for (name, without) in streams {
        // The second time it is finished.
        for _ in 0..2 {
            let output = without(&mut bench.command("train", name, &args(&["--resume", "auto"])));
            assert_code(&output, 0);
        }
        assert_same(&bench, name);
        assert_parts(&bench.read(name, "log.txt"), &["step 24/24", "finished", "test top-1"]);
        assert_eq!(read_json(bench.folder(name).join("exit.json"))["reason"], "finished");

        let stopped = format!("{name}-stopped");
        let mut child = bench.command("train", &stopped, &args(&[]));
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stderr.take());
        wait_for_records(&bench, &stopped, &mut child);
        send(&child, Signal::TERM);
        assert_eq!(child.wait().unwrap().code(), Some(75));
        assert_parts(&bench.read(&stopped, "log.txt"), &["stopped by SIGTERM"]);
    }
}

#[test]
fn a_log_on_a_full_disk_is_told_once() {
    let bench = Bench::new();
    fs::create_dir(bench.folder("full")).unwrap();
    symlink("/dev/full", bench.folder("full").join("log.txt")).unwrap();
    let output = bench.train("full", &args(&[]));
    assert_says(&output, 0, &["step 24/24"]);
    let told = stderr(&output).matches("log.txt: No space left on device").count();
    assert_eq!(told, 1, "{}", stderr(&output));
}

#[test]
fn commands_end_quietly_where_nobody_reads() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().to_str().unwrap();
    for args in [&["methods"][..], &["runs", "list", root], &["models", "--json"], &["--help"]] {
        assert_code(&closed(&mut vim_train(args)), 0);
    }
    // An error keeps its exit code, said or not.
    let missing = ["runs", "show", "no-such-run", "--root", root];
    let code = run(&missing).status.code();
    assert!(code.is_some_and(|code| code != 0));
    for output in [closed(&mut vim_train(&missing)), full(&mut vim_train(&missing))] {
        assert_eq!(output.status.code(), code);
    }
    let disk = File::options().write(true).open("/dev/full").unwrap();
    let output = vim_train(&["methods"]).stdout(disk).output().unwrap();
    assert_says(&output, 74, &["cannot write to stdout: No space left on device"]);
}

#[test]
fn an_interrupt_that_a_wrapper_relays_is_one() {
    let bench = Bench::new();
    // Steps so long that the second one comes before the first is heeded.
    let sets = ["model.d_model=384", "model.depth=4", "train.epochs=1", "checkpoint.every=99st"];
    let child = at_work(&bench, "relayed", &set(&sets));
    send(&child, Signal::INT);
    sleep(Duration::from_millis(100));
    send(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    let words = "Ctrl-C: saving after this step; once more ends without saving";
    assert_says(&output, 130, &[words, "outcome      stopped by SIGINT, saved", "--resume auto"]);
    for said in [words, "go on by the same command"] {
        assert_eq!(stderr(&output).matches(said).count(), 1, "once: {}", stderr(&output));
    }
    assert_parts(&bench.read("relayed", "log.txt"), &[words, "stopped by SIGINT, saved"]);
    assert_eq!(read_json(bench.folder("relayed").join("exit.json"))["reason"], "interrupted");
    let output = bench.train("relayed", &args(&[&set(&sets)[..], &["--resume", "must"]].concat()));
    assert_says(&output, 0, &["resumed at step"]);
}

#[test]
fn a_terminal_that_is_gone_stops_a_run_unless_it_is_ignored() {
    let bench = Bench::new();
    let mut child = start(&bench, "heeded", &[]);
    wait_for_records(&bench, "heeded", &mut child);
    send(&child, Signal::HUP);
    assert_eq!(child.wait().unwrap().code(), Some(75));

    let run = bench.command("train", "ignored", &args(&[]));
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(run.get_program());
    command.args(run.get_args()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    wait_for_records(&bench, "ignored", &mut child);
    send(&child, Signal::HUP);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
