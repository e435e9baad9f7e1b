//! Errors of sweep commands and their exit codes.

use std::path::PathBuf;

use vim_run::signals::Stop;

use crate::error::{Failure, code};

/// Errors of sweep commands.
#[derive(Debug, thiserror::Error)]
pub enum SweepRunError {
    /// A file that describes a single run.
    #[error(
        "{} has no [sweep] section: add one with a grid (docs/experiments.md), or train it by `vim-train train`",
        path.display()
    )]
    NoSection {
        /// The file.
        path: PathBuf,
    },

    /// A folder that holds no sweep.
    #[error(
        "{} holds no sweep: `vim-train sweep plan FILE` makes one in run.root/sweep.name",
        path.display()
    )]
    NoSweep {
        /// The folder.
        path: PathBuf,
    },

    /// Assignments where the configurations are frozen.
    #[error("{} is a planned sweep, whose configurations are frozen: --set goes with its file", path.display())]
    Frozen {
        /// The folder.
        path: PathBuf,
    },

    /// A key set on the command line that the grid varies.
    #[error(
        "--set {key}: the sweep varies it; set sweep.grid, or sweep.seeds for run.seed, instead"
    )]
    SetInGrid {
        /// The key.
        key: String,
    },

    /// Runs whose configurations cannot be used.
    #[error(
        "{} of {cells} runs of {} cannot be trained (listed above): nothing was planned",
        problems,
        path.display()
    )]
    Cells {
        /// The file.
        path: PathBuf,
        /// How many runs.
        cells: usize,
        /// How many of them have a problem.
        problems: usize,
    },

    /// No such run.
    #[error("{} has no run {asked}: `vim-train sweep status {}` lists them", folder.display(), folder.display())]
    NoEntry {
        /// The sweep's folder.
        folder: PathBuf,
        /// The value requested.
        asked: String,
    },

    /// A baseline that cannot be understood.
    #[error(
        "--baseline {text}: expected KEY=VALUE with a key of the grid, or a value that only one of them has"
    )]
    Baseline {
        /// The value requested.
        text: String,
    },

    /// A sweep that other processes are running.
    #[error("{} has runs at work ({name}): wait for them, or end them", folder.display())]
    AtWork {
        /// The sweep's folder.
        folder: PathBuf,
        /// One of the runs.
        name: String,
    },

    /// Some runs failed.
    #[error(
        "{failed} of {started} runs did not finish (listed above); see to the reason, then `vim-train sweep retry {} --failed`",
        folder.display()
    )]
    Failed {
        /// The sweep's folder.
        folder: PathBuf,
        /// How many.
        failed: usize,
        /// Of how many that were started.
        started: usize,
    },

    /// A signal requested a stop.
    #[error(
        "stopped by {}: {left} runs are left, those at work are saved; the same command goes on",
        stop.name()
    )]
    Stopped {
        /// The signal.
        stop: Stop,
        /// Runs that are not finished.
        left: usize,
    },
}

impl Failure for SweepRunError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Failed { .. } => code::FAILED,
            Self::Baseline { .. } => code::USAGE,
            Self::NoSweep { .. } | Self::NoEntry { .. } => code::DATA,
            Self::AtWork { .. } => code::EXISTS,
            Self::Stopped { stop, .. } => stop.exit_code(),
            Self::NoSection { .. }
            | Self::Frozen { .. }
            | Self::SetInGrid { .. }
            | Self::Cells { .. } => code::CONFIG,
        }
    }
}
