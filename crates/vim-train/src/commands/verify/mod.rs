//! `vim-train verify`: every operation on a device against loops in f64.

mod adjoint;
mod agreement;
mod args;
mod bits;
mod both;
mod check;
mod compare;
mod conv;
mod full;
mod images;
mod inner;
mod linear;
mod norm;
mod run;
mod scan;
pub(crate) mod smoke;
mod stability;
mod table;

use std::time::Instant;

use serde::Serialize;
use vim_kernels::Complex;

pub use args::{Dtype, DtypeChoice, Shard, VerifyArgs};
pub(crate) use args::{EXAMPLES, method, methods};
pub(crate) use check::choice;
use check::{Check, Context, Outcome};
pub(crate) use scan::preferred;

use crate::device;
use crate::device::threads;
use crate::error::Error;
use crate::output::{print, print_json};

/// Every operation that is checked, and every way in which: one entry each.
const OPERATIONS: [fn(&Context) -> Vec<Check>; 13] = [
    scan::checks::<f64>,
    scan::checks::<Complex<f64>>,
    both::checks,
    inner::checks,
    linear::checks,
    full::checks,
    conv::checks,
    norm::checks,
    images::checks,
    adjoint::checks,
    agreement::checks,
    bits::checks,
    stability::checks,
];

/// All checks for what is asked for, in a fixed order.
fn all_checks(context: &Context) -> Vec<Check> {
    OPERATIONS.iter().flat_map(|operation| operation(context)).collect()
}

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
struct Report<'a> {
    command: &'static str,
    version: &'static str,
    commit: Option<&'static str>,
    device: &'a str,
    hardware: Option<String>,
    quick: bool,
    shard: String,
    tolerance_factor: f64,
    seconds: f64,
    summary: Summary,
    checks: &'a [Outcome],
}

/// What all checks came to.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    checks: usize,
    failed: usize,
    skipped: usize,
    passed: bool,
    worst: Option<WorstRow>,
}

/// The judged array that is closest to its tolerance, or farthest beyond it.
#[derive(Clone, Debug, Serialize)]
struct WorstRow {
    check: String,
    array: String,
    max: f64,
    tolerance: f64,
    case: String,
}

impl Summary {
    fn of(outcomes: &[Outcome]) -> Self {
        let failed = outcomes.iter().filter(|outcome| outcome.failed()).count();
        let skipped = outcomes.iter().filter(|outcome| outcome.skipped.is_some()).count();
        // The bound of the stability sweep is no error: a method may well come close to it.
        let errors = outcomes.iter().filter(|o| o.failed() || o.subject.has_errors());
        let worst = errors
            .filter_map(|outcome| Some((outcome, outcome.worst()?)))
            .max_by(|(_, one), (_, two)| one.ratio().total_cmp(&two.ratio()))
            .map(|(outcome, row)| WorstRow {
                check: outcome.name.clone(),
                array: row.array.clone(),
                max: row.max,
                tolerance: row.tolerance,
                case: row.note.clone(),
            });
        let checks = outcomes.len() - skipped;
        Self { checks, failed, skipped, passed: failed == 0, worst }
    }

    /// The last line.
    fn line(&self) -> String {
        let skipped = match self.skipped {
            0 => String::new(),
            n => format!(", {n} skipped"),
        };
        let worst = self.worst.as_ref().map_or_else(String::new, |worst| {
            let WorstRow { check, array, max, tolerance, case } = worst;
            format!(", worst {check} {array}: {max:.1e} of {tolerance:.1e} ({case})")
        });
        format!("{} checks, {} failed{skipped}{worst}", self.checks, self.failed)
    }
}

/// Checks the device and prints what was found.
///
/// # Errors
///
/// [`Error::Failed`] if a check failed, or nothing could be checked; [`Error::Device`] if the device
/// is not there, or does not compute in a type that was asked for by name.
pub fn run(args: &VerifyArgs) -> Result<(), Error> {
    let start = Instant::now();
    threads::start(None)?;
    let chosen = device::choose_named(&args.device)?;
    let hardware = device::hardware(&chosen.device);
    let context = Context {
        device: chosen.device.clone(),
        methods: methods(&args.methods),
        dtypes: args.dtype.dtypes(),
        quick: args.quick,
        compiles: chosen.name != "cpu",
    };
    let mut out = table::Table::new(!args.json);
    out.head(&chosen.name, hardware.as_deref())?;
    let mut outcomes = Vec::new();
    for check in args.shard.of(all_checks(&context)) {
        let outcome = Outcome::of(&check, &context, args.tolerance);
        // What only one operation lacks is skipped and said, as under `all`.
        let lacking = args.dtype == DtypeChoice::Bf16 && !context.supports(Dtype::Bf16);
        if let (Some(reason), true) = (&outcome.skipped, lacking) {
            return Err(Error::Device(format!(
                "--dtype bf16: {}: {reason}: use --dtype f32 or another --device",
                chosen.name
            )));
        }
        out.outcome(&outcome)?;
        outcomes.push(outcome);
    }
    let summary = Summary::of(&outcomes);
    let seconds = start.elapsed().as_secs_f64();
    if args.json {
        print_json(&Report {
            command: "verify",
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("VIM_TRAIN_COMMIT"),
            device: &chosen.name,
            hardware,
            quick: args.quick,
            shard: args.shard.to_string(),
            tolerance_factor: args.tolerance,
            seconds,
            summary: summary.clone(),
            checks: &outcomes,
        })?;
    } else {
        out.skipped(&outcomes)?;
        print(&summary.line())?;
    }
    if summary.passed {
        return Ok(());
    }
    let names = outcomes.iter().filter(|outcome| outcome.failed());
    let names: Vec<&str> = names.map(|outcome| outcome.name.as_str()).take(3).collect();
    let more = if summary.failed > names.len() { ", …" } else { "" };
    Err(Error::Failed(format!(
        "{} of {} checks failed on {}: {}{more}",
        summary.failed,
        summary.checks,
        chosen.name,
        names.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use burn::tensor::Device;

    use super::check::Verdict;
    use super::*;

    fn context() -> Context {
        let dtypes = DtypeChoice::All.dtypes();
        Context {
            device: Device::flex(),
            methods: methods(&[]),
            dtypes,
            quick: true,
            compiles: false,
        }
    }

    #[test]
    fn names_are_unique_and_the_order_is_fixed() {
        let names = || all_checks(&context()).iter().map(Check::name).collect::<Vec<_>>();
        let set: HashSet<String> = names().into_iter().collect();
        assert_eq!(set.len(), names().len());
        assert_eq!(names(), names());
        assert!(names().contains(&"oracle/selective_scan/rk4/taylor/kernel/f32".to_owned()));
    }

    #[test]
    fn shards_of_the_checks_are_all_of_them() {
        let names = |shard: &str| {
            let shard: Shard = shard.parse().unwrap_or_default();
            shard.of(all_checks(&context())).map(|check| check.name()).collect::<Vec<_>>()
        };
        let parts = ["1/3", "2/3", "3/3"].map(names);
        let mut together: Vec<String> = parts.concat();
        let mut all = names("1/1");
        together.sort();
        all.sort();
        assert_eq!(together, all);
        assert!(parts.iter().all(|part| part.len().abs_diff(all.len() / 3) <= 1));
    }

    #[test]
    fn a_panic_fails_its_check_alone() {
        let mut checks = all_checks(&context());
        let mut check = checks.swap_remove(0);
        check.run = Box::new(|_, _| panic!("the kernel does not compile"));
        let outcome = Outcome::of(&check, &context(), 1.0);
        assert!(outcome.failed());
        assert!(outcome.error.is_some_and(|text| text.contains("does not compile")));
        let summary = Summary::of(&[Outcome { error: None, passed: true, ..outcome_of_nothing() }]);
        assert!(summary.passed && summary.line().starts_with("1 checks, 0 failed"));
    }

    fn outcome_of_nothing() -> Outcome {
        let mut checks = all_checks(&context());
        let mut check = checks.swap_remove(0);
        check.run = Box::new(|_, _| Ok(Vec::new()));
        Outcome::of(&check, &context(), 1.0)
    }

    /// On a GPU, `--quick` still has every operation, every method and both ways, and passes.
    #[test]
    fn few_kernels_are_of_every_method() {
        let context = Context { compiles: true, ..context() };
        let kernels: Vec<Check> = all_checks(&context)
            .into_iter()
            .filter(|check| check.implementation == "kernel" && check.dtype == "f32")
            .collect();
        let names: Vec<String> = kernels.iter().map(Check::name).collect();
        let of = |part: &str| names.iter().filter(|name| name.starts_with(part)).count();
        assert_eq!(of("oracle/selective_scan/"), 6 + 2, "{names:?}");
        assert_eq!(of("oracle/selective_scan_complex/"), 6 + 2, "{names:?}");
        for operation in ["full_scan", "causal_conv1d", "add_rms_norm"] {
            assert_eq!(of(&format!("oracle/{operation}/")), 1, "{names:?}");
        }
        assert_eq!(of("oracle/selective_scan_bidirectional/"), 6, "{names:?}");
        assert_eq!(of("bits/"), 1, "{names:?}");
        assert_eq!(of("stability/"), 6, "{names:?}");
        for check in kernels {
            let outcome = Outcome::of(&check, &context, 1.0);
            // The CPU has no kernel for complex A.
            let absent = check.operation == "selective_scan_complex";
            assert_eq!(outcome.skipped.is_some(), absent, "{}", outcome.name);
            assert!(!outcome.failed(), "{}: {:?}", outcome.name, outcome.worst());
        }
    }

    #[test]
    fn what_is_not_a_number_fails() {
        let figures = compare::Figures { max: f64::NAN, mean: 0.0 };
        let row = check::Row::judged("y", figures, 1.0, "");
        assert_eq!(row.verdict, Verdict::Fail);
        assert_eq!(row.ratio(), f64::INFINITY);
    }
}
