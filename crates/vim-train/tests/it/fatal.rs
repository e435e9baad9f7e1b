//! Panics on threads that nobody waits for, each in another process of this test binary.

use std::env;
use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use vim_engine::config::RecomputeChoice;
use vim_engine::device::fault::BatchFootprint;
use vim_engine::fatal::{self, CrashGuard};
use vim_run::{Log, Opened, Resume, RunDir, RunError};

use crate::support::{assert_says, read_json, stderr, stdout};

/// Tells a helper what to run into, and in which folder.
const FAULT: &str = "VIM_TRAIN_TEST_FAULT";
/// What the helper says where it comes to no harm.
const UNHARMED: &str = "goes on";
/// A thread as CubeCL names its own.
const DEVICE: &str = "DSD-0-0";

/// What the helper process does with `fault` in `folder`.
fn run_into(fault: &str, folder: &Path) -> Output {
    let folder = folder.display();
    Command::new(env::current_exe().unwrap())
        .args(["fatal::helper", "--exact", "--ignored", "--nocapture"])
        .env(FAULT, format!("{fault} {folder}"))
        .env_remove("RUST_BACKTRACE")
        .output()
        .unwrap()
}

#[test]
#[ignore = "a helper of other tests"]
fn helper() {
    let Ok(given) = env::var(FAULT) else { return };
    let (fault, folder) = given.split_once(' ').unwrap();
    let folder = Path::new(folder);
    fatal::install().unwrap();
    let check = |_: &Path| Ok::<_, RunError>(Vec::new());
    let opened = RunDir::open(folder.to_owned(), "", Resume::Auto, false, check).unwrap();
    let Opened::Run(run) = opened else { panic!("the run is finished") };
    let log = Log::open(&folder.join("log.txt")).unwrap();
    let guard = CrashGuard::over(
        run,
        log,
        BatchFootprint {
            batch_size: 96,
            parts: 1,
            recompute: RecomputeChoice::Auto,
            in_pairs: true,
        },
    );
    guard.at(5);
    let (name, text, is_told) = match fault {
        "unknown" => ("poller", "kernel 3 went wrong", false),
        "memory" => ("poller", "x: out of device memory allocating 1048576 bytes", false),
        "swallowed" => (DEVICE, "kernel 4 went wrong", true),
        "tried" => (DEVICE, "this kernel does not fit here", false),
        "loader" => ("vim-data-work-0", "an image went wrong", false),
        other => panic!("no fault {other}"),
    };
    let work = move || {
        let caught = catch_unwind(|| panic!("{text}")).unwrap_err();
        if is_told {
            // As `cubecl_common::device::handle` does with what it has caught.
            let text = caught.downcast_ref::<String>().unwrap();
            log::warn!(
                target: "cubecl_common::device::handle::channel",
                "CallError(task panicked on device runner thread: {text})"
            );
        }
    };
    thread::Builder::new().name(name.into()).spawn(work).unwrap().join().unwrap();
    println!("{UNHARMED}");
    thread::sleep(Duration::from_millis(10));
}

/// The process ended with `code`, and said a line of the `expected` parts on stderr, in the log and
/// in `exit.json`.
#[track_caller]
fn assert_ends(fault: &str, code: i32, expected: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let output = run_into(fault, folder.path());
    assert_says(&output, code, expected);
    assert!(!stdout(&output).contains(UNHARMED));
    let said = stderr(&output);
    assert!(said.starts_with("error: ") && said.lines().count() == 1, "{said}");
    assert_eq!(fs::read_to_string(folder.path().join("log.txt")).unwrap(), said);
    let exit = read_json(folder.path().join("exit.json"));
    assert_eq!((&exit["exit_code"], &exit["step"]), (&code.into(), &5.into()));
    assert_eq!(exit["error"].as_str(), said.trim_end().strip_prefix("error: "));
}

#[test]
fn a_panic_that_nobody_waits_for_ends_the_process() {
    let device = format!("thread {DEVICE} panicked at ");
    // The batch that may fit.
    let advice = ["set train.accumulate=2", "set train.batch_size=48"];
    for (fault, code, parts) in [
        ("unknown", 70, ["thread poller panicked at ", "fatal.rs:", "kernel 3 went wrong", ""]),
        // The device's own thread swallows it.
        ("swallowed", 70, [&device, "fatal.rs:", "kernel 4 went wrong", ""]),
        ("memory", 71, ["another 1.0 MiB", "96 images at a time", advice[0], advice[1]]),
    ] {
        assert_ends(fault, code, &parts);
    }
}

#[test]
fn panics_that_are_dealt_with_do_no_harm() {
    for fault in ["tried", "loader"] {
        let folder = tempfile::tempdir().unwrap();
        let output = run_into(fault, folder.path());
        assert!(output.status.success(), "{output:?}");
        assert!(stdout(&output).contains(UNHARMED));
        assert_eq!(stderr(&output), "", "it is for others to tell of");
        assert!(!folder.path().join("exit.json").exists());
    }
}
