//! Panics on threads that nobody waits for, each in another process of this test binary.

use std::env;
use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use vim_run::Log;
use vim_train::device::fault::BatchFootprint;
use vim_train::fatal::{self, CrashGuard};

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
    let log = Log::open(&folder.join("log.txt")).unwrap();
    let guard = CrashGuard::over(
        folder.to_owned(),
        log,
        BatchFootprint { batch_size: 96, parts: 1, recompute: false, in_pairs: true },
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

/// The process ended with `code`, and said `line` on stderr, in the log and in `exit.json`.
#[track_caller]
fn assert_ends(fault: &str, code: i32, expected: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let output = run_into(fault, folder.path());
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains(UNHARMED));
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.starts_with("error: ") && expected.iter().all(|part| said.contains(part)),
        "{said}"
    );
    assert_eq!(fs::read_to_string(folder.path().join("log.txt")).unwrap(), said);
    let exit: Value =
        serde_json::from_slice(&fs::read(folder.path().join("exit.json")).unwrap()).unwrap();
    assert_eq!((&exit["exit_code"], &exit["step"]), (&code.into(), &5.into()));
    assert_eq!(exit["error"].as_str(), said.trim_end().strip_prefix("error: "));
}

#[test]
fn a_panic_on_an_unknown_thread_ends_the_process() {
    let parts = ["thread poller panicked at ", "fatal.rs:", "kernel 3 went wrong"];
    assert_ends("unknown", 70, &parts);
}

#[test]
fn a_panic_that_the_device_swallows_ends_the_process() {
    let thread = format!("thread {DEVICE} panicked at ");
    assert_ends("swallowed", 70, &[&thread, "fatal.rs:", "kernel 4 went wrong"]);
}

#[test]
fn a_device_out_of_memory_ends_the_process_with_the_batch_that_may_fit() {
    let parts = [
        "another 1.0 MiB",
        "96 images at a time",
        "set train.accumulate=2",
        "set train.batch_size=48",
    ];
    assert_ends("memory", 71, &parts);
}

#[test]
fn panics_that_are_dealt_with_do_no_harm() {
    for fault in ["tried", "loader"] {
        let folder = tempfile::tempdir().unwrap();
        let output = run_into(fault, folder.path());
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains(UNHARMED));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "it is for others to tell of");
        assert!(!folder.path().join("exit.json").exists());
    }
}
