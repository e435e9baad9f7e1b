//! `vim-train slurm`, and `train` in a job; SLURM's commands are played by scripts.
//! scripts/slurm_check.sh has the real ones.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use vim_slurm::{Event, EventKind, JobId};

use crate::support::{
    Bench, assert_code, assert_lines, assert_says, parsed, path_from, read_json, repository, send,
    set, stderr, stdout, vim_train, write, write_program,
};

/// Slow enough to be hit at a step: one thread, and a wider model.
const SLOW: [&str; 3] = ["model.d_model=64", "devices.threads=1", "data.workers=1"];

/// A folder of commands that stand for SLURM's, and write down how they were called.
struct Played {
    folder: TempDir,
}

impl Played {
    /// `scontrol show job` answers `job`; `scontrol requeue` ends with `requeue`.
    fn new(job: &str, requeue: i32) -> Self {
        let played = Self { folder: tempfile::tempdir().unwrap() };
        let (calls, answer) = (played.at("calls.txt"), played.at("job.txt"));
        let (calls, shown) = (calls.display(), answer.display());
        write(&answer, job);
        write_program(
            &played.at("scontrol"),
            &format!(
                "echo \"scontrol $*\" >> '{calls}'\ncase $1 in requeue) echo 'Requested operation is presently disabled' >&2; exit {requeue} ;; esac\ncat '{shown}'"
            ),
        );
        write_program(&played.at("sbatch"), &format!("echo \"sbatch $*\" >> '{calls}'\necho 99"));
        played
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.at("calls.txt")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The command in job 7, before others on the path.
    fn stage(&self, mut command: Command, restarts: u32) -> Command {
        command.env("PATH", path_from(self.folder.path()));
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
    let args = [&set(&SLOW)[..], &["--resume", "auto"], more].concat();
    let mut command = played.stage(bench.command("train", name, &args), 0);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let metrics = bench.folder(name).join("metrics.jsonl");
    while fs::metadata(&metrics).map_or(0, |file| file.len()) == 0 {
        sleep(Duration::from_millis(2));
    }
    send(&child, Signal::USR2);
    child.wait_with_output().unwrap()
}

/// A running job that was signalled before its time limit.
fn warned() -> String {
    job("RUNNING", "None", 0, "")
}

const SHOW: &str = "scontrol -o show job 7";

#[test]
fn a_warned_run_requeues_its_job_and_a_cancelled_one_does_not() {
    use EventKind::{End, Requeue, Signal as Came, Start};
    let bench = Bench::new();
    let preempted = job("RUNNING", "None", 0, "PreemptTime=2026-11-22T08:47:43");
    let timed_out = job("COMPLETING", "TimeLimit", 0, "");
    let [cancelled, requeued] = [0, 1].map(|restarts| job("COMPLETING", "None", restarts, ""));
    for (name, recorded, requeues, line) in [
        ("warned", warned(), true, "requeued (time limit near), will resume at step "),
        ("preempted", preempted, true, "requeued (preempted)"),
        ("limit", timed_out, true, "requeued (time limit), will resume"),
        ("cancelled", cancelled, false, "not requeued (cancelled: scancel is final)"),
        (
            "again",
            requeued,
            false,
            "requeued (SLURM has put the job back into the queue), will resume",
        ),
    ] {
        let played = Played::new(&recorded, 0);
        let output = signalled(&bench, &played, name, &[]);
        assert_says(&output, 75, &[line]);
        let last = stderr(&output).lines().last().unwrap_or_default().to_owned();
        let goes_on = "saved: its job is in the queue again and goes on from there";
        assert_eq!(last.ends_with(goes_on), name != "cancelled", "{name}: {last}");
        assert_eq!(last.starts_with("error: "), name == "cancelled", "{name}: {last}");
        let calls = if requeues { &[SHOW, "scontrol requeue 7"][..] } else { &[SHOW] };
        let is_final = name == "cancelled";
        let kinds = if is_final { &[Start, Came, End][..] } else { &[Start, Came, Requeue, End] };
        assert_eq!(played.calls(), calls, "{name}");
        let events = Event::read(&bench.folder(name)).unwrap();
        assert!(events.iter().map(|event| &event.event).eq(kinds), "{name}: {events:?}");
    }
}

#[test]
fn a_job_that_cannot_be_requeued_is_submitted_again() {
    let bench = Bench::new();
    let script = tempfile::NamedTempFile::new().unwrap();
    let command = format!("Command={}", script.path().display());
    let played = Played::new(&job("RUNNING", "None", 0, &command), 1);
    let output = signalled(&bench, &played, "run", &[]);
    assert_says(&output, 75, &["resubmitted as job 99 (time limit near)"]);
    let sbatch = format!("sbatch --parsable --dependency=afterany:7 {}", script.path().display());
    assert_eq!(played.calls().last(), Some(&sbatch));
    let events = Event::read(&bench.folder("run")).unwrap();
    let next = events.iter().find_map(|event| event.next_job);
    assert_eq!(next, Some(JobId { job: 99, task: None }));
}

#[test]
fn a_run_that_would_not_go_on_is_left_alone() {
    let bench = Bench::new();
    for (name, more, line) in [
        ("none", ["--set", "slurm.on_interrupt=none"], "slurm.on_interrupt = \"none\""),
        ("often", ["--set", "slurm.max_restarts=0"], "restarted 0 times (slurm.max_restarts)"),
    ] {
        let played = Played::new(&warned(), 0);
        assert_says(&signalled(&bench, &played, name, &more), 75, &[line]);
        assert_eq!(played.calls(), [SHOW]);
    }
}

#[test]
fn lives_without_a_step_come_to_an_end() {
    let bench = Bench::new();
    let played = Played::new(&warned(), 0);
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
    assert_says(&output, 1, &["no new step in 2 attempts since step 2"]);
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
    let root = format!("run.root={}", bench.folder("").display());
    let mut command = vim_train(&["slurm", subcommand, "--set", &root]);
    command.arg(repository("configs/debug.toml")).args(more).output().unwrap()
}

#[test]
fn the_script_runs_what_submit_freezes() {
    let bench = Bench::new();
    let sets = ["devices.backend=cpu", "slurm.time=12:00:00", "slurm.cpus_per_task=4"];
    let output = slurm(&bench, "script", &set(&sets));
    assert_code(&output, 0);
    let text = stdout(&output);
    let folder = bench.folder("debug-zoh-s0");
    let folder = folder.display();
    let log = format!("#SBATCH --output={folder}/slurm/%x-%j.out");
    let lines = ["#SBATCH --job-name=debug-zoh-s0", "#SBATCH --time=12:00:00", &log];
    assert_lines(&text, &lines);
    let last = text.lines().last().unwrap();
    let srun = "exec srun --kill-on-bad-exit=1 --cpus-per-task=\"$SLURM_CPUS_PER_TASK\" /";
    assert!(last.starts_with(srun), "{last}");
    let train = format!("vim-train train {folder}/slurm/config.toml --resume auto");
    assert!(last.ends_with(&train), "{last}");
    assert!(!text.contains("gpus"), "devices.backend = \"cpu\" needs none");
    assert!(!bench.folder("debug-zoh-s0").exists(), "nothing is written");
}

#[test]
fn several_nodes_have_the_gpus_of_a_run_each() {
    let bench = Bench::new();
    let gpus = ["devices.backend=cuda", "devices.gpus=4", "slurm.nodes=2"];
    let output = slurm(&bench, "script", &set(&gpus));
    assert_code(&output, 0);
    let lines = ["#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=1", "#SBATCH --gpus-per-node=4"];
    assert_lines(&stdout(&output), &lines);
    assert!(!stderr(&output).contains("a run uses"), "{}", stderr(&output));
    let fewer = slurm(&bench, "script", &set(&[&gpus[..], &["slurm.gpus_per_node=2"]].concat()));
    assert_says(&fewer, 78, &["2 is less than the 4 GPUs of devices.gpus"]);
}

#[test]
fn what_cannot_be_submitted_is_one_line() {
    let bench = Bench::new();
    for (set, line) in [
        ("slurm.partion=x", "slurm.partion: unknown key"),
        ("slurm.nodes=0", "slurm.nodes: 0 is out of range"),
        ("slurm.time=long", "12:00:00"),
        ("slurm.on_interrupt=requue", "did you mean `requeue`"),
        ("slurm.site=nowhere", "unknown site `nowhere`"),
        ("slurm.output={run.name}/x", "no placeholder but {run.dir}"),
        ("slurm.gpus_per_node=h100", "h100:4"),
    ] {
        let output = slurm(&bench, "script", &["--set", set]);
        assert_says(&output, 78, &[line]);
        assert_eq!(stderr(&output).matches("error: ").count(), 1);
    }
    let huge = bench.folder("huge.toml");
    std::fs::create_dir_all(huge.parent().unwrap()).unwrap();
    std::fs::File::create(&huge).unwrap().set_len(8 << 20).unwrap();
    let output = slurm(&bench, "script", &set(&[&format!("slurm.site={}", huge.display())]));
    assert_says(&output, 65, &["cannot read ", "huge.toml: it is larger than 4 MiB"]);
    let mut logs = vim_train(&["slurm", "logs", "nothing", "--root"]);
    let output = logs.arg(bench.folder("")).output().unwrap();
    assert_says(&output, 65, &["nothing is neither the folder nor the name"]);
}

/// SLURM's commands on a cluster of one node with GPUs of two kinds; `calls.txt` has what was
/// submitted. A line of sinfo that nobody needs cannot be read.
fn cluster() -> TempDir {
    let bin = tempfile::tempdir().unwrap();
    let calls = bin.path().join("calls.txt");
    for (name, script) in [
        (
            "sinfo",
            "echo 'gpu*|up|1-00:00:00|1K|500000|gpu:turing:1,gpu:ampere:3|1'\necho 'old|down|n/a|?|N/A|gpu:k80:?|'",
        ),
        ("scontrol", "echo 'MaxArraySize = 1001'"),
        (
            "sbatch",
            &format!(
                "case $1 in --version) echo slurm 23.02.7 ;; --test-only) echo 'sbatch: Job 1 to start' >&2 ;; *) echo \"$*\" >> '{}'; echo 12 ;; esac",
                calls.display()
            ),
        ),
    ] {
        write_program(&bin.path().join(name), script);
    }
    bin
}

/// As [`slurm`], on that cluster.
fn slurm_on(bin: &TempDir, bench: &Bench, what: &[&str], sets: &[&str]) -> Output {
    let root = format!("run.root={}", bench.folder("").display());
    let mut command = vim_train(&[&["slurm"], what].concat());
    command.arg(repository("configs/debug.toml"));
    command.args(set(&[&[&*root, "slurm.time=1:00:00"][..], sets].concat()));
    command.env("PATH", path_from(bin.path())).output().unwrap()
}

#[test]
fn gpus_that_this_build_cannot_use_are_not_asked_for() {
    let (cuda, wgpu, tch) = (cfg!(feature = "cuda"), cfg!(feature = "wgpu"), cfg!(feature = "tch"));
    for (sets, backend, can) in [
        (&["devices.backend=auto"][..], "cuda", cuda || wgpu),
        (&["devices.backend=cuda"], "cuda", cuda),
        (&["devices.backend=wgpu"], "wgpu", wgpu),
        (&["devices.backend=tch"], "tch", tch),
        // Only CUDA trains on several.
        (&["devices.gpus=2"], "cuda", cuda),
        (&["devices.gpus=all", "slurm.gpus_per_node=4"], "cuda", cuda),
        (&["slurm.gpus_per_node=0", "slurm.extra=[\"--gres=gpu:1\"]"], "cuda", cuda || wgpu),
        (&["slurm.gpus_per_node=0", "devices.gpus=2"], "cuda", cuda),
        (&["slurm.gpus_per_node=0"], "", true),
    ] {
        let (bench, bin) = (Bench::new(), cluster());
        let said =
            format!("devices.backend: this build has no {backend}, and the job runs this build");
        for (what, code) in
            [(&["submit", "--dry-run"][..], 69), (&["submit"], 69), (&["script"], 0)]
        {
            let output = slurm_on(&bin, &bench, what, sets);
            assert_code(&output, if can { 0 } else { code });
            let lines = |start: &str| {
                stderr(&output).lines().filter(|line| line.starts_with(start)).count()
            };
            let start = if code == 0 { "warning: " } else { "error: " };
            assert_eq!(lines(&format!("{start}{said}")), usize::from(!can), "{sets:?}");
            assert_eq!(lines("error: "), usize::from(!can && code != 0), "{}", stderr(&output));
        }
        // What is refused leaves nothing behind.
        assert_eq!(bin.path().join("calls.txt").exists(), can, "{sets:?}");
        assert_eq!(bench.folder("debug-zoh-s0").exists(), can, "{sets:?}");
    }
}

#[test]
fn the_processor_is_a_wish_and_idle_gpus_are_said() {
    let (bench, bin) = (Bench::new(), cluster());
    let sets = ["devices.backend=cpu", "slurm.gpus_per_node=gpu:4", "slurm.cpus_per_task=1024"];
    for subcommand in ["script", "submit"] {
        let output = slurm_on(&bin, &bench, &[subcommand], &sets);
        let idle = "warning: devices.backend = \"cpu\" leaves the GPUs of the job idle (--gpus-per-node=4): ";
        assert_says(&output, 0, &[idle]);
        assert_eq!(stderr(&output).matches("warning: ").count(), 1, "{}", stderr(&output));
    }
    let more = slurm_on(&bin, &bench, &["script"], &["devices.backend=cpu", sets[2]]);
    assert_eq!((more.status.code(), stderr(&more).as_str()), (Some(0), ""));
    let five =
        slurm_on(&bin, &bench, &["submit"], &["run.name=five", sets[0], "slurm.gpus_per_node=5"]);
    assert_says(&five, 78, &["5 is more than a node of partition `gpu` has: turing:1, ampere:3"]);
    // The resource itself is no kind of GPU.
    let text = stdout(&slurm_on(&bin, &bench, &["script"], &["slurm.gpus_per_node=gpu:h100:2"]));
    assert_lines(&text, &["#SBATCH --gpus-per-node=h100:2"]);
}

#[test]
fn auto_takes_the_processor_only_where_no_gpu_was_given() {
    let bench = Bench::new();
    let train = |name: &str, backend: &str, variables: &[(&str, &str)]| {
        let backend = format!("devices.backend={backend}");
        let mut command = bench.command("train", name, &["--steps", "1", "--set", &backend]);
        // No GPU of the machine is found.
        command.env("VK_DRIVER_FILES", "/no/such").env("VK_ICD_FILENAMES", "/no/such");
        command.env("CUDA_VISIBLE_DEVICES", "99").envs(variables.iter().copied()).output().unwrap()
    };
    let given = ("SLURM_GPUS_ON_NODE", "1");
    let output = train("given", "auto", &[given]);
    let said =
        "devices.backend: auto finds no GPU, and SLURM_GPUS_ON_NODE=1 says that there is one: ";
    assert_says(&output, 69, &[said, "; or use devices.backend=cpu"]);
    assert_eq!(stderr(&output).matches("error: ").count(), 1, "{}", stderr(&output));
    assert_says(
        &train("seen", "auto", &[]),
        69,
        &["CUDA_VISIBLE_DEVICES=99 says that there is one"],
    );
    for (name, backend, list) in
        [("hidden", "auto", ""), ("none", "auto", "-1"), ("cpu", "cpu", "0")]
    {
        assert_code(&train(name, backend, &[given, ("CUDA_VISIBLE_DEVICES", list)]), 0);
        let recorded = read_json(bench.folder(name).join("env.json"));
        assert!(recorded["backend"].as_str().unwrap().starts_with("cpu"), "{recorded}");
    }
}

#[test]
fn a_job_that_failed_before_its_run_began_says_why() {
    let bench = Bench::new();
    let played = Played::new(&job("FAILED", "NonZeroExitCode", 0, "NodeList=n1"), 0);
    let (run, output) = (bench.folder("early"), bench.folder("early/slurm/early-7.out"));
    // What a submission leaves, and a job that ended at once.
    write(&run.join("slurm/config.toml"), "[run]\nname = \"early\"\n");
    let submission = format!(
        "{{\"job\":\"7\",\"submitted\":\"then\",\"script\":\"job.sh\",\"output\":\"{}\"}}\n",
        output.display()
    );
    write(&run.join("slurm/jobs.jsonl"), submission);
    write(
        &output,
        "error: devices.backend: this build has no cuda\nsrun: error: n1: task 0: Exited with exit code 69\n",
    );
    let root = bench.folder("").display().to_string();
    let asked = |what: &[&str]| {
        let mut command = vim_train(what);
        command.args(["--root", &root]).env("PATH", path_from(played.folder.path()));
        command.output().unwrap()
    };
    let why = "devices.backend: this build has no cuda";
    assert_eq!(stderr(&asked(&["slurm", "status"])), format!("early: {why}\n"));
    assert_eq!(parsed(&asked(&["slurm", "status", "early", "--json"]))[0]["error"], why);
    // Its configuration stands for it.
    let file = bench.folder("early.toml");
    write(&file, format!("[run]\nname = \"early\"\nroot = {root:?}\n"));
    let by_file = asked(&["slurm", "status", file.to_str().unwrap(), "--json"]);
    assert_eq!(parsed(&by_file)[0]["error"], why);
    // The run is listed by its name, and what is in its folder is no run.
    let list = parsed(&vim_train(&["runs", "list", &root, "--json"]).output().unwrap());
    let names: Vec<&str> =
        list.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["early"]);
    assert!(list[0]["problems"].to_string().contains("vim-train slurm status"), "{list}");
    let shown = format!("{} is a run that was submitted to SLURM and has not begun", run.display());
    assert_says(&asked(&["runs", "show", "early"]), 65, &[&shown]);
    // SLURM has forgotten it.
    let forgets = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1";
    write_program(&played.at("scontrol"), forgets);
    assert_eq!(stderr(&asked(&["slurm", "status"])), format!("early: {why}\n"));
    // It never started.
    fs::remove_file(&output).unwrap();
    assert_eq!(stderr(&asked(&["slurm", "status"])), "");
    let played = Played::new(&job("FAILED", "JobLaunchFailure", 0, ""), 0);
    let mut status = vim_train(&["slurm", "status", "--root", &root]);
    let output = status.env("PATH", path_from(played.folder.path())).output().unwrap();
    assert_says(&output, 0, &["early: its job left no output in "]);
    // A job that runs has not failed.
    let active = Played::new(&job("RUNNING", "None", 0, ""), 0);
    let mut status = vim_train(&["slurm", "status", "--root", &root]);
    let output = status.env("PATH", path_from(active.folder.path())).output().unwrap();
    assert_eq!(stderr(&output), "");
}
