//! Measures methods × modes × batch sizes, one row at a time.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Duration;

use vim_comm::Comm;
use vim_kernels::Discretization;
use vim_model::ImageSize;

use super::{Document, Mode, Row};
use crate::config::{Config, config_inputs};
use crate::device::memory::{Meter, available, held};
use crate::device::{self, DeviceName, SelectedDevice, threads};
use crate::error::{Error, Internal};
use crate::fatal;
use crate::output::bar::Bar;
use crate::output::summary::rate;
use crate::output::{check_free, check_no_input, print, print_json, write_json};
use crate::task::without_data::Pass;
use crate::train::environment::Environment;
use crate::train::measure::{StepLimits, Subject};

/// What is timed, and how it is told.
#[derive(Debug)]
pub struct MeasureOptions {
    /// Configuration file that describes the model and its training.
    pub config: PathBuf,
    /// The assignments over it.
    pub sets: Vec<String>,
    /// What to measure.
    pub modes: &'static [Mode],
    /// Whether the launches of a forward pass are replayed as one graph.
    pub graph: bool,
    /// Images a step.
    pub batches: Vec<usize>,
    /// Instead of the file's method.
    pub methods: Option<Vec<Discretization>>,
    /// Instead of the file's `model.image_size`: a square's side.
    pub image_size: Option<usize>,
    /// Height and width of the pictures that windows go over.
    pub picture: [usize; 2],
    /// Classes of the head; `None` leaves them to the task.
    pub classes: Option<usize>,
    /// Steps before the clock starts.
    pub warmup: usize,
    /// Steps to time, one by one and queued.
    pub steps: usize,
    /// The time of each part of a row, after which no further step starts.
    pub budget: Duration,
    /// The device, over the configuration.
    pub device: Option<DeviceName>,
    /// Write the results to this file as JSON, after every row.
    pub output: Option<PathBuf>,
    /// Write over the file that is there.
    pub force: bool,
    /// Whether the results are printed as JSON instead of a table.
    pub json: bool,
}

/// Measures every row, and prints them. A row that does not run is not an error: it has the reason.
pub fn run(options: &MeasureOptions) -> Result<(), Error> {
    if let Some(output) = &options.output {
        check_no_input(output, config_inputs([&options.config]).iter().map(PathBuf::as_path))?;
        check_free(output, options.force)?;
    }
    let configs = configs(options)?;
    let [first, ..] = &configs[..] else {
        return Err(Error::internal("no method to measure"));
    };
    threads::start(first.devices.threads)?;
    let chosen = match &options.device {
        Some(name) => device::choose_named(name)?,
        None => device::choose(&first.devices)?,
    };
    let subject = |config| Subject::new(config, &chosen.device, options.classes, Comm::single());
    let subjects = configs.iter().map(subject).collect::<Result<Vec<_>, _>>()?;
    if options.graph && options.modes != [Mode::Infer] {
        return Err(Error::failed("--graph: a forward pass alone is recorded: add --mode infer"));
    }
    let mut batches = options.batches.clone();
    batches.sort_unstable();
    batches.dedup();
    let mut document = document(options, &subjects[0], &chosen)?;
    let total = subjects.len() * options.modes.len() * batches.len();
    let shown = Shown::new(total, options.json);
    shown.print(&head(&document, &chosen.name, options.graph))?;
    let bench = Bench { chosen: &chosen, before: held(), options };
    for subject in &subjects {
        for &mode in options.modes {
            let mut guard = Guard::default();
            for &batch in &batches {
                let row = bench.row(subject, mode, batch, &mut guard, &shown)?;
                shown.print(&line(&row))?;
                shown.done();
                document.results.push(row);
                if let Some(output) = &options.output {
                    write_json(output, &document)?;
                }
            }
        }
    }
    drop(shown);
    if options.json { print_json(&document) } else { Ok(()) }
}

/// The configuration once for each method.
fn configs(options: &MeasureOptions) -> Result<Vec<Config>, Error> {
    let path = &options.config;
    let mut sets = options.sets.clone();
    sets.extend(options.image_size.map(|side| format!("model.image_size={side}")));
    let Some(methods) = &options.methods else { return Ok(vec![Config::load(path, &sets)?]) };
    let with = |method| [&sets[..], &[format!("model.discretization={method}")]].concat();
    methods.iter().map(|method| Ok(Config::load(path, &with(method))?)).collect()
}

fn document(
    options: &MeasureOptions,
    subject: &Subject,
    chosen: &SelectedDevice,
) -> Result<Document, Error> {
    let environment = Environment::of_this_process(chosen.name.clone(), threads::count(), 0);
    let environment = serde_json::to_value(environment)
        .map_err(|error| Error::internal(format!("the environment has no JSON form: {error}")))?;
    Ok(Document {
        command: "bench".into(),
        config: options.config.display().to_string(),
        model: subject.config.model.preset.to_string(),
        num_classes: subject.classes,
        warmup: options.warmup,
        steps: options.steps,
        budget_s: options.budget.as_secs_f64(),
        hardware: device::hardware(&chosen.device),
        environment,
        overrides: options.sets.clone(),
        results: Vec::new(),
    })
}

struct Bench<'a> {
    chosen: &'a SelectedDevice,
    /// Memory of the process before the first row.
    before: u64,
    options: &'a MeasureOptions,
}

impl Bench<'_> {
    /// Measures a row. Failures are recorded in the row; only a defect is an error.
    fn row(
        &self,
        subject: &Subject,
        mode: Mode,
        batch: usize,
        guard: &mut Guard,
        shown: &Shown,
    ) -> Result<Row, Error> {
        let (model, options) = (&subject.config.model, self.options);
        let [height, width] = options.picture;
        let size = match mode {
            Mode::Infer | Mode::Train => model.image_size,
            Mode::Slide => ImageSize { height, width },
        };
        let parameters = subject.parameters;
        let mut row = Row {
            method: model.method_label(),
            mode,
            graph: options.graph,
            batch,
            image_size: serde_json::to_value(size)
                .map_err(|error| Error::internal(format!("a size has no JSON form: {error}")))?,
            tokens: model.num_tokens(),
            dtype: subject.config.train.precision.to_string(),
            parameters,
            macs_per_image: subject.cost.as_ref().map(vim_model::Cost::macs),
            flops_per_image: subject.cost.as_ref().map(vim_model::Cost::flops),
            latency: None,
            throughput: None,
            flop_s: None,
            peak_memory_bytes: None,
            memory_of: None,
            error: None,
        };
        shown.at(&row);
        let taken = held().saturating_sub(self.before);
        row.error = guard.refuses(batch, mode, parameters, taken, available());
        if row.error.is_some() {
            return Ok(row);
        }
        let mut meter = Meter::start(&self.chosen.device, self.before);
        let &MeasureOptions { warmup, steps, budget, .. } = options;
        let limits = StepLimits { warmup, steps, budget, phases: false };
        // A device out of memory panics; unwinding drops the row's tensors here.
        let measured = catch_unwind(AssertUnwindSafe(|| {
            let pass = match mode {
                Mode::Train => return subject.train(batch, limits, &mut meter),
                Mode::Infer if options.graph => Pass::Recorded,
                Mode::Infer => Pass::Whole,
                Mode::Slide => Pass::Windows,
            };
            subject.infer(pass, (batch, size), limits, &mut meter)
        }));
        let has_panicked = measured.is_err();
        let measured = measured.unwrap_or_else(|panic| Err(Error::failed(panic_text(&*panic))));
        let peak = meter.peak();
        row.peak_memory_bytes = peak.map(|(bytes, _)| bytes);
        row.memory_of = peak.map(|(_, whose)| whose.to_owned());
        match measured {
            Ok(times) => {
                row.latency = Some(times.latency);
                row.throughput = Some(times.throughput);
                let counted = row.flops_per_image.zip(mode.passes());
                row.flop_s =
                    counted.map(|(flops, passes)| (flops * passes) as f64 * times.throughput.img_s);
                let host = peak.filter(|&(_, whose)| whose == "host");
                guard.ran(batch, host.map(|(bytes, _)| bytes));
            }
            Err(error) => {
                row.error = Some(error.to_string());
                // Whether a graph can be recorded depends on no size.
                if has_panicked || !options.graph {
                    guard.failed(batch);
                }
            }
        }
        Ok(row)
    }
}

/// A panic's message in one line.
fn panic_text(panic: &(dyn Any + Send)) -> String {
    let error = fatal::error_of(panic);
    let text =
        error.downcast_ref::<Internal>().map_or_else(|| error.to_string(), |own| own.0.clone());
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Progress output: table rows and the current row.
struct Shown {
    quiet: bool,
    bar: Bar,
}

impl Shown {
    fn new(total: usize, quiet: bool) -> Self {
        let bar = Bar::new(total as u64, "{bar:24} {pos}/{len} {elapsed} {msg}", |bar| {
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self { quiet, bar }
    }

    /// Shows the current row in the bar, or where the table does not show it.
    fn at(&self, row: &Row) {
        let what = format!("{} {} batch {}", row.method, row.mode, row.batch);
        match &self.bar.0 {
            Some(bar) => bar.set_message(what),
            None if self.quiet => eprintln!("{what}"),
            None => {}
        }
    }

    fn done(&self) {
        if let Some(bar) = &self.bar.0 {
            bar.inc(1);
        }
    }

    /// Prints to stdout, unless the document goes there.
    fn print(&self, text: &str) -> Result<(), Error> {
        if self.quiet {
            return Ok(());
        }
        match &self.bar.0 {
            Some(bar) => bar.suspend(|| print(text)),
            None => print(text),
        }
    }
}

/// The heading: model, device and column names.
fn head(document: &Document, device: &str, graph: bool) -> String {
    let hardware = document.hardware.as_deref().unwrap_or("unnamed hardware");
    let graph = if graph { ", forward passes as graphs" } else { "" };
    format!(
        "bench of {} ({} classes) on {device} ({hardware}){graph}\n\n{:<17}{:<6}{:>6}{:>11} [{:>9} {:>9}]{:>10}{:>10}{:>10}{:>9}",
        document.config,
        document.num_classes,
        "method",
        "mode",
        "batch",
        "ms",
        "p10",
        "p90",
        "ms/img",
        "img/s",
        "GFLOP/s",
        "MiB"
    )
}

fn line(row: &Row) -> String {
    let start = format!("{:<17}{:<6}{:>6}", row.method, row.mode.to_string(), row.batch);
    let (Some(latency), Some(throughput)) = (row.latency, row.throughput) else {
        return format!("{start}  {}", row.error.as_deref().unwrap_or("no times"));
    };
    let dash = || "-".to_owned();
    format!(
        "{start}{:>11.3} [{:>9.3} {:>9.3}]{:>10.3}{:>10}{:>10}{:>9}",
        latency.median_ms,
        latency.p10_ms,
        latency.p90_ms,
        latency.median_ms / row.batch as f64,
        rate(throughput.img_s),
        row.flop_s.map_or_else(dash, |rate| format!("{:.1}", rate / 1e9)),
        row.peak_memory_bytes.map_or_else(dash, |bytes| (bytes >> 20).to_string()),
    )
}

/// Memory history of the batches of one method and mode, in ascending order.
#[derive(Clone, Debug, Default)]
struct Guard {
    failed: Option<usize>,
    /// Batch size and peak bytes of the last successful batch.
    last: Option<(usize, u64)>,
}

/// Largest jump in batch size that is extrapolated.
const LARGEST_JUMP: usize = 4;

impl Guard {
    /// `batch` ran, with its host bytes.
    fn ran(&mut self, batch: usize, host_bytes: Option<u64>) {
        self.last = host_bytes.map(|bytes| (batch, bytes));
    }

    fn failed(&mut self, batch: usize) {
        self.failed.get_or_insert(batch);
    }

    /// Why to skip `batch`, if so, in a process that holds `held` benchmark bytes with `available`
    /// bytes free.
    fn refuses(
        &self,
        batch: usize,
        mode: Mode,
        parameters: u64,
        held: u64,
        available: Option<u64>,
    ) -> Option<String> {
        if let Some(failed) = self.failed {
            return Some(format!("not tried: a batch of {failed} did not run"));
        }
        let ((last, peak), available) = (self.last?, available?);
        if batch > LARGEST_JUMP * last {
            return None;
        }
        // Weights; in training also gradients, two moments and the update's temporaries.
        let copies = match mode {
            Mode::Infer | Mode::Slide => 1,
            Mode::Train => 5,
        };
        let fixed = (4 * copies * parameters).min(peak);
        let needed = fixed + (peak - fixed) * batch as u64 / last as u64;
        let mib = |bytes: u64| bytes >> 20;
        (needed.saturating_sub(held) > available).then(|| {
            format!(
                "not tried: would need about {} MiB by what a batch of {last} took, {} are left",
                mib(needed),
                mib(available)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_would_not_fit_is_not_tried() {
        let mut guard = Guard::default();
        let refuses = |guard: &Guard, batch, left| {
            guard.refuses(batch, Mode::Infer, 10 * MIB / 4, 0, Some(left * MIB))
        };
        assert_eq!(refuses(&guard, 8, 1), None, "nothing is known yet");
        guard.ran(8, Some(90 * MIB)); // 10 MiB of weights, 10 for each image
        assert_eq!(refuses(&guard, 16, 170), None);
        let reason = refuses(&guard, 16, 169).unwrap_or_default();
        assert!(reason.contains("about 170 MiB") && reason.contains("169 are left"), "{reason}");
        assert_eq!(refuses(&guard, 64, 1), None, "too far away to tell");
        assert_eq!(guard.refuses(16, Mode::Infer, 0, 0, None), None);
        guard.failed(16);
        guard.failed(32);
        let reason = refuses(&guard, 64, 1 << 20).unwrap_or_default();
        assert_eq!(reason, "not tried: a batch of 16 did not run");
    }
}
