//! The largest argument that a method which is a bare polynomial in it has seen.
//!
//! It is kept for a process and device, not for a call: a scan runs within layers of a model, whose
//! results it is no part of, and what watches it sees none of its calls. On a GPU it stays there,
//! so that nothing waits for it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use burn::tensor::{Device, Tensor};

use super::ScanSpec;
use vim_kernels_core::runs_native;

/// |delta·a| above which a truncated series no longer approximates its function: the input gain of
/// a method that is a bare polynomial in it is off by a quarter and more, and soon large and of the
/// wrong sign. Training monitors the largest and warns; nothing else depends on it.
pub const POLYNOMIAL_LIMIT: f32 = 2.0;

/// That of the CPU's kernels, by its bits: non-negative floats order as their bits do.
static ON_HOST: AtomicU32 = AtomicU32::new(0);

/// That of each other device, `[1]`.
static ON_DEVICES: Mutex<Vec<(Device, Tensor<1>)>> = Mutex::new(Vec::new());

/// The largest |delta·a| that a scan of this process has seen on `device` under a method that is
/// not [bounded](crate::Discretization::bounded), `[1]`, still there: reading it waits for the
/// scans before. `None` if there was no such scan. That of the reference, and of complex A, is an
/// upper bound: the largest delta times the largest |a|.
#[must_use]
pub fn largest_polynomial_argument(device: &Device) -> Option<Tensor<1>> {
    let device = device.clone().inner();
    if runs_native(&device) {
        let largest = f32::from_bits(ON_HOST.load(Ordering::Relaxed));
        return (largest > 0.0).then(|| Tensor::from_floats([largest], &device));
    }
    let all = ON_DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().find(|(of, _)| *of == device).map(|(_, largest)| largest.clone())
}

/// Whether a scan notes its arguments.
pub(super) fn is_watched(spec: ScanSpec) -> bool {
    !spec.options.method.bounded(spec.options.series)
}

/// Notes an argument on the CPU.
pub(super) fn note_on_host(argument: f32) {
    if argument > 0.0 {
        ON_HOST.fetch_max(argument.to_bits(), Ordering::Relaxed);
    }
}

/// Notes `largest`, `[1]`, a bound of |delta·a|, where the method is a bare polynomial in it.
pub(super) fn note(spec: ScanSpec, largest: impl FnOnce() -> Tensor<1>) {
    if !is_watched(spec) {
        return;
    }
    let largest = largest().inner();
    let device = largest.device();
    if runs_native(&device) {
        note_on_host(largest.into_scalar());
    } else {
        let largest = largest.clone().mask_fill(largest.is_nan(), 0.0);
        with_largest(&device, |before| *before = before.clone().max_pair(largest));
    }
}

/// What `with` makes of the largest argument on `device`, which is not the CPU.
pub(super) fn with_largest<T>(device: &Device, with: impl FnOnce(&mut Tensor<1>) -> T) -> T {
    // What a thread that panicked leaves is a number all the same.
    let mut all = ON_DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let place = all.iter().position(|(of, _)| of == device).unwrap_or_else(|| {
        all.push((device.clone(), Tensor::zeros([1], device)));
        all.len() - 1
    });
    with(&mut all[place].1)
}
