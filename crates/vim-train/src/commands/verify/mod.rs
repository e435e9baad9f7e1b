//! `vim-train verify`: every operation on a device against loops in f64.

mod args;
mod table;

use std::time::Instant;

use std::any::Any;

use serde::Serialize;
use vim_verify::{Context, Dtype, Outcome, all_checks};

pub use args::{DtypeChoice, Shard, VerifyArgs};
pub(crate) use args::{method, methods};

use crate::device;
use crate::device::DeviceError;
use crate::device::threads;
use crate::error::Error;
use crate::fatal;
use crate::output::{print, print_json};

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

/// Counts of the findings.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    checks: usize,
    failed: usize,
    skipped: usize,
    passed: bool,
    worst: Option<WorstRow>,
}

/// The judged array with the largest error relative to its tolerance.
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
        // The bound of the stability sweep is not an error: methods may come close to it.
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

/// The error of a check's panic, in one line.
pub(crate) fn explain(panic: &(dyn Any + Send)) -> String {
    fatal::error_of(panic).to_string()
}

/// Checks the device and prints the findings. The command fails if a check failed or nothing could
/// be checked; [`DeviceError::Unavailable`] if the device is absent or does not support a type
/// requested by name.
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
        compiles: !chosen.is_cpu(),
        explain_panic: explain,
    };
    let mut out = table::Table::new(!args.json);
    out.head(&chosen.name, hardware.as_deref())?;
    let mut outcomes = Vec::new();
    for check in args.shard.of(all_checks(&context)) {
        let outcome = Outcome::of(&check, &context, args.tolerance);
        // A type that only one operation lacks is skipped and reported, as under `all`.
        let lacking = args.dtype == DtypeChoice::Bf16 && !context.supports(Dtype::Bf16);
        if let (Some(reason), true) = (&outcome.skipped, lacking) {
            return Err(DeviceError::Unavailable(format!(
                "--dtype bf16: {}: {reason}: use --dtype f32 or another --device",
                chosen.name
            ))
            .into());
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
    Err(Error::failed(format!(
        "{} of {} checks failed on {}: {}{more}",
        summary.failed,
        summary.checks,
        chosen.name,
        names.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    fn context() -> Context {
        Context {
            device: Device::flex(),
            methods: methods(&[]),
            dtypes: DtypeChoice::All.dtypes(),
            quick: true,
            compiles: false,
            explain_panic: explain,
        }
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
    fn a_check_without_rows_passes() {
        let mut check = all_checks(&context()).swap_remove(0);
        check.run = Box::new(|_, _| Ok(Vec::new()));
        let summary = Summary::of(&[Outcome::of(&check, &context(), 1.0)]);
        assert!(summary.passed && summary.line().starts_with("1 checks, 0 failed"));
    }
}
