//! `vim-train data`: what is in a dataset of files, whether it is sound, and its copy in a few files.

mod bar;
mod pack;
mod scan;
mod verify;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use vim_data::{DatasetKind, Images, Sources, Stage, Surroundings, open_images};

use crate::cli::Overrides;
use crate::config::{Config, ConfigError};
use crate::error::Error;

pub use pack::PackArgs;
pub use scan::ScanArgs;
pub use verify::VerifyArgs;

/// Shown below the help.
pub const EXAMPLES: &str = "\
Examples:
  vim-train data scan configs/imagenet.toml
  vim-train data scan --set data.dataset=imagenet --set data.path=/scratch/imagenet
  vim-train data verify configs/imagenet.toml         once, after downloading or copying
  vim-train data pack configs/imagenet.toml -o /scratch/imagenet-pack

For datasets of files: imagenet and folder. docs/data.md describes the layouts, the index and the packs.";

/// `vim-train data`.
#[derive(Debug, Args)]
pub struct DataArgs {
    /// What to do.
    #[command(subcommand)]
    pub what: Data,
}

/// A subcommand of `data`.
#[derive(Debug, Subcommand)]
pub enum Data {
    /// Count images and classes, and list odd files, by reading the header of every file.
    #[command(after_help = scan::EXAMPLES)]
    Scan(ScanArgs),
    /// Decode every file once, list the bad ones, and keep the verdicts and checksums with the index.
    #[command(after_help = verify::EXAMPLES)]
    Verify(VerifyArgs),
    /// Copy the images into a few large tar files with an index, unchanged.
    #[command(after_help = pack::EXAMPLES)]
    Pack(PackArgs),
}

/// Which data, common to all of them.
#[derive(Debug, Args)]
pub struct Which {
    /// What differs from the configuration.
    #[command(flatten)]
    pub overrides: Overrides,
    /// Which images.
    #[arg(long, value_enum, default_value_t)]
    pub part: PartChoice,
    /// Threads; left out: `data.workers`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub workers: Option<u16>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// The images that a command is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PartChoice {
    /// All of them.
    #[default]
    Both,
    /// The training images.
    Train,
    /// The validation images.
    Val,
}

/// Runs a subcommand.
///
/// # Errors
///
/// If the data cannot be opened, or are not sound.
pub fn run(args: &DataArgs) -> Result<(), Error> {
    match &args.what {
        Data::Scan(args) => scan::run(args),
        Data::Verify(args) => verify::run(args),
        Data::Pack(args) => pack::run(args),
    }
}

/// The parts that are meant, by their names, and how many threads are to work on them.
struct Opened {
    parts: Vec<(&'static str, Images)>,
    workers: usize,
}

/// Opens the data; says on stderr what is odd about them.
fn open(config: Option<&PathBuf>, which: &Which) -> Result<Opened, Error> {
    let config = match config {
        Some(path) => Config::load(path, &which.overrides.set)?,
        None => Config::from_defaults(&which.overrides.set)?,
    };
    let mut data = config.data;
    if !matches!(data.dataset, DatasetKind::Imagenet | DatasetKind::Folder) {
        let name: &str = data.dataset.into();
        let expected = "imagenet or folder: the others have no files to look at";
        return Err(ConfigError::range("data.dataset", name, expected).into());
    }
    // What lies on the node's own disk is not what is looked at.
    data.stage = Stage::Off;
    let Sources { train, val, notes, staging: _ } = open_images(&data, &Surroundings::from_env())?;
    for note in notes {
        eprintln!("note: {note}");
    }
    let parts = match which.part {
        PartChoice::Both => vec![("train", train), ("val", val)],
        PartChoice::Train => vec![("train", train)],
        PartChoice::Val => vec![("val", val)],
    };
    let workers = which.workers.map_or_else(|| data.workers.count(), usize::from);
    Ok(Opened { parts, workers })
}
