//! Errors of sweeps.

use std::path::PathBuf;

use crate::config::{MAX_CELLS, SEED};

/// Why a sweep cannot be planned or reported. Each text is one line: what, where, what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// The name is not a valid folder name.
    #[error("sweep.name: `{0}` cannot be the name of a folder inside run.root")]
    Name(String),
    /// No key varies.
    #[error(
        "sweep.grid: there is nothing to sweep: give it a key with its values, as in \
         \"model.discretization\" = [\"zoh\", \"foh\"], or set sweep.seeds"
    )]
    Empty,
    /// This key has no values.
    #[error("sweep.grid: {0} has no values: list some, or take the key out")]
    NoValues(String),
    /// A list contains a value twice.
    #[error("sweep.grid: {key} has the value {value} twice")]
    Twice {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// Seeds are set in both places.
    #[error("sweep.seeds is short for \"run.seed\" in sweep.grid: set one of the two")]
    Seeds,
    /// There are too many runs, by this product.
    #[error("sweep.grid: {0} runs are more than the {MAX_CELLS} that a sweep may have: split it")]
    TooMany(String),
    /// A combination contains a key that does not vary.
    #[error("{place}: {key} is not in the grid{} (its keys: {known})", hint(nearest.as_deref()))]
    NotInGrid {
        /// `sweep.exclude` or `sweep.report.baseline`.
        place: &'static str,
        /// The key.
        key: String,
        /// The nearest key of the grid.
        nearest: Option<String>,
        /// The keys of the grid.
        known: String,
    },
    /// No run has the combination.
    #[error("{place}: no run has {combination}: {why}")]
    MatchesNothing {
        /// `sweep.exclude` or `sweep.report.baseline`.
        place: &'static str,
        /// As written.
        combination: String,
        /// The reason.
        why: String,
    },
    /// `exclude` matches all runs, whose number this is.
    #[error("sweep.exclude leaves no run of {0}")]
    AllExcluded(usize),
    /// A key of the grid must not vary.
    #[error(
        "{key} is in sweep.grid and in sweep.must_match ({rule}): take it out of the grid, or, if \
         it is what is studied, out of must_match"
    )]
    MustMatchInGrid {
        /// The key.
        key: String,
        /// The entry of `must_match` with the key.
        rule: String,
    },
    /// An entry of `must_match` is not a key.
    #[error("sweep.must_match: unknown key `{key}`{}", hint(nearest.as_deref()))]
    UnknownMustMatch {
        /// The entry.
        key: String,
        /// The nearest known name.
        nearest: Option<String>,
    },
    /// Runs differ in a key under `must_match`.
    #[error(
        "the runs are not like for like: {key} is {values}; a sweep compares runs that have the \
         same, so make it so, or take the key out of sweep.must_match"
    )]
    Unlike {
        /// The key.
        key: String,
        /// Each value with its runs.
        values: String,
    },
    /// Two runs are the same.
    #[error(
        "{first} and {second} are the same run: they differ in keys that no result depends on only \
         ({differences})"
    )]
    SameRun {
        /// One.
        first: String,
        /// The other.
        second: String,
        /// What differs.
        differences: String,
    },
    /// Two runs have the same folder.
    #[error(
        "{first} and {second} would both be in the folder `{name}`: put what differs into \
         run.name, as in run.name = \"{suggestion}\""
    )]
    SameFolder {
        /// One.
        first: String,
        /// The other.
        second: String,
        /// The folder's name.
        name: String,
        /// A template that distinguishes them.
        suggestion: String,
    },
    /// The existing plan differs.
    #[error(
        "{} was planned otherwise: {}; restore it, choose another sweep.name, or move the sweep \
         aside by --fresh",
        folder.display(),
        differences.join("; ")
    )]
    Changed {
        /// The sweep's folder.
        folder: PathBuf,
        /// The differences.
        differences: Vec<String>,
    },
    /// The plan does not parse.
    #[error(
        "{} cannot be understood: {problem}; restore it, or plan anew by --fresh",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        problem: String,
    },
    /// No run has the metric.
    #[error("no run has the metric `{metric}`{} (there are: {known})", hint(nearest.as_deref()))]
    NoMetric {
        /// Its name.
        metric: String,
        /// The nearest known name.
        nearest: Option<String>,
        /// The existing metrics.
        known: String,
    },
}

impl SweepError {
    /// The key of the configuration at fault, to locate it; `None` if none is.
    pub fn key(&self) -> Option<String> {
        let key = match self {
            Self::Name(_) => "sweep.name",
            Self::NoValues(key) | Self::Twice { key, .. } if key == SEED => "sweep.seeds",
            Self::NoValues(key) | Self::Twice { key, .. } | Self::MustMatchInGrid { key, .. } => {
                return Some(format!("sweep.grid.{key}"));
            }
            Self::Seeds => "sweep.seeds",
            Self::Empty | Self::TooMany(_) | Self::SameRun { .. } | Self::SameFolder { .. } => {
                "sweep.grid"
            }
            Self::NotInGrid { place, .. } | Self::MatchesNothing { place, .. } => *place,
            Self::AllExcluded(_) => "sweep.exclude",
            Self::UnknownMustMatch { .. } | Self::Unlike { .. } => "sweep.must_match",
            Self::NoMetric { .. } => "sweep.report.metric",
            Self::Changed { .. } | Self::Damaged { .. } => return None,
        };
        Some(key.to_owned())
    }
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!(", did you mean `{name}`?"))
}
