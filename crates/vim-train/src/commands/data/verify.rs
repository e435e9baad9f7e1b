//! `vim-train data verify`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use vim_data::{VerifyOptions, VerifyReport};

use crate::error::{Error, Failure, code};
use crate::output::{print, print_json};

use super::bar::Bar;
use super::which::{Opened, Which, open};

pub(super) const EXAMPLES: &str = "\
Examples:
  vim-train data verify configs/vim_tiny_imagenet.toml
  vim-train data verify configs/vim_tiny_imagenet.toml --again --part val --json

Exit code 65 if an image cannot be used. Interrupted, it goes on where it was. From then on the loader
knows sizes and bad files beforehand, and compares the checksum of every file that it reads.";

/// `vim-train data verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Configuration file; without one, the defaults.
    pub config: Option<PathBuf>,
    /// Which data.
    #[command(flatten)]
    pub which: Which,
    /// Look at images again that have been verified before, and take changed files as they are now.
    #[arg(long)]
    pub again: bool,
}

/// Verification found unusable images.
#[derive(Debug, thiserror::Error)]
#[error(
    "{bad} of {images} images cannot be used (listed above): copy them again, or replace or remove them"
)]
struct BadImages {
    bad: usize,
    images: usize,
}

impl Failure for BadImages {
    fn exit_code(&self) -> u8 {
        code::DATA
    }
}

/// Verifies the parts and prints the findings.
pub(super) fn run(args: &VerifyArgs) -> Result<(), Error> {
    let Opened { mut parts, workers } = open(args.config.as_ref(), &args.which)?;
    let options = VerifyOptions { workers, again: args.again };
    let mut reports = BTreeMap::new();
    for (name, images) in &mut parts {
        let bar = Bar::new(format!("verify {name}"), vim_data::Dataset::len(images));
        let report = vim_data::verify(images, options, &|progress| bar.show(progress))?;
        reports.insert(*name, report);
    }
    if args.which.json {
        print_json(&reports)?;
    } else {
        reports.iter().try_for_each(|(name, report)| print(&text(name, report)))?;
    }
    let bad = reports.values().map(|report| report.bad.len()).sum();
    let images = reports.values().map(|report| report.images).sum();
    if bad == 0 { Ok(()) } else { Err(BadImages { bad, images }.into()) }
}

/// The report as text.
fn text(name: &str, report: &VerifyReport) -> String {
    let VerifyReport { path, images, known, good, bytes, warned, bad } = report;
    let mut lines = vec![
        format!("{name}  {}", path.display()),
        format!("  images  {images}, of which {known} were known from before"),
        format!("  read    {bytes} bytes ({:.2} GB)", *bytes as f64 / 1e9),
        format!("  good    {good}"),
        format!("  warned  {}", warned.len()),
        format!("  bad     {}", bad.len()),
    ];
    for (what, findings) in [("warned", warned), ("bad", bad)] {
        for finding in findings {
            lines.push(format!("  {what}: {} {}", finding.name, finding.what));
        }
    }
    lines.join("\n")
}
