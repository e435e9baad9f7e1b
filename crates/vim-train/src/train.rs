//! The `train` command: the loop, top to bottom.

use std::time::Instant;

use burn::optim::GradientsParams;
use burn::module::Module;
use serde::Serialize;
use vim_data::{Loader, LoaderConfig, Split, Splits};
use vim_model::{Vim, VimConfig};

use crate::batches::to_tensors;
use crate::checkpoint::{Best, Checkpoint, Checkpoints, State, Window};
use crate::cli::TrainArgs;
use crate::comm::{Comm, SingleDevice};
use crate::config::Config;
use crate::device::{self, Chosen};
use crate::error::Error;
use crate::eval::{Scores, evaluate};
use crate::interval::Cadence;
use crate::log::Log;
use crate::loss::cross_entropy;
use crate::metrics::JsonlWriter;
use crate::optim::{AdamW, clip_factor, global_norm};
use crate::output::{print, print_json};
use crate::progress::{Progress, Report};
use crate::run_dir::{ExitReason, ExitRecord, Opened, RunDir};
use crate::run_env::Environment;
use crate::schedule::Schedule;
use crate::signals::StopRequest;
use crate::summary::{Summary, percent, summary};
use crate::weights;

/// A line of `metrics.jsonl`. Nothing in it depends on the clock.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Metric<'a> {
    /// Since the record before: the mean loss. At this step: the rest.
    Train { step: u64, epoch: u64, loss: f64, lr: f64, grad_norm: f64 },
    /// An evaluation; `checkpoint` says of which weights.
    Eval { step: u64, split: &'a str, checkpoint: &'a str, loss: f64, top1: f64, top5: f64, images: usize },
}

/// A line of `timing.jsonl`.
#[derive(Serialize)]
struct Timing {
    step: u64,
    images_per_second: f64,
    elapsed_s: f64,
}

/// `vim-train train`.
///
/// # Errors
///
/// Whatever keeps the run from its result; the run's folder records it.
pub fn run(args: &TrainArgs) -> Result<(), Error> {
    let config = Config::load(&args.config, &args.overrides.set)?;
    device::use_threads(config.devices.threads)?;
    let chosen = device::choose(&config.devices)?;
    // Everything that can be wrong with the experiment is found before its folder is made.
    let splits = vim_data::open(&config.data, config.run.seed)?;
    let model_config = VimConfig::new(&config.model, config.ssm, splits.train.num_classes())?;
    check_image_size(&model_config, &splits.train)?;
    let (folder, name) = (RunDir::open(&config, args.resume, args.fresh)?, config.run_name()?);
    let run = match folder {
        Opened::Run(run) => run,
        Opened::Finished { path, exit } => {
            eprintln!("{} is finished: nothing to resume", path.display());
            return match exit.top1 {
                Some(top1) if !args.json => print(&result_line(top1)),
                Some(_) | None if args.json => print_json(&exit),
                Some(_) | None => Ok(()),
            };
        }
    };
    let log = Log::open(&run.log())?;
    let mut trainer = Trainer::new(&config, &model_config, chosen, splits, &run, &log)?;
    let outcome = trainer.train();
    let exit = trainer.exit_record(&outcome);
    // The run's own error is what matters; that its record could not be written comes second.
    let written = run.write_exit(&exit);
    log.line(trainer.summary(name, &outcome));
    let test = outcome?;
    written?;
    log.file_line(result_line(test.top1));
    if args.json { print_json(&exit) } else { print(&result_line(test.top1)) }
}

fn result_line(top1: f64) -> String {
    format!("test top-1 {}", percent(top1))
}

/// The images must be what the model is made for.
pub(crate) fn check_image_size(model: &VimConfig, split: &Split) -> Result<(), Error> {
    if model.image_size == split.image_size() {
        return Ok(());
    }
    let expected = format!("{}, the size of the dataset's images", split.image_size());
    Err(crate::config::ConfigError::range("model.image_size", model.image_size, expected).into())
}

struct Trainer<'a> {
    config: &'a Config,
    device: burn::tensor::Device,
    splits: Splits,
    run: &'a RunDir,
    log: &'a Log,
    stop: StopRequest,
    comm: SingleDevice,
    checkpoints: Checkpoints,
    metrics: JsonlWriter,
    timing: JsonlWriter,
    loader: Loader,
    schedule: Schedule,
    total_steps: u64,
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
    fn new(
        config: &'a Config,
        model_config: &VimConfig,
        chosen: Chosen,
        splits: Splits,
        run: &'a RunDir,
        log: &'a Log,
    ) -> Result<Self, Error> {
        let workers = config.data.workers.count();
        let threads = device::threads();
        run.write_environment(&Environment::of_this_process(chosen.name.clone(), threads))?;
        if let Some(aside) = run.moved_aside() {
            log.line(format!("the run that was here is now {}", aside.display()));
        }
        if !run.is_locked() {
            log.line("warning: this file system has no locks; nothing keeps a second run out of the folder");
        }

        // 1. The data, and how many steps they make.
        let comm = SingleDevice;
        let batch_size = config.train.batch_size / comm.size();
        let seed = config.run.seed;
        let training = LoaderConfig::training(batch_size, workers, seed, config.data.augment);
        let loader = Loader::new(splits.train.clone(), training)?;
        let steps_per_epoch = loader.batches_per_epoch() as u64;
        let total_steps = steps_per_epoch * config.train.epochs;
        let schedule = Schedule::new(&config.optim, steps_per_epoch, total_steps)?;

        // 2. The model and the optimizer: from the newest checkpoint that is whole, else from the seed.
        let device = chosen.device.autodiff();
        let mut model = model_config.init(&device, seed)?;
        let mut optimizer = AdamW::new(&config.optim);
        let mut state = State::default();
        let checkpoints = Checkpoints::open(&run.checkpoints(), config.checkpoint.keep_last)?;
        let latest = checkpoints.latest_valid()?;
        for error in &latest.passed_over {
            log.line(format!("warning: {error}; passed over, and kept under another name"));
        }
        if let Some(mut checkpoint) = latest.checkpoint {
            let source = checkpoint.path.display().to_string();
            model = weights::model_from_bytes(model, &checkpoint.take(weights::MODEL)?, &source)?;
            let bytes = checkpoint.take(weights::OPTIMIZER)?;
            optimizer = weights::optimizer_from_bytes(&config.optim, &bytes, &device, &source)?;
            state = checkpoint.state;
        }

        // 3. Files, cut back to where the checkpoint stands: what comes after is written again.
        let metrics = JsonlWriter::truncated(&run.metrics(), state.metrics_len)?;
        let timing = JsonlWriter::appending(&run.timing())?;

        log.line(format!("run {}", run.path().display()));
        log.line(format!("device {}, {threads} threads, {workers} loader threads", chosen.name));
        log.line(format!(
            "model {} parameters, {} tokens, {} (series {})",
            model.num_params(),
            model_config.num_tokens(),
            model_config.discretization,
            model_config.ssm.series
        ));
        log.line(format!(
            "data {} train, {} val, {} test images of {} px, {} classes",
            splits.train.len(),
            splits.val.as_ref().map_or(0, Split::len),
            splits.test.len(),
            splits.train.image_size(),
            splits.train.num_classes()
        ));
        if splits.val.is_none() {
            log.line("no validation images: the last weights are the result (data.val_fraction holds some out)");
        }
        log.line(format!("steps {total_steps}, {steps_per_epoch} an epoch"));
        if run.is_resumed() {
            log.line(format!("resumed at step {}", state.step));
        }
        Ok(Self {
            first_step: state.step,
            stop: StopRequest::install()
                .map_err(|error| Error::Internal(format!("signal handlers: {error}")))?,
            config,
            device,
            splits,
            run,
            log,
            comm,
            checkpoints,
            metrics,
            timing,
            loader,
            schedule,
            total_steps,
            model: Some(model),
            optimizer,
            state,
            last_loss: None,
            last_top1: None,
            test_top1: None,
            warned: false,
            start: Instant::now(),
        })
    }

    fn model(&self) -> &Vim {
        self.model.as_ref().expect("invariant: taken only within a step")
    }

    /// Trains to the end, and tests what came of it.
    fn train(&mut self) -> Result<Scores, Error> {
        let steps_per_epoch = self.loader.batches_per_epoch() as u64;
        let mut log_due = Cadence::new(self.config.log.every, steps_per_epoch);
        let mut eval_due = Cadence::new(self.config.train.eval_every, steps_per_epoch);
        let mut save_due = Cadence::new(self.config.checkpoint.every, steps_per_epoch);
        let progress =
            Progress::new(self.log, self.state.step, self.total_steps, self.config.train.epochs);
        let statistics = self.splits.train.statistics(self.config.data.normalize);
        let mut since = (Instant::now(), self.state.step);
        if self.state.eval_pending && self.validate()? {
            self.save(true)?;
        }
        while self.state.step < self.total_steps {
            let epoch = self.state.step / steps_per_epoch;
            let first_batch = (self.state.step % steps_per_epoch) as usize;
            for batch in self.loader.epoch(epoch, first_batch) {
                self.stop_if_asked()?;
                let batch = batch?;
                let lr = self.schedule.lr(self.state.step);
                let (images, labels) = to_tensors(&batch, statistics, &self.device);
                let grad_norm = self.step(images, labels, lr)?;
                let (step, elapsed) = (self.state.step, self.start.elapsed());
                progress.step(step);
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
                    self.timing.append(&Timing { step, images_per_second, elapsed_s })?;
                    let top1 = self.last_top1;
                    progress.report(&Report { step, epoch, loss, lr, top1, images_per_second });
                    self.warn_of_large_steps();
                }
                let mut is_best = false;
                if (eval_due.due(step, elapsed) || last) && self.splits.val.is_some() {
                    self.state.eval_pending = true;
                    is_best = self.validate()?;
                    // Time spent on evaluation is not training's.
                    since.0 = Instant::now();
                }
                if save_due.due(step, elapsed) || last {
                    self.save(is_best)?;
                } else if is_best {
                    self.save(true)?;
                }
            }
        }
        drop(progress);
        self.test()
    }

    /// One optimizer step; returns the norm of the gradient.
    fn step(
        &mut self,
        images: burn::tensor::Tensor<4>,
        labels: burn::tensor::Tensor<1, burn::tensor::Int>,
        lr: f64,
    ) -> Result<f64, Error> {
        let model = self.model.take().expect("invariant: taken only within a step");
        let drop_seed = drop_seed(self.config.run.seed, self.state.step, self.comm.rank());
        let logits = model.forward_train(images, drop_seed);
        let loss = cross_entropy(logits, labels, self.config.train.label_smoothing);
        let value = self.comm.mean(f64::from(loss.clone().into_scalar::<f32>()));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let gradients = self.comm.mean_gradients(gradients);
        let grad_norm = global_norm(&model, &gradients);
        for (what, number) in [("loss", value), ("gradient norm", grad_norm)] {
            if !number.is_finite() {
                let step = self.state.step + 1;
                self.model = Some(model);
                return Err(Error::Diverged { step, what: format!("the {what} is {number}{}", self.last_good()) });
            }
        }
        let scale = clip_factor(grad_norm, self.config.train.clip_grad);
        self.model = Some(self.optimizer.step(model, gradients, scale, lr));
        self.state.step += 1;
        self.state.window.add(value);
        Ok(grad_norm)
    }

    fn last_good(&self) -> String {
        match self.checkpoints.steps().last() {
            Some(step) => format!("; the last good checkpoint is of step {step}"),
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
        let best = self.state.best.map(|best| best.step);
        let (model, which, step) = match best {
            Some(step) if step != self.state.step => {
                let path = self.checkpoints.path_of(step);
                let mut checkpoint = Checkpoint::read(&path)?;
                let bytes = checkpoint.take(weights::MODEL)?;
                let source = path.display().to_string();
                let model = self.model().clone();
                (weights::model_from_bytes(model, &bytes, &source)?, "best", step)
            }
            Some(step) => (self.model().clone(), "best", step),
            None => (self.model().clone(), "last", self.state.step),
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

    fn evaluate(&self, model: &Vim, split: &Split) -> Result<Option<Scores>, Error> {
        let statistics = split.statistics(self.config.data.normalize);
        let device = self.device.clone().inner();
        let (size, workers) = (self.config.train.batch_size, self.config.data.workers.count());
        evaluate(&model.valid(), split, statistics, size, workers, &device, Some(&self.stop))
    }

    fn record(
        &mut self,
        split: &str,
        checkpoint: &str,
        step: u64,
        scores: Scores,
    ) -> Result<(), Error> {
        let Scores { images, loss, top1, top5 } = scores;
        self.log.line(format!(
            "{split} at step {step} ({checkpoint}): loss {loss:.4}, top-1 {}, top-5 {}",
            percent(top1),
            percent(top5)
        ));
        self.metrics.append(&Metric::Eval { step, split, checkpoint, loss, top1, top5, images })
    }

    /// Saves and stops if a signal has asked for it.
    fn stop_if_asked(&mut self) -> Result<(), Error> {
        let Some(stop) = self.stop.get() else { return Ok(()) };
        self.save(false)?;
        Err(Error::Stopped { stop, step: self.state.step })
    }

    fn save(&mut self, is_best: bool) -> Result<(), Error> {
        self.metrics.sync()?;
        let steps_per_epoch = self.loader.batches_per_epoch() as u64;
        self.state.epoch = self.state.step / steps_per_epoch;
        self.state.batch = self.state.step % steps_per_epoch;
        self.state.metrics_len = self.metrics.len();
        let model = weights::model_to_bytes(self.model())?;
        let optimizer = weights::optimizer_to_bytes(&self.optimizer)?;
        let files = [(weights::MODEL, &model[..]), (weights::OPTIMIZER, &optimizer[..])];
        self.checkpoints.save(&files, &self.state)?;
        if is_best {
            self.checkpoints.mark_best(self.state.step)?;
        }
        Ok(())
    }

    /// Says once which implementation of each operation runs.
    fn log_implementations(&self) {
        for (operation, implementation) in vim_kernels::implementations_run() {
            self.log.line(format!("{operation}: {implementation}"));
        }
    }

    /// Warns once if a method that is a polynomial is used where a polynomial is no good.
    fn warn_of_large_steps(&mut self) {
        let largest = vim_kernels::largest_polynomial_argument();
        if self.warned || largest <= vim_kernels::POLYNOMIAL_LIMIT {
            return;
        }
        self.warned = true;
        let (method, series) = (self.config.model.discretization, self.config.ssm.series);
        self.log.line(format!(
            "warning: |delta·A| reaches {largest:.1}; {method} under series {series} is a polynomial in it, whose input gain is large and of the wrong sign beyond 2 (docs/discretizations.md)"
        ));
    }

    fn exit_record(&self, outcome: &Result<Scores, Error>) -> ExitRecord {
        let (reason, error) = match outcome {
            Ok(_) => (ExitReason::Finished, None),
            Err(error @ Error::Stopped { .. }) => (ExitReason::Interrupted, Some(error)),
            Err(error @ Error::Diverged { .. }) => (ExitReason::Diverged, Some(error)),
            Err(error) => (ExitReason::Failed, Some(error)),
        };
        ExitRecord {
            reason,
            step: self.state.step,
            top1: self.test_top1,
            best_top1: self.state.best.map(|best| best.metric),
            exit_code: error.map_or(0, Error::exit_code),
            error: error.map(ToString::to_string),
        }
    }

    fn summary(&self, name: String, outcome: &Result<Scores, Error>) -> String {
        let elapsed = self.start.elapsed();
        let images = (self.state.step - self.first_step) * self.config.train.batch_size as u64;
        summary(&Summary {
            name,
            outcome: match outcome {
                Ok(_) => "finished".into(),
                Err(error) => error.to_string(),
            },
            steps: (self.state.step, self.total_steps),
            loss: self.last_loss,
            top1: self.last_top1,
            best: self.state.best.map(|best| (best.metric, best.step)),
            test_top1: self.test_top1,
            images_per_second: (images > 0).then(|| images as f64 / elapsed.as_secs_f64()),
            elapsed,
            folder: self.run.path().to_owned(),
        })
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
