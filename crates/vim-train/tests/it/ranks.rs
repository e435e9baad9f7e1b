//! Several ranks on the CPU of this machine: the same bytes as one, and what becomes of the others
//! when one fails.

use std::fs;
use std::io::Read as _;
use std::process::{Child, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{
    Bench, assert_code, assert_says, json_lines, parsed, read_json, repository, send, set, stderr,
    stdout,
};

/// What has a state of its own, or draws.
const ALL: [&str; 7] = [
    "train.accumulate=2",
    "train.ema=0.9",
    "model.drop_path=0.3",
    "augment.mixup=0.8",
    "augment.repeats=3",
    "devices.threads=1",
    "data.workers=1",
];

/// A run `name` of `shards` shards on `ranks` ranks.
pub(crate) fn args<'a>(shards: &'a str, ranks: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let ranks = if ranks == "1" { Vec::new() } else { vec!["--ranks", ranks] };
    [&set(&ALL)[..], &["--set", shards], &ranks, more].concat()
}

/// Results, tables and all files of the last checkpoint.
#[track_caller]
pub(crate) fn assert_same(bench: &Bench, one: &str, other: &str) {
    for file in ["metrics.jsonl", "predictions.csv", "classes.json", "bad_samples.jsonl"] {
        assert!(bench.read(one, file) == bench.read(other, file), "{file} of {one} and {other}");
    }
    for file in ["model.safetensors", "ema.safetensors", "optimizer.safetensors", "state.json"] {
        let saved = |name| bench.saved(name, 24, file);
        assert!(saved(one) == saved(other), "{file} of {one} and {other}");
    }
}

#[test]
fn bytes_do_not_depend_on_the_number_of_ranks() {
    let bench = Bench::new();
    for method in ["zoh", "bilinear"] {
        let method = format!("model.discretization={method}");
        for (shards, all) in [("4", &["1", "2", "4"][..]), ("2", &["1", "2"])] {
            let key = format!("train.shards={shards}");
            for ranks in all {
                let name = format!("{method}-{shards}-{ranks}");
                let more = ["--set", &method];
                let output = bench.train(&name, &args(&key, ranks, &more));
                assert_code(&output, 0);
                assert_same(&bench, &format!("{method}-{shards}-1"), &name);
            }
        }
    }
    // The number of shards is part of what the run is.
    let metrics = |shards: &str| bench.metrics(&format!("model.discretization=zoh-{shards}-1"));
    assert_ne!(metrics("2"), metrics("4"));
}

#[test]
fn a_run_without_shards_has_one_for_each_rank_and_keeps_them() {
    let bench = Bench::new();
    assert_code(&bench.train("one", &[]), 0);
    assert!(bench.read("one", "config.toml").contains("# shards is not set"));
    assert_code(&bench.train("two", &["--ranks", "2", "--steps", "5"]), 0);
    assert!(bench.read("two", "config.toml").contains("shards = 2"));
    // Gone on with on one rank, and compared with two that are not interrupted.
    assert_code(&bench.train("two", &["--resume", "must"]), 0);
    assert_code(&bench.train("whole", &["--ranks", "2"]), 0);
    assert_eq!(bench.metrics("two"), bench.metrics("whole"));
    let changed = bench.train("two", &["--resume", "must", "--set", "train.shards=4"]);
    assert_says(&changed, 78, &["train.shards (recorded 2, now 4)"]);
}

/// The plan and the log say how many shards there are, and what that follows from.
#[test]
fn shards_are_printed_with_what_they_follow_from() {
    let by_default = |shards| {
        format!(
            "train.shards {shards}, by default the number of ranks, and recorded; another number \
             gives other results (docs/distributed.md)"
        )
    };
    let bench = Bench::new();
    let has = |text: &str, line: &str| {
        // The log has the time before each line.
        assert!(text.lines().any(|one| one.ends_with(line)), "{line}: {text}");
    };
    let plan = |name: &str, more: &[&str]| {
        let output = bench.train(name, &[more, &["--dry-run"]].concat());
        assert_code(&output, 0);
        stdout(&output)
    };
    let log = |name: &str, more: &[&str]| {
        assert_code(&bench.train(name, &[more, &["--steps", "1"]].concat()), 0);
        bench.read(name, "log.txt")
    };
    has(&plan("one", &[]), &by_default(1));
    has(&log("one", &[]), &by_default(1));
    has(&plan("two", &["--ranks", "2"]), &by_default(2));
    has(&log("two", &["--ranks", "2"]), &by_default(2));
    let key = ["--set", "train.shards=4"];
    has(&plan("key", &key), "train.shards 4");
    has(&log("key", &key), "train.shards 4");
    // A run that goes on keeps its number, on one rank too.
    let kept = "train.shards 2, as recorded when the run began";
    has(&plan("two", &["--resume", "must"]), kept);
    has(&log("two", &["--resume", "must"]), kept);
    let output = bench.train("two", &["--resume", "must", "--dry-run", "--json"]);
    let plan = parsed(&output);
    assert_eq!((&plan["shards"], &plan["shards_from"]), (&2.into(), &"record".into()));
}

#[test]
fn what_does_not_divide_is_said() {
    let bench = Bench::new();
    let output = bench.train("x", &["--ranks", "3", "--set", "train.shards=4"]);
    assert_says(&output, 78, &["3 devices cannot share train.shards = 4 evenly"]);
    let output = bench.train("x", &["--ranks", "3"]);
    assert_says(&output, 78, &["train.shards: 3 is out of range", "train.batch_size = 32"]);
    let output = bench.train("x", &["--set", "train.shards=8", "--set", "train.accumulate=3"]);
    assert_says(&output, 78, &["train.accumulate", "a divisor of 4, the images of a shard"]);
    let output = bench.train("x", &["--set", "devices.timeout=3ep"]);
    assert_says(&output, 78, &["devices.timeout: 3ep is out of range: expected minutes"]);
    assert!(!bench.folder("x").exists());
    // A warning, as the numbers cannot be those of one rank.
    let odd = ["--set", "train.shards=6", "--set", "train.batch_size=24", "--ranks", "2"];
    let output = bench.train("odd", &[&odd[..], &["--steps", "1"]].concat());
    assert_says(&output, 0, &["6 shards on 2 ranks are added in another order than on one"]);
}

#[test]
fn an_unreadable_image_at_one_rank_is_the_same_image_at_another() {
    let bench = Bench::new();
    let data = bench.folder("data");
    let source = repository("crates/vim-data/tests/golden/odd");
    for (part, count) in [("train", 12), ("val", 2)] {
        for (class, name) in [("a", "gray.png"), ("b", "444.jpg")] {
            for number in 0..count {
                let to = data.join(part).join(class).join(format!("{number}-{name}"));
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                fs::copy(source.join(name), to).unwrap();
            }
        }
    }
    fs::write(data.join("train/a/7-gray.png"), "no image").unwrap();
    let path = format!("data.path={}", data.display());
    let folder = set(&["data.dataset=folder", &path, "train.batch_size=8", "train.epochs=12"]);
    for ranks in ["1", "2", "4"] {
        let name = format!("on-{ranks}");
        let output = bench.train(&name, &args("train.shards=4", ranks, &folder));
        assert_code(&output, 0);
        let said = stderr(&output);
        assert_eq!(said.matches("another takes its place").count(), 1, "{said}");
    }
    let bad = json_lines(&bench.read("on-1", "bad_samples.jsonl"));
    assert!(!bad.is_empty(), "it is drawn in some epoch");
    for ranks in ["2", "4"] {
        for file in ["metrics.jsonl", "bad_samples.jsonl"] {
            let read = |ranks: &str| bench.read(&format!("on-{ranks}"), file);
            assert_eq!(read("1"), read(ranks), "{file} of {ranks}");
        }
    }
}

/// Slow enough to be hit, and watched closely.
pub(crate) fn slow<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let keys = ["model.d_model=64", "devices.timeout=0.1min"];
    args("train.shards=4", "4", &[&set(&keys)[..], more].concat())
}

pub(crate) fn start(bench: &Bench, name: &str, more: &[&str]) -> Child {
    let mut command = bench.command("train", name, more);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The ranks of a supervisor, by rank; fewer while it starts them.
pub(crate) fn ranks_of(supervisor: u32) -> Vec<Pid> {
    let mut ranks = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(pid) = name.parse::<i32>() else { continue };
        let Ok(words) = fs::read_to_string(entry.path().join("cmdline")) else { continue };
        let Some(text) = words.split('\0').skip_while(|word| *word != "--rank").nth(1) else {
            continue;
        };
        let Ok(told) = serde_json::from_str::<serde_json::Value>(text) else { continue };
        if told["supervisor"].as_u64() == Some(u64::from(supervisor)) {
            ranks.push((told["place"]["rank"].as_u64(), Pid::from_raw(pid).unwrap()));
        }
    }
    ranks.sort_by_key(|(rank, _)| *rank);
    ranks.into_iter().map(|(_, pid)| pid).collect()
}

/// Waits until the run has written `records` lines of metrics.
fn wait_for_records(bench: &Bench, name: &str, child: &mut Child, records: usize) {
    let file = bench.folder(name).join("metrics.jsonl");
    while fs::read_to_string(&file).map_or(0, |text| text.lines().count()) < records {
        assert!(child.try_wait().unwrap().is_none(), "it ended before its {records} records");
        sleep(Duration::from_millis(2));
    }
}

pub(crate) fn end_of(mut child: Child) -> Output {
    let mut text = Vec::new();
    child.stderr.take().unwrap().read_to_end(&mut text).unwrap();
    Output { status: child.wait().unwrap(), stdout: Vec::new(), stderr: text }
}

pub(crate) fn assert_none_left(supervisor: u32) {
    let begin = Instant::now();
    while !ranks_of(supervisor).is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(15), "ranks are left");
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn killed_on_four_ranks_then_on_two_it_ends_on_one_with_the_same_bytes() {
    let bench = Bench::new();
    assert_code(&bench.train("whole", &slow(&[])), 0);
    let folder = bench.folder("whole").parent().unwrap().join(".ranks");
    assert!(!folder.exists(), "nothing is left of the meeting");
    // A rank that is not the first, the first, and the supervisor.
    for (attempt, ranks) in ["4", "4", "4", "2"].into_iter().enumerate() {
        let mut more = slow(&["--resume", "auto"]);
        let at = more.iter().position(|word| *word == "--ranks").unwrap();
        more[at + 1] = ranks;
        let mut child = start(&bench, "killed", &more);
        wait_for_records(&bench, "killed", &mut child, 2 + attempt);
        let (supervisor, all) = (child.id(), ranks_of(child.id()));
        assert_eq!(all.len(), ranks.parse::<usize>().unwrap());
        let begin = Instant::now();
        match attempt {
            0 => kill_process(all[2], Signal::KILL).unwrap(),
            1 => kill_process(all[0], Signal::KILL).unwrap(),
            _ => send(&child, Signal::KILL),
        }
        let output = end_of(child);
        assert!(begin.elapsed() < Duration::from_secs(15));
        assert_none_left(supervisor);
        if attempt < 2 {
            let killed = format!("rank {} (node ", [2, 0][attempt]);
            assert_says(&output, 69, &[&killed, "cpu) was killed by signal 9"]);
            assert_eq!(stderr(&output).matches("error:").count(), 1, "{}", stderr(&output));
            let exit = read_json(bench.folder("killed").join("exit.json"));
            assert_eq!(exit["exit_code"], 69, "{exit}");
            assert!(exit["error"].as_str().unwrap().contains("was killed by signal 9"), "{exit}");
        }
    }
    let mut last = slow(&["--resume", "must"]);
    let at = last.iter().position(|word| *word == "--ranks").unwrap();
    last.drain(at..at + 2);
    assert_code(&bench.train("killed", &last), 0);
    assert_same(&bench, "whole", "killed");
    assert!(!folder.exists(), "what killed supervisors left is gone");
}

#[test]
fn a_signal_to_one_rank_or_to_all_saves_and_stops_all() {
    let bench = Bench::new();
    assert_code(&bench.train("whole", &slow(&[])), 0);
    for (name, to, signal, code) in [
        ("one", Some(3), Signal::TERM, 75),
        ("all", None, Signal::USR1, 75),
        ("keyboard", None, Signal::INT, 130),
    ] {
        let more = slow(&["--resume", "auto", "--set", "checkpoint.every=\"24st\""]);
        let mut child = start(&bench, name, &more);
        wait_for_records(&bench, name, &mut child, 2);
        match to {
            Some(rank) => kill_process(ranks_of(child.id())[rank], signal).unwrap(),
            None => send(&child, signal),
        }
        let supervisor = child.id();
        let output = end_of(child);
        assert_code(&output, code);
        assert_none_left(supervisor);
        let exit = read_json(bench.folder(name).join("exit.json"));
        assert_eq!(exit["reason"], "interrupted", "{exit}");
        let step = exit["step"].as_u64().unwrap();
        assert!((4..24).contains(&step), "{exit}");
        assert!(bench.folder(name).join(format!("checkpoints/step-{step:08}")).is_dir());
        assert_code(&bench.train(name, &slow(&["--resume", "must"])), 0);
        assert_same(&bench, "whole", name);
    }
}

#[test]
fn a_rank_that_hangs_ends_the_run_and_one_that_is_late_does_not() {
    let bench = Bench::new();
    assert_code(&bench.train("whole", &slow(&[])), 0);
    let mut child = start(&bench, "hangs", &slow(&[]));
    wait_for_records(&bench, "hangs", &mut child, 2);
    let (supervisor, all) = (child.id(), ranks_of(child.id()));
    kill_process(all[1], Signal::STOP).unwrap();
    let output = end_of(child);
    assert_says(&output, 69, &["no progress for 6 s (devices.timeout)"]);
    assert_none_left(supervisor);
    assert_code(&bench.train("hangs", &slow(&["--resume", "must"])), 0);
    assert_same(&bench, "whole", "hangs");

    let child = start(&bench, "late", &slow(&[]));
    let late = loop {
        match ranks_of(child.id())[..] {
            [_, _, _, last] => break last,
            _ => sleep(Duration::from_millis(1)),
        }
    };
    kill_process(late, Signal::STOP).unwrap();
    sleep(Duration::from_secs(3));
    kill_process(late, Signal::CONT).unwrap();
    assert_code(&end_of(child), 0);
    assert_same(&bench, "whole", "late");
}

/// As with GPUs that read each other's memory, where rank 0 does not notice that another is gone.
#[test]
fn a_killed_rank_is_named_though_rank_0_hangs() {
    let bench = Bench::new();
    let mut child = start(&bench, "hangs", &slow(&[]));
    wait_for_records(&bench, "hangs", &mut child, 2);
    let (supervisor, all) = (child.id(), ranks_of(child.id()));
    kill_process(all[0], Signal::STOP).unwrap();
    kill_process(all[1], Signal::KILL).unwrap();
    let begin = Instant::now();
    assert_says(&end_of(child), 69, &["rank 1 (node ", "cpu) was killed by signal 9"]);
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert_none_left(supervisor);
}

#[test]
fn what_rank_0_meets_is_told_once() {
    let bench = Bench::new();
    assert_code(&bench.train("there", &["--ranks", "2", "--steps", "2"]), 0);
    let output = bench.train("there", &["--ranks", "2"]);
    assert_says(&output, 73, &["there"]);
    assert_eq!(stderr(&output).matches("error:").count(), 1, "{}", stderr(&output));
    assert_code(&bench.train("there", &["--ranks", "2", "--resume", "auto"]), 0);
    let output = bench.train("there", &["--ranks", "2", "--resume", "auto"]);
    assert_says(&output, 0, &["is finished: nothing to resume"]);
    // The weights become infinite on all ranks at one step.
    let output = bench.train("wild", &["--ranks", "2", "--set", "optim.lr=1e38"]);
    assert_says(&output, 76, &["training diverged at step"]);
    assert_eq!(stderr(&output).matches("error:").count(), 1, "{}", stderr(&output));
    assert_eq!(read_json(bench.folder("wild").join("exit.json"))["reason"], "diverged");
    // A disk that is full at rank 0.
    let mut command = std::process::Command::new("sh");
    let words = bench.command("train", "full", &["--ranks", "2"]);
    command.args(["-c", "ulimit -f 200; exec \"$@\"", "sh"]).arg(words.get_program());
    let output = command.args(words.get_args()).output().unwrap();
    assert_says(&output, 74, &["write"]);
    assert_none_left(0);
}
