//! Timing of a call.

use std::time::{Duration, Instant};

use burn::tensor::{Device, ProfileOptions, TimingMethod, read_sync};
use serde::Serialize;

use crate::device::wait;
use crate::error::Error;
use crate::train::measure::Latency;

/// Number and time limit of the measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) trials: usize,
    pub(crate) queued: usize,
    /// Time limit; at least three calls are timed.
    pub(crate) budget: Duration,
}

/// Times of one call in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Times {
    /// `device` for device events, `clock` for a monotonic clock between two synchronisations.
    pub(crate) timer: &'static str,
    pub(crate) trials: usize,
    pub(crate) median_ms: f64,
    pub(crate) min_ms: f64,
    pub(crate) p10_ms: f64,
    pub(crate) p90_ms: f64,
    /// Time per call over `queued` calls between two synchronisations; least of three rounds.
    pub(crate) back_to_back_ms: f64,
    pub(crate) queued: usize,
}

impl Times {
    /// The smaller of the two, with the least overhead of the host.
    pub(crate) fn best_ms(&self) -> f64 {
        self.median_ms.min(self.back_to_back_ms)
    }
}

/// Number of warm-up calls.
pub(crate) const WARM_UP: usize = 2;

/// Warms up, then times `call` on the result of `prepare`, which is not timed.
pub(crate) fn measure<P: Send, O: Send + 'static>(
    device: &Device,
    plan: Plan,
    mut prepare: impl FnMut() -> Result<P, Error>,
    call: impl Fn(P) -> Result<O, Error> + Send + Sync,
) -> Result<Times, Error> {
    for _ in 0..WARM_UP {
        call(prepare()?)?;
    }
    wait(device)?;
    let start = Instant::now();
    let (mut times, mut timer) = (Vec::new(), "clock");
    while times.len() < plan.trials && (times.len() < 3 || start.elapsed() < plan.budget) {
        let input = prepare()?;
        wait(device)?;
        let (output, window) = device
            .profile_with(ProfileOptions::default().flush(), || call(input).map_err(Box::new))
            .map_err(|error| Error::failed(format!("the device cannot be timed: {error}")))?;
        if window.timing_method() == TimingMethod::Device {
            timer = "device";
        }
        let ticks = read_sync(window.resolve());
        output.map_err(|error| *error)?;
        let ticks = ticks.ok_or_else(|| {
            Error::failed("the device gave no time: nothing ran between its events")
        })?;
        times.push(ticks.duration().as_secs_f64() * 1e3);
    }
    let start = Instant::now();
    let mut back_to_back_ms = f64::INFINITY;
    for round in 0..3 {
        if round > 0 && start.elapsed() >= plan.budget {
            break;
        }
        let inputs = (0..plan.queued).map(|_| prepare()).collect::<Result<Vec<_>, _>>()?;
        wait(device)?;
        let start = Instant::now();
        for input in inputs {
            call(input)?;
        }
        wait(device)?;
        back_to_back_ms =
            back_to_back_ms.min(start.elapsed().as_secs_f64() * 1e3 / plan.queued as f64);
    }
    let Latency { median_ms, min_ms, p10_ms, p90_ms, steps: trials, .. } = Latency::of(times);
    let queued = plan.queued;
    Ok(Times { timer, trials, median_ms, min_ms, p10_ms, p90_ms, back_to_back_ms, queued })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_gets_its_own_input_and_only_calls_are_timed() {
        let plan = Plan { trials: 5, queued: 4, budget: Duration::from_secs(60) };
        let mut made = 0;
        let prepare = || {
            made += 1;
            std::thread::sleep(Duration::from_millis(5));
            Ok(made)
        };
        let times = measure(&Device::flex(), plan, prepare, |input: usize| Ok(input));
        let times = times.unwrap_or_else(|error| panic!("{error}"));
        // Two to warm up, five alone, three rounds of four.
        assert_eq!((made, times.trials, times.timer), (WARM_UP + 5 + 12, 5, "clock"));
        assert!(times.best_ms() < 5.0, "preparing is not timed: {times:?}");
    }

    #[test]
    fn a_budget_leaves_three_calls() {
        let plan = Plan { trials: 1000, queued: 1, budget: Duration::ZERO };
        let times = measure(&Device::flex(), plan, || Ok(()), |()| Ok(()));
        assert_eq!(times.map(|times| times.trials).unwrap_or(0), 3);
    }
}
