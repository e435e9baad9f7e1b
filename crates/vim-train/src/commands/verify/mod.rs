//! `vim-train verify`: every operation on a device against loops in f64.

mod summary;
mod table;

use std::fmt;
use std::str::FromStr;
use std::time::Instant;

use clap::{Args, ValueEnum};
use serde::Serialize;
use strum::VariantArray;
use vim_engine::Error;
use vim_engine::device;
use vim_engine::device::{DeviceError, DeviceName, threads};
use vim_engine::fatal::explain;
use vim_engine::output::{print, print_json};
use vim_engine::program;
use vim_engine::work::methods;
use vim_kernels::{Discretization, Implementation};
use vim_verify::{Context, Dtype, Outcome, all_checks};

use summary::Summary;

const EXAMPLES: &str = "\
Examples:
  vim-train verify                                  the first device of cuda, wgpu, cpu
  vim-train verify --device cpu --quick             a few seconds, after a build
  vim-train verify --device cuda:0 --json > verify.json
  vim-train verify --methods zoh,foh --dtype f32
  vim-train verify --shard 2/4                      the second quarter, for four jobs at once

Every operation runs on the device and is compared with loops in f64 over the same inputs. An error is
the largest (or the mean) difference over the largest magnitude in the f64 array; docs/verify.md says
what is checked, to which tolerance and why. With --json, stdout is one document and nothing else; an
error that is not a number is null there.

The first run on a GPU compiles every kernel, a second or two each: many minutes for all checks, a few
with --quick, which there takes few distinct kernels. --shard splits them over jobs.

Exit codes: 0 all checks passed, 1 a check failed or the part has none, 2 bad command line, 69 no such
device or the device does not compute in --dtype or has none of --implementations.";

/// Check every method and implementation on a device against loops in f64.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct VerifyArgs {
    /// What to check on: auto, cpu, cuda, cuda:N, wgpu, wgpu:N, tch or tch:N.
    ///
    /// `auto` is the first present of cuda, wgpu on a real GPU, and cpu. `wgpu` by name also takes
    /// a rasterizer that runs on the processor, such as lavapipe.
    #[arg(long, value_name = "DEVICE", default_value_t)]
    device: DeviceName,
    /// Type of the activations; weights, sums and running states are f32 in both.
    ///
    /// `all` leaves out what the device does not compute in, and says so; a type by name is an
    /// error there.
    #[arg(long, value_enum, default_value_t)]
    dtype: DtypeChoice,
    /// Only these methods, as in zoh,foh; `vim-train methods` lists them.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = method)]
    methods: Vec<Discretization>,
    /// Only the checks of kernel or of reference; without it also those of the f64 loops.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = implementation)]
    implementations: Vec<Implementation>,
    /// Fewer and smaller shapes, and on a GPU fewer distinct kernels.
    #[arg(long)]
    quick: bool,
    /// Run the I-th of N parts of the checks; the N parts together are all of them, each once.
    #[arg(long, value_name = "I/N", default_value_t)]
    shard: Shard,
    /// Factor on every tolerance: below 1 is stricter than documented.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = positive)]
    tolerance: f64,
    /// Print one JSON document instead of tables.
    #[arg(long)]
    json: bool,
}

/// Which types to check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DtypeChoice {
    /// Single precision.
    F32,
    /// The brain float.
    Bf16,
    /// All that the device computes in.
    #[default]
    All,
}

impl DtypeChoice {
    pub(crate) fn dtypes(self) -> &'static [Dtype] {
        match self {
            Self::F32 => &[Dtype::F32],
            Self::Bf16 => &[Dtype::Bf16],
            Self::All => Dtype::VARIANTS,
        }
    }
}

/// Part `index` of `count` of a list, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    index: usize,
    count: usize,
}

impl Default for Shard {
    fn default() -> Self {
        Self { index: 1, count: 1 }
    }
}

impl Shard {
    /// Every `count`-th item in order: neighbours take similar time and are spread over the parts.
    pub(crate) fn of<T>(self, items: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
        items.into_iter().skip(self.index - 1).step_by(self.count)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(index, count)| {
            Some(Self { index: index.parse().ok()?, count: count.parse().ok()? })
        });
        parts
            .filter(|shard| (1..=shard.count).contains(&shard.index))
            .ok_or_else(|| format!("`{text}` is no part such as 1/4, from 1/N to N/N"))
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.index, self.count)
    }
}

/// Parses a method's name.
pub(crate) fn method(name: &str) -> Result<Discretization, String> {
    let all = Discretization::VARIANTS;
    all.iter().copied().find(|method| method.to_string() == name).ok_or_else(|| {
        let names: Vec<String> = all.iter().map(ToString::to_string).collect();
        format!("the methods are {}", names.join(", "))
    })
}

/// Parses an implementation's name.
pub(crate) fn implementation(name: &str) -> Result<Implementation, String> {
    match name {
        "kernel" => Ok(Implementation::Kernel),
        "reference" => Ok(Implementation::Reference),
        _ => Err("the implementations are kernel and reference".into()),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if factor > 0.0 && factor.is_finite() { Ok(factor) } else { Err("must be above 0".into()) }
}

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
struct VerifyReport<'a> {
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

/// Checks the device and prints the findings. The command fails if a check failed or nothing could
/// be checked; [`DeviceError::Unavailable`] if the device is absent or does not support a type
/// requested by name.
pub(crate) fn run(args: &VerifyArgs) -> Result<(), Error> {
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
    let here = context.implementations();
    if let Some(lacking) = args.implementations.iter().find(|one| !here.contains(one)) {
        return Err(DeviceError::Unavailable(format!(
            "--implementations {lacking}: {} has none: use another --device",
            chosen.name
        ))
        .into());
    }
    let mut out = table::Table::new(!args.json);
    out.head(&chosen.name, hardware.as_deref())?;
    let mut outcomes = Vec::new();
    let wanted: Vec<String> = args.implementations.iter().map(ToString::to_string).collect();
    let checks = all_checks(&context).into_iter();
    let checks = checks.filter(|one| wanted.is_empty() || wanted.contains(&one.implementation));
    for check in args.shard.of(checks) {
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
    if outcomes.is_empty() {
        let part = args.shard;
        return Err(Error::failed(format!(
            "nothing to check: --shard {part} makes too many parts"
        )));
    }
    let summary = Summary::of(&outcomes);
    let seconds = start.elapsed().as_secs_f64();
    if args.json {
        print_json(&VerifyReport {
            command: "verify",
            version: program::VERSION,
            commit: program::commit(),
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
    Err(failed(&summary, &outcomes, &chosen.name))
}

/// The error of checks that failed on `device`.
fn failed(summary: &Summary, outcomes: &[Outcome], device: &str) -> Error {
    let names = outcomes.iter().filter(|outcome| outcome.failed());
    let names: Vec<&str> = names.map(|outcome| outcome.name.as_str()).take(3).collect();
    let more = if summary.failed > names.len() { ", …" } else { "" };
    Error::failed(format!(
        "{} of {} checks failed on {}: {}{more}",
        summary.failed,
        summary.checks,
        device,
        names.join(", ")
    ))
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
    fn shards_are_disjoint_and_complete() {
        for total in [0, 1, 5, 24, 61] {
            for count in 1..=7 {
                let mut seen = vec![0; total];
                for index in 1..=count {
                    for item in (Shard { index, count }).of(0..total) {
                        seen[item] += 1;
                    }
                }
                assert!(seen.iter().all(|&times| times == 1), "{total} over {count}: {seen:?}");
            }
        }
    }

    #[test]
    fn what_is_no_shard() {
        assert_eq!("2/4".parse(), Ok(Shard { index: 2, count: 4 }));
        for text in ["", "1", "0/2", "3/2", "1/0", "-1/2", "a/b", "1/2/3"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }

    #[test]
    fn methods_are_named() {
        assert!(method("euler").is_err_and(|text| text.contains("zoh, foh")));
    }
}
