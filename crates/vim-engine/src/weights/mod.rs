//! Weights from files; why they cannot be read, or do not fit.

pub mod heads;
pub mod place;
pub mod provenance;
pub mod record;
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

    /// The run was submitted to SLURM, and has not begun.
    #[error(
        "{0} is a run that was submitted to SLURM and has not begun: `vim-train slurm status {0}` says how its job is"
    )]
    NotBegun(String),

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

    /// The weights are of another task than a caller's.
    #[error("{checkpoint} is a {is}, no {asked}: take its {is}, or other weights")]
    OtherTask {
        /// Whose weights.
        checkpoint: String,
        /// What its model is called.
        is: &'static str,
        /// What was asked for.
        asked: &'static str,
    },

    /// Weights are asked for otherwise than they were trained.
    #[error(
        "{checkpoint} was trained otherwise: {}; use the weights as they were trained, or allow the difference: {allow}",
        differences.join(", ")
    )]
    NotAsTrained {
        /// Whose weights.
        checkpoint: String,
        /// Keys with the recorded and the requested value.
        differences: Vec<String>,
        /// The flags or the key that allow it.
        allow: String,
    },

    /// The data's classes are not those that the weights were trained for.
    #[error(
        "{checkpoint} records other classes than the data have: it does not know {}: {}; it knows {}",
        counted(unknown),
        listed(unknown),
        listed(known)
    )]
    UnknownClasses {
        /// Whose weights.
        checkpoint: String,
        /// Names of classes that it was not trained for.
        unknown: Vec<String>,
        /// Names of those that it was.
        known: Vec<String>,
    },

    /// The data of a run that goes on lack classes that it was trained for.
    #[error(
        "{checkpoint} records {} that the data lack: {}; give it the data that it began with",
        counted(missing),
        listed(missing)
    )]
    MissingClasses {
        /// Whose weights.
        checkpoint: String,
        /// Their names.
        missing: Vec<String>,
    },

    /// A run would go on with images that it was not trained on.
    #[error(
        "{checkpoint} was trained on other images: {}; give it those, or set train.allow_changed_data = true to go on with these",
        changes.join("; ")
    )]
    OtherImages {
        /// Of which run.
        checkpoint: String,
        /// What changed.
        changes: Vec<String>,
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
        } else if matches!(self, Self::NotAsTrained { .. }) {
            code::CONFIG
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

/// A number of classes in words.
fn counted(classes: &[String]) -> String {
    match classes.len() {
        1 => "1 class".to_owned(),
        count => format!("{count} classes"),
    }
}

/// Names of classes, cut after some.
fn listed(classes: &[String]) -> String {
    const SHOWN: usize = 20;
    let shown: Vec<String> =
        classes.iter().take(SHOWN).map(|name| name.escape_debug().to_string()).collect();
    let more = match classes.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    shown.join(", ") + &more
}
