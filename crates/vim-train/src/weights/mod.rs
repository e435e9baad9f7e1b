//! Weights from files; why they cannot be read, or do not fit.

pub mod heads;
pub mod place;
pub mod source;

use std::path::PathBuf;

use vim_model::StateDictMismatch;
use vim_torch::ReadError;

use crate::error::{Failure, code};

/// Why weights cannot be read, or do not fit.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// A checkpoint of a run does not fit the model.
    #[error(
        "{checkpoint} does not fit the model: {problems}; use the configuration it was made with"
    )]
    Unfit {
        /// Which checkpoint.
        checkpoint: String,
        /// What does not fit.
        problems: String,
    },

    /// A name stands for no weights and no run.
    #[error(
        "{name} is no file of weights, no folder of a run or a checkpoint, and no run in {}{}: `vim-train runs list` names the runs",
        root.display(),
        nearest.as_ref().map_or_else(String::new, |name| format!(" (is it `{name}`?)"))
    )]
    NotFound {
        /// The name.
        name: String,
        /// Where runs were looked for.
        root: PathBuf,
        /// The run with the most similar name.
        nearest: Option<String>,
    },

    /// `best` or `last`, and no run at hand.
    #[error(
        "`{which}` is a checkpoint of a run, and no run is given: write RUN/checkpoints/{which}"
    )]
    NoRun {
        /// Which checkpoint.
        which: String,
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
        places(mismatch)
    )]
    Mismatch {
        /// Whose weights.
        checkpoint: String,
        /// Every disagreement.
        mismatch: Box<StateDictMismatch>,
    },

    /// The model of the weights cannot be determined.
    #[error("{checkpoint} {why}")]
    Unrecognised {
        /// Whose weights.
        checkpoint: String,
        /// The reason, and what to do.
        why: String,
    },

    /// A parameter without a counterpart in the original.
    #[error(
        "{checkpoint} cannot be exported: the original has no counterpart of {path} (ssm.a = \"full\")"
    )]
    NoCounterpart {
        /// Whose weights.
        checkpoint: String,
        /// The parameter.
        path: String,
    },
}

impl Failure for WeightsError {
    fn exit_code(&self) -> u8 {
        if matches!(self, Self::Unreadable { source: ReadError::Io(_), .. }) {
            code::IO
        } else {
            code::DATA
        }
    }

    fn details(&self) -> Vec<String> {
        if let Self::Mismatch { mismatch, .. } = self { mismatch.lines() } else { Vec::new() }
    }
}

fn places(mismatch: &StateDictMismatch) -> String {
    let count = mismatch.lines().len();
    format!("{count} place{}", if count == 1 { "" } else { "s" })
}
