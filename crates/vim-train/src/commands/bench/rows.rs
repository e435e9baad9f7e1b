//! Measures methods × modes × batch sizes, one row at a time.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use vim_run::storage::{Disk, replace};

use super::args::MeasureArgs;
use super::clock::Plan;
use super::guard::Guard;
use super::memory::{Meter, held};
use super::record::{Document, Mode, Row};
use super::subject::Subject;
use super::table;
use crate::config::Config;
use crate::device::memory::available;
use crate::device::threads;
use crate::device::{self, SelectedDevice};
use crate::error::{Error, Internal};
use crate::fatal;
use crate::output::progress::wants_bar;
use crate::output::{check_free, print, print_json};
use crate::train::environment::Environment;

pub(super) fn run(args: &MeasureArgs) -> Result<(), Error> {
    if let Some(output) = &args.output {
        check_free(output, args.force)?;
    }
    let configs = configs(args)?;
    let [first, ..] = &configs[..] else {
        return Err(Error::internal("no method to measure"));
    };
    threads::start(first.devices.threads)?;
    let chosen = match &args.device {
        Some(name) => device::choose_named(name)?,
        None => device::choose(&first.devices)?,
    };
    let subjects = configs
        .iter()
        .map(|config| Subject::new(config, &chosen.device, args.classes))
        .collect::<Result<Vec<_>, _>>()?;
    let mut batches = args.batch.clone();
    batches.sort_unstable();
    batches.dedup();
    let modes = args.mode.modes();
    let mut document = document(args, first, &chosen)?;
    let total = subjects.len() * modes.len() * batches.len();
    let shown = Shown::new(total, args.json);
    shown.print(&table::head(&document, &chosen.name))?;
    let bench = Bench { chosen: &chosen, before: held(), plan: plan(args)? };
    for subject in &subjects {
        for &mode in modes {
            let mut guard = Guard::default();
            for &batch in &batches {
                let row = bench.row(subject, mode, batch, &mut guard, &shown)?;
                shown.print(&table::line(&row))?;
                shown.done();
                document.results.push(row);
                write(args, &document)?;
            }
        }
    }
    drop(shown);
    if args.json { print_json(&document) } else { Ok(()) }
}

/// The configuration once for each method.
fn configs(args: &MeasureArgs) -> Result<Vec<Config>, Error> {
    let path = args.config.as_ref();
    let path = path.ok_or_else(|| Error::internal("no configuration file"))?;
    let mut sets = args.overrides.set.clone();
    sets.extend(args.image_size.map(|side| format!("model.image_size={side}")));
    let Some(methods) = &args.methods else { return Ok(vec![Config::load(path, &sets)?]) };
    let with = |method| [&sets[..], &[format!("model.discretization={method}")]].concat();
    methods.0.iter().map(|method| Ok(Config::load(path, &with(method))?)).collect()
}

fn plan(args: &MeasureArgs) -> Result<Plan, Error> {
    let budget = Duration::try_from_secs_f64(args.budget)
        .map_err(|_| Error::failed(format!("--budget {}: no time to measure in", args.budget)))?;
    Ok(Plan { warmup: args.warmup, steps: args.steps, budget })
}

fn document(
    args: &MeasureArgs,
    config: &Config,
    chosen: &SelectedDevice,
) -> Result<Document, Error> {
    let environment = Environment::of_this_process(chosen.name.clone(), threads::count(), 0);
    let environment = serde_json::to_value(environment)
        .map_err(|error| Error::internal(format!("the environment has no JSON form: {error}")))?;
    Ok(Document {
        command: "bench".into(),
        config: args.config.as_ref().map_or_else(String::new, |path| path.display().to_string()),
        model: config.model.preset.to_string(),
        num_classes: args.classes,
        warmup: args.warmup,
        steps: args.steps,
        budget_s: args.budget,
        hardware: device::hardware(&chosen.device),
        environment,
        overrides: args.overrides.set.clone(),
        results: Vec::new(),
    })
}

fn write(args: &MeasureArgs, document: &Document) -> Result<(), Error> {
    let Some(output) = &args.output else { return Ok(()) };
    let text = serde_json::to_vec_pretty(document)
        .map_err(|error| Error::internal(format!("a result has no JSON form: {error}")))?;
    replace(&Disk, output, &text).map_err(Error::io("write", output))
}

/// Shared state of the rows.
struct Bench<'a> {
    chosen: &'a SelectedDevice,
    /// Memory of the process before the first row.
    before: u64,
    plan: Plan,
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
        let model = subject.model();
        let cost = model.cost().ok();
        let parameters = model.num_parameters() as u64;
        let mut row = Row {
            method: model.method_label(),
            mode,
            batch,
            image_size: serde_json::to_value(model.image_size)
                .map_err(|error| Error::internal(format!("a size has no JSON form: {error}")))?,
            tokens: model.num_tokens(),
            dtype: subject.dtype(),
            parameters,
            macs_per_image: cost.as_ref().map(vim_model::Cost::macs),
            flops_per_image: cost.as_ref().map(vim_model::Cost::flops),
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
        // A device out of memory panics; unwinding drops the row's tensors here.
        let measured =
            catch_unwind(AssertUnwindSafe(|| subject.measure(mode, batch, self.plan, &mut meter)))
                .unwrap_or_else(|panic| Err(Error::failed(panic_text(&*panic))));
        let peak = meter.peak();
        row.peak_memory_bytes = peak.map(|(bytes, _)| bytes);
        row.memory_of = peak.map(|(_, whose)| whose.to_owned());
        match measured {
            Ok((latency, throughput)) => {
                row.latency = Some(latency);
                row.throughput = Some(throughput);
                row.flop_s = row
                    .flops_per_image
                    .map(|flops| (flops * mode.passes()) as f64 * throughput.img_s);
                let host = peak.filter(|&(_, whose)| whose == "host");
                guard.ran(batch, host.map(|(bytes, _)| bytes));
            }
            Err(error) => {
                row.error = Some(error.to_string());
                guard.failed(batch);
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
    bar: Option<ProgressBar>,
}

impl Shown {
    fn new(total: usize, quiet: bool) -> Self {
        let bar = wants_bar().then(|| {
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed} {msg}")
                .expect("invariant: the template is well formed");
            let bar = ProgressBar::new(total as u64).with_style(style);
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self { quiet, bar }
    }

    /// Shows the current row in the bar, or where the table does not show it.
    fn at(&self, row: &Row) {
        let what = format!("{} {} batch {}", row.method, row.mode, row.batch);
        match &self.bar {
            Some(bar) => bar.set_message(what),
            None if self.quiet => eprintln!("{what}"),
            None => {}
        }
    }

    fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// Prints to stdout, unless the document goes there.
    fn print(&self, text: &str) -> Result<(), Error> {
        if self.quiet {
            return Ok(());
        }
        match &self.bar {
            Some(bar) => bar.suspend(|| print(text)),
            None => print(text),
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
