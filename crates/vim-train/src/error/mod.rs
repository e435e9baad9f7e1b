//! What can end a command, and the exit code that says so.

mod exit_code;
mod model;
mod panic;
mod phrases;

use std::io;
use std::path::PathBuf;

use vim_data::{DataError, PictureError};
use vim_kernels::KernelError;
use vim_migrate::MigrateError;
use vim_model::StateDictMismatch;
use vim_slurm::{JobId, SlurmError};
use vim_torch::ReadError;

use crate::config::ConfigError;
use crate::device::fault::Load;
use crate::run::checkpoint::CheckpointError;
use crate::run::lock::{Holder, LOCK};
use crate::run::signals::Stop;
use phrases::{advice, asked_for, count};

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
        count(mismatch.lines().len(), "place")
    )]
    StateDictMismatch {
        /// Whose.
        checkpoint: String,
        /// Every disagreement.
        mismatch: Box<StateDictMismatch>,
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

    /// A launch script of the original cannot be turned into a configuration.
    #[error("{}{}: {source}", path.display(), source.line.map_or_else(String::new, |line| format!(":{line}")))]
    Script {
        /// The script.
        path: PathBuf,
        /// Why not.
        source: MigrateError,
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

    /// A sweep cannot be made of this.
    #[error(transparent)]
    Sweep(#[from] vim_sweep::SweepError),

    /// A sweep's command did not succeed.
    #[error(transparent)]
    Study(#[from] crate::commands::sweep::StudyError),

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

    /// A batch is beyond what a kernel can count.
    #[error(
        "{operation}: {what} of {got} is beyond the kernel's limit of {limit}: {}",
        load.advice(*got, *limit)
    )]
    TooLarge {
        /// The operation called.
        operation: &'static str,
        /// What is too large.
        what: &'static str,
        /// How large it is.
        got: usize,
        /// How large it may be.
        limit: usize,
        /// What the run asks of the device.
        load: Load,
    },

    /// There is no one job or output that is meant.
    #[error("{name}: {problem}")]
    NoOutput {
        /// The run or sweep.
        name: String,
        /// Why, and what to do.
        problem: String,
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

    /// The signal that ended the run, if one did.
    #[must_use]
    pub fn stop(&self) -> Option<Stop> {
        if let Self::Stopped { stop, .. } = self { Some(*stop) } else { None }
    }

    /// What there is to say before the error's own line, a line each.
    #[must_use]
    pub fn details(&self) -> Vec<String> {
        if let Self::StateDictMismatch { mismatch, .. } = self {
            mismatch.lines()
        } else {
            Vec::new()
        }
    }
}
