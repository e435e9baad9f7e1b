//! Times of a step: warm-up, one by one, queued.

use std::time::{Duration, Instant};

use burn::tensor::Device;

use super::record::{Latency, Throughput};
use crate::commands::profile::timer::quantile;
use crate::device::wait;
use crate::error::Error;

/// Number and time limit of the measurements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Steps before the clock starts.
    pub(super) warmup: usize,
    /// Steps timed one by one, and steps queued.
    pub(super) steps: usize,
    /// Time limit of each part, after its first step (two in the warm-up).
    pub(super) budget: Duration,
}

/// Warms up and times `step`, which takes `batch` images.
pub(super) fn measure(
    device: &Device,
    plan: Plan,
    batch: usize,
    mut step: impl FnMut() -> Result<(), Error>,
) -> Result<(Latency, Throughput), Error> {
    // The first two steps compile and tune, for minutes on a GPU: the budget starts after them.
    let mut start = Instant::now();
    for done in 0..plan.warmup {
        if done < 2 {
            start = Instant::now();
        } else if start.elapsed() >= plan.budget {
            break;
        }
        step()?;
        wait(device)?;
    }

    let (start, mut times) = (Instant::now(), Vec::new());
    while times.is_empty() || (times.len() < plan.steps && start.elapsed() < plan.budget) {
        let start = Instant::now();
        step()?;
        wait(device)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let latency = latency(times);

    // The host runs ahead of the device: the number of steps must be known beforehand.
    let fit = plan.budget.as_secs_f64() * 1e3 / latency.median_ms;
    let steps = (fit as usize).clamp(1, plan.steps);
    let start = Instant::now();
    for _ in 0..steps {
        step()?;
    }
    wait(device)?;
    Ok((latency, throughput(batch, steps, start.elapsed())))
}

fn latency(mut times: Vec<f64>) -> Latency {
    times.sort_by(f64::total_cmp);
    let count = times.len() as f64;
    let mean = times.iter().sum::<f64>() / count;
    let squares: f64 = times.iter().map(|time| (time - mean).powi(2)).sum();
    Latency {
        steps: times.len(),
        median_ms: quantile(&times, 0.5),
        p10_ms: quantile(&times, 0.1),
        p90_ms: quantile(&times, 0.9),
        mean_ms: mean,
        std_ms: if times.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 },
        min_ms: quantile(&times, 0.0),
        max_ms: quantile(&times, 1.0),
    }
}

/// Throughput counts the steps that ran, not those requested.
fn throughput(batch: usize, steps: usize, time: Duration) -> Throughput {
    let (images, seconds) = ((batch * steps) as u64, time.as_secs_f64());
    Throughput { img_s: images as f64 / seconds, images, seconds }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    #[test]
    fn statistics_of_times() {
        let of = latency(vec![4.0, 2.0, 9.0]);
        assert_eq!((of.steps, of.median_ms, of.min_ms, of.max_ms), (3, 4.0, 2.0, 9.0));
        assert_eq!(of.mean_ms, 5.0);
        assert!((of.std_ms - 13f64.sqrt()).abs() < 1e-12, "{}", of.std_ms); // (9 + 1 + 16)/2
        assert_eq!(latency(vec![7.0]).std_ms, 0.0);
    }

    #[test]
    fn images_are_those_of_the_steps_that_ran() {
        let plan = Plan { warmup: 2, steps: 4, budget: Duration::from_secs(60) };
        let mut steps = 0;
        let (latency, throughput) = measure(&Device::flex(), plan, 3, || {
            steps += 1;
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((steps, latency.steps, throughput.images), (2 + 4 + 4, 4, 12));
        assert!((throughput.img_s * throughput.seconds - 12.0).abs() < 1e-9);
    }

    #[test]
    fn a_budget_that_is_spent_leaves_two_steps_to_warm_up_and_one_of_each_part() {
        let plan = Plan { warmup: 9, steps: 1000, budget: Duration::from_nanos(1) };
        let mut steps = 0;
        let (latency, throughput) = measure(&Device::flex(), plan, 5, || {
            steps += 1;
            sleep(Duration::from_millis(1));
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((steps, latency.steps, throughput.images), (2 + 1 + 1, 1, 5));
        assert!(latency.median_ms >= 1.0);
    }

    #[test]
    fn the_first_failure_ends_it() {
        let plan = Plan { warmup: 2, steps: 4, budget: Duration::from_secs(60) };
        let result = measure(&Device::flex(), plan, 1, || Err(Error::failed("full")));
        assert!(result.is_err_and(|error| error.to_string() == "full"));
    }
}
