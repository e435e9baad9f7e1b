//! What can go wrong between a configuration and a job.

use std::io;
use std::path::PathBuf;

/// Why there is no job, or nothing known about it. Each text is one line: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum SlurmError {
    /// A value of `[slurm]` that cannot be used.
    #[error("slurm.{key}: {value} is out of range: expected {expected}")]
    Range {
        /// The key.
        key: &'static str,
        /// What was written.
        value: String,
        /// What would do.
        expected: String,
    },

    /// Two values that do not go together.
    #[error("slurm.{key} does not go with {other}: {reason}")]
    Conflict {
        /// The key.
        key: &'static str,
        /// The other.
        other: String,
        /// Why not, and what would do.
        reason: String,
    },

    /// A request that this cluster cannot meet.
    #[error("slurm.{key}: {problem}")]
    Unmet {
        /// The key that asks for it.
        key: &'static str,
        /// What the cluster has instead, and what to do.
        problem: String,
    },

    /// No such site.
    #[error("unknown site `{name}`{hint}: name a file, or put {name}.toml into {places}")]
    UnknownSite {
        /// What was asked for.
        name: String,
        /// The nearest, and all that are known.
        hint: String,
        /// Where sites are looked for.
        places: String,
    },

    /// A site's file that cannot be used.
    #[error("site {}: {problem}", path.display())]
    Site {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },

    /// A site without SLURM.
    #[error(
        "site `{site}` has no SLURM (its file says scheduler = \"none\"): run `vim-train train` there directly"
    )]
    NoScheduler {
        /// The site.
        site: String,
    },

    /// A site that bills somebody.
    #[error("site `{site}` takes jobs with an account only: set slurm.account{}", example.as_ref().map_or_else(String::new, |example| format!(", such as \"{example}\"")))]
    Account {
        /// The site.
        site: String,
        /// What accounts look like there.
        example: Option<String>,
    },

    /// SLURM's commands are not there.
    #[error(
        "`{command}` is not to be found: run this where SLURM is, on a login node, or load its module"
    )]
    Missing {
        /// The command.
        command: String,
    },

    /// A command that did not come back.
    #[error("`{command}` gave no answer in {seconds} s{after}")]
    TimedOut {
        /// The command.
        command: String,
        /// How long it was waited for.
        seconds: u64,
        /// What to do.
        after: &'static str,
    },

    /// The controller is away.
    #[error(
        "`{command}` cannot reach SLURM's controller ({message}): try again later, `scontrol ping` tells when"
    )]
    Unreachable {
        /// The command.
        command: String,
        /// What it said.
        message: String,
    },

    /// SLURM said no.
    #[error("`{command}` was refused: {message}")]
    Refused {
        /// The command.
        command: String,
        /// What it said.
        message: String,
    },

    /// An answer that is not understood.
    #[error("`{command}` answered something unknown: {answer}")]
    Answer {
        /// The command.
        command: String,
        /// What it said.
        answer: String,
    },

    /// A file or folder of the job.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
}

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The configuration's or the site file's: another one would do.
    Config,
    /// The file system's.
    Io,
    /// SLURM's, or that of its absence.
    Slurm,
}

impl SlurmError {
    /// Whose fault it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Range { .. }
            | Self::Conflict { .. }
            | Self::Unmet { .. }
            | Self::UnknownSite { .. }
            | Self::Site { .. }
            | Self::NoScheduler { .. }
            | Self::Account { .. } => ErrorKind::Config,
            Self::Io { .. } => ErrorKind::Io,
            Self::Missing { .. }
            | Self::TimedOut { .. }
            | Self::Unreachable { .. }
            | Self::Refused { .. }
            | Self::Answer { .. } => ErrorKind::Slurm,
        }
    }

    /// The key of `[slurm]` that is at fault, where one is, to say where it was written.
    #[must_use]
    pub fn key(&self) -> Option<&'static str> {
        match self {
            Self::Range { key, .. } | Self::Conflict { key, .. } | Self::Unmet { key, .. } => {
                Some(key)
            }
            Self::UnknownSite { .. } | Self::NoScheduler { .. } => Some("site"),
            Self::Site { .. }
            | Self::Account { .. }
            | Self::Missing { .. }
            | Self::TimedOut { .. }
            | Self::Unreachable { .. }
            | Self::Refused { .. }
            | Self::Answer { .. }
            | Self::Io { .. } => None,
        }
    }

    /// Whether another configuration would do.
    #[must_use]
    pub fn is_config(&self) -> bool {
        self.kind() == ErrorKind::Config
    }

    /// [`SlurmError::Io`] as a function from its cause, for `map_err`.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}
