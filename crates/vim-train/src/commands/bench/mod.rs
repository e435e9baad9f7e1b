//! `vim-train bench`: how fast whole models are, and in how much memory.
//!
//! `rows.rs` measures: one row for each method, mode and batch size, written to a document
//! (`record.rs`) as they come. `compare/` turns documents into tables and plots.

mod args;
mod clock;
mod compare;
mod guard;
mod memory;
mod record;
mod rows;
mod subject;
mod table;

pub use args::{BenchArgs, BenchCommand, CompareArgs, MeasureArgs, Methods, ModeChoice};
pub use record::{Document, Latency, Mode, Row, Throughput};

use crate::error::Error;

/// `vim-train bench`.
/// A row that does not run is not an error; the row records the reason.
pub fn run(args: &BenchArgs) -> Result<(), Error> {
    match &args.what {
        Some(BenchCommand::Compare(args)) => compare::run(args),
        None => rows::run(&args.measure),
    }
}
