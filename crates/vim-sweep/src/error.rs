//! What can be wrong with a sweep.

use std::path::PathBuf;

use crate::config::{MAX_CELLS, SEED};

/// Why there is no sweep of this. Each text is one line: what, where, what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// The name cannot be a folder's.
    #[error("sweep.name: `{name}` cannot be the name of a folder inside run.root")]
    Name {
        /// As written.
        name: String,
    },
    /// Nothing varies.
    #[error(
        "sweep.grid: there is nothing to sweep: give it a key with its values, as in \"model.discretization\" = [\"zoh\", \"foh\"], or set sweep.seeds"
    )]
    Empty,
    /// A key without values.
    #[error("sweep.grid: {key} has no values: list some, or take the key out")]
    NoValues {
        /// The key.
        key: String,
    },
    /// A value that stands twice in a list.
    #[error("sweep.grid: {key} has the value {value} twice")]
    Twice {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// The seeds are given in both places.
    #[error("sweep.seeds is short for \"run.seed\" in sweep.grid: set one of the two")]
    Seeds,
    /// More runs than anybody means.
    #[error(
        "sweep.grid: {runs} runs are more than the {MAX_CELLS} that a sweep may have: split it"
    )]
    TooMany {
        /// How many, or a text that says so.
        runs: String,
    },
    /// A combination that names a key that does not vary.
    #[error("{place}: {key} is not in the grid{} (its keys: {known})", hint(nearest.as_deref()))]
    NotInGrid {
        /// `sweep.exclude` or `sweep.report.baseline`.
        place: &'static str,
        /// The key.
        key: String,
        /// The key of the grid that is probably meant.
        nearest: Option<String>,
        /// The keys of the grid.
        known: String,
    },
    /// A combination that stands for no run.
    #[error("{place}: no run has {combination}: {why}")]
    MatchesNothing {
        /// `sweep.exclude` or `sweep.report.baseline`.
        place: &'static str,
        /// As written.
        combination: String,
        /// What the grid has instead.
        why: String,
    },
    /// Nothing is left.
    #[error("sweep.exclude leaves no run of {cells}")]
    AllExcluded {
        /// How many there were.
        cells: usize,
    },
    /// A key that must not vary, and is in the grid.
    #[error(
        "{key} is in sweep.grid and in sweep.must_match ({rule}): take it out of the grid, or, if it is what is studied, out of must_match"
    )]
    MustMatchInGrid {
        /// The key.
        key: String,
        /// The entry of `must_match` that it falls under.
        rule: String,
    },
    /// An entry of `must_match` that is no key.
    #[error("sweep.must_match: unknown key `{key}`{}", hint(nearest.as_deref()))]
    UnknownMustMatch {
        /// The entry.
        key: String,
        /// What is probably meant.
        nearest: Option<String>,
    },
    /// Runs that are not like for like.
    #[error(
        "the runs are not like for like: {key} is {values}; a sweep compares runs that have the same, so make it so, or take the key out of sweep.must_match"
    )]
    Unlike {
        /// The key.
        key: String,
        /// Each value with the runs that have it.
        values: String,
    },
    /// Runs that are the same.
    #[error(
        "{first} and {second} are the same run: they differ in keys that no result depends on only ({differences})"
    )]
    SameRun {
        /// One.
        first: String,
        /// The other.
        second: String,
        /// What differs.
        differences: String,
    },
    /// Runs in one folder.
    #[error(
        "{first} and {second} would both be in the folder `{name}`: put what differs into run.name, as in run.name = \"{suggestion}\""
    )]
    SameFolder {
        /// One.
        first: String,
        /// The other.
        second: String,
        /// The folder's name.
        name: String,
        /// A template that tells them apart.
        suggestion: String,
    },
    /// What is planned already is something else.
    #[error(
        "{} was planned otherwise: {}; restore it, choose another sweep.name, or move the sweep aside by --fresh",
        folder.display(),
        differences.join("; ")
    )]
    Changed {
        /// The sweep's folder.
        folder: PathBuf,
        /// What differs.
        differences: Vec<String>,
    },
    /// A plan that cannot be understood.
    #[error(
        "{} cannot be understood: {problem}; restore it, or plan anew by --fresh",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A metric that no run has.
    #[error("no run has the metric `{metric}`{} (there are: {known})", hint(nearest.as_deref()))]
    NoMetric {
        /// As asked for.
        metric: String,
        /// What is probably meant.
        nearest: Option<String>,
        /// Those there are.
        known: String,
    },
}

impl SweepError {
    /// The key of a configuration that is at fault, to say where it was written; none of what is not one's mistake.
    #[must_use]
    pub fn key(&self) -> Option<String> {
        let key = match self {
            Self::Name { .. } => "sweep.name",
            Self::NoValues { key } | Self::Twice { key, .. } if key == SEED => "sweep.seeds",
            Self::NoValues { key }
            | Self::Twice { key, .. }
            | Self::MustMatchInGrid { key, .. } => {
                return Some(format!("sweep.grid.{key}"));
            }
            Self::Seeds => "sweep.seeds",
            Self::Empty | Self::TooMany { .. } | Self::SameRun { .. } | Self::SameFolder { .. } => {
                "sweep.grid"
            }
            Self::NotInGrid { place, .. } | Self::MatchesNothing { place, .. } => *place,
            Self::AllExcluded { .. } => "sweep.exclude",
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
