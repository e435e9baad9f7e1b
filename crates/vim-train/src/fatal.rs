//! Panics that would go unnoticed end the process.
//!
//! CubeCL launches kernels on its own threads. There it catches a panic, logs a warning, which
//! programs seldom listen to, and takes the next task: training would go on with arrays that were
//! never computed. Therefore:
//!
//! | thread | a panic there |
//! |---|---|
//! | main, the loader's, the saver's | unwinds and becomes an error |
//! | CubeCL's | may be caught on purpose, as in autotuning; ends the process if a warning follows |
//! | any other | the process ends |
//!
//! The process ends with one line on stderr and in the run's log, `exit.json`, and the exit code of
//! the error.

use std::any::Any;
use std::cell::RefCell;
use std::env;
use std::io::Write as _;
use std::panic::{self, Location};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use ::log::{LevelFilter, Metadata, Record};

use crate::device::fault::Load;
use crate::error::Error;
use crate::run::log::Log;
use crate::run::run_dir::{ExitRecord, write_exit_in};
use crate::run::saver;

/// Prefix of the names of CubeCL's threads.
const DEVICE_THREADS: &str = "DS";
/// The logging target and the text with which CubeCL reports a panic that it has caught.
const SWALLOWED: (&str, &str) = ("cubecl_common", "panicked on device runner thread");

/// The run of this process.
static RUN: Mutex<Option<Run>> = Mutex::new(None);
static IS_ENDING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Location of this thread's last panic.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

struct Run {
    folder: PathBuf,
    log: Log,
    load: Load,
    step: Arc<AtomicU64>,
}

/// Registers a run until dropped: the end of the process is recorded in its folder.
#[derive(Debug)]
pub struct Watch {
    step: Arc<AtomicU64>,
}

impl Watch {
    /// Watches over the run in `folder`.
    #[must_use]
    pub fn over(folder: PathBuf, log: Log, load: Load) -> Self {
        let step = Arc::new(AtomicU64::new(0));
        set_run(Some(Run { folder, log, load, step: Arc::clone(&step) }));
        Self { step }
    }

    /// Records that `step` steps are done.
    pub fn at(&self, step: u64) {
        self.step.store(step, Ordering::Relaxed);
    }

    /// Steps done.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.step.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        set_run(None);
    }
}

fn set_run(run: Option<Run>) {
    *RUN.lock().unwrap_or_else(PoisonError::into_inner) = run;
}

/// Installs the hook and the logger; once, at the start of the process.
///
/// # Errors
///
/// If there is a logger already: swallowed panics would go unnoticed.
pub fn install() -> Result<(), Error> {
    let told = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
            told(info);
        }
        let place = info.location().map(Location::to_string);
        let thread = thread::current();
        let name = thread.name().unwrap_or("without a name");
        if is_handled(name) || name.starts_with(DEVICE_THREADS) {
            PLACE.set(place);
        } else {
            end(name, place, &message(info.payload()));
        }
    }));
    ::log::set_logger(&Listener)
        .map_err(|_| Error::Internal("a logger is installed already".into()))?;
    ::log::set_max_level(LevelFilter::Warn);
    Ok(())
}

/// Whether a panic on the thread of that name becomes an error in the thread that waits for it.
fn is_handled(name: &str) -> bool {
    name == "main" || name == saver::THREAD || name.starts_with(vim_data::THREAD_PREFIX)
}

/// A panic's message.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}

/// Takes the location of this thread's last panic.
pub(crate) fn take_place() -> Option<String> {
    PLACE.take()
}

/// Receives warnings of panics that CubeCL has caught.
struct Listener;

impl ::log::Log for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with(SWALLOWED.0)
    }

    fn log(&self, record: &Record<'_>) {
        let text = if self.enabled(record.metadata()) { record.args().to_string() } else { return };
        if text.contains(SWALLOWED.1) {
            let thread = thread::current();
            end(thread.name().unwrap_or("of a device"), take_place(), &text);
        }
    }

    fn flush(&self) {}
}

/// Reports the error, in the run's folder too, and ends the process at once.
fn end(thread: &str, place: Option<String>, text: &str) -> ! {
    if IS_ENDING.swap(true, Ordering::SeqCst) {
        loop {
            thread::park();
        }
    }
    let run = RUN.lock().unwrap_or_else(PoisonError::into_inner).take();
    let place = place.map_or_else(String::new, |place| format!(" at {place}"));
    let mut error = Error::of_panic(text, &format!("thread {thread} panicked{place}: "));
    if let Some(run) = &run {
        error = error.with_load(run.load);
    }
    // Failures to write cannot be reported any more.
    let _ = writeln!(std::io::stderr(), "error: {error}");
    if let Some(Run { folder, log, step, .. }) = run {
        log.file_line(format!("error: {error}"));
        let exit = ExitRecord { step: step.load(Ordering::Relaxed), ..ExitRecord::failed(&error) };
        let _ = write_exit_in(&folder, &exit);
    }
    // Not `std::process::exit`, whose handlers may wait for the thread that panicked.
    signal_hook::low_level::exit(i32::from(error.exit_code()))
}
