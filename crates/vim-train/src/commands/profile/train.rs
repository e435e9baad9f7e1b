//! `vim-train profile train`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::{Device, Distribution, Tensor};
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use vim_comm::Comm;
use vim_model::{Vim, VimConfig};
use vim_run::storage::{Disk, replace};

use super::Head;
use crate::args::{Overrides, count};
use crate::config::Config;
use crate::device::memory::device_memory;
use crate::device::{self, SelectedDevice, threads, wait};
use crate::error::Error;
use crate::output::{check_free, print, print_json};
use crate::task::Objective;
use crate::task::classification::{Classifier, Labelled, Targets};
use crate::train::state::TrainState;
use crate::train::step;
use crate::train::step::Requests;

const TRAIN_HELP: &str = "\
Examples:
  vim-train profile train configs/vim_tiny_imagenet.toml --set train.precision=bf16 --batch 128,512
  vim-train profile train configs/debug.toml --steps 5 --trace trace.json

Makes one batch of random images of the model's size and trains on it with random weights, as `train` would
compute on it, without reading data. Steps are timed twice: whole, one after the other, which gives img/s; and with a wait for
the device after each phase, which gives the phases' times (their sum is a little more than a whole step).
The trace opens in chrome://tracing or ui.perfetto.dev.";

/// A step of training, by its phases.
#[derive(Debug, Args)]
#[command(after_help = TRAIN_HELP)]
pub(crate) struct TrainStepArgs {
    /// Configuration file.
    config: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// Images of a step; train.batch_size where left out.
    #[arg(long, value_name = "B,B", value_delimiter = ',', value_parser = count)]
    batch: Vec<usize>,
    /// Steps to time, whole and by phases.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = count)]
    steps: usize,
    /// Steps before the clock starts: the first few compile.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = count)]
    warmup: usize,
    /// Classes of the model.
    #[arg(long, value_name = "K", default_value_t = 1000, value_parser = count)]
    classes: usize,
    /// Write the phases of every timed step as a Chrome trace.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write over the trace that is there.
    #[arg(long)]
    force: bool,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
}

const PHASES: [&str; 3] = ["forward", "backward", "update"];

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
struct StepReport {
    #[serde(flatten)]
    head: Head,
    model: String,
    precision: String,
    image_size: String,
    parameters: usize,
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
    device_memory_gib: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Phase {
    name: &'static str,
    ms: f64,
}

/// A timed phase: its number, start and duration.
type Span = (usize, Duration, Duration);

pub(super) fn run(args: &TrainStepArgs) -> Result<(), Error> {
    if let Some(path) = &args.trace {
        check_free(path, args.force)?;
    }
    let config = Config::load(&args.config, &args.overrides.set)?;
    threads::start(config.devices.threads)?;
    let chosen = device::choose(&config.devices)?;
    config.model.ssm.scan.resolve(&chosen.device)?;
    config.train.precision.check(&chosen.device)?;
    let model = config.model.with_classes(args.classes)?;
    let batches =
        if args.batch.is_empty() { vec![config.train.batch_size] } else { args.batch.clone() };
    let mut report = StepReport {
        head: Head::new("profile train", &chosen),
        model: model.method_label(),
        precision: config.train.precision.to_string(),
        image_size: model.image_size.to_string(),
        parameters: 0,
        results: Vec::new(),
    };
    let mut trace = Vec::new();
    if !args.json {
        print(&report.head.line())?;
    }
    for batch in batches {
        let (record, spans, parameters) = measure(&config, &chosen, &model, batch, args)?;
        report.parameters = parameters;
        if !args.json {
            if report.results.is_empty() {
                print(&format!(
                    "{} parameters, {} px, {}, {}",
                    parameters, report.image_size, report.model, report.precision
                ))?;
                print(&header())?;
            }
            print(&line(&record))?;
        }
        trace.extend(spans.into_iter().map(|span| event(batch, span)));
        report.results.push(record);
    }
    if let Some(path) = &args.trace {
        let document = json!({ "traceEvents": trace, "displayTimeUnit": "ms" });
        replace(&Disk, path, document.to_string().as_bytes()).map_err(Error::io("write", path))?;
    }
    if args.json { print_json(&report) } else { Ok(()) }
}

struct Subject {
    classifier: Classifier,
    state: TrainState<Vim>,
    inputs: Labelled,
}

impl Subject {
    /// One step; `after` is called after each phase.
    fn step(&mut self, mut after: impl FnMut(usize) -> Result<(), Error>) -> Result<(), Error> {
        let passed = |phase| match phase {
            step::Phase::Forward => after(0),
            step::Phase::Backward => after(1),
        };
        let (shards, asked) = (vec![self.inputs.clone()], Requests::default());
        let comm = Comm::single();
        let pending = self.state.step(&self.classifier, shards, 1e-4, &comm, asked, passed)?;
        self.state.finish(pending);
        after(2)
    }
}

fn measure(
    config: &Config,
    chosen: &SelectedDevice,
    model: &VimConfig,
    batch: usize,
    args: &TrainStepArgs,
) -> Result<(BatchTiming, Vec<Span>, usize), Error> {
    let start = Instant::now();
    let device: &Device = &chosen.device;
    let [height, width] = [model.image_size.height, model.image_size.width];
    let images = Tensor::random([batch, 3, height, width], Distribution::Normal(0.0, 1.0), device);
    let labels: Vec<i32> = (0..batch).map(|i| (i % model.num_classes) as i32).collect();
    let labels = Tensor::from_ints(&labels[..], device);
    let images = Tensor::from_inner(images);
    let classifier = Classifier::new(config, model.clone())?;
    let built = classifier.init(&device.clone().autodiff())?;
    let parameters = built.num_params();
    let mut subject = Subject {
        // A phase is one pass over the whole batch.
        state: TrainState::new(&classifier, config, built).with_micro_batches(1),
        classifier,
        inputs: Labelled { images, targets: Targets::new(labels, None) },
    };
    subject.step(|_| Ok(()))?;
    wait(device)?;
    let first_step_s = start.elapsed().as_secs_f64();
    for _ in 1..args.warmup {
        subject.step(|_| Ok(()))?;
    }
    wait(device)?;
    let mut whole = Vec::new();
    let begin = Instant::now();
    let mut last = begin;
    for _ in 0..args.steps {
        // Reading the norm synchronises, as in training.
        subject.step(|_| Ok(()))?;
        whole.push(last.elapsed());
        last = Instant::now();
    }
    wait(device)?;
    let elapsed = begin.elapsed().as_secs_f64();
    let (mut spans, start) = (Vec::new(), Instant::now());
    for _ in 0..args.steps {
        let mut last = start.elapsed();
        subject.step(|phase| {
            wait(device)?;
            let now = start.elapsed();
            spans.push((phase, last, now - last));
            last = now;
            Ok(())
        })?;
    }
    let ms = |times: &[Duration], share: f64| {
        let mut times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        times.sort_by(f64::total_cmp);
        times[((times.len() - 1) as f64 * share).round() as usize]
    };
    let phases_ms = PHASES.iter().enumerate().map(|(number, name)| {
        let times = spans.iter().filter(|span| span.0 == number).map(|span| span.2);
        Phase { name, ms: ms(&times.collect::<Vec<_>>(), 0.5) }
    });
    let record = BatchTiming {
        batch,
        first_step_s,
        step_ms: ms(&whole, 0.5),
        step_p10_ms: ms(&whole, 0.1),
        step_p90_ms: ms(&whole, 0.9),
        images_per_second: (batch * args.steps) as f64 / elapsed,
        phases_ms: phases_ms.collect(),
        device_memory_gib: device_memory(device).map(|bytes| bytes as f64 / f64::from(1 << 30)),
    };
    Ok((record, spans, parameters))
}

fn header() -> String {
    let phases: String = PHASES.iter().map(|name| format!("{name:>11}")).collect();
    format!(
        "{:>6}{:>10}{:>20}{:>10}{phases}{:>9}  ms",
        "batch", "first s", "step [p10 p90]", "img/s", "GiB"
    )
}

fn line(record: &BatchTiming) -> String {
    let BatchTiming { batch, first_step_s, step_ms, step_p10_ms, step_p90_ms, .. } = record;
    let phases: String =
        record.phases_ms.iter().map(|phase| format!("{:>11.2}", phase.ms)).collect();
    let memory = record.device_memory_gib.map_or_else(|| "-".into(), |gib| format!("{gib:.2}"));
    let step = format!("{step_ms:.1} [{step_p10_ms:.1} {step_p90_ms:.1}]");
    format!(
        "{batch:>6}{first_step_s:>10.1}{step:>20}{:>10.0}{phases}{memory:>9}",
        record.images_per_second
    )
}

/// A complete event of the trace format.
fn event(batch: usize, (phase, start, length): Span) -> Value {
    json!({
        "name": PHASES[phase],
        "cat": "step",
        "ph": "X",
        "ts": start.as_secs_f64() * 1e6,
        "dur": length.as_secs_f64() * 1e6,
        "pid": 0,
        "tid": batch,
    })
}
