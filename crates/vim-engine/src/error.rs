//! Why a command failed, and its exit code.
//!
//! Each module defines its errors and implements [`Failure`] beside them; [`Error`] carries any of
//! them to `main`.

use std::any::Any;
use std::fmt;
use std::io;
use std::path::PathBuf;

use vim_data::{DataError, PictureError, SourceError, StagingError};
use vim_dense::DenseError;
use vim_kernels::KernelError;
use vim_model::FeatureError;
use vim_onnx::OnnxError;
use vim_run::checkpoint::CheckpointError;
use vim_run::signals::Interrupted;
use vim_run::{RunError, printable};
use vim_slurm::{ErrorKind, SlurmError};
use vim_sweep::SweepError;

/// The exit codes that `vim-train --help` lists; from 65 on those of BSD's sysexits.
pub mod code {
    /// The run failed, or a check did.
    pub const FAILED: u8 = 1;
    /// Bad command line.
    pub const USAGE: u8 = 2;
    /// Data, a checkpoint or a script missing, damaged or unfit.
    pub const DATA: u8 = 65;
    /// Device not available, or lost; SLURM not available, or a job refused.
    pub const UNAVAILABLE: u8 = 69;
    /// A defect of this program.
    pub const INTERNAL: u8 = 70;
    /// The device ran out of memory.
    pub const MEMORY: u8 = 71;
    /// The target exists already, or is in use.
    pub const EXISTS: u8 = 73;
    /// A file cannot be read or written.
    pub const IO: u8 = 74;
    /// Training diverged.
    pub const DIVERGED: u8 = 76;
    /// Bad configuration.
    pub const CONFIG: u8 = 78;
}

/// An error that can end a command. Its text is one line: what, where, what to do.
pub trait Failure: std::error::Error + Send + Sync + 'static {
    /// The exit code, one of `code`.
    fn exit_code(&self) -> u8;

    /// Whether something is wrong: `false` for an end that is as it should be, though not with
    /// exit code 0.
    fn is_fault(&self) -> bool {
        true
    }

    /// Lines to print before the error's own.
    fn details(&self) -> Vec<String> {
        Vec::new()
    }

    /// What to print below the error's own line: a line of a file with the mistake marked.
    fn caret(&self) -> Option<&str> {
        None
    }
}

/// The longest text of an error, in letters.
const MOST_LETTERS: usize = 4000;

/// Why a command or a call failed. Its text is [`printable`] and of limited length.
#[derive(Debug)]
pub struct Error(Box<dyn Failure>);

impl<E: Failure> From<E> for Error {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

/// The text says all: there is no [`source`](std::error::Error::source) beside it.
impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        // A key or a name from outside may be as long as its file.
        match text.char_indices().nth(MOST_LETTERS) {
            None => formatter.write_str(&printable(&text)),
            Some((end, _)) => write!(formatter, "{} …", printable(&text[..end])),
        }
    }
}

impl Error {
    /// A file or folder that cannot be read or written, as a function for `map_err`.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| IoError { action, path, source }.into()
    }

    /// An input file that cannot be read, or is larger than its kind may be, as a function for
    /// `map_err`.
    pub fn input(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| {
            if is_unfit(&error) {
                return Self::data(format!("cannot use {}: {error}", path.display()));
            }
            Self::io("read", path)(error)
        }
    }

    /// A command that ran to its end without its result.
    pub fn failed(text: impl Into<String>) -> Self {
        Told { code: code::FAILED, text: text.into() }.into()
    }

    /// A flag that has no meaning here.
    pub fn usage(text: impl Into<String>) -> Self {
        Told { code: code::USAGE, text: text.into() }.into()
    }

    /// Input that is missing, damaged or unfit.
    pub fn data(text: impl Into<String>) -> Self {
        Told { code: code::DATA, text: text.into() }.into()
    }

    /// An error of another process, with its exit code.
    pub(crate) fn with_code(code: u8, text: impl Into<String>) -> Self {
        Told { code, text: text.into() }.into()
    }

    /// A defect of this program.
    pub fn internal(text: impl Into<String>) -> Self {
        Internal(text.into()).into()
    }

    /// The exit code, as `vim-train --help` lists it.
    pub fn exit_code(&self) -> u8 {
        self.0.exit_code()
    }

    /// Whether something is wrong.
    pub fn is_fault(&self) -> bool {
        self.0.is_fault()
    }

    /// Lines to print before the error's own.
    pub fn details(&self) -> Vec<String> {
        self.0.details().iter().map(|line| printable(line).into_owned()).collect()
    }

    /// What to print below the error's own line.
    pub fn caret(&self) -> Option<&str> {
        self.0.caret()
    }

    /// The module's error, if its type is `E`.
    pub fn downcast_ref<E: Failure>(&self) -> Option<&E> {
        (&*self.0 as &dyn std::error::Error).downcast_ref()
    }

    /// The module's error by value; `self` if it has another type.
    pub fn downcast<E: Failure>(self) -> Result<E, Self> {
        if self.downcast_ref::<E>().is_none() {
            return Err(self);
        }
        let error: Box<dyn std::error::Error> = self.0;
        Ok(*error.downcast().expect("invariant: its type is checked above"))
    }
}

/// A file or folder cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub(crate) struct IoError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl Failure for IoError {
    fn exit_code(&self) -> u8 {
        code::IO
    }
}

/// An error that nothing but its text and its exit code tells from others.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Told {
    code: u8,
    text: String,
}

impl Failure for Told {
    fn exit_code(&self) -> u8 {
        self.code
    }
}

/// A defect of this program.
#[derive(Debug, thiserror::Error)]
#[error("internal error: {0}; please report it")]
pub(crate) struct Internal(pub(crate) String);

impl Failure for Internal {
    fn exit_code(&self) -> u8 {
        code::INTERNAL
    }
}

/// Whether a file was read, and is not what it is to be.
fn is_unfit(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidData)
}

/// A panic's message.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}

impl Failure for KernelError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::NoKernel { .. } | Self::NoPrecision { .. } | Self::NoGraph { .. } => {
                code::UNAVAILABLE
            }
            Self::TooLarge { .. } | Self::Beyond { .. } | Self::Method { .. } => code::CONFIG,
            Self::Shape { .. }
            | Self::Complex { .. }
            | Self::Dtype { .. }
            | Self::NotFinite { .. } => code::INTERNAL,
        }
    }
}

impl Failure for OnnxError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Opset { .. } => code::USAGE,
            Self::FullA | Self::TooLarge { .. } => code::DATA,
        }
    }
}

impl Failure for DenseError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Kernel(error) | Self::Feature(FeatureError::Kernel(error)) => error.exit_code(),
            Self::Feature(FeatureError::Block { .. }) | Self::OneValue { .. } => code::CONFIG,
            Self::Comm(error) => error.exit_code(),
            Self::Mask { .. } => code::DATA,
            Self::Argument { .. } => code::INTERNAL,
        }
    }
}

/// The data cannot be opened or read.
#[derive(Debug, thiserror::Error)]
#[error("failed to {0}")]
struct DataFailure(DataError);

impl Failure for DataFailure {
    fn exit_code(&self) -> u8 {
        match self {
            Self(
                DataError::InvalidConfig { .. }
                | DataError::MissingPath { .. }
                | DataError::NoBatches { .. }
                | DataError::Staging(StagingError::NoFolder | StagingError::NotArchives { .. }),
            ) => code::CONFIG,
            Self(DataError::Staging(_) | DataError::Spawn { .. }) => code::IO,
            Self(DataError::Source(SourceError::Exists { .. })) => code::EXISTS,
            Self(DataError::WorkerPanicked { .. }) => code::INTERNAL,
            Self(error) if error.is_io() => code::IO,
            Self(_) => code::DATA,
        }
    }
}

impl From<DataError> for Error {
    fn from(error: DataError) -> Self {
        if let DataError::Write { path, source } = error {
            return Self::io("write", path)(source);
        }
        DataFailure(error).into()
    }
}

impl Failure for PictureError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Read { .. } => code::IO,
            Self::Decode { .. } | Self::Shape { .. } => code::DATA,
        }
    }
}

impl Failure for SlurmError {
    fn exit_code(&self) -> u8 {
        match self.kind() {
            ErrorKind::Io if matches!(self, Self::Io { source, .. } if is_unfit(source)) => {
                code::DATA
            }
            ErrorKind::Config => code::CONFIG,
            ErrorKind::Io => code::IO,
            ErrorKind::Slurm => code::UNAVAILABLE,
        }
    }
}

impl Failure for SweepError {
    fn exit_code(&self) -> u8 {
        let is_data = matches!(self, Self::Damaged { .. } | Self::NoMetric { .. });
        if is_data { code::DATA } else { code::CONFIG }
    }
}

impl Failure for RunError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::InUse { .. } | Self::MayBeInUse { .. } | Self::AlreadyHoldsRun { .. } => {
                code::EXISTS
            }
            Self::NothingToResume { .. } | Self::ConfigChanged { .. } => code::CONFIG,
            Self::Displaced(_) | Self::Checkpoint(_) | Self::Io { .. } => code::IO,
            Self::Internal(_) => code::INTERNAL,
        }
    }
}

impl Failure for CheckpointError {
    fn exit_code(&self) -> u8 {
        code::IO
    }
}

impl Failure for Interrupted {
    fn exit_code(&self) -> u8 {
        self.stop.exit_code()
    }
}

#[cfg(test)]
mod tests {
    use signal_hook::consts::SIGTERM;
    use vim_model::ModelError;
    use vim_run::signals::Stop;

    use super::*;
    use crate::device::DeviceError;
    use crate::train::TrainError;

    #[test]
    fn a_name_from_outside_cannot_make_up_lines() {
        let error = Error::data("x\n\u{1b}[2Jy.png is no image");
        assert_eq!(error.to_string(), r"x\n\u{1b}[2Jy.png is no image");
    }

    #[test]
    fn the_codes_that_scripts_rely_on() {
        let stopped = |stop| TrainError::Stopped { stop, step: 3 }.into();
        let range = ModelError::Range { key: "depth", value: "0".into(), expected: "1".into() };
        let data = |kind: io::ErrorKind| DataError::Io { path: "x".into(), source: kind.into() };
        let codes: [(Error, u8); 19] = [
            (Error::failed(""), 1),
            (DataError::NotAnArchive("x".into()).into(), 65),
            (data(io::ErrorKind::NotFound).into(), 65),
            (data(io::ErrorKind::InvalidData).into(), 65),
            (data(io::ErrorKind::FileTooLarge).into(), 65),
            (data(io::ErrorKind::PermissionDenied).into(), 74),
            (data(io::ErrorKind::Other).into(), 74),
            (DeviceError::Unavailable(String::new()).into(), 69),
            (KernelError::NoKernel { device: String::new() }.into(), 69),
            (DeviceError::Lost { reason: String::new() }.into(), 69),
            (DeviceError::OldDriver.into(), 69),
            (Error::internal(""), 70),
            (DeviceError::OutOfMemory { bytes: None, load: None }.into(), 71),
            (RunError::AlreadyHoldsRun { path: "x".into() }.into(), 73),
            (Error::io("read", "x")(io::ErrorKind::NotFound.into()), 74),
            (stopped(Stop::Scheduler { signal: SIGTERM }), 75),
            (TrainError::Diverged { step: 1, what: "loss".into() }.into(), 76),
            (range.into(), 78),
            (stopped(Stop::Keyboard), 130),
        ];
        for (error, code) in codes {
            assert_eq!(error.exit_code(), code, "{error}");
        }
    }
}
