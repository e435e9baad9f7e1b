//! The `train` command and its loop.

mod batch_size;
pub mod dry_run;
pub mod environment;
pub mod estimate;
mod evaluation;
mod follow;
pub mod history;
pub mod job_attempt;
pub mod measure;
pub mod optim;
mod options;
mod page;
pub(crate) mod ranks;
mod recorder;
mod result;
pub mod schedule;
mod setup;
pub mod state;
pub mod step;
mod warmup;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use burn::tensor::Device;
use vim_comm::Comm;
use vim_data::BadSample;
use vim_run::checkpoint::Window;
use vim_run::metrics::ScoreKind;
use vim_run::signals::StopRequest;
use vim_run::{ExitRecord, LOG, Log, Opened};

use crate::config::{Config, NonFinite};
use crate::device::memory::Pages;
use crate::error::Error;
use crate::fatal::{self, CrashGuard};
use crate::output::progress::{Progress, Report};
use crate::output::summary::summary;
use crate::run_folder;
use crate::task::{BatchStream, EvalSplit, Inputs, Model, Objective, Task};
use follow::{Start, follow};
use job_attempt::JobAttempt;
pub use options::TrainOptions;
use ranks::{Rank, Role, ShardCount};
pub use recorder::TrainError;
use recorder::{Lead, Metric, Pace, Recorder, range_warning};
use result::{acknowledge, print_result, prints_score};
use schedule::{Cadence, Schedule};
use setup::ResolvedRun;
pub(crate) use setup::preflight;
use state::TrainState;
use step::{Passes, Requests, StepGraph, StepMetrics};
pub use warmup::run as warmup;

/// `vim-train train` of the task `T`: trains, or starts the processes that do.
pub fn run<T: Task + 'static>(options: &TrainOptions) -> Result<(), Error> {
    let stop = StopRequest::install().map_err(Error::io("install", "signal handlers"))?;
    let config =
        run_folder::with_parts(Config::load(&options.config, &options.sets)?, options.fresh);
    if options.dry_run {
        return dry_run::run::<T>(options, &config);
    }
    let config = batch_size::sought(options, config)?;
    let (role, shards, config) = Role::of(options, &config, &stop)?;
    let rank = match role {
        Role::Rank(rank) => rank,
        Role::Supervisor(supervisor) => {
            preflight::<T>(&config).inspect_err(|error| supervisor.give_up(error))?;
            return supervisor.run(&stop);
        }
    };
    work_as::<T>(options, &config, &rank, shards, stop).map_err(|error| rank.end(&config, error))
}

/// Trains what is this `rank`'s part of the run.
fn work_as<T: Task>(
    options: &TrainOptions,
    config: &Config,
    rank: &Rank,
    shards: ShardCount,
    stop: StopRequest,
) -> Result<(), Error> {
    // Check everything before making the run's folder.
    let resolved = ResolvedRun::<T>::new(config, options.fresh, rank)?;
    let comm = resolved.comm.clone();
    stop.defer();
    if comm.rank() > 0 {
        return follow(config, resolved, options.steps, stop);
    }
    let (folder, name) =
        (run_folder::open(config, options.resume, options.fresh)?, config.run_name()?);
    let run = match folder {
        Opened::Run(run) => run,
        Opened::Finished { path, exit } => {
            return end_finished::<T>(&comm, &path, &exit, options.json);
        }
    };
    rank.opened(config)?;
    let log = Log::open(&run.path().join(LOG))?;
    if matches!(rank, Rank::Only) {
        acknowledge(&stop, &log);
    }
    let load = resolved.footprint;
    let guard = CrashGuard::over(run.clone(), log.clone(), load);
    let attempt = JobAttempt::new(&config.slurm, run.path(), &log, options.resume, options.led);
    let mut ended = None;
    let work = || -> Result<Outcome, Error> {
        let mut trainer = Trainer::new(config, resolved, &run, &log, stop, &guard)?;
        if comm.size() > 1 {
            comm.broadcast(Start::of(&trainer.train, run.path())?.to_bytes()?)?;
        }
        rank.describe(&comm, shards, &log);
        attempt.begin(trainer.train.counters.step, run.is_resumed())?;
        let result = trainer.train(options.steps).map_err(|error| fatal::with_load(error, load));
        let result = trainer.finish_saving(result);
        let exit = trainer.exit_record(&result);
        tell_end(&trainer, name, &result, prints_score(options));
        ended = result.is_ok().then_some(trainer);
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
    if result.as_ref().err().is_none_or(TrainError::is_of_all) {
        // The other ranks end when everything is written.
        comm.broadcast(Vec::new())?;
    }
    if let (Some(stop), Some(next)) = (stop, next) {
        return Err(TrainError::Handed { stop, step: exit.step, next }.into());
    }
    let tested = result?;
    written?;
    if let Some(trainer) = ended
        && page::is_wanted(config, options.steps, exit.reason)
    {
        guard.release();
        trainer.write_page();
    }
    if options.json || prints_score(options) {
        print_result::<T>(options.json, &exit, tested);
    }
    Ok(())
}

/// There is nothing to train, as all ranks are told.
fn end_finished<T: Task>(
    comm: &Comm,
    path: &Path,
    exit: &ExitRecord,
    json: bool,
) -> Result<(), Error> {
    comm.broadcast(Start::Finished.to_bytes()?)?;
    eprintln!("{} is finished: nothing to resume", path.display());
    print_result::<T>(json, exit, exit.scores.get(T::PRIMARY.name));
    Ok(())
}

/// Tells the log how training ended with `result`, whose score is also printed if `is_printed`.
fn tell_end<T: Task>(
    trainer: &Trainer<'_, T>,
    name: String,
    result: &Result<Option<f64>, Error>,
    is_printed: bool,
) {
    let log = trainer.log;
    let mut of_run = trainer.summary(name, result);
    log.file_line(summary(&of_run));
    if let Some(error) = result.as_ref().err().filter(|error| TrainError::stop_of(error).is_none())
    {
        log.file_line(format!("error: {error}"));
    }
    if is_printed {
        of_run.test_score = None;
    }
    log.screen_line(summary(&of_run));
}

/// The exit record, and the primary test score if training is finished.
type Outcome = (ExitRecord, Result<Option<f64>, Error>);

struct Trainer<'a, T: Task> {
    config: &'a Config,
    task: T,
    device: Device,
    comm: Comm,
    /// What rank 0 alone has.
    lead: Option<Lead<'a, T>>,
    log: &'a Log,
    guard: &'a CrashGuard,
    stop: StopRequest,
    train: TrainState<Model<T>>,
    graph: StepGraph<Inputs<T>>,
    pages: Pages,
    schedule: Schedule,
    steps_per_epoch: u64,
    total_steps: u64,
    records: Recorder<'a>,
    /// Unreadable images of this rank that are not recorded yet.
    bad: Vec<BadSample>,
    first_step: u64,
    last_loss: Option<f64>,
    /// Primary score of the last evaluation during training.
    last_score: Option<f64>,
    /// Primary score of the test images.
    test_score: Option<f64>,
    start: Instant,
}

/// When the loop records, evaluates and saves.
struct Due {
    log: Cadence,
    evaluation: Cadence,
    save: Cadence,
    archive: Option<Cadence>,
}

/// What a step came to.
struct Done {
    step: u64,
    epoch: u64,
    lr: f64,
    grad_norm: Option<f64>,
    polynomial_argument: f64,
    /// Since this process began to train.
    elapsed: Duration,
}

impl<T: Task> Trainer<'_, T> {
    /// Trains to the end and tests the result; pauses after `limit` steps.
    fn train(&mut self, limit: Option<u64>) -> Result<Option<f64>, Error> {
        let pause = limit.map_or(u64::MAX, |limit| self.step().saturating_add(limit));
        let mut due = self.due();
        let progress = self.progress();
        let meanwhile = |what: &str| {
            if let Some(progress) = &progress {
                progress.meanwhile(what);
            }
        };
        let mut agreed = Requests::default();
        let mut pace = Pace::start(self.step(), Duration::ZERO);
        let evaluating = self.watched().map(|split| format!("evaluating {}", split.name()));
        let evaluating = evaluating.as_deref().unwrap_or_default();
        if self.train.counters.eval_pending {
            meanwhile(evaluating);
            if self.validate()? {
                self.save(true, false)?;
            }
        }
        let mut batches = self.task.batches(self.step()..self.total_steps.min(pause));
        let mut next = self.next_batch(&mut batches);
        while let Some(batch) = next.take() {
            let epoch = self.step() / self.steps_per_epoch;
            let shards = self.begin_step(batch, agreed)?;
            let (requests, is_archived) = self.requests(&mut due);
            let lr = self.schedule.lr(self.step());
            let objective = self.task.objective();
            let passes = Passes::Graph(&mut self.graph);
            let pending = self.train.step(objective, shards, lr, &self.comm, requests, passes)?;
            // Prefetch while the GPU is busy; only if the batch is ready, so that a due record,
            // evaluation or checkpoint never waits for the loader.
            if batches.is_ready() {
                next = self.next_batch(&mut batches);
            }
            let metrics = self.train.finish(pending);
            agreed = metrics.requests;
            let polynomial_argument = metrics.polynomial_argument;
            let grad_norm = self.check(metrics)?;
            let (step, elapsed) = (self.step(), self.start.elapsed());
            let done = Done { step, epoch, lr, grad_norm, polynomial_argument, elapsed };
            self.after_step(&done, progress.as_ref());

            let last = step == self.total_steps;
            if due.log.due(step, elapsed) || last {
                pace = self.record(&done, &pace, batches.waited(), progress.as_ref())?;
            }
            let mut is_best = false;
            if self.evaluates(agreed, last) {
                self.train.counters.eval_pending = true;
                self.graph.interrupt();
                meanwhile(evaluating);
                is_best = self.validate()?;
                // Exclude evaluation from the training speed.
                pace = Pace::start(step, batches.waited());
            }
            let paused = step == pause;
            // While steps are skipped the weights may be broken: they must not displace an earlier
            // checkpoint.
            let is_sound = self.train.counters.skipped_in_a_row == 0;
            if (agreed.save && is_sound) || is_best || last || paused {
                self.graph.interrupt();
                self.save(is_best, is_archived)?;
            }
            if next.is_none() {
                next = self.next_batch(&mut batches);
            }
        }
        drop(batches);
        self.record_bad()?;
        self.wait_for_save()?;
        if self.step() < self.total_steps {
            return Ok(None);
        }
        meanwhile("testing");
        self.test().map(Some)
    }

    /// When what is due, as the configuration says.
    fn due(&self) -> Due {
        let cadence = |interval| Cadence::new(interval, self.steps_per_epoch);
        Due {
            log: cadence(self.config.log.every(self.steps_per_epoch, self.total_steps)),
            evaluation: cadence(self.config.train.eval_every),
            save: cadence(self.config.checkpoint.every),
            archive: self.config.checkpoint.archive.map(cadence),
        }
    }

    /// The display of the progress, which rank 0 has.
    fn progress(&self) -> Option<Progress> {
        let epochs = self.config.train.passes(self.steps_per_epoch);
        let shown = match self.watched() {
            Some(EvalSplit::Test) => ScoreKind { label: EvalSplit::Test.name(), ..T::PRIMARY },
            Some(EvalSplit::Val) | None => T::PRIMARY,
        };
        let progress = || Progress::new(self.log, self.step(), self.total_steps, epochs, shown);
        self.lead.is_some().then(progress)
    }

    /// This rank's shards of `batch`, unless a signal has asked to stop or a save has failed.
    fn begin_step(
        &mut self,
        batch: Result<DeviceBatch<T>, Error>,
        agreed: Requests,
    ) -> Result<Vec<Inputs<T>>, Error> {
        if self.comm.size() == 1 || agreed.stop {
            self.stop_if_asked()?;
        }
        if let Some(lead) = &mut self.lead {
            lead.saver.check()?;
        }
        let DeviceBatch { shards, bad } = batch?;
        self.bad.extend(bad);
        if self.comm.size() == 1 {
            self.record_bad()?;
        }
        Ok(shards)
    }

    /// What this rank asks for after the next step, and whether its checkpoint is archived: what is
    /// due by the clock rank 0 decides for all.
    fn requests(&self, due: &mut Due) -> (Requests, bool) {
        let (after, elapsed) = (self.step() + 1, self.start.elapsed());
        let is_archived = due.archive.as_mut().is_some_and(|due| due.due(after, elapsed));
        let requests = Requests {
            stop: self.stop.get().is_some(),
            evaluate: self.lead.is_some() && due.evaluation.due(after, elapsed),
            save: self.lead.is_some() && (due.save.due(after, elapsed) || is_archived),
        };
        (requests, is_archived)
    }

    /// Shows that a step is done.
    fn after_step(&mut self, done: &Done, progress: Option<&Progress>) {
        let &Done { step, epoch, lr, elapsed, .. } = done;
        let loss = self.train.counters.window.mean().or(self.last_loss);
        if let Some(progress) = progress {
            let score = self.last_score;
            progress.step(&Report { step, epoch, loss, lr, score, speed: None });
        }
        self.guard.at(step);
        if let Some(why) = self.graph.take_failure() {
            self.log.line(why);
        }
        if let Some(keeps) = self.train.keeps.take() {
            let why = match keeps {
                true => "nothing, as a third of the GPU's memory is enough",
                false => "what scans read, as memory is short or others use the GPU",
            };
            self.log.line(format!("the backward pass computes again {why} (train.recompute)"));
        }
        if step == self.first_step + 1 {
            self.log.line(format!("first step after {:.1} s", elapsed.as_secs_f64()));
            self.records.implementations();
        }
    }

    /// Records the steps since the last record, with a total wait for images of `waited`, and
    /// starts the next stretch.
    fn record(
        &mut self,
        done: &Done,
        pace: &Pace,
        waited: Duration,
        progress: Option<&Progress>,
    ) -> Result<Pace, Error> {
        let &Done { step, epoch, lr, grad_norm, polynomial_argument, elapsed } = done;
        // If all steps were skipped, there is no loss to record.
        let loss = self.train.counters.window.mean();
        let parts = std::mem::take(&mut self.train.counters.parts);
        let parts = self.task.objective().parts().iter().zip(parts);
        let parts = parts.filter_map(|(&name, part)| Some((name, part.mean()?))).collect();
        self.train.counters.window = Window::default();
        self.last_loss = loss.or(self.last_loss);
        if let Some(loss) = loss {
            let metric = Metric::Train { step, epoch, loss, lr, grad_norm, parts: &parts };
            self.records.metric(&metric)?;
        }
        self.record_bad()?;
        let speed = self.records.timing(pace, (step, self.graph.replays), waited, elapsed)?;
        // Recorded steps are all as long as the first, and stay where they are.
        if self.graph.why_not().is_some() {
            self.pages.give_back_outgrown(&self.device);
        }
        let next = Pace::start(step, waited);
        if let (loss @ Some(_), Some(progress)) = (self.last_loss, progress) {
            let (score, speed) = (self.last_score, Some(speed));
            progress.report(&Report { step, epoch, loss, lr, score, speed });
        }
        self.records.warn_once(range_warning(&self.config.model, polynomial_argument));
        Ok(next)
    }

    /// Whether the weights are evaluated now. The test at the end evaluates the last ones on the
    /// test images.
    fn evaluates(&self, agreed: Requests, last: bool) -> bool {
        match self.watched() {
            Some(EvalSplit::Val) => agreed.evaluate || last,
            Some(EvalSplit::Test) => agreed.evaluate && !last,
            None => false,
        }
    }

    /// Steps done.
    fn step(&self) -> u64 {
        self.train.counters.step
    }

    /// Waits for the loader and queues the upload of this rank's shards of the next batch, if any.
    fn next_batch(&self, batches: &mut T::Batches) -> Option<Result<DeviceBatch<T>, Error>> {
        let count = self.config.train.shards() / self.comm.size();
        let mut shards = Vec::with_capacity(count);
        while shards.len() < count {
            let shard = batches.next()?;
            match shard.and_then(|shard| self.task.upload(&shard, &self.device)) {
                Ok(inputs) => shards.push(inputs),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(DeviceBatch { shards, bad: batches.take_bad() }))
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
                self.records.metric(&Metric::Skipped { step, epoch, reason: &fault, in_a_row })?;
                self.train.skip();
                return Ok(None);
            }
            NonFinite::Skip => format!("{fault}, as at the {} steps before it", in_a_row - 1),
            NonFinite::Stop => fault,
        };
        Err(TrainError::Diverged { step, what: format!("{what}{}", self.newest_checkpoint()) }
            .into())
    }
}

/// This rank's shards of a batch on the device, and their unreadable images.
struct DeviceBatch<T: Task> {
    shards: Vec<Inputs<T>>,
    bad: Vec<BadSample>,
}
