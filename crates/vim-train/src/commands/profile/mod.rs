//! `vim-train profile`: how long the scan and the operations of a layer take.

pub(crate) mod ops;
pub(crate) mod roof;
pub(crate) mod scan;
pub(crate) mod timer;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use vim_kernels::KernelError;

use timer::Plan;

use crate::args::count;
use crate::commands::bench::phases::{self, PhasesArgs};
use crate::commands::verify::DtypeChoice;
use crate::device::{DeviceError, DeviceName, SelectedDevice};
use crate::error::Error;
use vim_verify::Dtype;

const EXAMPLES: &str = "\
Examples:
  vim-train profile scan                              all methods at 128x384x197, N=16
  vim-train profile scan --device cpu --batch 8 --methods zoh,bilinear
  vim-train profile scan --shape 128x384x197 --shape 8x384x1025 --dtype all --json
  vim-train profile ops --device cuda:0

docs/benchmarks.md says how each figure is measured.";

/// Time the scan, or the operations that a layer is made of.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProfileArgs {
    #[command(subcommand)]
    what: Profile,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Profile {
    Scan(scan::ScanArgs),
    Ops(ops::OpsArgs),
    /// `bench phases`, by the name that it had.
    #[command(hide = true)]
    Train(PhasesArgs),
}

/// Where and how often.
#[derive(Debug, Args)]
struct Common {
    /// What to run on: auto, cpu, cuda, cuda:N, wgpu, wgpu:N, tch or tch:N.
    #[arg(long, value_name = "DEVICE", default_value_t)]
    device: DeviceName,
    /// Calls to time, after two to warm up.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = count)]
    trials: usize,
    /// Seconds after which no further call of a pass is timed, if there have been three.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    budget: f64,
    /// Type of the activations.
    #[arg(long, value_enum, default_value = "f32")]
    dtype: DtypeChoice,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
}

/// The sizes of a scan's inputs.
#[derive(Clone, Copy, Debug, Args)]
struct ScanSizes {
    /// Sequences.
    #[arg(long, value_name = "B", default_value_t = 128, value_parser = count)]
    batch: usize,
    /// Channels (d_inner).
    #[arg(long, value_name = "D", default_value_t = 384, value_parser = count)]
    dim: usize,
    /// Tokens.
    #[arg(long, value_name = "L", default_value_t = 197, value_parser = count)]
    seqlen: usize,
    /// States per channel.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = count)]
    dstate: usize,
}

/// Sizes of a scan, but for the states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// `B`.
    pub(crate) batch: usize,
    /// `D`, d_inner.
    pub(crate) dim: usize,
    /// `L`.
    pub(crate) seqlen: usize,
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Option<Vec<usize>> = text.split('x').map(|part| part.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[batch, dim, seqlen]) if batch > 0 && dim > 0 && seqlen > 0 => {
                Ok(Self { batch, dim, seqlen })
            }
            Some(_) | None => Err(format!("`{text}` is no BxDxL such as 128x384x197")),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}x{}x{}", self.batch, self.dim, self.seqlen)
    }
}

/// Measures and prints. [`DeviceError::Unavailable`] if the device is absent or does not support a
/// type requested by name.
pub(crate) fn run(args: &ProfileArgs) -> Result<(), Error> {
    match &args.what {
        Profile::Scan(args) => scan::run(args),
        Profile::Ops(args) => ops::run(args),
        Profile::Train(args) => phases::run(args, "profile train"),
    }
}

/// Default number of calls between two synchronisations: hides launches, and all graphs fit in
/// memory.
const QUEUED: usize = 8;

fn plan(common: &Common) -> Result<Plan, Error> {
    let budget = Duration::try_from_secs_f64(common.budget)
        .map_err(|_| Error::failed(format!("--budget {}: no time to measure in", common.budget)))?;
    Ok(Plan { trials: common.trials, queued: QUEUED.min(common.trials), budget })
}

#[derive(Clone, Debug, Serialize)]
struct Skipped {
    what: String,
    reason: String,
}

/// Whether an operation failed for the type of its activations.
fn no_such_type(error: &Error) -> bool {
    matches!(error.downcast_ref(), Some(KernelError::Dtype { .. }))
}

/// Records that the device lacks `dtype`; an error if that type was requested by name.
fn skip(
    choice: DtypeChoice,
    dtype: Dtype,
    chosen: &SelectedDevice,
    what: String,
    reason: String,
) -> Result<Skipped, Error> {
    if choice == DtypeChoice::All {
        return Ok(Skipped { what, reason });
    }
    Err(DeviceError::Unavailable(format!(
        "--dtype {dtype}: {} {what}: {reason}: use another --dtype or --device",
        chosen.name
    ))
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        assert_eq!("8x384x1025".parse(), Ok(Shape { batch: 8, dim: 384, seqlen: 1025 }));
        for text in ["", "8", "8x384", "8x384x0", "8x384x1025x16", "ax1x1", "8,384,197"] {
            assert!(text.parse::<Shape>().is_err(), "{text}");
        }
        assert_eq!(Shape { batch: 1, dim: 2, seqlen: 3 }.to_string(), "1x2x3");
    }
}
