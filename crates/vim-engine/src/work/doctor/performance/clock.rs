//! 2, 3 and 5: whether a clock can be trusted: waiting for the device, threads, warm-up.

use std::hint::black_box;
use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::Instant;

use serde_json::json;
use strum::VariantArray;
use vim_kernels::{Discretization, Series};

use super::super::{Context, Finding};
use super::Bench;
use crate::device::machine::Machine;
use crate::device::threads::count as pool;
use crate::device::wait;
use crate::error::Error;
use crate::train::measure::Latency;
use crate::work::profile::timer::WARM_UP;

/// Ratio of unsynchronised to synchronised time below which a clock without a wait misleads.
const MISLEADS: f64 = 0.8;

/// Times zoh's scan with and without a wait for the device.
pub(super) fn misleads(bench: &Bench) -> Result<Vec<Finding>, Error> {
    let (device, inputs) = (&bench.chosen.device, bench.inputs(false));
    let options = bench.options(Discretization::Zoh, Series::Exact);
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for trial in 0..WARM_UP + bench.plan.trials {
        wait(device)?;
        let start = Instant::now();
        let output = inputs.clone().scan(options)?;
        let returned = start.elapsed();
        wait(device)?;
        let done = start.elapsed();
        drop(output);
        if trial >= WARM_UP {
            without.push(returned.as_secs_f64() * 1e3);
            with.push(done.as_secs_f64() * 1e3);
        }
    }
    Ok(vec![synchronised(median(without), median(with))])
}

fn median(times: Vec<f64>) -> f64 {
    Latency::of(times).median_ms
}

/// The finding, from the milliseconds until the call returned and until the device finished.
fn synchronised(without: f64, with: f64) -> Finding {
    let what = "2 synchronisation";
    let detail = format!("zoh's scan returns after {without:.3} ms and is done after {with:.3} ms");
    let misleads = without < MISLEADS * with;
    let detail = match misleads {
        true => format!("{detail}: without a wait it looks {:.1} times as fast", with / without),
        false => format!("{detail}: calls wait by themselves"),
    };
    let advice =
        "a clock of your own has to wait for the device, as bench, profile and this command do";
    Finding::pass(what, detail)
        .warn_if(misleads, advice)
        .with([("returned_ms", json!(without)), ("done_ms", json!(with))])
}

/// Share of the single-thread speed below which concurrent threads share cores.
const SHARED: f64 = 0.7;

pub(super) fn threads(context: &Context) -> Vec<Finding> {
    let cores = available_parallelism().map_or(1, NonZero::get);
    let torch = context.chosen.as_ref().is_ok_and(|chosen| chosen.name.starts_with("tch"));
    vec![set(&context.machine, cores, pool(), torch), pace(pool(), share())]
}

/// Cores, threads, and the environment variables that this program reads or, unexpectedly, ignores.
fn set(machine: &Machine, cores: usize, threads: usize, torch: bool) -> Finding {
    let what = "3 threads";
    let names = ["RAYON_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"];
    let variables: Vec<(&str, String)> =
        names.iter().filter_map(|&name| Some((name, machine.text(name)?))).collect();
    let shown: String = variables.iter().map(|(name, value)| format!(", {name}={value}")).collect();
    let detail = format!("{threads} threads on {cores} cores{shown}");
    // OpenMP takes a list of numbers, one for each level of nesting.
    let number = |value: &str| value.split(',').next()?.trim().parse::<usize>().ok();
    let other = variables
        .iter()
        .find(|(name, value)| *name != "RAYON_NUM_THREADS" && number(value) != Some(threads));
    let finding = match other {
        _ if threads > cores => {
            let advice =
                format!("more threads than cores: set devices.threads={cores} or leave it out");
            Finding::warn(what, detail, advice)
        }
        Some((name, value)) if torch && number(value).is_some_and(|count| count > cores) => {
            let advice = format!(
                "LibTorch would start more threads than there are cores: export {name}={cores}"
            );
            Finding::warn(what, detail, advice)
        }
        Some((name, value)) if !torch => {
            let advice = format!(
                "{name} is not read here: if {value} threads are meant, set devices.threads={value}, else unset it"
            );
            Finding::warn(what, detail, advice)
        }
        _ => Finding::pass(what, detail),
    };
    let variables: serde_json::Map<_, _> =
        variables.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
    finding.with([
        ("cores", json!(cores)),
        ("threads", json!(threads)),
        ("variables", json!(variables)),
    ])
}

/// Speed of a thread among others, relative to one running alone.
fn pace(threads: usize, share: f64) -> Finding {
    let what = "3 pace";
    let detail = format!("{threads} threads at once run at {:.0} % of one alone", share * 100.0);
    let advice = "cores are shared: with other processes, with hyper-threads, or by a limit on processor time; ask for whole cores, or set devices.threads to less";
    Finding::pass(what, detail).warn_if(share < SHARED, advice).with([("share", json!(share))])
}

/// Best of several rounds, to exclude short disturbances.
fn share() -> f64 {
    let best = |run: &dyn Fn()| {
        let rounds = (0..5).map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        });
        rounds.fold(f64::INFINITY, f64::min)
    };
    let alone = best(&work);
    let together = best(&|| {
        rayon::broadcast(|_| work());
    });
    alone / together
}

/// Some ten milliseconds of arithmetic that touches no memory.
fn work() {
    let mut x = black_box(1.0_f64);
    for _ in 0..black_box(3_000_000) {
        x = x.mul_add(0.999_999, 1e-6);
    }
    black_box(x);
}

/// Number of launches; the second half is the baseline for the first ones.
const LAUNCHES: usize = 20;
/// A launch that takes longer than this many later ones has not warmed up.
const SLOW: f64 = 1.5;

/// Times launches of a scan, forward and backward, from the first one on.
pub(super) fn needed(bench: &Bench) -> Result<Vec<Finding>, Error> {
    // A kernel that no earlier check compiled: a method that the Taylor series changes.
    let changed =
        |method: &&Discretization| method.bounded(Series::Exact) && !method.bounded(Series::Taylor);
    let method = Discretization::VARIANTS.iter().find(changed).copied().unwrap_or_default();
    let options = bench.options(method, Series::Taylor);
    let (device, inputs) = (&bench.chosen.device, bench.inputs(true));
    wait(device)?;
    let mut times = Vec::new();
    for _ in 0..LAUNCHES {
        let start = Instant::now();
        let gradients = inputs.clone().scan(options)?.y.backward();
        wait(device)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        drop(gradients);
    }
    Ok(vec![warmed_up(method, &times)])
}

fn warmed_up(method: Discretization, times: &[f64]) -> Finding {
    let what = "5 warm-up";
    let later = median(times[times.len() / 2..].to_vec());
    let first = times.first().copied().unwrap_or(f64::NAN);
    let slow = times.iter().take_while(|time| **time > SLOW * later).count();
    let detail = format!(
        "the first launch of {method} by Taylor's series took {first:.2} ms, later ones {later:.2} ms: {slow} to leave out"
    );
    let advice = format!(
        "profile leaves out {WARM_UP}: give it more --trials, and bench --warmup {slow}; or others use this device"
    );
    let figures = [("first_ms", json!(first)), ("later_ms", json!(later)), ("needed", json!(slow))];
    Finding::pass(what, detail).warn_if(slow > WARM_UP, advice).with(figures)
}

#[cfg(test)]
mod tests {
    use super::super::super::Verdict;
    use super::*;

    #[test]
    fn a_call_that_returns_early_is_warned_of() {
        assert_eq!(synchronised(1.0, 1.01).verdict, Verdict::Pass);
        let early = synchronised(0.1, 2.0);
        assert_eq!(early.verdict, Verdict::Warn);
        assert!(early.detail.contains("20.0 times as fast"), "{}", early.detail);
    }

    fn machine(variables: &[(&str, &str)]) -> Machine {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Machine { variables: variables.collect(), ..Machine::default() }
    }

    /// Variables, the resulting threads, whether LibTorch is present, and the advice.
    type Case = (&'static [(&'static str, &'static str)], usize, bool, Option<&'static str>);

    #[test]
    fn what_variables_would_do() {
        let cases: [Case; 8] = [
            (&[], 4, false, None),
            (&[("OMP_NUM_THREADS", "4"), ("MKL_NUM_THREADS", "4")], 4, false, None),
            (&[("OMP_NUM_THREADS", "4,1")], 4, false, None),
            (&[("OMP_NUM_THREADS", "1")], 4, false, Some("set devices.threads=1")),
            (&[("MKL_NUM_THREADS", "8")], 4, false, Some("MKL_NUM_THREADS is not read")),
            (&[("RAYON_NUM_THREADS", "16")], 16, false, Some("set devices.threads=4")),
            (&[("OMP_NUM_THREADS", "8")], 4, true, Some("export OMP_NUM_THREADS=4")),
            (&[("OMP_NUM_THREADS", "2")], 4, true, None),
        ];
        for (variables, threads, torch, advice) in cases {
            let finding = set(&machine(variables), 4, threads, torch);
            let said = finding.advice.as_deref();
            assert_eq!(said.is_some(), advice.is_some(), "{finding:?}");
            assert!(said.unwrap_or_default().contains(advice.unwrap_or_default()), "{finding:?}");
        }
    }

    #[test]
    fn shared_cores_are_warned_of() {
        assert_eq!(pace(2, 0.98).verdict, Verdict::Pass);
        assert_eq!(pace(4, 0.5).verdict, Verdict::Warn);
        assert!(share() > 0.0);
    }

    #[test]
    fn slow_launches_are_counted_from_the_first() {
        let of = |times: &[f64]| warmed_up(Discretization::Zoh, times);
        let usual = of(&[90.0, 1.2, 1.0, 1.0, 5.0, 1.0, 1.0, 1.0]);
        assert_eq!(usual.figures.get("needed"), Some(&json!(1)));
        assert_eq!(usual.verdict, Verdict::Pass);
        let slow = of(&[90.0, 9.0, 8.0, 7.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(slow.verdict, Verdict::Warn);
        assert!(slow.line().contains("bench --warmup 4"), "{}", slow.line());
        assert_eq!(of(&[1.0; 4]).figures.get("needed"), Some(&json!(0)));
    }
}
