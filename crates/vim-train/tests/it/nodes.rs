//! A run on two nodes, played on this one: the same bytes as one rank, and all ends alike.

use std::fs;
use std::process::{Child, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use crate::ranks::{args, assert_none_left, assert_same, end_of, ranks_of, slow, start};
use crate::support::{Bench, assert_code, assert_says, read_json, send, stderr};

/// A run on two nodes in one attempt.
struct Attempt<'a> {
    bench: &'a Bench,
    /// The run's name.
    run: &'a str,
    attempt: &'a str,
}

impl Attempt<'_> {
    /// Starts node `number` of two with `ranks` ranks.
    fn node(&self, number: &str, ranks: &str, more: &[&str]) -> Child {
        let place = ["--nodes", "2", "--node", number, "--attempt", self.attempt];
        let mut more = more.to_vec();
        if let Some(at) = more.iter().position(|word| *word == "--ranks") {
            more.drain(at..at + 2);
        }
        start(self.bench, self.run, &[&more[..], &place, &["--ranks", ranks]].concat())
    }

    fn both(&self, ranks: [&str; 2], more: &[&str]) -> [Child; 2] {
        // The second one first.
        let second = self.node("1", ranks[1], more);
        [self.node("0", ranks[0], more), second]
    }
}

fn ends(nodes: [Child; 2]) -> [Output; 2] {
    nodes.map(end_of)
}

/// Waits until all ranks of the run have joined in its attempt number `lives`: what earlier ones
/// have recorded is still there.
fn wait_for_life(bench: &Bench, child: &mut Child, lives: usize) {
    let file = bench.folder("run").join("events.jsonl");
    let begun = |text: String| {
        let begins = |line: &&str| line.contains("\"start\"") || line.contains("\"resume\"");
        text.lines().filter(begins).count()
    };
    while fs::read_to_string(&file).map_or(0, begun) < lives {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it began");
        sleep(Duration::from_millis(2));
    }
}

fn assert_nothing_left(bench: &Bench) {
    let folder = bench.folder("x").with_file_name(".ranks");
    assert!(!folder.exists(), "{:?}", fs::read_dir(folder).map(Vec::from_iter));
}

#[test]
fn two_nodes_give_the_bytes_of_one_rank() {
    let bench = Bench::new();
    let one = args("train.shards=4", "1", &[]);
    assert_code(&bench.train("one", &one), 0);
    for (name, ranks) in [("even", ["2", "2"]), ("uneven", ["3", "1"]), ("few", ["1", "1"])] {
        let attempt = Attempt { bench: &bench, run: name, attempt: name };
        for output in ends(attempt.both(ranks, &one)) {
            assert_code(&output, 0);
        }
        assert_same(&bench, "one", name);
        let log = bench.read(name, "log.txt");
        let told = format!("ranks on 2 nodes ({} + {}), 4 shards of a batch", ranks[0], ranks[1]);
        assert!(log.contains(&told), "{log}");
    }
    assert_nothing_left(&bench);
}

#[test]
fn the_shards_are_those_of_all_nodes() {
    let bench = Bench::new();
    let attempt = Attempt { bench: &bench, run: "x", attempt: "a" };
    for output in ends(attempt.both(["1", "1"], &["--steps", "5"])) {
        assert_code(&output, 0);
    }
    assert!(bench.read("x", "config.toml").contains("shards = 2"));
    // Gone on with on one node.
    assert_code(&bench.train("x", &["--resume", "must"]), 0);
    let attempt = Attempt { bench: &bench, run: "y", attempt: "b" };
    for output in ends(attempt.both(["2", "1"], &["--set", "train.shards=4"])) {
        assert_says(&output, 78, &["3 devices (2 + 1) cannot share train.shards = 4 evenly"]);
    }
}

#[test]
fn what_ends_one_node_ends_the_other_alike() {
    let bench = Bench::new();
    let more = slow(&["--resume", "auto"]);
    let one: Vec<&str> = {
        let mut one = more.clone();
        let at = one.iter().position(|word| *word == "--ranks").unwrap();
        one.drain(at..at + 2);
        one
    };
    assert_code(&bench.train("whole", &one), 0);
    for (number, (attempt, code)) in
        [("rank", 69), ("hangs", 69), ("lead", 69), ("second", 69), ("first", 69), ("asked", 75)]
            .into_iter()
            .enumerate()
    {
        let attempt = Attempt { bench: &bench, run: "run", attempt };
        let mut nodes = attempt.both(["2", "2"], &more);
        wait_for_life(&bench, &mut nodes[0], 1 + number);
        let supervisors = [nodes[0].id(), nodes[1].id()];
        let begin = Instant::now();
        match attempt.attempt {
            "rank" => kill_process(ranks_of(supervisors[1])[1], Signal::KILL).unwrap(),
            // A rank of the other node does not notice, as one whose kernel waits.
            "hangs" => {
                kill_process(ranks_of(supervisors[0])[1], Signal::STOP).unwrap();
                kill_process(ranks_of(supervisors[1])[1], Signal::KILL).unwrap();
            }
            "lead" => kill_process(ranks_of(supervisors[0])[0], Signal::KILL).unwrap(),
            "second" => send(&nodes[1], Signal::KILL),
            "first" => send(&nodes[0], Signal::KILL),
            _ => send(&nodes[1], Signal::TERM),
        }
        let [first, second] = ends(nodes);
        let name = attempt.attempt;
        assert!(begin.elapsed() < Duration::from_secs(30), "{name}: {:?}", begin.elapsed());
        supervisors.into_iter().for_each(assert_none_left);
        let exit = || read_json(bench.folder("run").join("exit.json"));
        match name {
            "rank" | "hangs" | "lead" => {
                let rank = if name == "lead" { "rank 0 (node " } else { "rank 3 (node " };
                for output in [&first, &second] {
                    assert_says(output, code, &[rank, "cpu) was killed by signal 9"]);
                }
                assert!(exit()["error"].as_str().unwrap().starts_with(rank), "{}", exit());
            }
            "second" => {
                assert_says(&first, code, &["node 1 (", ") is gone"]);
                assert!(exit()["error"].as_str().unwrap().contains("is gone"), "{}", exit());
            }
            "first" => assert_says(&second, code, &["node 0 (", ") is gone"]),
            _ => {
                assert_says(&first, code, &["stopped by SIGTERM after step"]);
                assert_says(&second, code, &["the run has ended on node 0 (", "exit code 75"]);
                assert_eq!(exit()["reason"], "interrupted");
            }
        }
    }
    assert_code(&bench.train("run", &one), 0);
    assert_same(&bench, "whole", "run");
}

#[test]
fn nodes_that_do_not_fit_or_come_are_told() {
    let bench = Bench::new();
    let wait = ["--set", "devices.rendezvous=0.02min"];
    let alone = Attempt { bench: &bench, run: "x", attempt: "alone" };
    let output = end_of(alone.node("0", "1", &wait));
    assert_says(&output, 69, &["after 1.2s, 1 of 2 nodes are missing in", ": node 1: did they"]);
    // The name again.
    let output = end_of(alone.node("0", "1", &wait));
    assert_says(&output, 69, &["is the second node 0 in", "was this attempt made before?"]);

    let other = Attempt { bench: &bench, run: "x", attempt: "other" };
    let second = other.node("1", "1", &["--set", "train.batch_size=16"]);
    let first = other.node("0", "1", &[]);
    let [first, second] = ends([first, second]);
    let text = "train.batch_size (32 there, 16 here)";
    assert_says(&first, 69, &["the nodes do not fit together: node 1 (", text]);
    assert_says(&second, 69, &["the nodes do not fit together: node 1 (", text]);

    // One that is stopped meanwhile tells the one that waits.
    let stopped = Attempt { bench: &bench, run: "x", attempt: "stopped" };
    let second = stopped.node("1", "1", &[]);
    while !bench.folder(".ranks/stopped/nodes/0001.json").exists() {
        sleep(Duration::from_millis(5));
    }
    send(&second, Signal::TERM);
    assert_says(&end_of(second), 75, &["interrupted by SIGTERM: nothing was saved"]);
    let output = end_of(stopped.node("0", "1", &[]));
    assert_says(&output, 69, &["the run was ended: node 1 (", "interrupted by SIGTERM"]);

    for (place, code, text) in [
        (["--nodes", "2", "--node", "2", "--attempt", "a"], 2, "numbered from 0 to 1"),
        (["--nodes", "2", "--node", "0", "--attempt", "../a"], 2, "expected a name of letters"),
    ] {
        assert_says(&bench.train("x", &place), code, &[text]);
    }
    assert_says(&bench.train("x", &["--nodes", "2"]), 2, &["--node"]);
    let output = bench.train("x", &["--set", "slurm.nodes=2", "--steps", "1"]);
    assert_says(&output, 0, &["slurm.nodes = 2 is what a job asks for: this machine trains alone"]);
    let mut in_job = bench.command("train", "y", &["--set", "slurm.nodes=2"]);
    let output = in_job.env("SLURM_JOB_ID", "7").output().unwrap();
    assert_says(&output, 78, &["this process is no task of a step of its job"]);
    assert_eq!(stderr(&output).matches("error:").count(), 1, "{}", stderr(&output));
    // A folder that cannot be made.
    let file = bench.folder("file");
    fs::write(&file, "").unwrap();
    let root = format!("run.root={}", file.display());
    let output = end_of(alone.node("0", "1", &["--set", &root]));
    assert_says(&output, 74, &["cannot read", "file/.ranks", "Not a directory"]);
}

#[test]
fn two_runs_at_once_do_not_meet() {
    let bench = Bench::new();
    let more = args("train.shards=4", "1", &[]);
    assert_code(&bench.train("one", &more), 0);
    let attempt = |run| Attempt { bench: &bench, run, attempt: run };
    let (a, b) = (attempt("a"), attempt("b"));
    let all = [a.both(["2", "2"], &more), b.both(["2", "2"], &more)];
    for output in all.map(ends).iter().flatten() {
        assert_code(output, 0);
    }
    assert_same(&bench, "one", "a");
    assert_same(&bench, "one", "b");
    assert_nothing_left(&bench);
}
