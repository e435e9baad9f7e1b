//! 3: the number of threads, the variables that set it, and whether each thread has its own core.

use std::hint::black_box;
use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::Instant;

use serde_json::json;

use super::super::Context;
use super::super::finding::Finding;
use crate::device::machine::Machine;
use crate::device::threads::count as pool;

/// Share of the single-thread speed below which concurrent threads share cores.
const SHARED: f64 = 0.7;

/// Checks the variables and the threads.
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
    let finding = if share < SHARED {
        let advice = "cores are shared: with other processes, with hyper-threads, or by a limit on processor time; ask for whole cores, or set devices.threads to less";
        Finding::warn(what, detail, advice)
    } else {
        Finding::pass(what, detail)
    };
    finding.with([("share", json!(share))])
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

#[cfg(test)]
mod tests {
    use super::super::super::finding::Verdict;
    use super::*;

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
}
