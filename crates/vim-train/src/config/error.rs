//! What can be wrong with a configuration, and where it was written.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use vim_config::{EXTENDS, ExpandError, LayerError, LayerProblem, Location};
use vim_data::DataError;
use vim_kernels::{KERNEL_VARIABLE, KernelError};
use vim_model::ModelError;
use vim_slurm::SlurmError;
use vim_sweep::SweepError;

use super::embedded;
use super::versions::{OLDEST, VERSION};
use crate::error::{Error, Failure, code};

/// A configuration that cannot be used. Its text is one line: where, which key, what, what to do.
#[derive(Debug)]
pub struct ConfigError {
    /// Where the value was written.
    pub origin: Origin,
    /// The key's path, such as `data.workers`; empty where the text as a whole is at fault.
    pub key: String,
    /// What is wrong.
    pub problem: Box<Problem>,
    /// The line of the file with the place marked, for a terminal.
    pub caret: Option<String>,
}

/// A problem and its byte range in the text.
pub(super) type Located = (Box<ConfigError>, Option<Range<usize>>);

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Not known, or nowhere: a default, or a configuration made by code.
    Unknown,
    /// In a file.
    File {
        /// The file.
        path: PathBuf,
        /// Line and column, from 1.
        position: Option<(usize, usize)>,
    },
    /// On the command line, as written there.
    Set(String),
    /// In the environment.
    Environment,
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The text is not TOML.
    #[error("not valid TOML: {0}")]
    Syntax(String),
    /// The file, or one that it extends, cannot be read.
    #[error("{0}")]
    Extends(#[source] LayerProblem),
    /// No file and no embedded configuration.
    #[error("there is no such file{}", match meant {
        Some(name) => format!("; did you mean the built-in `{name}`?"),
        None => "; `vim-train config list` lists the configurations that need none".to_owned(),
    })]
    Missing {
        /// The embedded configuration that was probably meant.
        meant: Option<&'static str>,
    },
    /// A folder in place of a file.
    #[error(
        "it is a folder, and a configuration is a file, as {0}/config.toml is of a run; `vim-train new {0}` writes one for the images in a folder"
    )]
    Folder(String),
    /// Files to extend, where no file says from which folder.
    #[error("only a file can extend others")]
    NoFolder,
    /// A path whose variables cannot be filled in.
    #[error("{0}")]
    Variable(#[source] ExpandError),
    /// A file that is made for another version of this program.
    #[error(
        "{0} is unknown, this vim-train reads versions {OLDEST} to {VERSION}: use the vim-train that the file was written for, or correct the number"
    )]
    Version(i64),
    /// Layers of different versions, which mean different things by the same keys.
    #[error(
        "{version} here, and {other} {place}: write the same in both, and see docs/config.md for what differs"
    )]
    Versions {
        /// The version at this place.
        version: i64,
        /// The version of a layer below it.
        other: i64,
        /// Where that is written.
        place: String,
    },
    /// No such key.
    #[error("unknown key{}", hint(nearest.as_deref(), known))]
    UnknownKey {
        /// The key that was probably meant.
        nearest: Option<String>,
        /// The keys there are at this place.
        known: Vec<String>,
    },
    /// No such choice.
    #[error("unknown value `{value}`{}", hint(nearest.as_deref(), known))]
    UnknownValue {
        /// What was written.
        value: String,
        /// The choice that was probably meant.
        nearest: Option<String>,
        /// The choices there are.
        known: Vec<String>,
    },
    /// A value of the wrong kind.
    #[error("{0}")]
    Type(String),
    /// A value outside its range.
    #[error("{value} is out of range: expected {expected}")]
    Range {
        /// What was written.
        value: String,
        /// What would do.
        expected: String,
    },
    /// A value that does not go with that of another key.
    #[error("{value} does not go with {other}: {reason}")]
    Conflict {
        /// What was written.
        value: String,
        /// The other key, and its value.
        other: String,
        /// Why not, and what would do.
        reason: String,
    },
    /// Runs that a sweep cannot have.
    #[error("{0}")]
    Sweep(#[source] SweepError),
    /// A job that the cluster cannot have.
    #[error("{0}")]
    Slurm(#[source] SlurmError),
    /// Data that cannot be trained on.
    #[error("failed to {0}")]
    Data(#[source] DataError),
    /// An implementation that is not there.
    #[error("{0}")]
    Kernel(#[source] KernelError),
    /// A `--set` without `=`, or whose key is not a path.
    #[error("expected KEY=VALUE, such as optim.lr=5e-4")]
    Assignment,
    /// A name template that cannot be filled in.
    #[error("no key `{name}` for `{{{name}}}`{}", hint(nearest.as_deref(), &[]))]
    Placeholder {
        /// What stands between the braces.
        name: String,
        /// The key that was probably meant.
        nearest: Option<String>,
    },
    /// A name that cannot be a folder's.
    #[error("`{0}` cannot be the name of a folder inside run.root")]
    FolderName(String),
}

impl ConfigError {
    /// A problem of unknown origin.
    pub(crate) fn new(key: impl Into<String>, problem: Problem) -> Self {
        let (key, problem) = (key.into(), Box::new(problem));
        Self { origin: Origin::Unknown, key, problem, caret: None }
    }

    /// `value` of `key` is outside its range.
    pub(crate) fn range(
        key: impl Into<String>,
        value: impl fmt::Display,
        expected: impl Into<String>,
    ) -> Self {
        Self::new(key, Problem::Range { value: value.to_string(), expected: expected.into() })
    }

    /// The configuration error of a data error.
    pub(crate) fn of_data(error: DataError) -> Self {
        if let DataError::InvalidConfig { key, value, expected } = error {
            return Self::range(key, value, expected);
        }
        let key = if matches!(error, DataError::NoBatches { .. }) {
            "train.batch_size"
        } else if matches!(error, DataError::MissingPath { .. }) {
            "data.dataset"
        } else {
            "data"
        };
        Self::new(key, Problem::Data(error))
    }

    /// The configuration error of a sweep error that names a key; other errors are returned
    /// unchanged.
    pub(crate) fn of_sweep(error: SweepError) -> Result<Self, SweepError> {
        match error.key() {
            Some(key) => Ok(Self::new(key, Problem::Sweep(error))),
            None => Err(error),
        }
    }

    /// The same error, with what to do where there is no file at `path`.
    pub(super) fn with_meant(mut self, path: &Path) -> Self {
        if let Problem::Extends(LayerProblem::Read(error)) = &*self.problem {
            let kind = error.kind();
            if kind == io::ErrorKind::NotFound {
                *self.problem = Problem::Missing { meant: embedded::meant(path) };
            } else if kind == io::ErrorKind::IsADirectory {
                *self.problem = Problem::Folder(path.display().to_string());
            }
        }
        self
    }

    /// Whether the problem's text already names the key.
    fn names_its_key(&self) -> bool {
        if let Problem::Sweep(error) = &*self.problem {
            return !matches!(error, SweepError::NoMetric { .. });
        }
        matches!(*self.problem, Problem::Slurm(_))
    }

    /// The configuration error of a SLURM error.
    pub(crate) fn of_slurm(error: SlurmError) -> Self {
        if let SlurmError::Range { key, value, expected } = error {
            return Self::range(format!("slurm.{key}"), value, expected);
        }
        if let SlurmError::Conflict { key, other, reason } = error {
            let problem = Problem::Conflict { value: "this".to_owned(), other, reason };
            return Self::new(format!("slurm.{key}"), problem);
        }
        Self::range("slurm", "the section", error.to_string())
    }

    /// The same problem, at `origin`.
    pub(crate) fn at(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    /// The same problem, at a place in a file.
    pub(super) fn placed(self, place: Location) -> Self {
        let caret = Some(place.caret);
        let origin = Origin::File { path: place.path, position: Some(place.position) };
        Self { origin, caret, ..self }
    }

    /// The configuration error of a file, or of the files that it extends.
    pub(super) fn of_layer(error: LayerError) -> Self {
        let LayerError { path, location, problem } = error;
        let is_file = matches!(problem, LayerProblem::Read(_) | LayerProblem::Syntax(_));
        let error = Self::new(if is_file { "" } else { EXTENDS }, Problem::Extends(problem));
        match location {
            Some(location) => error.placed(location),
            None => error.at(Origin::File { path, position: None }),
        }
    }
}

impl From<ModelError> for ConfigError {
    fn from(error: ModelError) -> Self {
        match error {
            ModelError::Range { key, value, expected } => {
                Self::range(format!("model.{key}"), value, expected)
            }
            ModelError::Conflict { key, value, other, reason } => {
                Self::new(key, Problem::Conflict { value, other, reason })
            }
            ModelError::Kernel(error) => Self::new("ssm.scan", Problem::Kernel(error)),
        }
    }
}

/// A missing kernel is no configuration error: another device may have it.
impl From<ModelError> for Error {
    fn from(error: ModelError) -> Self {
        match error {
            ModelError::Kernel(error) => error.into(),
            ModelError::Range { .. } | ModelError::Conflict { .. } => {
                ConfigError::from(error).into()
            }
        }
    }
}

impl std::error::Error for ConfigError {}

impl Failure for ConfigError {
    fn exit_code(&self) -> u8 {
        code::CONFIG
    }

    fn caret(&self) -> Option<&str> {
        self.caret.as_deref()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.origin != Origin::Unknown {
            write!(formatter, "{}: ", self.origin)?;
        }
        if !self.key.is_empty() && !self.names_its_key() {
            write!(formatter, "{}: ", self.key)?;
        }
        self.problem.fmt(formatter)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => Ok(()),
            Self::File { path, position: None } => write!(formatter, "{}", path.display()),
            Self::File { path, position: Some((line, column)) } => {
                write!(formatter, "{}:{line}:{column}", path.display())
            }
            Self::Set(assignment) => write!(formatter, "from --set {assignment}"),
            Self::Environment => write!(formatter, "from {KERNEL_VARIABLE}"),
        }
    }
}

fn hint(nearest: Option<&str>, known: &[String]) -> String {
    let mut hint = nearest.map_or_else(String::new, |name| format!(", did you mean `{name}`?"));
    if !known.is_empty() {
        hint.push_str(&format!(" (known: {})", known.join(", ")));
    }
    hint
}

/// The name in `known` that `word` probably misspells.
pub(crate) fn nearest(word: &str, known: &[String]) -> Option<String> {
    vim_config::nearest(word, known.iter().map(String::as_str)).map(str::to_owned)
}
