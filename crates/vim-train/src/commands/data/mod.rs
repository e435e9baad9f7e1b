//! `vim-train data`: inspects and packs the images.

mod bench;
mod files;
mod labels;
mod show;

use clap::Subcommand;

use crate::error::Error;

const EXAMPLES: &str = "\
Examples:
  vim-train data scan configs/vim_tiny_imagenet.toml
  vim-train data scan --set data.dataset=imagenet --set data.path=/scratch/imagenet
  vim-train data verify configs/vim_tiny_imagenet.toml         once, after downloading or copying
  vim-train data pack configs/vim_tiny_imagenet.toml -o /scratch/imagenet-pack
  vim-train data bench configs/vim_tiny_imagenet.toml          what the loader alone can do here
  vim-train data show configs/vim_tiny_imagenet.toml           what the model will see

docs/data.md describes the layouts, the index and the packs, docs/loader.md the loader.";

/// Look after the images: scan, check, pack, time and show them.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum DataCommand {
    Scan(files::ImageArgs),
    Verify(files::VerifyArgs),
    Pack(files::PackArgs),
    Bench(bench::BenchArgs),
    Show(show::ShowArgs),
}

pub(crate) fn run(command: &DataCommand) -> Result<(), Error> {
    match command {
        DataCommand::Scan(args) => files::scan(args),
        DataCommand::Verify(args) => files::verify(args),
        DataCommand::Pack(args) => files::pack(args),
        DataCommand::Bench(args) => bench::run(args),
        DataCommand::Show(args) => show::run(args),
    }
}
