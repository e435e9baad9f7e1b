#![doc = include_str!("../README.md")]

pub mod classes;
mod config;
pub mod differences;
mod error;
#[cfg(test)]
mod fixture;
mod grid;
mod latex;
mod metric;
mod outcome;
mod plan;
pub mod predictions;
pub mod report;
pub mod statistics;
mod summary;
mod table;

pub use config::{
    Assignments, DEFAULT_MUST_MATCH, MAX_CELLS, OnFailure, Pack, Pick, ReportConfig, SEED,
    SweepConfig,
};
pub use error::SweepError;
pub use grid::{cells, check_matching, described};
pub use latex::latex;
pub use metric::Metric;
pub use outcome::{Machine, RunOutcome, RunState, Score};
pub use plan::{Candidate, PLAN, PlannedRun, SweepPlan, run_id};
pub use summary::{Comparison, Group, SeedValue, Summary, summarize};
pub use table::{csv, detectable_legend, head, markdown, rows, verdict};
