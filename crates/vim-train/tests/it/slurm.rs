//! `vim-train slurm`, and `train` in a job; SLURM's commands are played by scripts.
//! scripts/slurm_check.sh has the real ones.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use vim_slurm::{Event, EventKind, JobId};

use crate::train::{Bench, assert_code};

/// Slow enough to be hit at a step: one thread, and a wider model.
const SLOW: [&str; 8] = [
    "--set",
    "model.d_model=64",
    "--set",
    "devices.threads=1",
    "--set",
    "data.workers=1",
    "--resume",
    "auto",
];

/// A folder of commands that stand for SLURM's, and write down how they were called.
struct Played {
    folder: TempDir,
}

impl Played {
    /// `scontrol show job` answers `job`; `scontrol requeue` ends with `requeue`.
    fn new(job: &str, requeue: i32) -> Self {
        let played = Self { folder: tempfile::tempdir().unwrap() };
        let calls = played.calls_file();
        let calls = calls.display();
        fs::write(played.folder.path().join("job.txt"), job).unwrap();
        let scontrol = format!(
            "#!/bin/sh\necho \"scontrol $*\" >> '{calls}'\ncase $1 in requeue) echo 'Requested operation is presently disabled' >&2; exit {requeue} ;; esac\ncat '{}/job.txt'\n",
            played.folder.path().display()
        );
        let sbatch = format!("#!/bin/sh\necho \"sbatch $*\" >> '{calls}'\necho 99\n");
        for (name, script) in [("scontrol", scontrol), ("sbatch", sbatch)] {
            let path = played.folder.path().join(name);
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        played
    }

    fn calls_file(&self) -> PathBuf {
        self.folder.path().join("calls.txt")
    }

    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.calls_file()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The command in job 7, before others on the path.
    fn stage(&self, mut command: Command, restarts: u32) -> Command {
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", self.folder.path().display()));
        command.env("SLURM_JOB_ID", "7").env("SLURM_RESTART_COUNT", restarts.to_string());
        command
    }
}

fn job(state: &str, reason: &str, restarts: u32, more: &str) -> String {
    format!(
        "JobId=7 JobName=x JobState={state} Reason={reason} Requeue=1 Restarts={restarts} BatchFlag=1 ExitCode=0:0 {more}\n"
    )
}

/// Starts a run, signals it once it has made a step, and returns how it ended.
fn signalled(bench: &Bench, played: &Played, name: &str, more: &[&str]) -> Output {
    let args: Vec<&str> = SLOW.iter().chain(more).copied().collect();
    let mut command = played.stage(bench.command("train", name, &args), 0);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let metrics = bench.folder(name).join("metrics.jsonl");
    while fs::metadata(&metrics).map_or(0, |file| file.len()) == 0 {
        sleep(Duration::from_millis(2));
    }
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::USR2).unwrap();
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn kinds(folder: &Path) -> Vec<EventKind> {
    Event::read(folder).unwrap().iter().map(|event| event.event).collect()
}

#[test]
fn a_warned_run_requeues_its_job_and_a_cancelled_one_does_not() {
    use EventKind::{End, Requeue, Signal as Came, Start};
    let bench = Bench::new();
    for (name, recorded, requeued, line) in [
        (
            "warned",
            job("RUNNING", "None", 0, ""),
            true,
            "requeued (time limit near), will resume at step ",
        ),
        (
            "preempted",
            job("RUNNING", "None", 0, "PreemptTime=2026-11-22T08:47:43"),
            true,
            "requeued (preempted)",
        ),
        (
            "limit",
            job("COMPLETING", "TimeLimit", 0, ""),
            true,
            "requeued (time limit), will resume",
        ),
        (
            "cancelled",
            job("COMPLETING", "None", 0, ""),
            false,
            "not requeued (cancelled: scancel is final)",
        ),
        (
            "again",
            job("COMPLETING", "None", 1, ""),
            false,
            "not requeued (SLURM has put it back into the queue)",
        ),
    ] {
        let played = Played::new(&recorded, 0);
        let output = signalled(&bench, &played, name, &[]);
        assert_code(&output, 75);
        assert!(said(&output).contains(line), "{}", said(&output));
        let mut calls = vec!["scontrol -o show job 7".to_owned()];
        calls.extend(requeued.then(|| "scontrol requeue 7".to_owned()));
        assert_eq!(played.calls(), calls, "{name}");
        let expected =
            if requeued { vec![Start, Came, Requeue, End] } else { vec![Start, Came, End] };
        assert_eq!(kinds(&bench.folder(name)), expected, "{name}");
    }
}

#[test]
fn a_job_that_cannot_be_requeued_is_submitted_again() {
    let bench = Bench::new();
    let script = tempfile::NamedTempFile::new().unwrap();
    let command = format!("Command={}", script.path().display());
    let played = Played::new(&job("RUNNING", "None", 0, &command), 1);
    let output = signalled(&bench, &played, "run", &[]);
    assert_code(&output, 75);
    assert!(said(&output).contains("resubmitted as job 99 (time limit near)"), "{}", said(&output));
    let sbatch = format!("sbatch --parsable --dependency=afterany:7 {}", script.path().display());
    assert_eq!(played.calls().last(), Some(&sbatch));
    let events = Event::read(&bench.folder("run")).unwrap();
    let next = events.iter().find_map(|event| event.next_job);
    assert_eq!(next, Some(JobId { job: 99, task: None }));
}

#[test]
fn a_run_that_would_not_go_on_is_left_alone() {
    let bench = Bench::new();
    let recorded = job("RUNNING", "None", 0, "");
    for (name, more, line) in [
        ("none", ["--set", "slurm.on_interrupt=none"], "slurm.on_interrupt = \"none\""),
        ("often", ["--set", "slurm.max_restarts=0"], "restarted 0 times (slurm.max_restarts)"),
    ] {
        let played = Played::new(&recorded, 0);
        let output = signalled(&bench, &played, name, &more);
        assert_code(&output, 75);
        assert!(said(&output).contains(line), "{}", said(&output));
        assert_eq!(played.calls(), ["scontrol -o show job 7"]);
    }
}

#[test]
fn lives_without_a_step_come_to_an_end() {
    let bench = Bench::new();
    let played = Played::new(&job("RUNNING", "None", 0, ""), 0);
    assert_code(&bench.train("run", &["--steps", "2"]), 0);
    let folder = bench.folder("run");
    let begun = Event::read(&folder).unwrap().remove(0);
    // Two attempts of job 7 began at step 2 and recorded nothing more: their node was lost.
    for restarts in [0, 1] {
        let attempt = Event { event: EventKind::Resume, step: 2, restarts, ..begun.clone() };
        Event { job: "7".parse().ok(), ..attempt }.append(&folder).unwrap();
    }
    let third = bench.command("train", "run", &["--resume", "auto"]);
    let output = played.stage(third, 2).output().unwrap();
    assert_code(&output, 1);
    assert!(said(&output).contains("no new step in 2 attempts since step 2"), "{}", said(&output));
    // Submitted by hand, it is a new row of attempts.
    let again = bench.command("train", "run", &["--resume", "auto"]);
    assert_code(&played.stage(again, 0).output().unwrap(), 0);
}

#[test]
fn without_a_job_the_lives_are_recorded_all_the_same() {
    let bench = Bench::new();
    assert_code(&bench.train("run", &["--steps", "2"]), 0);
    assert_code(&bench.train("run", &["--resume", "auto"]), 0);
    let events = Event::read(&bench.folder("run")).unwrap();
    let seen: Vec<(EventKind, u64)> =
        events.iter().map(|event| (event.event, event.step)).collect();
    let expected =
        [(EventKind::Start, 0), (EventKind::End, 2), (EventKind::Resume, 2), (EventKind::End, 24)];
    assert_eq!(seen, expected);
    assert!(events.iter().all(|event| event.job.is_none()));
}

fn slurm(bench: &Bench, subcommand: &str, more: &[&str]) -> Output {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/debug.toml");
    let root = format!("run.root={}", bench.folder("").display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_vim-train"));
    command.args(["slurm", subcommand]).arg(config).args(["--set", &root]).args(more);
    command.env_remove("VIM_TRAIN_SITE").output().unwrap()
}

#[test]
fn the_script_runs_what_submit_freezes() {
    let bench = Bench::new();
    let more = [
        "--set",
        "devices.backend=cpu",
        "--set",
        "slurm.time=12:00:00",
        "--set",
        "slurm.cpus_per_task=4",
    ];
    let output = slurm(&bench, "script", &more);
    assert_code(&output, 0);
    let text = String::from_utf8(output.stdout).unwrap();
    let folder = bench.folder("debug-zoh-s0");
    let folder = folder.display();
    for line in [
        "#SBATCH --job-name=debug-zoh-s0".to_owned(),
        "#SBATCH --time=12:00:00".into(),
        format!("#SBATCH --output={folder}/slurm/%x-%j.out"),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    let last = text.lines().last().unwrap();
    assert!(
        last.starts_with(
            "exec srun --kill-on-bad-exit=1 --cpus-per-task=\"$SLURM_CPUS_PER_TASK\" /"
        ),
        "{last}"
    );
    assert!(
        last.ends_with(&format!("vim-train train {folder}/slurm/config.toml --resume auto")),
        "{last}"
    );
    assert!(!text.contains("gpus"), "devices.backend = \"cpu\" needs none");
    assert!(!bench.folder("debug-zoh-s0").exists(), "nothing is written");
}

#[test]
fn what_cannot_be_submitted_is_one_line() {
    let bench = Bench::new();
    for (more, code, line) in [
        (["--set", "slurm.partion=x"], 78, "slurm.partion: unknown key"),
        (["--set", "slurm.nodes=2"], 78, "slurm.nodes: 2 is out of range"),
        (["--set", "slurm.time=long"], 78, "12:00:00"),
        (["--set", "slurm.on_interrupt=requue"], 78, "did you mean `requeue`"),
        (["--set", "slurm.site=nowhere"], 78, "unknown site `nowhere`"),
        (["--set", "slurm.output={run.name}/x"], 78, "no placeholder but {run.dir}"),
        (["--set", "slurm.gpus_per_node=h100"], 78, "h100:4"),
    ] {
        let output = slurm(&bench, "script", &more);
        assert_code(&output, code);
        assert!(said(&output).contains(line), "{line} in {}", said(&output));
        assert_eq!(said(&output).matches("error: ").count(), 1);
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_vim-train"));
    command.args(["slurm", "logs", "nothing", "--root"]).arg(bench.folder(""));
    let output = command.output().unwrap();
    assert_code(&output, 65);
    assert!(
        said(&output).contains("nothing is neither the folder nor the name"),
        "{}",
        said(&output)
    );
}
