//! Checks the machine before a run is queued.

mod devices;
mod disk;
mod machine;
mod network;
mod performance;
mod ranks;

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::config::Config;
use crate::device::machine::Machine;
use crate::device::{self, DeviceName, SelectedDevice, threads};
use crate::error::Error;
use crate::output::summary::counted;
use crate::output::{print, print_json};
use crate::program;
pub use performance::PerformanceOptions;
use performance::Sizes;

/// What is checked, and how it is told.
#[derive(Debug)]
pub struct DoctorOptions {
    /// Configuration file of the run that is meant; without one, the defaults.
    pub config: Option<PathBuf>,
    /// The assignments over it.
    pub sets: Vec<String>,
    /// The device, over the configuration.
    pub device: Option<DeviceName>,
    /// Whether times can be trusted.
    pub performance: PerformanceOptions,
    /// Check ranks instead: this many, or one on each GPU.
    pub ranks: Option<Option<usize>>,
    /// What the process that starts ranks tells one of them.
    pub rank: Option<String>,
    /// Whether one JSON document is printed instead of lines.
    pub json: bool,
}

struct Context {
    machine: Machine,
    config: Config,
    /// The selected device, or the reason why there is none.
    chosen: Result<SelectedDevice, Error>,
}

/// All checks in the order of output. A new check is a function and an entry here.
const CHECKS: [fn(&Context) -> Vec<Finding>; 16] = [
    devices::program,
    machine::cpu,
    machine::memory,
    machine::open_files,
    devices::driver,
    devices::libraries,
    devices::compiler,
    devices::list,
    devices::chosen,
    devices::kernels,
    disk::runs,
    disk::data,
    disk::node,
    machine::clock,
    machine::job,
    machine::commands,
];

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
struct DoctorReport<'a> {
    command: &'static str,
    version: &'static str,
    commit: Option<&'static str>,
    /// The sizes that `--performance` timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    performance: Option<Sizes>,
    summary: Summary,
    checks: &'a [Finding],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Summary {
    checks: usize,
    warnings: usize,
    failed: usize,
    passed: bool,
}

impl Summary {
    fn of(findings: &[Finding]) -> Self {
        let count = |verdict| findings.iter().filter(|one| one.verdict == verdict).count();
        let failed = count(Verdict::Fail);
        Self { checks: findings.len(), warnings: count(Verdict::Warn), failed, passed: failed == 0 }
    }
}

/// Checks the machine and prints the findings.
/// A failed check fails the command.
pub fn run(options: &DoctorOptions) -> Result<(), Error> {
    let config = match &options.config {
        Some(path) => Config::load_base(path, &options.sets)?,
        None => Config::from_defaults(&options.sets)?,
    };
    if options.ranks.is_some() {
        return ranks::run(options, config);
    }
    threads::start(config.devices.threads)?;
    let chosen = match &options.device {
        Some(name) => device::choose_named(name),
        None => device::choose(&config.devices),
    };
    let context = Context { machine: Machine::this(), config, chosen };
    let mut told = Told::new(options.json);
    let plain = CHECKS.iter().map(|check| check(&context));
    for finding in plain.chain(performance::findings(&options.performance, &context)).flatten() {
        told.add(finding)?;
    }
    let on_cpu = context.chosen.as_ref().is_ok_and(|chosen| chosen.name == "cpu");
    let sizes = options.performance.performance.then(|| options.performance.sizes(on_cpu));
    told.conclude(sizes)
}

/// The findings so far.
struct Told {
    json: bool,
    findings: Vec<Finding>,
}

impl Told {
    fn new(json: bool) -> Self {
        Self { json, findings: Vec::new() }
    }

    /// Prints a finding at once: some checks are slow, and one may hang.
    fn add(&mut self, finding: Finding) -> Result<(), Error> {
        if !self.json {
            print(&finding.line())?;
        }
        self.findings.push(finding);
        Ok(())
    }

    /// Prints what they come to. A failed check is an error.
    fn conclude(self, performance: Option<Sizes>) -> Result<(), Error> {
        let summary = Summary::of(&self.findings);
        let Summary { checks, warnings, failed, .. } = summary;
        if self.json {
            print_json(&DoctorReport {
                command: "doctor",
                version: program::VERSION,
                commit: program::commit(),
                performance,
                summary,
                checks: &self.findings,
            })?;
        } else {
            print(&format!(
                "{}, {}, {failed} failed",
                counted(checks, "check"),
                counted(warnings, "warning")
            ))?;
        }
        if summary.passed {
            return Ok(());
        }
        let names = self.findings.iter().filter(|one| one.verdict == Verdict::Fail);
        let names: Vec<&str> = names.map(|one| one.what.as_str()).collect();
        Err(Error::failed(format!("{failed} of {checks} checks failed: {}", names.join(", "))))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
enum Verdict {
    /// As it should be.
    Pass,
    /// It works, and may be slow or at risk.
    Warn,
    /// It would not work.
    Fail,
}

/// What a check found: one line of output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    /// The name of the check, stable for scripts.
    what: String,
    verdict: Verdict,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
    /// Measured values under stable names, for programs.
    #[serde(skip_serializing_if = "Map::is_empty")]
    figures: Map<String, Value>,
}

impl Finding {
    fn pass(what: impl Into<String>, detail: impl Into<String>) -> Self {
        let (what, detail) = (what.into(), detail.into());
        Self { what, verdict: Verdict::Pass, detail, advice: None, figures: Map::new() }
    }

    fn warn(what: impl Into<String>, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        let advice = Some(advice.into());
        Self { verdict: Verdict::Warn, advice, ..Self::pass(what, detail) }
    }

    /// The same as a warning with this advice, where `amiss`.
    fn warn_if(self, amiss: bool, advice: impl Into<String>) -> Self {
        if amiss {
            Self { verdict: Verdict::Warn, advice: Some(advice.into()), ..self }
        } else {
            self
        }
    }

    fn fail(what: impl Into<String>, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Fail, ..Self::warn(what, detail, advice) }
    }

    fn with<const N: usize>(mut self, figures: [(&str, Value); N]) -> Self {
        self.figures.extend(figures.map(|(name, value)| (name.to_owned(), value)));
        self
    }

    fn line(&self) -> String {
        let Self { what, verdict, detail, advice, .. } = self;
        let verdict = verdict.to_string();
        let advice = advice.as_ref().map_or_else(String::new, |advice| format!("; {advice}"));
        format!("{verdict:<4}  {what:<18}  {detail}{advice}")
    }
}

/// Bytes in a readable unit.
fn size(bytes: u64) -> String {
    let units = [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    units.iter().find(|(_, unit)| bytes >= *unit).map_or_else(
        || format!("{bytes} B"),
        |(name, unit)| format!("{:.1} {name}", bytes as f64 / *unit as f64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_no_failure() {
        let findings =
            [Finding::pass("cpu", "2 cores"), Finding::warn("memory", "2 GiB", "ask for more")];
        let summary = Summary::of(&findings);
        assert_eq!(summary, Summary { checks: 2, warnings: 1, failed: 0, passed: true });
        let findings = [findings[0].clone(), Finding::fail("lock", "none", "move the runs")];
        assert!(!Summary::of(&findings).passed);
    }

    #[test]
    fn a_line_says_what_to_do() {
        let line = Finding::warn("memory", "2 GiB free", "ask for more by --mem").line();
        assert_eq!(line, "warn  memory              2 GiB free; ask for more by --mem");
        assert_eq!(Finding::pass("cpu", "2 cores").line(), "pass  cpu                 2 cores");
    }

    #[test]
    fn sizes() {
        let cases: [(u64, &str); 5] = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (3 << 30, "3.0 GiB"),
            (5 << 40, "5.0 TiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(size(bytes), text);
        }
    }
}
