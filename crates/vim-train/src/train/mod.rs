//! The `train` command: the loop, top to bottom.

mod init;
mod report;
mod setup;

use std::collections::BTreeSet;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use vim_data::{Loader, LoaderConfig, Split, Splits};
use vim_model::Vim;

use crate::batches::{Targets, to_tensors};
use crate::checkpoint::{Best, Checkpoint, State, Window};
use crate::cli::TrainArgs;
use crate::comm::{Comm, SingleDevice};
use crate::config::Config;
use crate::error::Error;
use crate::eval::{Scores, evaluate};
use crate::fatal::Watch;
use crate::interval::Cadence;
use crate::log::Log;
use crate::loss::target_loss;
use crate::metrics::JsonlWriter;
use crate::optim::{AdamW, clip_factor, global_norm};
use crate::output::{print, print_json};
use crate::progress::{Progress, Report};
use crate::run_dir::{ExitRecord, Opened, RunDir};
use crate::saver::{Saver, Snapshot};
use crate::schedule::Schedule;
use crate::signals::StopRequest;
use crate::summary::percent;
use crate::weights;
use report::{Metric, Timing};
use setup::Plan;

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
    let work = || -> Result<Outcome, Error> {
        let mut trainer = Trainer::new(&config, plan, &run, &log, stop, &watch)?;
        let result = trainer.train(args.steps);
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
    metrics: JsonlWriter,
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
        let mut since = (Instant::now(), self.state.step);
        if self.state.eval_pending && self.validate()? {
            self.save(true, false)?;
        }
        let mut batches = self.loader.batches(self.state.step..self.total_steps.min(pause));
        while let Some(batch) = batches.next() {
            let epoch = self.state.step / steps_per_epoch;
            self.stop_if_asked()?;
            self.saver.check()?;
            let batch = batch?;
            self.record_bad(&mut batches)?;
            let lr = self.schedule.lr(self.state.step);
            let (images, targets) = to_tensors(&batch, statistics, &self.device)?;
            drop(batch);
            let grad_norm = self.step(images, targets, lr)?;
            let (step, elapsed) = (self.state.step, self.start.elapsed());
            progress.step(step);
            self.watch.at(step);
            if step == self.first_step + 1 {
                self.log_implementations();
            }

            let last = step == self.total_steps;
            if log_due.due(step, elapsed) || last {
                let loss = self.state.window.mean();
                self.state.window = Window::default();
                self.last_loss = Some(loss);
                self.metrics.append(&Metric::Train { step, epoch, loss, lr, grad_norm })?;
                let images = (step - since.1) * self.config.train.batch_size as u64;
                let images_per_second = images as f64 / since.0.elapsed().as_secs_f64();
                since = (Instant::now(), step);
                let elapsed_s = elapsed.as_secs_f64();
                let save_stall_s = mem::take(&mut self.save_stall).as_secs_f64();
                let timing = Timing { step, images_per_second, elapsed_s, save_stall_s };
                self.timing.append(&timing)?;
                let top1 = self.last_top1;
                progress.report(&Report { step, epoch, loss, lr, top1, images_per_second });
                self.warn_of_large_steps();
            }
            let mut is_best = false;
            if (eval_due.due(step, elapsed) || last) && self.splits.val.is_some() {
                self.state.eval_pending = true;
                is_best = self.validate()?;
                // Time spent on evaluation is not training's.
                since = (Instant::now(), step);
            }
            let paused = step == pause;
            let is_archived = archive_due.as_mut().is_some_and(|due| due.due(step, elapsed));
            if save_due.due(step, elapsed) || is_archived || is_best || last || paused {
                self.save(is_best, is_archived)?;
            }
        }
        drop(batches);
        drop(progress);
        self.saver.wait()?;
        if self.state.step < self.total_steps { Ok(None) } else { self.test().map(Some) }
    }

    /// One optimizer step; returns the norm of the gradient.
    fn step(&mut self, images: Tensor<4>, targets: Targets, lr: f64) -> Result<f64, Error> {
        let model = self.model.take().expect("invariant: taken only within a step");
        let drop_seed = drop_seed(self.config.run.seed, self.state.step, self.comm.rank());
        let logits = model.forward_train(images, drop_seed);
        let loss = target_loss(logits, targets, self.config.train.label_smoothing);
        let value = self.comm.mean(f64::from(loss.clone().into_scalar::<f32>()));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let gradients = self.comm.mean_gradients(gradients);
        let parameters = self.num_parameters;
        if gradients.len() != parameters {
            let got = gradients.len();
            return Err(Error::Internal(format!("{got} gradients for {parameters} parameters")));
        }
        let grad_norm = global_norm(&model, &gradients);
        for (what, number) in [("loss", value), ("gradient norm", grad_norm)] {
            if !number.is_finite() {
                let step = self.state.step + 1;
                self.model = Some(model);
                return Err(Error::Diverged {
                    step,
                    what: format!("the {what} is {number}{}", self.last_good()),
                });
            }
        }
        let scale = clip_factor(grad_norm, self.config.train.clip_grad);
        self.model = Some(self.optimizer.step(model, gradients, scale, lr));
        self.state.step += 1;
        self.state.window.add(value);
        Ok(grad_norm)
    }

    fn last_good(&mut self) -> String {
        // One may be in flight; should it fail, an earlier one is the last.
        if let Err(error) = self.saver.wait() {
            self.log.line(format!("warning: {error}"));
        }
        let checkpoints = self.saver.checkpoints();
        match checkpoints.steps().last() {
            Some(step) => format!(
                "; the last good checkpoint is of step {step}, {}",
                checkpoints.path_of(*step).display()
            ),
            None => "; there is no checkpoint yet".into(),
        }
    }

    /// Evaluates on the validation images; returns whether it is the best so far.
    fn validate(&mut self) -> Result<bool, Error> {
        let Some(split) = self.splits.val.clone() else {
            self.state.eval_pending = false;
            return Ok(false);
        };
        let Some(scores) = self.evaluate(self.model(), &split)? else {
            // The pending evaluation is saved with the state, and made up for on resume.
            return self.stop_if_asked().map(|()| false);
        };
        self.state.eval_pending = false;
        self.last_top1 = Some(scores.top1);
        self.record("val", "last", self.state.step, scores)?;
        let is_best = self.state.best.is_none_or(|best| scores.top1 > best.metric);
        if is_best {
            self.state.best = Some(Best { metric: scores.top1, step: self.state.step });
        }
        Ok(is_best)
    }

    /// Evaluates the result of the run on the test images.
    fn test(&mut self) -> Result<Scores, Error> {
        let test = self.splits.test.clone();
        let last = (self.state.step, "last");
        let (model, (step, which)) = match self.state.best.map(|best| best.step) {
            None => (self.model().clone(), last),
            Some(step) if step == self.state.step => (self.model().clone(), (step, "best")),
            Some(step) => match self.load(step) {
                Ok(model) => (model, (step, "best")),
                Err(error) => {
                    self.log.line(format!("warning: {error}; testing the last weights instead"));
                    (self.model().clone(), last)
                }
            },
        };
        let Some(scores) = self.evaluate(&model, &test)? else {
            self.stop_if_asked()?;
            return Err(Error::Internal("an evaluation ended early, and nobody asked".into()));
        };
        self.record("test", which, step, scores)?;
        self.metrics.sync()?;
        self.test_top1 = Some(scores.top1);
        Ok(scores)
    }

    /// The weights of the checkpoint of `step`.
    fn load(&self, step: u64) -> Result<Vim, Error> {
        let path = self.saver.checkpoints().path_of(step);
        let bytes = Checkpoint::read(&path)?.take(weights::MODEL)?;
        weights::model_from_bytes(self.model().clone(), &bytes, &path.display().to_string())
    }

    fn evaluate(&self, model: &Vim, split: &Split) -> Result<Option<Scores>, Error> {
        let statistics = split.statistics(self.config.data.normalize);
        let device = self.device.clone().inner();
        let loader = self.evaluation.clone();
        evaluate(&model.valid(), split, statistics, loader, &device, Some(&self.stop))
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
        let files = vec![
            (weights::MODEL, weights::model_arrays(self.model())),
            (weights::OPTIMIZER, weights::optimizer_arrays(&self.optimizer)),
        ];
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

/// A seed for the blocks dropped at a step, different for every run, step and device.
fn drop_seed(seed: u64, step: u64, rank: usize) -> u64 {
    let mut key = [0; 24];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&step.to_le_bytes());
    key[16..].copy_from_slice(&(rank as u64).to_le_bytes());
    let hash = blake3::hash(&key);
    hash.as_bytes().iter().take(8).fold(0, |seed, &byte| seed << 8 | u64::from(byte))
}
