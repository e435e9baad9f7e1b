#![doc = include_str!("../README.md")]

mod config;
mod error;
#[cfg(test)]
mod fixture;
mod grid;
mod id;
mod matching;
mod metric;
mod outcome;
mod plan;
pub mod report;
pub mod statistics;
mod summary;
mod table;

pub use config::{
    Assignments, DEFAULT_MUST_MATCH, MAX_CELLS, OnFailure, Pick, ReportConfig, SEED, SweepConfig,
};
pub use error::SweepError;
pub use grid::{cells, described};
pub use id::run_id;
pub use matching::check_matching;
pub use metric::{Metric, metrics};
pub use outcome::{Machine, RunOutcome, RunState, Score};
pub use plan::{Candidate, PLAN, PlannedRun, SweepPlan};
pub use summary::{Comparison, Group, SeedValue, Summary, summarize};
pub use table::{csv, head, markdown, rows};
