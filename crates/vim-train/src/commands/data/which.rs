//! The data that `scan`, `verify` and `pack` process.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use vim_data::{EnvPaths, Images, Sources, Stage, open_images};

use crate::args::Overrides;
use crate::config::{Config, ConfigError};
use crate::error::Error;

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

/// The selected parts by name, and the number of threads.
pub(super) struct Opened {
    pub(super) parts: Vec<(&'static str, Images)>,
    pub(super) workers: usize,
}

/// Opens the data; warnings go to stderr.
pub(super) fn open(config: Option<&PathBuf>, which: &Which) -> Result<Opened, Error> {
    let config = match config {
        Some(path) => Config::load(path, &which.overrides.set)?,
        None => Config::from_defaults(&which.overrides.set)?,
    };
    let mut data = config.data;
    if !data.dataset.has_image_files() {
        let name: &str = data.dataset.into();
        let expected = "imagenet or folder: the others have no files to look at";
        return Err(ConfigError::range("data.dataset", name, expected).into());
    }
    // Ignore copies on the node-local disk.
    data.stage = Stage::Off;
    let Sources { train, val, notes, staging: _ } = open_images(&data, &EnvPaths::from_env())?;
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
