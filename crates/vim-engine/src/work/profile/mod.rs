//! How long the scan and the operations of a layer take.

pub mod ops;
pub(crate) mod roof;
pub mod scan;
pub(crate) mod timer;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;
use vim_kernels::KernelError;
use vim_verify::Dtype;

use crate::device::{DeviceError, DeviceName, SelectedDevice};
use crate::error::Error;
use timer::Plan;

/// Where and how often.
#[derive(Debug)]
pub struct Common {
    /// What to run on.
    pub device: DeviceName,
    /// Calls to time.
    pub trials: usize,
    /// Seconds after which no further call of a pass is timed.
    pub budget: f64,
    /// Types of the activations. Of several, those that the device lacks are skipped.
    pub dtypes: &'static [Dtype],
    /// Whether one JSON document is printed instead of a table.
    pub json: bool,
}

/// The sizes of a scan's inputs.
#[derive(Clone, Copy, Debug)]
pub struct ScanSizes {
    /// Sequences.
    pub batch: usize,
    /// Channels (d_inner).
    pub dim: usize,
    /// Tokens.
    pub seqlen: usize,
    /// States per channel.
    pub dstate: usize,
}

/// Sizes of a scan, but for the states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// `B`.
    pub batch: usize,
    /// `D`, d_inner.
    pub dim: usize,
    /// `L`.
    pub seqlen: usize,
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
    common: &Common,
    dtype: Dtype,
    chosen: &SelectedDevice,
    what: String,
    reason: String,
) -> Result<Skipped, Error> {
    if common.dtypes.len() > 1 {
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
