//! The `train` command: the loop, top to bottom.

pub mod batches;
mod course;
pub mod disk_space;
mod dry_run;
pub mod ema;
pub mod evaluate;
pub mod flat;
mod init;
pub mod loaders;
pub mod loss;
pub mod multi_tensor;
mod next;
pub mod optim;
pub mod pass;
mod report;
pub mod schedule;
mod setup;
pub(crate) mod step;
mod warmup;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::Device;
use vim_data::{Loader, LoaderConfig, Split, Splits};
use vim_model::{NamedArrays, Vim};

use crate::cli::TrainArgs;
use crate::comm::SingleDevice;
use crate::commands::slurm::Life;
use crate::config::Config;
use crate::config::interval::Cadence;
use crate::error::Error;
use crate::fatal::Watch;
use crate::output::progress::{Progress, Report};
use crate::output::summary::percent;
use crate::output::{print, print_json};
use crate::run::checkpoint::{Best, Checkpoint, State, Weights, Window};
use crate::run::log::Log;
use crate::run::metrics::JsonlWriter;
use crate::run::metrics::sinks::Sinks;
use crate::run::run_dir::{ExitRecord, Opened, RunDir};
use crate::run::saver::{Saver, Snapshot};
use crate::run::signals::StopRequest;
use crate::train::ema::Ema;
use crate::train::evaluate::{Scores, evaluate};
use crate::train::loss::Loss;
use crate::train::optim::AdamW;
use crate::train::schedule::Schedule;
use crate::weights;
pub(crate) use course::foresee;
use next::Next;
use report::{Metric, Pace};
use setup::Plan;
pub use warmup::{EXAMPLES as WARMUP_EXAMPLES, WarmupArgs, run as warmup};

/// `vim-train train`.
///
/// # Errors
///
/// Whatever keeps the run from its result; the run's folder records it.
pub fn run(args: &TrainArgs) -> Result<(), Error> {
    let stop = StopRequest::install()
        .map_err(|error| Error::Internal(format!("signal handlers: {error}")))?;
    let mut sets = args.overrides.set.clone();
    sets.extend(args.data_order.iter().map(|kind| format!("augment.order={kind}")));
    let config = Config::load(&args.config, &sets)?;
    if args.dry_run {
        return dry_run::run(args, &config);
    }
    // Everything that can be wrong with the experiment is found before its folder is made.
    let plan = Plan::new(&config, args.fresh)?;
    let (folder, name) = (RunDir::open(&config, args.resume, args.fresh)?, config.run_name()?);
    let run = match folder {
        Opened::Run(run) => run,
        Opened::Finished { path, exit } => {
            eprintln!("{} is finished: nothing to resume", path.display());
            return match exit.top1 {
                _ if args.json => print_json(&exit),
                Some(top1) => print(&result_line(top1)),
                None => Ok(()),
            };
        }
    };
    let log = Log::open(&run.log())?;
    let load = plan.load();
    let watch = Watch::over(run.path().to_owned(), log.clone(), load);
    let life = Life::new(&config.slurm, run.path(), &log, args.resume);
    let work = || -> Result<Outcome, Error> {
        let mut trainer = Trainer::new(&config, plan, &run, &log, stop, &watch)?;
        life.begin(trainer.state.step, run.is_resumed())?;
        let result = trainer.train(args.steps).map_err(|error| error.with_load(load));
        let result = trainer.finish_saving(result);
        let exit = trainer.exit_record(&result);
        log.line(trainer.summary(name, &result));
        Ok((exit, result))
    };
    // However it ends, a panic included, the folder says so: no `exit.json` means "at work".
    let outcome = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(Error::from_panic(&*panic).with_load(load)));
    let (exit, result) = outcome.unwrap_or_else(|error| {
        (ExitRecord { step: watch.step(), ..ExitRecord::failed(&error) }, Err(error))
    });
    // The run's own error is what matters; that its record could not be written comes second.
    let written = run.write_exit(&exit);
    life.end(&exit, result.as_ref().err().and_then(Error::stop));
    let test = result?;
    written?;
    let line = test.map(|test| result_line(test.top1));
    if let Some(line) = &line {
        log.file_line(line);
    }
    match line {
        _ if args.json => print_json(&exit),
        Some(line) => print(&line),
        None => Ok(()),
    }
}

/// How the process ends, and the scores on the test images if training is finished.
type Outcome = (ExitRecord, Result<Option<Scores>, Error>);

fn result_line(top1: f64) -> String {
    format!("test top-1 {}", percent(top1))
}

struct Trainer<'a> {
    config: &'a Config,
    device: Device,
    splits: Splits,
    run: &'a RunDir,
    log: &'a Log,
    watch: &'a Watch,
    stop: StopRequest,
    comm: SingleDevice,
    saver: Saver,
    /// How long saving has held the loop up since the last record of it.
    save_stall: Duration,
    metrics: Sinks,
    timing: JsonlWriter,
    bad_samples: JsonlWriter,
    /// Those that the log has named.
    named_bad: BTreeSet<usize>,
    loader: Loader,
    evaluation: LoaderConfig,
    schedule: Schedule,
    total_steps: u64,
    /// Tensors that must have a gradient.
    num_parameters: usize,
    /// `None` only while a step makes the next one.
    model: Option<Vim>,
    optimizer: AdamW,
    ema: Option<Ema>,
    loss: Loss,
    state: State,
    first_step: u64,
    last_loss: Option<f64>,
    last_top1: Option<f64>,
    test_top1: Option<f64>,
    warned: bool,
    start: Instant,
}

impl<'a> Trainer<'a> {
    fn model(&self) -> &Vim {
        self.model.as_ref().expect("invariant: taken only within a step")
    }

    /// Trains to the end, and tests what came of it; or `limit` steps, and leaves it at that.
    fn train(&mut self, limit: Option<u64>) -> Result<Option<Scores>, Error> {
        let pause = limit.map_or(u64::MAX, |limit| self.state.step.saturating_add(limit));
        let steps_per_epoch = self.loader.batches_per_epoch() as u64;
        let mut log_due = Cadence::new(self.config.log.every, steps_per_epoch);
        let mut eval_due = Cadence::new(self.config.train.eval_every, steps_per_epoch);
        let mut save_due = Cadence::new(self.config.checkpoint.every, steps_per_epoch);
        let archive = self.config.checkpoint.archive;
        let mut archive_due = archive.map(|every| Cadence::new(every, steps_per_epoch));
        let progress =
            Progress::new(self.log, self.state.step, self.total_steps, self.config.train.epochs);
        let statistics = self.splits.train.statistics(self.config.data.normalize);
        let mut pace = Pace::start(self.state.step, Duration::ZERO);
        if self.state.eval_pending && self.validate()? {
            self.save(true, false)?;
        }
        let mut batches = self.loader.batches(self.state.step..self.total_steps.min(pause));
        let mut next = Next::of(&mut batches, statistics, &self.device);
        while let Some(batch) = next.take() {
            let epoch = self.state.step / steps_per_epoch;
            self.stop_if_asked()?;
            self.saver.check()?;
            let Next { images, targets, bad } = batch?;
            self.record_bad(bad)?;
            let lr = self.schedule.lr(self.state.step);
            let queued = self.step(images, &targets, lr)?;
            // While the device is at work, for it has nothing to do once the step's numbers are read. If the loader has it:
            // what is due after this step waits for no disk.
            if batches.is_ready() {
                next = Next::of(&mut batches, statistics, &self.device);
            }
            let grad_norm = self.finish_step(queued)?;
            let (step, elapsed) = (self.state.step, self.start.elapsed());
            progress.step(step);
            self.watch.at(step);
            if step == self.first_step + 1 {
                self.log.line(format!("first step after {:.1} s", elapsed.as_secs_f64()));
                self.log_implementations();
            }

            let last = step == self.total_steps;
            if log_due.due(step, elapsed) || last {
                // Of steps that were all skipped there is nothing to tell.
                let loss = self.state.window.mean();
                self.state.window = Window::default();
                self.last_loss = loss.or(self.last_loss);
                if let Some(loss) = loss {
                    self.metrics.append(&Metric::Train { step, epoch, loss, lr, grad_norm })?;
                }
                let waited = batches.stats().waited;
                let speed = self.record_timing(&pace, step, waited, elapsed)?;
                pace = Pace::start(step, waited);
                let top1 = self.last_top1;
                if let Some(loss) = self.last_loss {
                    progress.report(&Report { step, epoch, loss, lr, top1, speed });
                }
                self.warn_of_large_steps();
            }
            let mut is_best = false;
            if (eval_due.due(step, elapsed) || last) && self.splits.val.is_some() {
                self.state.eval_pending = true;
                is_best = self.validate()?;
                // Time spent on evaluation is not training's.
                pace = Pace::start(step, batches.stats().waited);
            }
            let paused = step == pause;
            let is_archived = archive_due.as_mut().is_some_and(|due| due.due(step, elapsed));
            // Where steps are being skipped the weights may be past help: what was saved before them is not to make room.
            let stands = self.state.skipped_in_a_row == 0;
            let save_due = save_due.due(step, elapsed) || is_archived;
            if (save_due && stands) || is_best || last || paused {
                self.save(is_best, is_archived)?;
            }
            if next.is_none() {
                next = Next::of(&mut batches, statistics, &self.device);
            }
        }
        drop(batches);
        drop(progress);
        self.saver.wait()?;
        if self.state.step < self.total_steps { Ok(None) } else { self.test().map(Some) }
    }

    /// Evaluates on the validation images; returns whether it is the best so far.
    fn validate(&mut self) -> Result<bool, Error> {
        let Some(split) = self.splits.val.clone() else {
            self.state.eval_pending = false;
            return Ok(false);
        };
        // All of them before any is recorded: an evaluation that is made up for records none twice.
        let mut all = Vec::new();
        for weights in self.kinds_of_weights() {
            let Some(scores) = self.evaluate(&self.weights(weights), &split)? else {
                // The pending evaluation is saved with the state, and made up for on resume.
                return self.stop_if_asked().map(|()| false);
            };
            all.push((weights, scores));
        }
        self.state.eval_pending = false;
        let step = self.state.step;
        let mut is_best = false;
        for (weights, scores) in all {
            if weights == Weights::Model {
                self.last_top1 = Some(scores.top1);
            }
            self.record("val", "last", step, weights, scores)?;
            if self.state.best.is_none_or(|best| scores.top1 > best.metric) {
                self.state.best = Some(Best { metric: scores.top1, step, weights });
                is_best = true;
            }
        }
        Ok(is_best)
    }

    /// The kinds of weights that this run has; where they are as good, the first is the better.
    fn kinds_of_weights(&self) -> Vec<Weights> {
        let ema = self.ema.is_some().then_some(Weights::Ema);
        [Weights::Model].into_iter().chain(ema).collect()
    }

    /// The model as it is to be evaluated.
    fn weights(&self, weights: Weights) -> Vim {
        match (weights, &self.ema) {
            (Weights::Ema, Some(ema)) => ema.model(self.model()),
            (Weights::Model | Weights::Ema, _) => self.model().valid(),
        }
    }

    /// Evaluates the result of the run on the test images.
    fn test(&mut self) -> Result<Scores, Error> {
        let test = self.splits.test.clone();
        let now = self.state.step;
        // Without validation images nothing chooses between the weights and their average: both are tested, and the
        // weights are the result.
        let last = || -> Vec<(Vim, Weights)> {
            let kinds = self.kinds_of_weights().into_iter();
            kinds.map(|kind| (self.weights(kind), kind)).collect()
        };
        let (models, step, which) = match self.state.best {
            None => (last(), now, "last"),
            Some(Best { step, weights, .. }) if step == now => {
                (vec![(self.weights(weights), weights)], now, "best")
            }
            Some(Best { step, weights, .. }) => match self.load(step, weights) {
                Ok(model) => (vec![(model, weights)], step, "best"),
                Err(error) => {
                    self.log.line(format!("warning: {error}; testing the last weights instead"));
                    (last(), now, "last")
                }
            },
        };
        let mut all = Vec::new();
        for (model, weights) in models {
            let Some(scores) = self.evaluate(&model, &test)? else {
                self.stop_if_asked()?;
                return Err(Error::Internal("an evaluation ended early, and nobody asked".into()));
            };
            all.push((weights, scores));
        }
        for &(weights, scores) in &all {
            self.record("test", which, step, weights, scores)?;
        }
        self.metrics.sync()?;
        let (_, scores) = *all.first().expect("invariant: there are weights to test");
        self.test_top1 = Some(scores.top1);
        Ok(scores)
    }

    /// Weights of the checkpoint of `step`, for evaluation.
    fn load(&self, step: u64, weights: Weights) -> Result<Vim, Error> {
        let path = self.saver.checkpoints().path_of(step);
        let bytes = Checkpoint::read(&path)?.take(weights::file(weights))?;
        weights::model_from_bytes(self.model().valid(), &bytes, &path.display().to_string())
    }

    fn evaluate(&self, model: &Vim, split: &Split) -> Result<Option<Scores>, Error> {
        let statistics = split.statistics(self.config.data.normalize);
        let device = self.device.clone().inner();
        let loader = self.evaluation.clone();
        evaluate(model, split, statistics, loader, &device, Some(&self.stop))
    }

    /// Saves and stops if a signal has asked for it.
    fn stop_if_asked(&mut self) -> Result<(), Error> {
        let Some(stop) = self.stop.get() else { return Ok(()) };
        self.save(false, false)?;
        self.saver.wait()?;
        Err(Error::Stopped { stop, step: self.state.step })
    }

    /// Takes a snapshot, and has it written while the loop goes on.
    fn save(&mut self, is_best: bool, is_archived: bool) -> Result<(), Error> {
        let start = Instant::now();
        // Before there is a second snapshot in memory.
        self.saver.wait()?;
        let steps_per_epoch = self.loader.batches_per_epoch() as u64;
        self.state.epoch = self.state.step / steps_per_epoch;
        self.state.batch = self.state.step % steps_per_epoch;
        self.state.metrics_len = self.metrics.len();
        let mut files = vec![
            (weights::MODEL, NamedArrays::of(self.model())),
            (weights::OPTIMIZER, weights::optimizer_arrays(&self.optimizer)),
        ];
        if let Some(ema) = &self.ema {
            files.push((weights::EMA, NamedArrays::of(&ema.model(self.model()))));
        }
        let snapshot = Snapshot { files, state: self.state.clone(), is_best, is_archived };
        self.saver.start(snapshot, self.metrics.handle()?)?;
        self.save_stall += start.elapsed();
        Ok(())
    }

    /// Waits for the save in flight; its error is the run's, unless that has one of its own.
    fn finish_saving<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        match (result, self.saver.wait()) {
            (Ok(_), Err(error)) => Err(error),
            (Err(error), Err(second)) => {
                self.log.line(format!("warning: {second}"));
                Err(error)
            }
            (result, Ok(())) => result,
        }
    }
}
