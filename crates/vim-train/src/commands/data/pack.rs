//! `vim-train data pack`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use vim_data::{DataError, PackOptions, PackReport, SourceError};

use crate::error::Error;
use crate::output::{print, print_json};

use super::bar::Bar;
use super::which::{Opened, Which, open};

pub(super) const EXAMPLES: &str = "\
Examples:
  vim-train data pack configs/vim_tiny_imagenet.toml -o /scratch/imagenet-pack
  vim-train data pack --set data.dataset=folder --set data.path=flowers -o packed --shard-size 256MiB

Writes FOLDER/train and FOLDER/val: WebDataset shards, an index and a summary. `data.path = FOLDER` reads
them. The images are copied as they are, and their order and fingerprint stay those of the source.";

/// `vim-train data pack`.
#[derive(Debug, Args)]
pub struct PackArgs {
    /// Configuration file; without one, the defaults.
    pub config: Option<PathBuf>,
    /// Where to write it.
    #[arg(short, long, value_name = "FOLDER")]
    pub output: PathBuf,
    /// Which data.
    #[command(flatten)]
    pub which: Which,
    /// Most bytes of a shard: a number, or one with KiB, MiB or GiB.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    pub shard_size: u64,
    /// Put the images into the shards in a random order, for programs that read them front to back.
    #[arg(long, value_name = "SEED")]
    pub shuffle: Option<u64>,
}

/// Packs the parts and prints a summary.
pub(super) fn run(args: &PackArgs) -> Result<(), Error> {
    let folder = &args.output;
    let Opened { parts, workers: _ } = open(args.config.as_ref(), &args.which)?;
    let options = PackOptions { shard_bytes: args.shard_size, shuffle: args.shuffle };
    // Check all parts first: one takes hours.
    for (name, _) in &parts {
        let path = folder.join(name);
        if path.exists() {
            return Err(DataError::from(SourceError::Exists(path)).into());
        }
    }
    let mut reports = BTreeMap::new();
    for (name, images) in &parts {
        let bar = Bar::new(format!("pack {name}"), vim_data::Dataset::len(images));
        let target = folder.join(name);
        let report = vim_data::pack(images, &target, options, &|progress| bar.show(progress))?;
        reports.insert(*name, report);
    }
    if args.which.json {
        return print_json(&reports);
    }
    reports.iter().try_for_each(|(name, report)| {
        let PackReport { images, shards, classes, fingerprint, .. } = report;
        let bytes: u64 = shards.iter().map(|shard| shard.bytes).sum();
        print(&format!(
            "{name}  {}\n  images       {images} of {} classes\n  shards       {}, {:.2} GB\n  fingerprint  {fingerprint}",
            folder.join(name).display(),
            classes.len(),
            shards.len(),
            bytes as f64 / 1e9,
        ))
    })
}

/// `4096`, `256MiB` and the like.
fn size(text: &str) -> Result<u64, String> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("", 1)];
    let parsed = units.iter().find_map(|&(unit, bytes): &(&str, u64)| {
        let number: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        number.checked_mul(bytes).filter(|&size| size > 0)
    });
    parsed.ok_or_else(|| "expected a size such as `512MiB` or `1GiB`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [("1", 1), ("2KiB", 2048), ("3 MiB", 3 << 20), ("1GiB", 1 << 30)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "0", "GiB", "-1", "1GB", "1.5GiB", "99999999999999GiB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
