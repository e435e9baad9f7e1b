//! Errors of devices.

use super::fault::{BatchFootprint, DeviceFault};
use crate::error::{Failure, code};

/// Errors of devices.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The requested device is absent or lacks a requested feature.
    #[error("{0}")]
    Unavailable(String),

    /// The device has no memory left.
    #[error("the device ran out of memory{}: {}", asked_for(*bytes), advice(*load))]
    OutOfMemory {
        /// Bytes of the allocation that failed, if known.
        bytes: Option<u64>,
        /// The batch sizes of the run, if known.
        load: Option<BatchFootprint>,
    },

    /// The device failed.
    #[error(
        "the device failed ({reason}) and does nothing more for this process: run it again, a training by the same command with --resume auto; if it fails again, look for Xid in the system's log (dmesg) and take another GPU"
    )]
    Lost {
        /// The driver's name of the failure.
        reason: String,
    },

    /// A batch exceeds a kernel's limit.
    #[error(
        "{operation}: {what} of {got} is beyond the kernel's limit of {limit}: {}",
        load.advice(*got, *limit)
    )]
    TooLarge {
        /// The operation called.
        operation: &'static str,
        /// The quantity that is too large.
        what: &'static str,
        /// Its value.
        got: usize,
        /// The limit.
        limit: usize,
        /// The batch sizes of the run.
        load: BatchFootprint,
    },
}

impl From<DeviceFault> for DeviceError {
    fn from(fault: DeviceFault) -> Self {
        match fault {
            DeviceFault::OutOfMemory { bytes } => Self::OutOfMemory { bytes, load: None },
            DeviceFault::Lost { reason } => Self::Lost { reason },
        }
    }
}

impl Failure for DeviceError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Unavailable(_) | Self::Lost { .. } => code::UNAVAILABLE,
            Self::OutOfMemory { .. } => code::MEMORY,
            Self::TooLarge { .. } => code::CONFIG,
        }
    }
}

fn asked_for(bytes: Option<u64>) -> String {
    bytes.map_or_else(String::new, |bytes| {
        format!(" (another {:.1} MiB were asked for)", bytes as f64 / f64::from(1 << 20))
    })
}

fn advice(load: Option<BatchFootprint>) -> String {
    load.map_or_else(
        || "take smaller batches or a larger device".to_owned(),
        |load| load.to_string(),
    )
}
