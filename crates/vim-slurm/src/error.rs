//! Errors between a configuration and a job.

use std::io;
use std::path::PathBuf;

/// Why a job cannot be submitted or queried. Each text is one line: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum SlurmError {
    /// A value of `[slurm]` is out of range.
    #[error("slurm.{key}: {value} is out of range: expected {expected}")]
    Range {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// The accepted values.
        expected: String,
    },

    /// Two values exclude each other.
    #[error("slurm.{key} does not go with {other}: {reason}")]
    Conflict {
        /// The key.
        key: &'static str,
        /// The other value.
        other: String,
        /// The reason and the remedy.
        reason: String,
    },

    /// A path or another word of the job that no batch script can hold.
    #[error("{0:?} has a line break or a zero byte, which no word of a batch script may have")]
    Word(String),

    /// The cluster cannot meet the request.
    #[error("slurm.{key}: {problem}")]
    Unmet {
        /// The key of the request.
        key: &'static str,
        /// What the cluster has instead, and the remedy.
        problem: String,
    },

    /// The site is unknown.
    #[error("unknown site `{name}`{hint}: name a file, or put {name}.toml into {places}")]
    UnknownSite {
        /// The name.
        name: String,
        /// The nearest name and all known ones.
        hint: String,
        /// Where sites are looked for.
        places: String,
    },

    /// The site's file is invalid.
    #[error("site {}: {problem}", path.display())]
    Site {
        /// The file.
        path: PathBuf,
        /// The reason.
        problem: String,
    },

    /// This site has no SLURM.
    #[error(
        "site `{0}` has no SLURM (its file says scheduler = \"none\"): run `vim-train train` \
         there directly"
    )]
    NoScheduler(String),

    /// The site requires an account.
    #[error(
        "site `{site}` takes jobs with an account only: set slurm.account{}",
        example.as_ref().map_or_else(String::new, |example| format!(", such as \"{example}\""))
    )]
    Account {
        /// The site.
        site: String,
        /// An example of an account.
        example: Option<String>,
    },

    /// This command of SLURM's is missing.
    #[error(
        "`{0}` is not to be found: run this where SLURM is, on a login node, or load its \
         module"
    )]
    Missing(String),

    /// The command did not end in time.
    #[error("`{command}` gave no answer in {seconds} s{after}")]
    TimedOut {
        /// The command.
        command: String,
        /// The time limit.
        seconds: u64,
        /// Advice.
        after: &'static str,
    },

    /// The controller is unreachable.
    #[error(
        "`{command}` cannot reach SLURM's controller ({message}): try again later, `scontrol ping` \
         tells when"
    )]
    Unreachable {
        /// The command.
        command: String,
        /// Its message.
        message: String,
    },

    /// SLURM refused the command.
    #[error("`{command}` was refused: {message}")]
    Refused {
        /// The command.
        command: String,
        /// Its message.
        message: String,
    },

    /// The answer does not parse.
    #[error("`{command}` answered something unknown: {answer}")]
    Answer {
        /// The command.
        command: String,
        /// The answer.
        answer: String,
    },

    /// A file or folder of the job is inaccessible.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
}

/// What is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The configuration or the site's file.
    Config,
    /// The file system.
    Io,
    /// SLURM, or its absence.
    Slurm,
}

impl SlurmError {
    /// What is at fault.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Range { .. }
            | Self::Conflict { .. }
            | Self::Word(_)
            | Self::Unmet { .. }
            | Self::UnknownSite { .. }
            | Self::Site { .. }
            | Self::NoScheduler(_)
            | Self::Account { .. } => ErrorKind::Config,
            Self::Io { .. } => ErrorKind::Io,
            Self::Missing(_)
            | Self::TimedOut { .. }
            | Self::Unreachable { .. }
            | Self::Refused { .. }
            | Self::Answer { .. } => ErrorKind::Slurm,
        }
    }

    /// The key of `[slurm]` at fault, to locate it in the configuration.
    pub fn key(&self) -> Option<&'static str> {
        if let Self::Range { key, .. } | Self::Conflict { key, .. } | Self::Unmet { key, .. } = self
        {
            return Some(key);
        }
        matches!(self, Self::UnknownSite { .. } | Self::NoScheduler(_)).then_some("site")
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
