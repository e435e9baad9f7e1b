//! `vim-train profile train`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::Device;
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use vim_comm::Comm;
use vim_run::storage::{Disk, replace};

use super::Head;
use crate::args::{Overrides, count};
use crate::config::{Config, ConfigError, Problem, TaskKind};
use crate::device::memory::device_memory;
use crate::device::{self, SelectedDevice, threads, wait};
use crate::error::Error;
use crate::output::{check_free, print, print_json};
use crate::task::Objective;
use crate::task::classification::Classifier;
use crate::task::detection::ObjectDetector;
use crate::task::segmentation::PixelClassifier;
use crate::task::without_data::WithoutData;
use crate::train::ranks::{RankArg, Team, start};
use crate::train::state::TrainState;
use crate::train::step;
use crate::train::step::Requests;

const TRAIN_HELP: &str = "\
Examples:
  vim-train profile train configs/vim_tiny_imagenet.toml --set train.precision=bf16 --batch 128,512
  vim-train profile train configs/debug.toml --steps 5 --trace trace.json
  vim-train profile train configs/vim_tiny_imagenet.toml --batch 256 --ranks 2    two GPUs, 128 images each

Makes one batch of random images of the model's size and trains on it with random weights, as `train` would
compute on it, without reading data. Steps are timed twice: whole, one after the other, which gives img/s; and with a wait for
the device after each phase, which gives the phases' times (their sum is a little more than a whole step).
Several ranks, by --ranks or by the configuration's devices.gpus, share each batch: `pack` puts a rank's gradients
behind each other, `exchange` sums them over the ranks, and has in it what rank 0 waits for slower ones; its share
is of a whole step. The trace opens in chrome://tracing or ui.perfetto.dev.";

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
    /// Ranks that share each batch; one for each GPU of `devices.gpus` where left out.
    #[arg(long, value_name = "N", value_parser = count)]
    ranks: Option<usize>,
    #[command(flatten)]
    rank: RankArg,
    /// Classes of the model. Left out: 1000, 150 with task = "segmentation", 80
    /// with "detection".
    #[arg(long, value_name = "K", value_parser = count)]
    classes: Option<usize>,
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

/// The phases of a step, and, where several ranks train, what they add.
const PHASES: [&str; 5] = ["forward", "backward", "pack", "exchange", "update"];
/// The phases of several ranks only.
const SHARED: [&str; 2] = ["pack", "exchange"];

/// The phases of a step on so many ranks.
fn phases(ranks: usize) -> impl Iterator<Item = &'static str> {
    PHASES.into_iter().filter(move |name| ranks > 1 || !SHARED.contains(name))
}

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
struct StepReport {
    #[serde(flatten)]
    head: Head,
    model: String,
    precision: String,
    image_size: String,
    parameters: usize,
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

#[derive(Debug, Serialize)]
struct Phase {
    name: &'static str,
    ms: f64,
}

/// A timed phase: its name, start and duration.
type Span = (&'static str, Duration, Duration);

pub(super) fn run(args: &TrainStepArgs) -> Result<(), Error> {
    if let Some(path) = &args.trace {
        check_free(path, args.force)?;
    }
    let config = Config::load(&args.config, &args.overrides.set)?;
    if let Some(team) = args.rank.team()? {
        return profile(&team, &config, args);
    }
    let devices = match args.ranks {
        Some(count) => device::of_ranks(&config.devices, count, "--ranks")?,
        None => device::gpus(&config.devices)?.into_iter().map(Some).collect(),
    };
    if devices.len() < 2 {
        return profile(&Team::of_one(), &config, args);
    }
    for batch in batches(&config, args) {
        if !batch.is_multiple_of(devices.len()) {
            let (value, other) = (batch.to_string(), format!("{} ranks", devices.len()));
            let reason = "each takes as many images: choose a multiple, by --batch".into();
            let problem = Problem::Conflict { value, other, reason };
            return Err(ConfigError::new("train.batch_size", problem).into());
        }
    }
    start(&config, devices)?.result
}

/// The images of a step.
fn batches(config: &Config, args: &TrainStepArgs) -> Vec<usize> {
    if args.batch.is_empty() { vec![config.train.batch_size] } else { args.batch.clone() }
}

/// Times steps as one of the ranks; rank 0 prints.
fn profile(team: &Team, config: &Config, args: &TrainStepArgs) -> Result<(), Error> {
    threads::start(config.devices.threads)?;
    let chosen = team.device(&config.devices)?;
    let comm = team.join(config, &chosen)?;
    config.model.ssm.scan.resolve(&chosen.device)?;
    config.train.precision.check(&chosen.device)?;
    let measure = match config.task {
        TaskKind::Classification => measure::<Classifier>,
        TaskKind::Segmentation => measure::<PixelClassifier>,
        TaskKind::Detection => measure::<ObjectDetector>,
    };
    let mut report = StepReport {
        head: Head::new("profile train", &chosen),
        model: config.model.method_label(),
        precision: config.train.precision.to_string(),
        image_size: config.model.image_size.to_string(),
        parameters: 0,
        ranks: team.size(),
        results: Vec::new(),
    };
    let mut trace = Vec::new();
    let shows = team.is_lead() && !args.json;
    if shows {
        print(&report.head.line())?;
    }
    for batch in batches(config, args) {
        let (record, spans, parameters) = measure(config, &chosen, batch, &comm, args)?;
        report.parameters = parameters;
        if shows {
            if report.results.is_empty() {
                let ranks = match report.ranks {
                    1 => String::new(),
                    ranks => format!(", {ranks} ranks"),
                };
                print(&format!(
                    "{} parameters, {} px, {}, {}{ranks}",
                    parameters, report.image_size, report.model, report.precision
                ))?;
                print(&header(report.ranks))?;
            }
            print(&line(&record))?;
        }
        trace.extend(spans.into_iter().map(|span| event(batch, span)));
        report.results.push(record);
    }
    // No rank leaves while another one reads.
    comm.gather(&[])?;
    if !team.is_lead() {
        return Ok(());
    }
    if let Some(path) = &args.trace {
        let document = json!({ "traceEvents": trace, "displayTimeUnit": "ms" });
        replace(&Disk, path, document.to_string().as_bytes()).map_err(Error::io("write", path))?;
    }
    if args.json { print_json(&report) } else { Ok(()) }
}

struct Subject<O: Objective> {
    objective: O,
    state: TrainState<O::Model>,
    inputs: O::Inputs,
    comm: Comm,
}

impl<O: Objective> Subject<O> {
    /// One step; `after` is called after each phase, with its name.
    fn step(
        &mut self,
        mut after: impl FnMut(&'static str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let [forward, backward, pack, exchange, update] = PHASES;
        let passed = |phase| match phase {
            step::Phase::Forward => after(forward),
            step::Phase::Backward => after(backward),
            step::Phase::Pack => after(pack),
            step::Phase::Exchange => after(exchange),
        };
        let (shards, asked) = (vec![self.inputs.clone()], Requests::default());
        let Self { objective, state, comm, .. } = self;
        let pending = state.step(objective, shards, 1e-4, comm, asked, passed)?;
        state.finish(pending);
        after(update)
    }
}

fn measure<O: WithoutData>(
    config: &Config,
    chosen: &SelectedDevice,
    batch: usize,
    comm: &Comm,
    args: &TrainStepArgs,
) -> Result<(BatchTiming, Vec<Span>, usize), Error> {
    let start = Instant::now();
    let device: &Device = &chosen.device;
    let autodiff = device.clone().autodiff();
    let classes = args.classes.unwrap_or(config.task.usual_classes());
    let objective = O::without_data(config, classes, comm)?;
    let built = objective.init(&autodiff)?;
    let parameters = built.num_params();
    let mut subject = Subject {
        comm: comm.clone(),
        // A phase is one pass over the whole shard.
        state: TrainState::new(&objective, config, built).with_micro_batches(1),
        // A shard of the batch.
        inputs: objective.random(batch / comm.size(), &autodiff),
        objective,
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
    let phases_ms = phases(comm.size()).map(|name| {
        let times = spans.iter().filter(|span| span.0 == name).map(|span| span.2);
        Phase { name, ms: ms(&times.collect::<Vec<_>>(), 0.5) }
    });
    let (phases_ms, step_ms): (Vec<Phase>, f64) = (phases_ms.collect(), ms(&whole, 0.5));
    let exchange = phases_ms.iter().find(|phase| phase.name == "exchange");
    let record = BatchTiming {
        batch,
        first_step_s,
        step_ms,
        step_p10_ms: ms(&whole, 0.1),
        step_p90_ms: ms(&whole, 0.9),
        images_per_second: (batch * args.steps) as f64 / elapsed,
        exchange_share: exchange.map(|exchange| exchange.ms / step_ms),
        phases_ms,
        device_memory_gib: device_memory(device).map(|bytes| bytes as f64 / f64::from(1 << 30)),
    };
    Ok((record, spans, parameters))
}

fn header(ranks: usize) -> String {
    let phases: String = phases(ranks).map(|name| format!("{name:>11}")).collect();
    let share = if ranks > 1 { format!("{:>11}", "exchange %") } else { String::new() };
    format!(
        "{:>6}{:>10}{:>20}{:>10}{phases}{share}{:>9}  ms",
        "batch", "first s", "step [p10 p90]", "img/s", "GiB"
    )
}

fn line(record: &BatchTiming) -> String {
    let BatchTiming { batch, first_step_s, step_ms, step_p10_ms, step_p90_ms, .. } = record;
    let phases: String =
        record.phases_ms.iter().map(|phase| format!("{:>11.2}", phase.ms)).collect();
    let share = record.exchange_share.map(|share| format!("{:>11.2}", 100.0 * share));
    let share = share.unwrap_or_default();
    let memory = record.device_memory_gib.map_or_else(|| "-".into(), |gib| format!("{gib:.2}"));
    let step = format!("{step_ms:.1} [{step_p10_ms:.1} {step_p90_ms:.1}]");
    format!(
        "{batch:>6}{first_step_s:>10.1}{step:>20}{:>10.0}{phases}{share}{memory:>9}",
        record.images_per_second
    )
}

/// A complete event of the trace format.
fn event(batch: usize, (phase, start, length): Span) -> Value {
    json!({
        "name": phase,
        "cat": "step",
        "ph": "X",
        "ts": start.as_secs_f64() * 1e6,
        "dur": length.as_secs_f64() * 1e6,
        "pid": 0,
        "tid": batch,
    })
}
