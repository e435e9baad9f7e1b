//! Panics that would go unnoticed end the process.
//!
//! CubeCL launches kernels on its own threads, catches their panics, logs a warning and takes the
//! next task: training would continue with arrays that were never computed. Therefore:
//!
//! | thread | a panic there |
//! |---|---|
//! | main, the loader's, the saver's | unwinds and becomes an error |
//! | CubeCL's | may be caught on purpose, as in autotuning; ends the process if a warning follows |
//! | any other | the process ends |
//!
//! The process writes the error to stderr, the run's log and `exit.json`, and ends with its code.

use std::any::Any;
use std::cell::RefCell;
use std::env;
use std::io::Write as _;
use std::panic::{self, AssertUnwindSafe, Location, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use ::log::{LevelFilter, Metadata, Record};
use signal_hook::consts::SIGXFSZ;

use vim_comm::CommError;
use vim_kernels::KernelError;
use vim_run::checkpoint::THREAD;
use vim_run::{ExitRecord, Log, RunDir};

use crate::device::DeviceError;
use crate::device::fault::foreign::{DEVICE_THREADS, SWALLOWED};
use crate::device::fault::{BatchFootprint, one_line};
use crate::error::{Error, panic_message};

/// Where warnings of [`SWALLOWED`]'s crate are logged.
const TARGET: &str = "cubecl_common";

// Process-wide, as the panic hook and the logger are, which nothing can be passed to.
/// The run of this process.
static RUN: Mutex<Option<Run>> = Mutex::new(None);
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// What the process ends with, once everything is done and told.
static CODE: OnceLock<u8> = OnceLock::new();

thread_local! {
    /// Location of this thread's last panic, from the hook to whoever catches it.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

struct Run {
    folder: RunDir,
    log: Log,
    load: BatchFootprint,
    step: Arc<AtomicU64>,
}

/// Registers a run until dropped: a crash of the process is recorded in the run's folder.
#[derive(Debug, Default)]
pub struct CrashGuard {
    step: Arc<AtomicU64>,
}

impl CrashGuard {
    /// Registers the run in `folder`.
    pub fn over(folder: RunDir, log: Log, load: BatchFootprint) -> Self {
        let step = Arc::new(AtomicU64::new(0));
        set_run(Some(Run { folder, log, load, step: Arc::clone(&step) }));
        Self { step }
    }

    /// Records that `step` steps are done.
    pub fn at(&self, step: u64) {
        self.step.store(step, Ordering::Relaxed);
    }

    /// Records no crash any more: the run's end is recorded.
    pub fn release(&self) {
        set_run(None);
    }

    /// Steps done.
    pub fn step(&self) -> u64 {
        self.step.load(Ordering::Relaxed)
    }
}

impl Drop for CrashGuard {
    fn drop(&mut self) {
        set_run(None);
    }
}

fn set_run(run: Option<Run>) {
    *RUN.lock().unwrap_or_else(PoisonError::into_inner) = run;
}

/// Installs the panic hook and the logger, once per process. A file that reaches the limit of its
/// size becomes a failed write, not the process's end.
///
/// # Errors
///
/// If a logger is installed already: caught panics would go unnoticed.
pub fn install() -> Result<(), Error> {
    // Any handler will do: the write then returns EFBIG.
    signal_hook::flag::register(SIGXFSZ, Arc::default())
        .map_err(Error::io("install", "a signal handler"))?;
    let told = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
            told(info);
        }
        let place = info.location().map(Location::to_string);
        let thread = thread::current();
        let name = thread.name().unwrap_or("without a name");
        if is_handled(name) || is_of_device(name) {
            PLACE.set(place);
        } else {
            end(name, place, &panic_message(info.payload()));
        }
    }));
    ::log::set_logger(&Listener).map_err(|_| Error::internal("a logger is installed already"))?;
    ::log::set_max_level(LevelFilter::Warn);
    Ok(())
}

/// Whether the thread that waits for thread `name` turns its panic into an error.
fn is_handled(name: &str) -> bool {
    name == "main" || name == THREAD || name.starts_with(vim_data::THREAD_PREFIX)
}

/// Whether thread `name` is CubeCL's.
fn is_of_device(name: &str) -> bool {
    let (_, format) = DEVICE_THREADS;
    format.split('{').next().is_some_and(|prefix| name.starts_with(prefix))
}

/// The error of a caught panic: a device's fault, or else a defect.
pub fn error_of(panic: &(dyn Any + Send)) -> Error {
    let place = PLACE.take().map_or_else(String::new, |place| format!("{place}: "));
    of_text(&panic_message(panic), &place)
}

/// The error of a check's panic, in one line.
pub fn explain(panic: &(dyn Any + Send)) -> String {
    error_of(panic).to_string()
}

/// The exit code of a program that does `work` with [these rules](self), and whose failure it
/// prints on stderr. A panic after that, as of a device's thread whose driver ends with the
/// process, is not told, and changes no code.
pub fn exit_code_of(work: impl FnOnce() -> Result<(), Error>) -> ExitCode {
    let work = AssertUnwindSafe(|| install().and_then(|()| work()));
    let code = match catch_unwind(work).unwrap_or_else(|panic| Err(error_of(&*panic))) {
        Ok(()) => 0,
        Err(error) => {
            let label = if error.is_fault() { "error: " } else { "" };
            let error_line = format!("{label}{error}");
            let lines = error.details().into_iter().chain([error_line]);
            for line in lines.chain(error.caret().map(str::to_owned)) {
                // Where stderr cannot be written, the exit code says it.
                eprintln!("{line}");
            }
            error.exit_code()
        }
    };
    ExitCode::from(*CODE.get_or_init(|| code))
}

/// The error of a panic's `text`; `place` is prefixed to a defect.
fn of_text(text: &str, place: &str) -> Error {
    let line = one_line(text);
    if let Some(error) = CommError::of_panic(&line) {
        error.into()
    } else if let Some(error) = DeviceError::of(text) {
        error.into()
    } else {
        Error::internal(format!("{place}{line}"))
    }
}

/// Adds the run's device load to `error` if the load is the cause.
pub(crate) fn with_load(error: Error, load: BatchFootprint) -> Error {
    if let Some(&DeviceError::OutOfMemory { bytes, .. }) = error.downcast_ref() {
        DeviceError::OutOfMemory { bytes, load: Some(load) }.into()
    } else if let Some(&KernelError::TooLarge { operation, what, got, limit }) =
        error.downcast_ref()
    {
        DeviceError::TooLarge { operation, what, got, limit, load }.into()
    } else {
        error
    }
}

/// Receives CubeCL's warnings about caught panics.
struct Listener;

impl ::log::Log for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with(TARGET)
    }

    fn log(&self, record: &Record<'_>) {
        let text = if self.enabled(record.metadata()) { record.args().to_string() } else { return };
        if text.contains(SWALLOWED.1) {
            let thread = thread::current();
            end(thread.name().unwrap_or("of a device"), PLACE.take(), &text);
        }
    }

    fn flush(&self) {}
}

/// Reports the error on stderr and in the run's folder, and ends the process at once.
fn end(thread: &str, place: Option<String>, text: &str) -> ! {
    if let Some(&code) = CODE.get() {
        signal_hook::low_level::exit(i32::from(code));
    }
    if IS_ENDING.swap(true, Ordering::SeqCst) {
        loop {
            thread::park();
        }
    }
    let run = RUN.lock().unwrap_or_else(PoisonError::into_inner).take();
    let place = place.map_or_else(String::new, |place| format!(" at {place}"));
    let mut error = of_text(text, &format!("thread {thread} panicked{place}: "));
    if let Some(run) = &run {
        error = with_load(error, run.load);
    }
    // A failure to write cannot be reported any more.
    let _ = writeln!(std::io::stderr(), "error: {error}");
    if let Some(Run { folder, log, step, .. }) = run {
        log.file_line(format!("error: {error}"));
        let exit = ExitRecord {
            step: step.load(Ordering::Relaxed),
            ..ExitRecord::failed(&error, error.exit_code())
        };
        let _ = folder.write_exit(&exit);
    }
    // `std::process::exit` runs handlers that may wait for the panicked thread.
    signal_hook::low_level::exit(i32::from(error.exit_code()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RecomputeChoice;

    #[test]
    fn a_panic_is_the_devices_fault_or_ours() {
        let load = BatchFootprint {
            batch_size: 128,
            parts: 1,
            recompute: RecomputeChoice::Auto,
            in_pairs: true,
        };
        let text = "x: out of device memory allocating 3145728 bytes\nBacktrace";
        let error = with_load(of_text(text, ""), load);
        assert_eq!(
            error.to_string(),
            format!("the device ran out of memory (another 3.0 MiB were asked for): {load}")
        );
        let error = of_text("CUDA_ERROR_LAUNCH_FAILED", "");
        assert!(error.to_string().starts_with("the device failed (CUDA_ERROR_LAUNCH_FAILED)"));
        let text = "CallError(task panicked on device runner thread: an exchange of the ranks failed: NCCL 2.28.3: a gathering failed: remote process exited (6))";
        let error = of_text(text, "here: ");
        assert_eq!(
            (error.to_string().as_str(), error.exit_code()),
            (
                "an exchange of the ranks failed: NCCL 2.28.3: a gathering failed: remote process exited (6)",
                69
            )
        );
        // LibTorch's, in a check of `verify` or a step.
        let text =
            "an `Err` value: Torch(\"wrong index\\nException raised from x.h:1\\nframe #0\")";
        let said = "internal error: here: an `Err` value: Torch(\"wrong index; please report it";
        assert_eq!(of_text(text, "here: ").to_string(), said);
        let error = of_text("a\nb", "here: ");
        assert_eq!(error.to_string(), "internal error: here: a b; please report it");
    }

    #[test]
    fn a_batch_beyond_a_kernel_is_told_the_parts_that_fit() {
        let what =
            "linear: a buffer, in numbers of 4957667328 is beyond the kernel's limit of 4294967295";
        let error = |got| {
            Error::from(KernelError::TooLarge {
                operation: "linear",
                what: "a buffer, in numbers",
                got,
                limit: u32::MAX as usize,
            })
        };
        assert_eq!(error(4_957_667_328).to_string(), format!("{what}: use a smaller batch"));
        let load = BatchFootprint {
            batch_size: 96,
            parts: 1,
            recompute: RecomputeChoice::States,
            in_pairs: false,
        };
        for (times, way) in [
            (2, "set train.accumulate=2 (the same gradient, 48 images at a time)"),
            (5, "set train.accumulate=6 (the same gradient, 16 images at a time)"),
            (97, "use smaller images"),
        ] {
            let got = if times == 2 { 4_957_667_328 } else { times * u32::MAX as usize };
            let error = with_load(error(got), load);
            assert_eq!(error.exit_code(), 78);
            let text = error.to_string();
            assert!(text.ends_with(&format!("limit of 4294967295: {way}")), "{text}");
            assert!(times != 2 || text == format!("{what}: {way}"), "{text}");
        }
    }
}
