//! `vim-golden check-golden`.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use vim_data::{GoldenCount, GoldenEntry, GoldenOutcome, GoldenReport, JpegLibrary, check_golden};
use vim_engine::Error;
use vim_engine::output::{print, print_json};

const EXAMPLES: &str = "\
Examples:
  vim-golden check-golden golden/data
  vim-golden check-golden golden/data --json

DIR holds a manifest.json and the arrays that it lists, computed by the original's programs (timm 0.4.12,
torchvision 0.16.1, Pillow 10.1.0): operations, affine maps, resized crops, decoded files, the evaluation
transform, orders of epochs, mixing, targets and losses. Every file's SHA-256 is checked, and every entry is
computed again by what training uses.

Pixels, orders and boxes must be equal; targets and losses may differ by 1e-6; decoded JPEGs by 9 levels
unless this program was built with libjpeg-turbo (--features turbo), whose pixels must be equal. Exit code 1
if an entry is off by more, is not understood, or has no file. What is not known how to check is listed.";

/// Compute arrays of the original's programs again, and compare.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckGoldenArgs {
    /// Folder with the manifest and the arrays.
    dir: PathBuf,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &CheckGoldenArgs) -> Result<(), Error> {
    let report = check_golden(&args.dir)?;
    let failed = report.failures().count();
    if args.json {
        #[derive(Serialize)]
        struct CheckReport<'a> {
            dir: String,
            jpeg_library: JpegLibrary,
            passed: bool,
            counts: &'a [GoldenCount],
            entries: &'a [GoldenEntry],
        }
        print_json(&CheckReport {
            dir: args.dir.display().to_string(),
            jpeg_library: JpegLibrary::default(),
            passed: failed == 0,
            counts: &report.counts(),
            entries: &report.entries,
        })?;
    } else {
        print(&text(&report))?;
    }
    if failed == 0 {
        return Ok(());
    }
    let entries = report.entries.len();
    Err(Error::failed(format!("{failed} of {entries} golden files and entries failed")))
}

fn text(report: &GoldenReport) -> String {
    let mut lines = vec![format!(
        "{:<10} {:>6} {:>6} {:>11}  {:>14}",
        "kind", "passed", "failed", "not checked", "max difference"
    )];
    for GoldenCount { kind, passed, failed, skipped, max_difference } in report.counts() {
        lines.push(format!(
            "{kind:<10} {passed:>6} {failed:>6} {skipped:>11}  {max_difference:>14.3e}"
        ));
    }
    for entry in report.skipped().chain(report.failures()) {
        lines.push(line(entry));
    }
    lines.push(format!("JPEGs were decoded by {}", JpegLibrary::default()));
    lines.join("\n")
}

fn line(GoldenEntry { kind, name, outcome }: &GoldenEntry) -> String {
    match outcome {
        GoldenOutcome::Compared { max_difference, tolerance, .. } => {
            format!("failed: {kind} {name}: off by {max_difference}, at most {tolerance}")
        }
        GoldenOutcome::Failed { reason } => format!("failed: {kind} {name}: {reason}"),
        GoldenOutcome::Skipped { reason } => format!("not checked: {kind} {name}: {reason}"),
    }
}
