//! What can end a command, and the exit code that says so.

use std::any::Any;
use std::io;
use std::path::PathBuf;

use vim_checkpoint::ReadError;
use vim_data::{DataError, PictureError, SourceError, StagingError};
use vim_kernels::KernelError;
use vim_model::{Misfit, ModelError};
use vim_slurm::{JobId, SlurmError};

use crate::checkpoint::CheckpointError;
use crate::config::ConfigError;
use crate::fatal;
use crate::fault::{Fault, Load, one_line};
use crate::lock::{Holder, LOCK};
use crate::signals::Stop;
use crate::slurm;

/// Why a command did not succeed. Each text is one line: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),

    /// The data cannot be opened or read.
    #[error("failed to {0}")]
    Data(#[from] DataError),

    /// Verification has found images that cannot be used.
    #[error(
        "{bad} of {images} images cannot be used (listed above): copy them again, or replace or remove them"
    )]
    BadImages {
        /// How many.
        bad: usize,
        /// Of how many.
        images: usize,
    },

    /// An operation cannot run.
    #[error(transparent)]
    Kernel(#[from] KernelError),

    /// The device asked for is not there.
    #[error("{0}")]
    Device(String),

    /// The device has no memory left.
    #[error("the device ran out of memory{}: {}", asked_for(*bytes), advice(*load))]
    DeviceMemory {
        /// What was asked for last.
        bytes: Option<u64>,
        /// What is on the device.
        load: Option<Load>,
    },

    /// The device failed.
    #[error(
        "the device failed ({reason}) and does nothing more for this process: run it again, a training by the same command with --resume auto; if it fails again, look for Xid in the system's log (dmesg) and take another GPU"
    )]
    DeviceLost {
        /// What the driver calls it.
        reason: String,
    },

    /// A checkpoint cannot be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),

    /// A checkpoint does not fit the model.
    #[error(
        "{checkpoint} does not fit the model: {problems}; use the configuration it was made with"
    )]
    Weights {
        /// Which checkpoint.
        checkpoint: String,
        /// What does not fit.
        problems: String,
    },

    /// A file of weights cannot be read.
    #[error("{path} {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        source: ReadError,
    },

    /// Weights do not fit the model.
    #[error(
        "{checkpoint} does not fit the model in {} (listed above): give the model it is of, or allow for it (docs/checkpoints.md)",
        count(misfit.lines().len(), "place")
    )]
    Misfit {
        /// Whose.
        checkpoint: String,
        /// Every disagreement.
        misfit: Box<Misfit>,
    },

    /// Nothing says what model weights are of.
    #[error("{checkpoint} {why}")]
    Unrecognised {
        /// Whose.
        checkpoint: String,
        /// What is in the way, and what to do.
        why: String,
    },

    /// A parameter that the original has nothing for.
    #[error(
        "{checkpoint} cannot be exported: the original has no counterpart of {path} (ssm.a = \"full\")"
    )]
    NoCounterpart {
        /// Whose.
        checkpoint: String,
        /// The parameter.
        path: String,
    },

    /// An image cannot be used.
    #[error(transparent)]
    Picture(#[from] PictureError),

    /// A file of class names is of other classes.
    #[error("{} has {lines} lines, the model has {count} classes: one name a line, in the order of the labels", path.display())]
    ClassNames {
        /// The file.
        path: PathBuf,
        /// Names in it.
        lines: usize,
        /// Classes of the model.
        count: usize,
    },

    /// A file's name does not say what to write.
    #[error("{}: the name must end in {expected}", path.display())]
    Extension {
        /// The file.
        path: PathBuf,
        /// What would do.
        expected: &'static str,
    },

    /// A file would be written over.
    #[error("{} is there already: name another file, or write over it by --force", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },

    /// Arrays to compare with are missing, damaged or of something else.
    #[error("arrays {}: {problem}", path.display())]
    Arrays {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },

    /// A file is no document of `bench`.
    #[error("{} is no result of `vim-train bench -o`: {problem}; measure again, or name another file", path.display())]
    NoBenchmark {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },

    /// The run folder is in use.
    #[error("{} is in use by {holder}: wait for it, end it ({}), or change run.name", path.display(), holder.to_end())]
    InUse {
        /// The folder.
        path: PathBuf,
        /// Who uses it.
        holder: Box<Holder>,
    },

    /// The run folder may be in use, on a file system that has no locks to tell.
    #[error(
        "{} may be in use by {holder}, and this file system has no locks to tell: if that process is gone, remove {} and run this again",
        path.display(),
        path.join(LOCK).display()
    )]
    MayBeInUse {
        /// The folder.
        path: PathBuf,
        /// Who used it last.
        holder: Box<Holder>,
    },

    /// The run folder holds a run, and nothing says to go on with it.
    #[error(
        "{} already holds a run: go on with it by --resume auto, move it aside by --fresh, or change run.name",
        path.display()
    )]
    AlreadyHoldsRun {
        /// The folder.
        path: PathBuf,
    },

    /// The run folder holds no run to go on with.
    #[error("{} holds no run to resume: start one by --resume auto, or correct run.name", path.display())]
    NothingToResume {
        /// The folder.
        path: PathBuf,
    },

    /// There is no such run.
    #[error(
        "{name} is neither a run's folder nor the name of a run in {}{}: `vim-train runs list` names them, --root looks elsewhere",
        root.display(),
        nearest.as_ref().map_or_else(String::new, |name| format!(" (is it `{name}`?)"))
    )]
    NoRun {
        /// What was asked for.
        name: String,
        /// Where names are looked for.
        root: PathBuf,
        /// The run there that may be meant.
        nearest: Option<String>,
    },

    /// The run in the folder was made with another configuration.
    #[error(
        "{} was recorded with another configuration: {}; restore these keys, move the run aside by --fresh, or change run.name",
        path.display(),
        differences.join(", ")
    )]
    ConfigChanged {
        /// The folder.
        path: PathBuf,
        /// Keys with the recorded value and the one asked for.
        differences: Vec<String>,
    },

    /// A file or folder cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },

    /// SLURM, or what is asked of it.
    #[error(transparent)]
    Slurm(#[from] SlurmError),

    /// A run is submitted already.
    #[error(
        "{} has job {job} already ({state}): wait for it, cancel it by `vim-train slurm cancel`, or chain another one to it by --after {job}",
        path.display()
    )]
    Queued {
        /// The run's folder.
        path: PathBuf,
        /// The job.
        job: JobId,
        /// What it is at.
        state: &'static str,
    },

    /// Nothing was submitted under that name.
    #[error(
        "{name} is neither the folder nor the name of a run submitted from {}{}: `vim-train slurm status` names them, --root looks elsewhere",
        root.display(),
        nearest.as_ref().map_or_else(String::new, |name| format!(" (is it `{name}`?)"))
    )]
    NotSubmitted {
        /// What was asked for.
        name: String,
        /// Where names are looked for.
        root: PathBuf,
        /// The run there that may be meant.
        nearest: Option<String>,
    },

    /// A job has no output that is known.
    #[error("{name}: job {job} is an array, or does not say where its output is: look into its slurm folder, or name one of its runs")]
    NoOutput {
        /// The run or sweep.
        name: String,
        /// Its job.
        job: JobId,
    },

    /// A job that was waited for did not succeed.
    #[error("job {job} ended: {state}, exit code {code}; `vim-train slurm logs` shows its output")]
    JobEnded {
        /// The job.
        job: JobId,
        /// How.
        state: &'static str,
        /// Its exit code, 0 if it was killed.
        code: u8,
    },

    /// Several lives of a run have not made a step.
    #[error(
        "no new step in {lives} lives since step {step} (slurm.stop_without_progress): see events.jsonl and the job's output for what ended them, then submit it again"
    )]
    NoProgress {
        /// How many.
        lives: u32,
        /// Where the run stands.
        step: u64,
    },

    /// A signal asked the run to stop.
    #[error("stopped by {} after step {step}: go on by the same command with --resume auto", stop.name())]
    Stopped {
        /// The signal.
        stop: Stop,
        /// Steps done and saved.
        step: u64,
    },

    /// A signal ended a command that saves nothing.
    #[error("interrupted by {}: nothing was saved, run it again", stop.name())]
    Interrupted {
        /// The signal.
        stop: Stop,
    },

    /// The loss or the gradient is no longer finite.
    #[error(
        "training diverged at step {step}: {what}; lower optim.lr or set train.clip_grad, and start again with --fresh"
    )]
    Diverged {
        /// The step.
        step: u64,
        /// What is not finite, and its value.
        what: String,
    },

    /// The run ended without its result.
    #[error("{0}")]
    Failed(String),

    /// A defect of this program.
    #[error("internal error: {0}; please report it")]
    Internal(String),
}

impl Error {
    /// [`Error::Io`] as a function from its cause, for `map_err`.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    /// A panic is a device's fault, or else a defect; its message is the best there is to report.
    #[must_use]
    pub fn from_panic(panic: &(dyn Any + Send)) -> Self {
        let place = fatal::take_place().map_or_else(String::new, |place| format!("{place}: "));
        Self::of_panic(&fatal::message(panic), &place)
    }

    /// The error that a panic's `text` stands for; a defect is reported with `place` before it.
    pub(crate) fn of_panic(text: &str, place: &str) -> Self {
        match Fault::of(text) {
            Some(Fault::OutOfMemory { bytes }) => Self::DeviceMemory { bytes, load: None },
            Some(Fault::Lost { reason }) => Self::DeviceLost { reason },
            None => Self::Internal(format!("{place}{}", one_line(text))),
        }
    }

    /// The same, with what was on the device if that was too much.
    #[must_use]
    pub fn with_load(self, load: Load) -> Self {
        if let Self::DeviceMemory { bytes, .. } = self {
            Self::DeviceMemory { bytes, load: Some(load) }
        } else {
            self
        }
    }

    /// The signal that ended the run, if one did.
    #[must_use]
    pub fn stop(&self) -> Option<Stop> {
        if let Self::Stopped { stop, .. } = self { Some(*stop) } else { None }
    }

    /// What there is to say before the error's own line, a line each.
    #[must_use]
    pub fn details(&self) -> Vec<String> {
        if let Self::Misfit { misfit, .. } = self { misfit.lines() } else { Vec::new() }
    }

    /// The exit code, as `vim-train --help` lists it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) | Self::NoProgress { .. } | Self::JobEnded { code: 0, .. } => 1,
            Self::JobEnded { code, .. } => *code,
            Self::Slurm(error) => slurm::exit_code(error),
            Self::Data(
                DataError::InvalidConfig { .. }
                | DataError::MissingPath { .. }
                | DataError::NoBatches { .. }
                | DataError::Staging(StagingError::NoFolder | StagingError::NotArchives { .. }),
            ) => 78,
            Self::Data(DataError::Staging(_)) => 74,
            Self::Data(DataError::Source(SourceError::Exists { .. })) => 73,
            Self::Device(_)
            | Self::DeviceLost { .. }
            | Self::Kernel(KernelError::NoKernel { .. } | KernelError::NoPrecision { .. }) => 69,
            Self::DeviceMemory { .. } => 71,
            Self::Kernel(KernelError::TooLarge { .. }) => 78,
            Self::Internal(_)
            | Self::Kernel(
                KernelError::Shape { .. } | KernelError::Complex { .. } | KernelError::Dtype { .. },
            )
            | Self::Data(DataError::WorkerPanicked { .. } | DataError::Spawn { .. }) => 70,
            Self::Io { .. }
            | Self::Checkpoint(_)
            | Self::Picture(PictureError::Read { .. })
            | Self::Unreadable { source: ReadError::Io(_), .. } => 74,
            Self::Data(_)
            | Self::NoRun { .. }
            | Self::NotSubmitted { .. }
            | Self::NoOutput { .. }
            | Self::BadImages { .. }
            | Self::Weights { .. }
            | Self::Unreadable { .. }
            | Self::Misfit { .. }
            | Self::Unrecognised { .. }
            | Self::NoCounterpart { .. }
            | Self::Picture(PictureError::Decode { .. })
            | Self::ClassNames { .. }
            | Self::Arrays { .. }
            | Self::NoBenchmark { .. } => 65,
            Self::Extension { .. } => 2,
            Self::InUse { .. }
            | Self::MayBeInUse { .. }
            | Self::AlreadyHoldsRun { .. }
            | Self::Queued { .. }
            | Self::Exists { .. } => 73,
            Self::Stopped { stop: Stop::Scheduler { .. }, .. }
            | Self::Interrupted { stop: Stop::Scheduler { .. } } => 75,
            Self::Stopped { stop: Stop::Keyboard, .. }
            | Self::Interrupted { stop: Stop::Keyboard } => 130,
            Self::Diverged { .. } => 76,
            Self::Config(_) | Self::NothingToResume { .. } | Self::ConfigChanged { .. } => 78,
        }
    }
}

/// How much memory was asked for, where that is known.
fn asked_for(bytes: Option<u64>) -> String {
    bytes.map_or_else(String::new, |bytes| {
        format!(" (another {:.1} MiB were asked for)", bytes as f64 / f64::from(1 << 20))
    })
}

fn advice(load: Option<Load>) -> String {
    load.map_or_else(
        || "take smaller batches or a larger device".to_owned(),
        |load| load.to_string(),
    )
}

/// A number of things.
fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

impl From<ModelError> for Error {
    fn from(error: ModelError) -> Self {
        match error {
            // Not a mistake in the configuration: elsewhere it may well run.
            ModelError::Kernel(error) => Self::Kernel(error),
            ModelError::Range { .. } | ModelError::Conflict { .. } => Self::Config(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use signal_hook::consts::SIGTERM;

    use super::*;

    #[test]
    fn the_codes_that_scripts_rely_on() {
        let stopped = |stop| Error::Stopped { stop, step: 3 };
        for (error, code) in [
            (Error::Failed(String::new()), 1),
            (Error::Data(DataError::NotAnArchive { path: "x".into() }), 65),
            (Error::Device(String::new()), 69),
            (Error::Kernel(KernelError::NoKernel { device: String::new() }), 69),
            (Error::DeviceLost { reason: String::new() }, 69),
            (Error::Internal(String::new()), 70),
            (Error::DeviceMemory { bytes: None, load: None }, 71),
            (Error::AlreadyHoldsRun { path: "x".into() }, 73),
            (Error::io("read", "x")(io::ErrorKind::NotFound.into()), 74),
            (stopped(Stop::Scheduler { signal: SIGTERM }), 75),
            (Error::Diverged { step: 1, what: "loss".into() }, 76),
            (
                ModelError::Range { key: "depth", value: "0".into(), expected: "1".into() }.into(),
                78,
            ),
            (stopped(Stop::Keyboard), 130),
        ] {
            assert_eq!(error.exit_code(), code, "{error}");
        }
    }

    #[test]
    fn a_panic_is_the_devices_fault_or_ours() {
        let load = Load { batch_size: 128, in_pairs: true };
        let text = "x: out of device memory allocating 3145728 bytes\nBacktrace";
        let error = Error::of_panic(text, "").with_load(load);
        assert_eq!(
            error.to_string(),
            format!("the device ran out of memory (another 3.0 MiB were asked for): {load}")
        );
        let error = Error::of_panic("CUDA_ERROR_LAUNCH_FAILED", "");
        assert!(error.to_string().starts_with("the device failed (CUDA_ERROR_LAUNCH_FAILED)"));
        let error = Error::of_panic("a\nb", "here: ");
        assert_eq!(error.to_string(), "internal error: here: a b; please report it");
    }
}
