//! `vim-train data`: inspects and packs the images.

mod bar;
mod bench;
mod check_golden;
mod pack;
mod scan;
mod show;
mod verify;
mod which;

use clap::Subcommand;

use crate::error::Error;
use bench::BenchArgs;
use check_golden::CheckGoldenArgs;
use pack::PackArgs;
use scan::ScanArgs;
use show::ShowArgs;
use verify::VerifyArgs;

const EXAMPLES: &str = "\
Examples:
  vim-train data scan configs/vim_tiny_imagenet.toml
  vim-train data scan --set data.dataset=imagenet --set data.path=/scratch/imagenet
  vim-train data verify configs/vim_tiny_imagenet.toml         once, after downloading or copying
  vim-train data pack configs/vim_tiny_imagenet.toml -o /scratch/imagenet-pack
  vim-train data bench configs/vim_tiny_imagenet.toml          what the loader alone can do here
  vim-train data show configs/vim_tiny_imagenet.toml           what the model will see

docs/data.md describes the layouts, the index and the packs, docs/loader.md the loader.";

/// A subcommand of `vim-train data`.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum DataCommand {
    /// Count images and classes, and list odd files, by reading the header of every file.
    #[command(after_help = scan::EXAMPLES)]
    Scan(ScanArgs),
    /// Decode every file once, list the bad ones, and keep the verdicts and checksums with the
    /// index.
    #[command(after_help = verify::EXAMPLES)]
    Verify(VerifyArgs),
    /// Copy the images into a few large tar files with an index, unchanged.
    #[command(after_help = pack::EXAMPLES)]
    Pack(PackArgs),
    /// Time the loader alone, and name what holds it up.
    #[command(after_help = bench::EXAMPLES)]
    Bench(BenchArgs),
    /// Write a picture of a batch, before and after augmentation, and print what was drawn.
    #[command(after_help = show::EXAMPLES)]
    Show(ShowArgs),
    /// Compute arrays of the original's programs again, and compare.
    #[command(after_help = check_golden::EXAMPLES)]
    CheckGolden(CheckGoldenArgs),
}

/// `vim-train data`.
pub fn run(command: &DataCommand) -> Result<(), Error> {
    match command {
        DataCommand::Scan(args) => scan::run(args),
        DataCommand::Verify(args) => verify::run(args),
        DataCommand::Pack(args) => pack::run(args),
        DataCommand::Bench(args) => bench::run(args),
        DataCommand::Show(args) => show::run(args),
        DataCommand::CheckGolden(args) => check_golden::run(args),
    }
}
