//! `vim-train data scan`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use vim_data::{ScanReport, Sides};

use crate::error::Error;
use crate::output::{print, print_json};

use super::bar::Bar;
use super::which::{Opened, Which, open};

pub(super) const EXAMPLES: &str = "\
Examples:
  vim-train data scan configs/vim_tiny_imagenet.toml
  vim-train data scan --set data.dataset=folder --set data.path=~/flowers --part train --json

Reads the beginning of every file, and decodes none. Odd are files that are no image, JPEGs of four
channels, and those whose content is not what their name says; all but the first are usable.";

/// `vim-train data scan`.
#[derive(Debug, Args)]
pub struct ScanArgs {
    /// Configuration file; without one, the defaults.
    pub config: Option<PathBuf>,
    /// Which data.
    #[command(flatten)]
    pub which: Which,
}

/// Scans the parts and prints the findings.
pub(super) fn run(args: &ScanArgs) -> Result<(), Error> {
    let Opened { parts, workers } = open(args.config.as_ref(), &args.which)?;
    let mut reports = BTreeMap::new();
    for (name, images) in &parts {
        let bar = Bar::new(format!("scan {name}"), vim_data::Dataset::len(images));
        reports.insert(*name, vim_data::scan(images, workers, &|progress| bar.show(progress))?);
    }
    if args.which.json {
        return print_json(&reports);
    }
    reports.iter().try_for_each(|(name, report)| print(&text(name, report)))
}

/// The report as text.
fn text(name: &str, report: &ScanReport) -> String {
    let sides = |sides: Option<Sides>| match sides {
        Some(Sides { least, mean, most }) => format!("{least} to {most}, {mean:.0} on average"),
        None => "none could be read".to_owned(),
    };
    let (fewest, most) = (&report.smallest_class, &report.largest_class);
    let mut lines = vec![
        format!("{name}  {}", report.path.display()),
        format!("  images       {} of {} classes", report.images, report.classes),
        format!(
            "  per class    {} (`{}`) to {} (`{}`)",
            fewest.images, fewest.class, most.images, most.class
        ),
        format!("  bytes        {} ({:.2} GB)", report.bytes, report.bytes as f64 / 1e9),
        format!("  height       {}", sides(report.height)),
        format!("  width        {}", sides(report.width)),
        format!("  fingerprint  {}", report.fingerprint),
    ];
    for (kind, count) in &report.kinds {
        lines.push(format!("  {kind:<22} {count}"));
    }
    for odd in &report.odd {
        lines.push(format!("  odd: {} {}", odd.name, odd.what));
    }
    lines.join("\n")
}
