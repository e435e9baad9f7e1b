//! Tasks of an array that train several runs of a sweep on a node; SLURM's commands are played by
//! scripts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;
use serde_json::json;

use crate::support::{
    assert_code, assert_lines, assert_says, path_from, send, set, stderr, stdout, vim_train, write,
    write_program,
};
use crate::sweep::{Study, wait_until};

const PACKED: [&str; 2] = ["sweep.pack=node", "slurm.time=1:00:00"];

fn dry_run(study: &Study, more: &[&str]) -> Output {
    let all = [&set(&PACKED)[..], &set(more), &["--dry-run"]].concat();
    let mut command = study.command(&["submit"]);
    // No cluster is to be asked.
    command.arg(study.file()).args(all).env("PATH", "/no/such").output().unwrap()
}

#[test]
fn a_task_is_a_node_with_a_run_on_each_gpu() {
    let study = Study::new();
    let gpus = ["devices.backend=cuda", "slurm.gpus_per_node=h100:3", "sweep.max_parallel=7"];
    let output = dry_run(&study, &gpus);
    // A build without CUDA shows the script all the same.
    let code = if cfg!(feature = "cuda") { 0 } else { 69 };
    assert_says(&output, code, &["task 0: runs 0-2\n", "packs-from-0-1.sh"]);
    let refusals =
        stderr(&output).matches("error: devices.backend: this build has no cuda").count();
    assert_eq!(refusals, usize::from(code != 0), "{}", stderr(&output));
    // Packs need CUDA, whatever else this build has.
    let auto = dry_run(&Study::new(), &["devices.backend=auto", gpus[1]]);
    assert_code(&auto, code);
    assert!(!stderr(&output).contains("a run uses one"), "{}", stderr(&output));
    let lines = ["#SBATCH --gpus-per-node=h100:3", "#SBATCH --array=0-1%2", "#SBATCH --nodes=1"];
    assert_lines(&stdout(&output), &lines);
    let lists = study.folder().join("slurm/packs-from-0-1.json");
    let command = format!(
        "sweep task --pack {} --index \"$SLURM_ARRAY_TASK_ID\" {}",
        lists.display(),
        study.folder().display()
    );
    assert!(stdout(&output).trim_end().ends_with(&command), "{}", stdout(&output));
    assert!(!lists.exists(), "nothing is written");
    let two = dry_run(&study, &[gpus[0], gpus[1], "sweep.per_node=2"]);
    assert_says(&two, code, &["task 0: runs 0-1\n", "task 1: runs 2-3\n"]);
    for (more, text) in [
        (&[][..], "set sweep.per_node, the runs of a node"),
        (&["devices.backend=cuda"], "set sweep.per_node, the runs of a node"),
        (&[gpus[0], gpus[1], "devices.gpus=3"], "a node, on which each run has one GPU"),
        (&["sweep.per_node=2", "slurm.nodes=2"], "a node, on which each run has one GPU"),
        (&["sweep.pack=nodes"], "unknown value `nodes`"),
        (&["sweep.pack=run", "sweep.per_node=2"], "goes with sweep.pack = \"node\""),
    ] {
        assert_says(&dry_run(&Study::new(), more), 78, &[text]);
    }
}

/// A planned sweep, and a list of two packs; SLURM's commands write down how they were called.
struct Packs {
    study: Study,
    lists: PathBuf,
    bin: PathBuf,
}

impl Packs {
    fn new() -> Self {
        let study = Study::new();
        let sets = ["train.epochs=40", "sweep.per_node=2"];
        assert_code(&study.of_file("plan", &set(&[&PACKED[..], &sets].concat())), 0);
        let lists = study.folder().join("slurm/packs-from-0-1.json");
        write(&lists, "[[0,1],[2,3]]");
        let bin = study.folder().with_file_name("bin");
        let packs = Self { study, lists, bin };
        packs.program("scontrol", "case $1 in requeue) exit 0 ;; esac\ncat \"$0.txt\"");
        packs.program("scancel", "true");
        packs.job("RUNNING");
        packs
    }

    fn program(&self, name: &str, script: &str) {
        let noted = format!("echo \"{name} $*\" >> '{}'\n{script}", self.calls_file().display());
        write_program(&self.bin.join(name), &noted);
    }

    /// What SLURM says of task 0 of array 7.
    fn job(&self, state: &str) {
        let text = format!(
            "JobId=7 ArrayJobId=7 ArrayTaskId=0 JobState={state} Reason=None Requeue=1 Restarts=0 BatchFlag=1 ExitCode=0:0\n"
        );
        write(&self.bin.join("scontrol.txt"), text);
    }

    fn calls_file(&self) -> PathBuf {
        self.bin.join("calls.txt")
    }

    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.calls_file()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Task 0, in its job.
    fn task(&self) -> Command {
        let mut command = self.study.command(&["task", "--index", "0", "--pack"]);
        command.arg(&self.lists).arg(self.study.folder());
        command.env("PATH", path_from(&self.bin)).env("SLURM_JOB_ID", "7");
        command.env("SLURM_ARRAY_JOB_ID", "7").env("SLURM_ARRAY_TASK_ID", "0");
        command
    }

    fn slurm(&self, what: &str, more: &[&str]) -> Output {
        let mut command = vim_train(&["slurm", what, "study", "--root"]);
        command.arg(self.study.folder().parent().unwrap()).args(more);
        command.env("PATH", path_from(&self.bin)).output().unwrap()
    }
}

#[test]
fn runs_of_a_task_save_together_and_their_job_is_requeued_once() {
    let packs = Packs::new();
    let child = packs.task().stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let at_work = |name: &str| packs.study.folder().join(name).join("metrics.jsonl").exists();
    wait_until("both runs are at work", || at_work("zoh-s0") && at_work("zoh-s1"));
    send(&child, Signal::USR2);
    let output = child.wait_with_output().unwrap();
    let said =
        "2 runs are left, those at work are saved: its job is in the queue again and goes on";
    assert_says(&output, 75, &["2 runs to train, 0 finished; 2 at a time", said]);
    assert!(!stderr(&output).contains("\nerror:"), "{}", stderr(&output));
    assert_eq!(packs.calls(), ["scontrol -o show job 7_0", "scontrol requeue 7_0"]);
    assert_eq!(packs.study.states(), ["interrupted", "interrupted", "missing", "missing"]);

    let again = packs.task().env("SLURM_RESTART_COUNT", "1").output().unwrap();
    assert_says(&again, 0, &["2 of 2 runs finished"]);
    assert_eq!(packs.study.states(), ["finished", "finished", "missing", "missing"]);
    assert_eq!(packs.calls().len(), 2, "nothing is asked at the end");
    for seed in ["0", "1"] {
        let sets = ["train.epochs=40", &format!("run.seed={seed}"), "model.discretization=zoh"];
        packs.study.assert_as_by_itself(&format!("zoh-s{seed}"), &sets);
    }
    let mut none = packs.study.command(&["task", "--index", "2", "--pack"]);
    let output = none.arg(&packs.lists).arg(packs.study.folder()).output().unwrap();
    assert_says(&output, 65, &["has no run in pack 2 of"]);
}

#[test]
fn a_task_is_found_by_each_of_its_runs() {
    let packs = Packs::new();
    let folder = packs.study.folder();
    let script = folder.join("slurm/packs-from-0-1.sh");
    let submission = json!({"job": "7", "array": "0-1", "submitted": "then", "script": script, "output": "/x/%x-%A_%a.out"});
    write(&folder.join("slurm/jobs.jsonl"), format!("{submission}\n"));
    for run in ["0", "1"] {
        let output = packs.slurm("requeue", &["--task", run]);
        let line = "job 7_0, which trains runs 0-1, is told to save and end; SLURM starts it again after two minutes or more\n";
        assert_says(&output, 0, &[line]);
    }
    let output = packs.slurm("cancel", &["--task", "1"]);
    assert_says(&output, 0, &["study, run 1: cancelled job 7_0, which trains runs 0-1\n"]);
    assert_says(&packs.slurm("requeue", &["--task", "4"]), 65, &["has a run 4"]);
    let status = packs.slurm("status", &["--task", "1", "--json"]);
    let rows: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!((&rows[0]["name"], &rows[0]["job"]), (&json!("study/zoh-s1"), &json!("7_0")));

    // What a run says is in its own log.
    write(&folder.join("logs/0001-zoh-s1.log"), "said\n");
    assert_eq!(stdout(&packs.slurm("logs", &["--task", "1"])), "said\n");

    // One that has failed is not at work because its neighbour is.
    let failed = json!({"reason": "failed", "step": 5, "exit_code": 65});
    write(&folder.join("zoh-s1/exit.json"), failed.to_string());
    write(&folder.join("zoh-s1/config.toml"), "");
    let states = |packs: &Packs| {
        let mut command = packs.study.command(&["status", "--json"]);
        command.arg(packs.study.folder()).env("PATH", path_from(&packs.bin));
        let output = command.output().unwrap();
        assert_code(&output, 0);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let state = |index: usize| status["runs"][index]["state"].as_str().unwrap().to_owned();
        [state(0), state(1), state(2)]
    };
    assert_eq!(states(&packs), ["running", "failed", "missing"]);
    packs.job("PENDING");
    assert_eq!(states(&packs), ["queued", "queued", "missing"]);
    // Without its list a script says nothing.
    fs::remove_file(Path::new(&packs.lists)).unwrap();
    assert_eq!(states(&packs), ["missing", "failed", "missing"]);
}
