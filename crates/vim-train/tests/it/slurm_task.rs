//! One task of a sweep's array: `slurm status`, `requeue` and `cancel` with `--task`. SLURM's
//! commands are played by scripts.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    assert_code, assert_parts, parsed, path_from, stderr, stdout, vim_train, write, write_program,
};

/// A sweep of five runs that was submitted twice: runs 0 to 3 as array 7, run 4 as task 1 of array
/// 8, whose tasks add 3.
struct Submitted {
    place: TempDir,
}

impl Submitted {
    fn new() -> Self {
        let submitted = Self { place: tempfile::tempdir().unwrap() };
        let entry = |index: usize| {
            let (id, name) = (format!("{index:010}"), format!("zoh-s{index}"));
            json!({"index": index, "id": id, "name": name, "assignments": {"run.seed": index}, "config": format!("configs/{id}.toml")})
        };
        let lines = |values: Vec<Value>| -> String {
            values.into_iter().map(|value| format!("{value}\n")).collect()
        };
        submitted.write("study/plan.jsonl", &lines((0..5).map(entry).collect()));
        let script = |name: &str| submitted.at("study/slurm").join(name);
        let submission = |job: &str, array: &str, name: &str| json!({"job": job, "array": array, "submitted": "then", "script": script(name), "output": "/x/%x-%A_%a.out"});
        let jobs = vec![
            submission("7", "0-3%2", "tasks-from-0-1.sh"),
            submission("8", "1", "tasks-from-3-2.sh"),
        ];
        submitted.write("study/slurm/jobs.jsonl", &lines(jobs));
        let job = |id: u64, array: u64, task: &str, state: &str, more: &str| {
            format!(
                "JobId={id} ArrayJobId={array} ArrayTaskId={task} JobState={state} Restarts=1 ExitCode=0:0 {more}\n"
            )
        };
        let tasks = [
            job(11, 7, "0", "COMPLETED", "Reason=None"),
            job(12, 7, "1", "RUNNING", "Reason=None NodeList=n1"),
            job(7, 7, "2-3", "PENDING", "Reason=JobArrayTaskLimit"),
        ];
        submitted.write("7.txt", &tasks.concat());
        submitted.write("8.txt", &job(13, 8, "1", "FAILED", "Reason=NonZeroExitCode"));
        submitted.write("99.txt", &job(99, 99, "1", "PENDING", "Reason=None"));
        let at = submitted.place.path().display();
        // What has ended is not requeued.
        submitted.program("scontrol", &format!("case $1$2 in requeue8_*) echo 'Requested operation is presently disabled' >&2; exit 1 ;; requeue*) exit 0 ;; esac\ncat '{at}'/$4.txt"));
        submitted.program("scancel", "true");
        submitted.program("sbatch", "echo 99");
        submitted
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        write(&self.at(name), text);
    }

    /// A command of SLURM's, which writes down how it was called.
    fn program(&self, name: &str, script: &str) {
        let calls = self.at("calls.txt");
        let noted = format!("echo \"{name} $*\" >> '{}'\n{script}", calls.display());
        write_program(&self.at("bin").join(name), &noted);
    }

    fn slurm(&self, what: &str, args: &[&str]) -> Output {
        let mut command = vim_train(&["slurm", what]);
        command.args(args).arg("--root").arg(self.place.path());
        command.env("PATH", path_from(&self.at("bin"))).output().unwrap()
    }

    /// What was asked of SLURM but for questions.
    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.at("calls.txt")).unwrap_or_default();
        let asks = |line: &&str| !line.starts_with("scontrol -o show");
        text.lines().filter(asks).map(str::to_owned).collect()
    }
}

#[test]
fn the_status_of_a_task_is_its_jobs_and_its_runs() {
    let submitted = Submitted::new();
    let exit = json!({"reason": "interrupted", "step": 5, "exit_code": 75});
    submitted.write("study/zoh-s1/exit.json", &exit.to_string());
    let rows = |args: &[&str]| {
        let output = submitted.slurm("status", &[args, &["--json"]].concat());
        assert_code(&output, 0);
        parsed(&output)
    };
    let one = rows(&["study", "--task", "1"]);
    assert_eq!(one.as_array().unwrap().len(), 1);
    let folder = submitted.at("study/zoh-s1");
    for (key, expected) in [
        ("name", json!("study/zoh-s1")),
        ("folder", json!(folder)),
        ("job", json!("7_1")),
        ("node", json!("n1")),
        ("restarts", json!(1)),
        ("is_active", json!(true)),
        ("step", json!(5)),
    ] {
        assert_eq!(one[0][key], expected, "{key}");
    }
    // Of tasks that wait together, each is known; the newest array that has the run counts.
    let waits = &rows(&["study", "--task", "3"])[0];
    assert_eq!([&waits["job"], &waits["reason"]], ["7_3", "JobArrayTaskLimit"]);
    let last = &rows(&["--task", "4"])[0];
    assert_eq!([&last["name"], &last["job"]], ["study/zoh-s4", "8_1"]);
    submitted.write("study/zoh-s1/env.json", "{\"total_steps\": 9}");
    let all = &rows(&["study"])[0];
    assert_eq!(all["job"], "8", "all of it is the newest array");
    assert_eq!([&all["run"], &one[0]["run"]], [&json!(null), &json!("interrupted")]);
    assert_eq!(all["runs"], json!({"interrupted": 1, "missing": 4}));
    assert_eq!([&all["step"], &all["total_steps"]], [5, 45], "as if all had 9 steps");
    let table = stdout(&submitted.slurm("status", &["study"]));
    assert_parts(&table, &["1 interrupted, 4 missing", "5/45"]);
}

#[test]
fn why_a_task_failed_is_the_error_in_its_output() {
    let submitted = Submitted::new();
    let said = |args: &[&str]| {
        let output = submitted.slurm("status", args);
        assert_code(&output, 0);
        stderr(&output)
    };
    let absent = said(&["study", "--task", "4"]);
    assert!(absent.starts_with("study/zoh-s4: its job left no output in "), "{absent}");
    assert_eq!(said(&["study"]), "");
    let text =
        "error: data.path: /x is not here\nsrun: error: n1: task 0: Exited with exit code 65\n";
    submitted.write("study/slurm/study-8_1.out", text);
    assert_eq!(said(&["study", "--task", "4"]), "study/zoh-s4: data.path: /x is not here\n");
    assert_eq!(said(&["study"]), "study: job 8_1: data.path: /x is not here\n");
    // A task that runs has not failed.
    submitted.write("study/slurm/study-7_1.out", text);
    assert_eq!(said(&["study", "--task", "1"]), "");
}

#[test]
fn a_task_is_cancelled_and_requeued_alone() {
    let submitted = Submitted::new();
    for (what, task, shown, said) in [
        ("cancel", "2", "", "study, run 2: cancelled job 7_2\n"),
        ("cancel", "0", "", "study, run 0: no job left to cancel\n"),
        (
            "requeue",
            "1",
            "7_1\n",
            "job 7_1 is told to save and end; SLURM starts it again after two minutes or more\n",
        ),
    ] {
        let output = submitted.slurm(what, &["study", "--task", task]);
        assert_code(&output, 0);
        assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), (shown, said));
    }
    assert_eq!(submitted.calls(), ["scancel 7_2", "scontrol requeue 7_1"]);
}

#[test]
fn a_task_that_cannot_be_requeued_is_submitted_again_alone() {
    let submitted = Submitted::new();
    let output = submitted.slurm("requeue", &["study", "--task", "4"]);
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "99_1\n");
    let line = "job 8_1 has ended and cannot be requeued: submitted again as job 99_1\n";
    assert_eq!(stderr(&output), line);
    let script = submitted.at("study/slurm/tasks-from-3-2.sh");
    let sbatch = format!("sbatch --parsable --array=1 {}", script.display());
    assert_eq!(submitted.calls(), ["scontrol requeue 8_1".to_owned(), sbatch]);
    let status = submitted.slurm("status", &["study", "--task", "4", "--json"]);
    let rows = parsed(&status);
    assert_eq!(rows[0]["job"], "99_1", "it is followed");
}

#[test]
fn a_run_that_was_never_submitted_is_said_so_by_all() {
    let submitted = Submitted::new();
    for what in ["status", "requeue", "cancel", "logs"] {
        let output = submitted.slurm(what, &["study", "--task", "5"]);
        let line = "error: study: no array that was submitted has a run 5: `vim-train sweep status` numbers them\n";
        assert_code(&output, 65);
        assert_eq!(stderr(&output), line, "{what}");
    }
    assert_eq!(submitted.calls(), [""; 0]);
}
