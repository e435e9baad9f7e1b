//! The `train` command and its loop.

mod args;
pub(crate) mod dry_run;
pub mod environment;
mod evaluation;
pub(crate) mod job_attempt;
pub mod optim;
mod recorder;
pub mod schedule;
mod setup;
pub mod state;
pub mod step;
mod warmup;

use std::io::{IsTerminal, stderr, stdout};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use burn::tensor::Device;
use vim_data::BadSample;
use vim_run::checkpoint::{Content, Saver, Snapshot, Window};
use vim_run::metrics::ScoreKind;
use vim_run::signals::StopRequest;
use vim_run::{EXIT, ExitRecord, LOG, Log, Opened, RunDir};

use crate::config::{Config, NonFinite};
use crate::error::Error;
use crate::fatal::{self, CrashGuard};
use crate::output::progress::{Progress, Report};
use crate::output::{print, print_json};
use crate::run_folder;
use crate::task::{BatchStream, EvalSplit, Inputs, Model, Task};
pub use args::TrainArgs;
use job_attempt::JobAttempt;
pub use recorder::TrainError;
use recorder::{Metric, Pace, Recorder};
use schedule::{Cadence, Schedule};
use setup::ResolvedRun;
pub(crate) use setup::preflight;
use state::TrainState;
use step::{Comm, StepMetrics};
pub use warmup::{WarmupArgs, run as warmup};

/// `vim-train train` of the task `T`, on the device of `comm`.
pub fn run<T: Task>(args: &TrainArgs, comm: &mut dyn Comm) -> Result<(), Error> {
    let stop = StopRequest::install().map_err(Error::io("install", "signal handlers"))?;
    let mut sets = args.device.over(&args.overrides.set);
    sets.extend(args.data_order.iter().map(|kind| format!("augment.order={kind}")));
    let config = Config::load(&args.config, &sets)?;
    if args.dry_run {
        return dry_run::run::<T>(args, &config);
    }
    // Check everything before making the run's folder.
    let resolved = ResolvedRun::<T>::new(&config, args.fresh, comm)?;
    stop.defer();
    let (folder, name) = (run_folder::open(&config, args.resume, args.fresh)?, config.run_name()?);
    let run = match folder {
        Opened::Run(run) => run,
        Opened::Finished { path, exit } => {
            eprintln!("{} is finished: nothing to resume", path.display());
            print_result::<T>(args.json, &exit, exit.scores.get(T::PRIMARY.name));
            return Ok(());
        }
    };
    let log = Log::open(&run.path().join(LOG))?;
    let load = resolved.footprint;
    let guard = CrashGuard::over(run.clone(), log.clone(), load);
    let attempt = JobAttempt::new(&config.slurm, run.path(), &log, args.resume);
    let work = || -> Result<Outcome, Error> {
        let mut trainer = Trainer::new(&config, resolved, comm, &run, &log, stop, &guard)?;
        attempt.begin(trainer.train.counters.step, run.is_resumed())?;
        let result = trainer.train(args.steps).map_err(|error| fatal::with_load(error, load));
        let result = trainer.finish_saving(result);
        let exit = trainer.exit_record(&result);
        log.line(trainer.summary(name, &result));
        Ok((exit, result))
    };
    // Record every end, panics included: a missing `exit.json` means that the run is active.
    let outcome = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(fatal::with_load(fatal::error_of(&*panic), load)));
    let (exit, result) = outcome.unwrap_or_else(|error| {
        (
            ExitRecord { step: guard.step(), ..ExitRecord::failed(&error, error.exit_code()) },
            Err(error),
        )
    });
    // In a folder that is no longer this run's nothing is recorded, and no other error matters.
    run.check()?;
    // The run's error takes precedence over a failure to write its record.
    let written = run.write_exit(&exit);
    let stop = result.as_ref().err().and_then(TrainError::stop_of);
    let next = attempt.end(&exit, stop);
    if let (Some(stop), Some(next)) = (stop, next) {
        return Err(TrainError::Handed { stop, step: exit.step, next }.into());
    }
    let tested = result?;
    written?;
    if let Some(score) = tested {
        log.file_line(result_line::<T>(score));
    }
    // On a terminal the summary above has shown the score; a script reads the line.
    if args.json || !(stdout().is_terminal() && stderr().is_terminal()) {
        print_result::<T>(args.json, &exit, tested);
    }
    Ok(())
}

/// Prints the result. A failure leaves the run's exit code as it is: `exit.json` has the result.
fn print_result<T: Task>(as_json: bool, exit: &ExitRecord, score: Option<f64>) {
    let printed = match score {
        _ if as_json => print_json(exit),
        Some(score) => print(&result_line::<T>(score)),
        None => Ok(()),
    };
    if let Err(error) = printed {
        eprintln!("warning: {error}; {EXIT} has the result");
    }
}

/// The exit record, and the primary test score if training is finished.
type Outcome = (ExitRecord, Result<Option<f64>, Error>);

fn result_line<T: Task>(score: f64) -> String {
    format!("test {} {}", T::PRIMARY.label, T::PRIMARY.show(score))
}

struct Trainer<'a, T: Task> {
    config: &'a Config,
    task: T,
    device: Device,
    comm: &'a mut dyn Comm,
    run: &'a RunDir,
    log: &'a Log,
    guard: &'a CrashGuard,
    stop: StopRequest,
    train: TrainState<Model<T>>,
    schedule: Schedule,
    steps_per_epoch: u64,
    total_steps: u64,
    saver: Saver,
    records: Recorder<'a>,
    first_step: u64,
    last_loss: Option<f64>,
    /// Primary score of the last evaluation during training.
    last_score: Option<f64>,
    /// Primary score of the test images.
    test_score: Option<f64>,
    start: Instant,
}

impl<T: Task> Trainer<'_, T> {
    /// Trains to the end and tests the result; pauses after `limit` steps.
    fn train(&mut self, limit: Option<u64>) -> Result<Option<f64>, Error> {
        let pause = limit.map_or(u64::MAX, |limit| self.step().saturating_add(limit));
        let cadence = |interval| Cadence::new(interval, self.steps_per_epoch);
        let mut log_due = cadence(self.config.log.every);
        let mut eval_due = cadence(self.config.train.eval_every);
        let mut save_due = cadence(self.config.checkpoint.every);
        let mut archive_due = self.config.checkpoint.archive.map(cadence);
        let epochs = self.config.train.epochs;
        let shown = match self.watched() {
            Some(EvalSplit::Test) => ScoreKind { label: EvalSplit::Test.name(), ..T::PRIMARY },
            Some(EvalSplit::Val) | None => T::PRIMARY,
        };
        let progress = Progress::new(self.log, self.step(), self.total_steps, epochs, shown);
        let mut pace = Pace::start(self.step(), Duration::ZERO);
        let evaluating = self.watched().map(|split| format!("evaluating {}", split.name()));
        let evaluating = evaluating.as_deref().unwrap_or_default();
        if self.train.counters.eval_pending {
            progress.meanwhile(evaluating);
            if self.validate()? {
                self.save(true, false)?;
            }
        }
        let mut batches = self.task.batches(self.step()..self.total_steps.min(pause));
        let mut next = self.next_batch(&mut batches);
        while let Some(batch) = next.take() {
            let epoch = self.step() / self.steps_per_epoch;
            self.stop_if_asked()?;
            self.saver.check()?;
            let DeviceBatch { inputs, bad } = batch?;
            self.records.bad(bad)?;
            let lr = self.schedule.lr(self.step());
            let pending =
                self.train.step(self.task.objective(), inputs, lr, self.comm, |_| Ok(()))?;
            // Prefetch while the GPU is busy; only if the batch is ready, so that a due record,
            // evaluation or checkpoint never waits for the loader.
            if batches.is_ready() {
                next = self.next_batch(&mut batches);
            }
            let metrics = self.train.finish(pending);
            let grad_norm = self.check(metrics)?;
            let (step, elapsed) = (self.step(), self.start.elapsed());
            let loss = self.train.counters.window.mean().or(self.last_loss);
            progress.step(&Report { step, epoch, loss, lr, score: self.last_score, speed: None });
            self.guard.at(step);
            if step == self.first_step + 1 {
                self.log.line(format!("first step after {:.1} s", elapsed.as_secs_f64()));
                self.records.implementations();
            }

            let last = step == self.total_steps;
            if log_due.due(step, elapsed) || last {
                // If all steps were skipped, there is no loss to record.
                let loss = self.train.counters.window.mean();
                self.train.counters.window = Window::default();
                self.last_loss = loss.or(self.last_loss);
                if let Some(loss) = loss {
                    self.records.metrics.append(&Metric::Train {
                        step,
                        epoch,
                        loss,
                        lr,
                        grad_norm,
                    })?;
                }
                let waited = batches.waited();
                let speed = self.records.timing(&pace, step, waited, elapsed)?;
                pace = Pace::start(step, waited);
                if let loss @ Some(_) = self.last_loss {
                    let (score, speed) = (self.last_score, Some(speed));
                    progress.report(&Report { step, epoch, loss, lr, score, speed });
                }
                self.records.warn_once(self.task.training_warning());
            }
            let mut is_best = false;
            // The test at the end evaluates the last weights on the test images.
            let evaluates = match self.watched() {
                Some(EvalSplit::Val) => eval_due.due(step, elapsed) || last,
                Some(EvalSplit::Test) => eval_due.due(step, elapsed) && !last,
                None => false,
            };
            if evaluates {
                self.train.counters.eval_pending = true;
                progress.meanwhile(evaluating);
                is_best = self.validate()?;
                // Exclude evaluation from the training speed.
                pace = Pace::start(step, batches.waited());
            }
            let paused = step == pause;
            let is_archived = archive_due.as_mut().is_some_and(|due| due.due(step, elapsed));
            // While steps are skipped the weights may be broken: they must not displace an earlier
            // checkpoint.
            let is_sound = self.train.counters.skipped_in_a_row == 0;
            let save_due = save_due.due(step, elapsed) || is_archived;
            if (save_due && is_sound) || is_best || last || paused {
                self.save(is_best, is_archived)?;
            }
            if next.is_none() {
                next = self.next_batch(&mut batches);
            }
        }
        drop(batches);
        self.saver.wait()?;
        if self.step() < self.total_steps {
            return Ok(None);
        }
        progress.meanwhile("testing");
        self.test().map(Some)
    }

    /// Steps done.
    fn step(&self) -> u64 {
        self.train.counters.step
    }

    /// Waits for the loader and queues the upload of the next batch, if any.
    fn next_batch(&self, batches: &mut T::Batches) -> Option<Result<DeviceBatch<T>, Error>> {
        let batch = batches.next()?;
        let bad = batches.take_bad();
        let upload = |batch| {
            let inputs = self.task.upload(&batch, &self.device)?;
            Ok(DeviceBatch { inputs, bad })
        };
        Some(batch.and_then(upload))
    }

    /// The gradient norm; `None` if the step is skipped, as `train.non_finite` may allow.
    fn check(&mut self, metrics: StepMetrics) -> Result<Option<f64>, Error> {
        let Some(fault) = metrics.fault() else { return Ok(Some(metrics.grad_norm)) };
        let step = self.step() + 1;
        let train = &self.config.train;
        let in_a_row = self.train.counters.skipped_in_a_row + 1;
        let what = match train.non_finite {
            NonFinite::Skip if in_a_row <= train.max_non_finite => {
                let most = train.max_non_finite;
                self.log.line(format!(
                    "warning: step {step} is skipped, {fault} ({in_a_row} in a row, {most} at most)"
                ));
                let epoch = self.step() / self.steps_per_epoch;
                self.records.metrics.append(&Metric::Skipped {
                    step,
                    epoch,
                    reason: &fault,
                    in_a_row,
                })?;
                self.train.skip();
                return Ok(None);
            }
            NonFinite::Skip => format!("{fault}, as at the {} steps before it", in_a_row - 1),
            NonFinite::Stop => fault,
        };
        Err(TrainError::Diverged { step, what: format!("{what}{}", self.newest_checkpoint()) }
            .into())
    }

    fn newest_checkpoint(&mut self) -> String {
        // A save may be in flight; if it fails, an earlier checkpoint is the newest.
        if let Err(error) = self.saver.wait() {
            self.log.line(format!("warning: {error}"));
        }
        let checkpoints = self.saver.checkpoints();
        match checkpoints.steps().last() {
            Some(step) => format!(
                "; the newest checkpoint is of step {step}, {}",
                checkpoints.path_of(*step).display()
            ),
            None => "; there is no checkpoint yet".into(),
        }
    }

    /// Saves and stops if a signal has arrived.
    fn stop_if_asked(&mut self) -> Result<(), Error> {
        let Some(stop) = self.stop.get() else { return Ok(()) };
        self.save(false, false)?;
        self.saver.wait()?;
        Err(TrainError::Stopped { stop, step: self.step() }.into())
    }

    /// Takes a snapshot; a thread writes it while the loop continues.
    fn save(&mut self, is_best: bool, is_archived: bool) -> Result<(), Error> {
        self.run.check()?;
        let start = Instant::now();
        // At most one snapshot in memory.
        self.saver.wait()?;
        let counters = &mut self.train.counters;
        counters.epoch = counters.step / self.steps_per_epoch;
        counters.batch = counters.step % self.steps_per_epoch;
        counters.metrics = self.records.metrics.records().prefix();
        let files = self.train.files().into_iter().map(|(name, arrays)| {
            let content = move || arrays.to_safetensors().map_err(|error| error.to_string());
            (name, Box::new(content) as Content)
        });
        let (files, state) = (files.collect(), self.train.counters.clone());
        let snapshot = Snapshot { files, state, is_best, is_archived };
        self.saver.start(snapshot, self.records.metrics.records().handle()?)?;
        self.records.save_stall += start.elapsed();
        Ok(())
    }

    /// Waits for the save in flight; returns its error unless `result` is an error already.
    fn finish_saving<R>(&mut self, result: Result<R, Error>) -> Result<R, Error> {
        match (result, self.saver.wait()) {
            (Ok(_), Err(error)) => Err(error.into()),
            (Err(error), Err(second)) => {
                self.log.line(format!("warning: {second}"));
                Err(error)
            }
            (result, Ok(())) => result,
        }
    }
}

/// A batch on the device, and its unreadable images.
struct DeviceBatch<T: Task> {
    inputs: Inputs<T>,
    bad: Vec<BadSample>,
}
