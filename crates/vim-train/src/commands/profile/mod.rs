//! `vim-train profile`: how long a training step, the scan and the operations of a layer take.

mod args;
mod cost;
pub(crate) mod ops;
pub(crate) mod peaks;
pub(crate) mod scan;
pub(crate) mod timer;
mod train;

use std::time::{Duration, SystemTime};

use serde::Serialize;
use vim_kernels::KernelError;

pub use args::{Common, OpsArgs, Profile, ProfileArgs, ScanArgs, Shape, TrainStepArgs};
use timer::Plan;
use vim_run::rfc3339;

use crate::commands::verify::DtypeChoice;
use crate::device::DeviceError;
use crate::device::threads;
use crate::device::{self, SelectedDevice};
use crate::error::Error;
use vim_verify::Dtype;

/// Measures and prints. [`DeviceError::Unavailable`] if the device is absent or does not support a
/// type requested by name.
pub fn run(args: &ProfileArgs) -> Result<(), Error> {
    match &args.what {
        Profile::Scan(args) => scan::run(args),
        Profile::Ops(args) => ops::run(args),
        Profile::Train(args) => train::run(args),
    }
}

/// Header of every document: the measurement, program, machine and time.
#[derive(Debug, Serialize)]
struct Head {
    command: &'static str,
    version: &'static str,
    commit: Option<&'static str>,
    device: String,
    hardware: Option<String>,
    threads: usize,
    date: String,
}

impl Head {
    fn new(command: &'static str, chosen: &SelectedDevice) -> Self {
        Self {
            command,
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("VIM_TRAIN_COMMIT"),
            device: chosen.name.clone(),
            hardware: device::hardware(&chosen.device),
            threads: threads::count(),
            date: rfc3339(SystemTime::now()),
        }
    }

    /// One line of text.
    fn line(&self) -> String {
        let hardware = self.hardware.as_deref().unwrap_or("unnamed hardware");
        let commit = self.commit.map_or_else(String::new, |commit| {
            format!(", commit {}", commit.get(..9).unwrap_or(commit))
        });
        format!("{} on {} ({hardware}){commit}, {}", self.command, self.device, self.date)
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

/// A skipped measurement and its reason.
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
