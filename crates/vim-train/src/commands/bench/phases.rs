//! `vim-train bench phases`: a training step by its phases, on one rank or several.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use vim_run::storage::{Disk, replace};

use super::RankStepArgs;
use crate::args::count;
use crate::config::{Config, ConfigError, Problem, config_inputs};
use crate::device;
use crate::device::memory::device_memory;
use crate::error::Error;
use crate::output::{check_free, check_no_input, print, print_json};
use crate::train::environment::Head;
use crate::train::measure::{Latency, Span, Subject, Times};
use crate::train::ranks::{Team, start};

const PHASES_HELP: &str = "\
Examples:
  vim-train bench phases configs/vim_tiny_imagenet.toml --set train.precision=bf16 --batch 128,512
  vim-train bench phases configs/debug.toml --steps 5 --trace trace.json
  vim-train bench phases configs/vim_tiny_imagenet.toml --batch 256 --ranks 2    two GPUs, 128 images each

Times the training step of `bench --mode train`, with the same columns: one by one, and queued, which gives img/s.
A third round waits for the device after each phase, which gives the phases' times (their sum is a little more than a
whole step); with train.accumulate, a phase is the sum over its parts.
Several ranks, by --ranks or by the configuration's devices.gpus, share each batch: `pack` puts a rank's gradients
behind each other, `exchange` sums them over the ranks, and has in it what rank 0 waits for slower ones; its share
is of a whole step. A step that is not finite is an error.
The trace opens in chrome://tracing or ui.perfetto.dev.";

/// Time a training step by its phases.
#[derive(Debug, Args)]
#[command(after_help = PHASES_HELP)]
pub(crate) struct PhasesArgs {
    #[command(flatten)]
    common: RankStepArgs,
    /// Images of a step; train.batch_size where left out.
    #[arg(long, value_name = "B,B", value_delimiter = ',', value_parser = count)]
    batch: Vec<usize>,
    /// Steps to time, one by one, queued, and by phases.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = count)]
    steps: usize,
    /// Ranks that share each batch; one for each GPU of `devices.gpus` where left out.
    #[arg(long, value_name = "N", value_parser = count)]
    ranks: Option<usize>,
    /// Write the phases of every timed step as a Chrome trace.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
struct StepReport {
    #[serde(flatten)]
    head: Head,
    model: String,
    precision: String,
    image_size: String,
    parameters: u64,
    ranks: usize,
    results: Vec<BatchTiming>,
}

#[derive(Debug, Serialize)]
struct BatchTiming {
    batch: usize,
    /// Time of the first step, with all compilation.
    first_step_s: f64,
    step_ms: f64,
    step_p10_ms: f64,
    step_p90_ms: f64,
    images_per_second: f64,
    /// Medians of steps that synchronise after each phase.
    phases_ms: Vec<Phase>,
    /// The time of `exchange` over that of a step; of several ranks only.
    #[serde(skip_serializing_if = "Option::is_none")]
    exchange_share: Option<f64>,
    device_memory_gib: Option<f64>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Phase {
    name: &'static str,
    ms: f64,
}

/// Measures, as the command that errors and documents call `name`.
pub(crate) fn run(args: &PhasesArgs, name: &'static str) -> Result<(), Error> {
    if let Some(path) = &args.trace {
        let read = config_inputs([&args.common.config]);
        check_no_input(path, read.iter().map(PathBuf::as_path))?;
        check_free(path, args.common.force)?;
    }
    let config = Config::load(&args.common.config, &args.common.overrides.set)?;
    let batches = match &args.batch[..] {
        [] => vec![config.train.known_images()?],
        asked => asked.to_vec(),
    };
    if let Some(team) = args.common.rank.team()? {
        return measure(&team, &config, &batches, args, name);
    }
    let devices = match args.ranks {
        Some(count) => device::of_ranks(&config.devices, count, "--ranks")?,
        None => device::gpus(&config.devices)?.into_iter().map(Some).collect(),
    };
    if devices.len() < 2 {
        return measure(&Team::of_one(), &config, &batches, args, name);
    }
    if let Some(batch) = batches.iter().find(|batch| !batch.is_multiple_of(devices.len())) {
        let (value, other) = (batch.to_string(), format!("{} ranks", devices.len()));
        let reason = "each takes as many images: choose a multiple, by --batch".into();
        let problem = Problem::Conflict { value, other, reason };
        return Err(ConfigError::new("train.batch_size", problem).into());
    }
    start(&config, devices)?.result
}

/// Times steps as one of the ranks; rank 0 prints.
fn measure(
    team: &Team,
    config: &Config,
    batches: &[usize],
    args: &PhasesArgs,
    name: &'static str,
) -> Result<(), Error> {
    let (chosen, comm) = team.enter(config)?;
    let subject = Subject::new(config, &chosen.device, args.common.classes, comm)?;
    let mut report = StepReport {
        head: Head::new(name, &chosen),
        model: config.model.method_label(),
        precision: config.train.precision.to_string(),
        image_size: config.model.image_size.to_string(),
        parameters: subject.parameters,
        ranks: team.size(),
        results: Vec::new(),
    };
    let mut trace = Vec::new();
    let shows = team.is_lead() && !args.common.json;
    if shows {
        let StepReport { head, parameters, image_size, model, precision, ranks, .. } = &report;
        let ranks = if *ranks > 1 { format!(", {ranks} ranks") } else { String::new() };
        print(&head.line())?;
        print(&format!("{parameters} parameters, {image_size} px, {model}, {precision}{ranks}"))?;
    }
    let shards: Vec<usize> = batches.iter().map(|batch| batch / team.size()).collect();
    subject.train_on_ranks(&shards, (args.common.warmup, args.steps), true, |times, _| {
        let batch = batches[report.results.len()];
        let record = BatchTiming::new(batch, &times, device_memory(&chosen.device));
        if shows {
            let columns = record.columns();
            if report.results.is_empty() {
                let names = columns.iter().map(|(name, width, _)| format!("{name:>width$}"));
                print(&format!("{}  ms", names.collect::<String>()))?;
            }
            let texts = columns.iter().map(|(_, width, text)| format!("{text:>width$}"));
            print(&texts.collect::<String>())?;
        }
        trace.extend(times.phases.iter().flatten().map(|span| event(batch, span)));
        report.results.push(record);
        Ok(())
    })?;
    if !team.is_lead() {
        return Ok(());
    }
    if let Some(path) = &args.trace {
        let document = json!({ "traceEvents": trace, "displayTimeUnit": "ms" });
        replace(&Disk, path, document.to_string().as_bytes()).map_err(Error::io("write", path))?;
    }
    if args.common.json { print_json(&report) } else { Ok(()) }
}

impl BatchTiming {
    /// Of steps of `batch` images on all ranks, with the device's `memory` in bytes.
    fn new(batch: usize, times: &Times, memory: Option<u64>) -> Self {
        let (latency, phases_ms) = (&times.latency, medians(&times.phases));
        let exchange = phases_ms.iter().find(|phase| phase.name == "exchange");
        Self {
            batch,
            first_step_s: times.first_step_s,
            step_ms: latency.median_ms,
            step_p10_ms: latency.p10_ms,
            step_p90_ms: latency.p90_ms,
            images_per_second: times.throughput.img_s,
            exchange_share: exchange.map(|exchange| exchange.ms / latency.median_ms),
            phases_ms,
            device_memory_gib: memory.map(|bytes| bytes as f64 / f64::from(1 << 30)),
        }
    }

    /// Name, width and text of each column.
    fn columns(&self) -> Vec<(&'static str, usize, String)> {
        let Self { batch, first_step_s, step_ms, step_p10_ms, step_p90_ms, .. } = self;
        let memory = self.device_memory_gib.map_or_else(|| "-".into(), |gib| format!("{gib:.2}"));
        let share = self.exchange_share.map(|share| format!("{:.2}", 100.0 * share));
        let mut columns = vec![
            ("batch", 6, batch.to_string()),
            ("first s", 10, format!("{first_step_s:.1}")),
            ("step [p10 p90]", 20, format!("{step_ms:.1} [{step_p10_ms:.1} {step_p90_ms:.1}]")),
            ("img/s", 10, format!("{:.0}", self.images_per_second)),
        ];
        columns.extend(
            self.phases_ms.iter().map(|phase| (phase.name, 11, format!("{:.2}", phase.ms))),
        );
        columns.extend(share.map(|share| ("exchange %", 11, share)));
        columns.push(("GiB", 9, memory));
        columns
    }
}

/// The median over `steps` of the time of each phase in a step, which may have several of a name.
fn medians(steps: &[Vec<Span>]) -> Vec<Phase> {
    let mut names: Vec<&'static str> = Vec::new();
    for span in steps.iter().flatten() {
        if !names.contains(&span.name) {
            names.push(span.name);
        }
    }
    let median = |name| {
        let of_step = |spans: &Vec<Span>| {
            let own = spans.iter().filter(|span| span.name == name).map(|span| span.length);
            own.sum::<Duration>().as_secs_f64() * 1e3
        };
        Latency::of(steps.iter().map(of_step).collect()).median_ms
    };
    names.into_iter().map(|name| Phase { name, ms: median(name) }).collect()
}

/// A complete event of the trace format.
fn event(batch: usize, span: &Span) -> Value {
    json!({
        "name": span.name,
        "cat": "step",
        "ph": "X",
        "ts": span.start.as_secs_f64() * 1e6,
        "dur": span.length.as_secs_f64() * 1e6,
        "pid": 0,
        "tid": batch,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_the_sum_over_the_parts_of_a_step() {
        let spans = |lengths: &[(&'static str, u64)]| {
            let span = |&(name, ms)| {
                let (start, length) = (Duration::ZERO, Duration::from_millis(ms));
                Span { name, start, length }
            };
            lengths.iter().map(span).collect::<Vec<_>>()
        };
        let steps = [
            spans(&[("forward", 1), ("backward", 2), ("forward", 3), ("backward", 4)]),
            spans(&[("forward", 5), ("backward", 2), ("forward", 5), ("backward", 6)]),
        ];
        let medians: Vec<_> = medians(&steps).iter().map(|phase| (phase.name, phase.ms)).collect();
        // Between 1 + 3 and 5 + 5, and 2 + 4 and 2 + 6.
        assert_eq!(medians, [("forward", 7.0), ("backward", 7.0)]);
    }
}
