//! The largest argument that scans have seen: of training, under a method that is a bare polynomial
//! in it, and of whatever [`largest_argument`] runs, under any method.
//!
//! It is kept for a process and device, not for a call: a scan runs within layers of a model, whose
//! results it is no part of, and what watches it sees none of its calls. On a GPU it stays there,
//! so that nothing waits for it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::{Device, Tensor};

use super::ScanSpec;
use vim_kernels_core::runs_native;

/// |delta·a| above which a truncated series no longer approximates its function: the input gain of
/// a method that is a bare polynomial in it is off by a quarter and more, and soon large and of the
/// wrong sign. Training monitors the largest and warns; nothing else depends on it.
pub const POLYNOMIAL_LIMIT: f32 = 2.0;

/// Whether [`largest_argument`] is at work: then scans of all methods are watched.
static ALL: AtomicBool = AtomicBool::new(false);

/// Those of the CPU's kernels, the second while [`ALL`] are watched, by their bits: non-negative
/// floats order as their bits do.
static ON_HOST: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

/// Those of other devices, `[1]`; with each whether it is of [`ALL`].
static ON_DEVICES: Mutex<Vec<(Device, bool, Tensor<1>)>> = Mutex::new(Vec::new());

/// The largest |delta·a| that a scan of this process has seen on `device` under a method that is
/// not [bounded](crate::Discretization::bounded), `[1]`, still there: reading it waits for the
/// scans before. `None` if there was no such scan. That of the reference, and of complex A, is an
/// upper bound: the largest delta times the largest |a|. What [`largest_argument`] runs is not in
/// it.
#[must_use]
pub fn largest_polynomial_argument(device: &Device) -> Option<Tensor<1>> {
    let device = device.clone().inner();
    if runs_native(&device) {
        let largest = f32::from_bits(ON_HOST[0].load(Ordering::Relaxed));
        return (largest > 0.0).then(|| Tensor::from_floats([largest], &device));
    }
    let all = on_devices();
    all.iter().find(|(of, all, _)| *of == device && !all).map(|(.., largest)| largest.clone())
}

/// What `run` returns, and the largest |delta·a| of all scans of this process on `device`
/// meanwhile, under any method; `None` if there were none. An upper bound where
/// [`largest_polynomial_argument`] is one; scans with a full A have none.
///
/// It waits for the scans. Of two at a time neither knows whose scans it saw.
///
/// # Errors
///
/// Those of `run`.
pub fn largest_argument<T, E>(
    device: &Device,
    run: impl FnOnce() -> Result<T, E>,
) -> Result<(T, Option<f32>), E> {
    struct Watching;
    impl Drop for Watching {
        fn drop(&mut self) {
            ALL.store(false, Ordering::Relaxed);
        }
    }
    let device = device.clone().inner();
    // What one that failed left.
    let take = || {
        let mut devices = on_devices();
        let place = devices.iter().position(|(of, all, _)| *of == device && *all);
        let there = place.map(|place| devices.swap_remove(place).2);
        (there, f32::from_bits(ON_HOST[1].swap(0, Ordering::Relaxed)))
    };
    take();
    ALL.store(true, Ordering::Relaxed);
    let watching = Watching;
    let result = run()?;
    drop(watching);
    let (there, on_host) = take();
    let largest = there.map_or(on_host, Tensor::into_scalar);
    Ok((result, Some(largest).filter(|&largest| largest > 0.0)))
}

/// Whether a scan notes its arguments.
pub(super) fn is_watched(spec: ScanSpec) -> bool {
    ALL.load(Ordering::Relaxed) || !spec.options.method.bounded(spec.options.series)
}

/// Notes an argument on the CPU.
pub(super) fn note_on_host(argument: f32) {
    if argument > 0.0 {
        let all = usize::from(ALL.load(Ordering::Relaxed));
        ON_HOST[all].fetch_max(argument.to_bits(), Ordering::Relaxed);
    }
}

/// Notes `largest`, `[1]`, a bound of |delta·a|, of a scan that [is watched](is_watched).
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
    let all = ALL.load(Ordering::Relaxed);
    let mut known = on_devices();
    let place = known.iter().position(|(of, of_all, _)| of == device && *of_all == all);
    let place = place.unwrap_or_else(|| {
        known.push((device.clone(), all, Tensor::zeros([1], device)));
        known.len() - 1
    });
    with(&mut known[place].2)
}

fn on_devices() -> MutexGuard<'static, Vec<(Device, bool, Tensor<1>)>> {
    // What a thread that panicked leaves is a number all the same.
    ON_DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}
