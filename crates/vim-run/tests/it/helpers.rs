//! Other processes, to hold locks and to receive signals: this test binary again, running one of
//! the ignored tests below.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use vim_run::Lock;
use vim_run::signals::StopRequest;
use vim_run::storage::{Disk, replace, replace_with};

/// Tells a helper that it is one, and what to work on.
const ARGUMENT: &str = "VIM_TRAIN_TEST_HELPER";
/// As its argument: that it has not begun to train.
const STARTING: &str = "starting";
/// Longer than any helper is needed, so that none outlives a test that failed.
const LIFE: Duration = Duration::from_secs(60);

/// A helper process, ended when dropped.
pub(crate) struct Helper {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts `test` in a job of SLURM and waits until it is ready.
    pub(crate) fn start(test: &str, argument: &Path) -> Self {
        Self::from(command(test, argument).env("SLURM_JOB_ID", "4711"))
    }

    fn outside_of_a_job(test: &str, argument: &Path) -> Self {
        Self::from(command(test, argument).env_remove("SLURM_JOB_ID"))
    }

    fn from(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut helper = Self { child, stdout };
        helper.wait_for("ready");
        helper
    }

    /// Reads its output up to a line with `word`, and returns that line.
    pub(crate) fn wait_for(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "ended before it said {word}");
            if line.contains(word) {
                return line;
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as a crash does, and waits until it has ended.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid() as i32).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Its exit code, once it ends.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

fn command(test: &str, argument: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([&format!("helpers::{test}"), "--exact", "--ignored", "--nocapture"]);
    command.env(ARGUMENT, argument);
    command
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(text: &str) {
    println!("{text}");
    std::io::stdout().flush().unwrap();
}

#[test]
#[ignore = "a helper of other tests"]
fn holds_a_lock() {
    let Some(path) = env::var_os(ARGUMENT) else { return };
    let _lock = Lock::acquire(Path::new(&path)).unwrap();
    say("ready");
    sleep(LIFE);
}

/// Holds a lock for a while under the name of a process that has ended, as one does whose last
/// writes take long.
#[test]
#[ignore = "a helper of other tests"]
fn holds_the_lock_of_a_dead_process() {
    let Some(path) = env::var_os(ARGUMENT) else { return };
    let _lock = Lock::acquire(Path::new(&path)).unwrap();
    let mut other = Command::new("true").spawn().unwrap();
    other.wait().unwrap();
    let own = fs::read_to_string(&path).unwrap();
    let number = |pid: u32| format!("\"pid\":{pid}");
    fs::write(&path, own.replace(&number(std::process::id()), &number(other.id()))).unwrap();
    say("ready");
    sleep(Duration::from_millis(700));
}

/// Writes half of a file.
#[test]
#[ignore = "a helper of other tests"]
fn writes_for_ever() {
    let Some(path) = env::var_os(ARGUMENT) else { return };
    let write = |at: &Path| {
        fs::write(at, "half")?;
        say("ready");
        sleep(LIFE);
        Ok(())
    };
    replace_with(&Disk, Path::new(&path), write).unwrap();
}

/// Writes a file again and again.
#[test]
#[ignore = "a helper of other tests"]
fn writes_again_and_again() {
    let Some(path) = env::var_os(ARGUMENT) else { return };
    say("ready");
    let content = std::process::id().to_string().repeat(10_000);
    for _ in 0..50 {
        replace(&Disk, Path::new(&path), content.as_bytes()).unwrap();
    }
}

#[test]
#[ignore = "a helper of other tests"]
fn reports_stop_requests() {
    let Some(argument) = env::var_os(ARGUMENT) else { return };
    let request = StopRequest::install().unwrap();
    if argument != STARTING {
        request.defer();
    }
    say("ready");
    let start = Instant::now();
    let mut last = None;
    while start.elapsed() < LIFE {
        let now = request.get();
        if now != last {
            say(&format!("stop: {}", now.unwrap().name()));
            last = now;
        }
        sleep(Duration::from_millis(2));
    }
}

#[test]
#[ignore = "a helper of other tests"]
fn goes_on_while_it_is_asked_to_stop() {
    let Some(path) = env::var_os(ARGUMENT) else { return };
    let request = StopRequest::install().unwrap();
    say("ready");
    while request.get().is_none() {}
    request.defer();
    fs::write(path, "").unwrap();
    sleep(LIFE);
}

#[test]
fn every_signal_sets_the_flag_and_none_ends_the_process() {
    let mut helper = Helper::start("reports_stop_requests", Path::new("-"));
    for (signal, name) in [
        (Signal::USR1, "SIGUSR1"),
        (Signal::TERM, "SIGTERM"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
    ] {
        helper.signal(signal);
        assert!(helper.wait_for("stop: ").contains(name));
    }
}

#[test]
fn a_signal_ends_a_process_that_is_starting_up() {
    for (signal, code) in [(Signal::TERM, 75), (Signal::HUP, 75), (Signal::INT, 130)] {
        let mut helper = Helper::outside_of_a_job("reports_stop_requests", STARTING.as_ref());
        helper.signal(signal);
        assert_eq!(helper.exit_code(), Some(code));
    }
    // A job is requeued by the loop, so a scheduler's signal waits for that.
    let mut helper = Helper::start("reports_stop_requests", STARTING.as_ref());
    helper.signal(Signal::USR1);
    helper.wait_for("SIGUSR1");
    helper.signal(Signal::INT);
    assert_eq!(helper.exit_code(), Some(130));
}

#[test]
fn a_process_that_a_signal_ends_does_not_go_on() {
    let folder = tempfile::tempdir().unwrap();
    for attempt in 0..10 {
        let path = folder.path().join(attempt.to_string());
        let mut helper = Helper::outside_of_a_job("goes_on_while_it_is_asked_to_stop", &path);
        helper.signal(Signal::TERM);
        while helper.is_running() && !path.exists() {
            sleep(Duration::from_millis(1));
        }
        // Longer than the process takes to end.
        if path.exists() {
            sleep(Duration::from_millis(200));
            assert!(helper.is_running(), "it ended, and had gone on before");
        }
    }
}

#[test]
fn a_further_interrupt_ends_the_process_at_once() {
    let mut helper = Helper::start("reports_stop_requests", Path::new("-"));
    helper.signal(Signal::INT);
    helper.wait_for("SIGINT");
    // Two that arrive together may count as one.
    while helper.is_running() {
        helper.signal(Signal::INT);
        sleep(Duration::from_millis(5));
    }
    assert_eq!(helper.exit_code(), Some(79));
}
