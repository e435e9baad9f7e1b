//! `vim-train data`: looks after the images.

mod bench;
mod check_golden;
mod show;

use clap::Subcommand;

use crate::error::Error;
use bench::BenchArgs;
use check_golden::CheckGoldenArgs;
use show::ShowArgs;

/// A subcommand of `vim-train data`.
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Time the loader alone, and name what holds it up.
    #[command(after_help = bench::EXAMPLES)]
    Bench(BenchArgs),
    /// Compute arrays of the original's programs again, and compare.
    #[command(after_help = check_golden::EXAMPLES)]
    CheckGolden(CheckGoldenArgs),
    /// Write a picture of a batch, before and after augmentation, and print what was drawn.
    #[command(after_help = show::EXAMPLES)]
    Show(ShowArgs),
}

/// `vim-train data`.
///
/// # Errors
///
/// The subcommand's.
pub fn run(command: &DataCommand) -> Result<(), Error> {
    match command {
        DataCommand::Bench(args) => bench::run(args),
        DataCommand::CheckGolden(args) => check_golden::run(args),
        DataCommand::Show(args) => show::run(args),
    }
}
