//! From a configuration and a run's folder to a trainer that is ready for its next step.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use burn::module::Module;
use vim_data::{Split, Splits};
use vim_model::{Vim, VimConfig};

use super::Trainer;
use super::course::Course;
use super::init::Initial;
use crate::config::Config;
use crate::device::code_cache;
use crate::device::fault::Load;
use crate::device::machine::Machine;
use crate::device::threads;
use crate::device::{self, Chosen};
use crate::error::Error;
use crate::fatal::Watch;
use crate::run::checkpoint::retention;
use crate::run::checkpoint::{Checkpoint, Checkpoints, State};
use crate::run::log::Log;
use crate::run::metrics::JsonlWriter;
use crate::run::metrics::sinks::Sinks;
use crate::run::run_dir::{RunDir, checkpoints_in};
use crate::run::run_env::Environment;
use crate::run::saver::Saver;
use crate::run::signals::StopRequest;
use crate::train::ema::Ema;
use crate::train::optim::AdamW;
use crate::weights;

/// All that can be known, and be wrong, before there is a folder.
pub(super) struct Plan {
    pub(super) chosen: Chosen,
    pub(super) splits: Splits,
    pub(super) course: Course,
    /// Where the run starts now, and from given weights.
    pub(super) initial: Option<Initial>,
}

impl Plan {
    /// The plan of a run of `config`, which starts anew if `fresh` says so or it has no checkpoint yet.
    pub(super) fn new(config: &Config, fresh: bool) -> Result<Self, Error> {
        threads::start(config.devices.threads)?;
        let chosen = device::choose(&config.devices)?;
        config.ssm.scan.resolve(&chosen.device)?;
        config.train.precision.check(&chosen.device)?;
        let splits = vim_data::open(&config.data, config.run.seed)?;
        let course = Course::new(config, &splits)?;
        let starts = fresh || checkpoints_are_none(&config.run_folder()?);
        let device = chosen.device.clone().autodiff();
        let initial = if starts { Initial::load(config, &course.model, &device)? } else { None };
        Ok(Self { chosen, splits, course, initial })
    }

    /// The images and classes, in a line.
    pub(super) fn describe_data(&self) -> String {
        describe_data(&self.splits, &self.course.model)
    }

    /// What the device has to hold at a time.
    pub(super) fn load(&self) -> Load {
        self.course.load
    }
}

impl<'a> Trainer<'a> {
    pub(super) fn new(
        config: &'a Config,
        plan: Plan,
        run: &'a RunDir,
        log: &'a Log,
        stop: StopRequest,
        watch: &'a Watch,
    ) -> Result<Self, Error> {
        let Plan { chosen, splits, course, initial } = plan;
        let Course { model: model_config, comm, loader, evaluation, schedule, .. } = course;
        let Course { loss, steps_per_epoch, total_steps, .. } = course;
        let workers = config.data.workers.count();
        let threads = threads::count();
        let (on, kind) = (chosen.with_hardware(), chosen.kind());
        let environment = Environment::of_this_process(on.clone(), threads, total_steps);
        run.write_environment(&environment)?;
        if let Some(aside) = run.moved_aside() {
            log.line(format!("the run that was here is now {}", aside.display()));
        }
        if !run.is_locked() {
            log.line("warning: this file system has no locks; nothing keeps a second run out of the folder");
        }

        let seed = config.run.seed;

        let (is_cuda, compiles) = (chosen.is_cuda(), !chosen.is_cpu());

        // 1. The model and the optimizer: from the newest checkpoint that is whole, else from the seed.
        let device = chosen.device.autodiff();
        let (mut model, init_lines) = match initial {
            None => (model_config.init(&device, seed)?, Vec::new()),
            Some(initial) => {
                initial.check_same(run.path())?;
                run.write_init(&initial.record)?;
                (initial.model, initial.lines)
            }
        };
        let mut optimizer = AdamW::new(&config.optim);
        let mut ema = Ema::new(&config.train, &model);
        let mut state = State::default();
        let checkpoints = Checkpoints::open(&run.checkpoints(), config.checkpoint.keep_last)?;
        let latest = checkpoints.latest_valid()?;
        for error in &latest.passed_over {
            log.line(format!("warning: {error}; passed over, and kept under another name"));
        }
        model =
            model.with_precision(config.train.precision)?.with_recompute(config.train.recompute);
        if let Some(mut checkpoint) = latest.checkpoint {
            let source = checkpoint.path.display().to_string();
            model = weights::model_from_bytes(model, &checkpoint.take(weights::MODEL)?, &source)?;
            let bytes = checkpoint.take(weights::OPTIMIZER)?;
            optimizer = weights::optimizer_from_bytes(&config.optim, &bytes, &device, &source)?;
            if ema.is_some() {
                let bytes = checkpoint.take(weights::EMA)?;
                let average = weights::model_from_bytes(model.clone(), &bytes, &source)?;
                ema = Ema::new(&config.train, &average);
            }
            state = checkpoint.state;
            if state.steps_per_epoch != steps_per_epoch {
                return Err(Error::Failed(format!(
                    "{source} counts {} steps an epoch, these data make {steps_per_epoch}: data.path holds other images than those trained on",
                    state.steps_per_epoch
                )));
            }
            if state.device != kind {
                log.line(format!(
                    "warning: so far this run was on {}, now it is on {kind}: the numbers will differ in rounding",
                    state.device
                ));
            }
            for change in run.rounding() {
                log.line(format!("warning: {change}: the numbers will differ in rounding"));
            }
            check_moments(&model, &optimizer, &source)?;
            if let Some(best) = state.best
                && Checkpoint::read(&checkpoints.path_of(best.step)).is_err()
            {
                log.line(format!(
                    "warning: the best checkpoint, of step {}, is lost; the best is now sought among later ones",
                    best.step
                ));
                state.best = None;
            }
        }
        optimizer = optimizer.with_layer_decay(config.train.layer_decay, model_config.depth);
        state.steps_per_epoch = steps_per_epoch;
        state.device = kind;

        // 2. Files, cut back to where the checkpoint stands: what comes after is written again.
        let metrics = Sinks::open(run, state.metrics_len, state.step, log)?;
        let timing = JsonlWriter::appending(&run.timing())?;
        let bad_samples = JsonlWriter::appending(&run.bad_samples())?;
        run.sync()?;

        log.line(format!("run {}", run.path().display()));
        log.line(format!("device {on}, {}", config.train.precision));
        log.line(threads::describe(workers));
        if is_cuda {
            log.line(match code_cache::folder(&Machine::this()) {
                Some(folder) => format!(
                    "compiling what is not yet in {} (vim-train warmup does it beforehand)",
                    folder.display()
                ),
                None => {
                    "compiling; nothing is kept for the next process, as CUDA_CACHE_DISABLE says"
                        .into()
                }
            });
        } else if compiles {
            log.line("compiling what the first step needs");
        }
        log.line(format!(
            "model {} parameters, {} tokens, {} (series {})",
            model.num_params(),
            model_config.num_tokens(),
            model_config.method_label(),
            model_config.ssm.series
        ));
        if config.train.recompute && !model.can_recompute(&device) {
            log.line("warning: train.recompute changes nothing here: only kernels for CUDA that take both directions at once have it");
        }
        for line in init_lines {
            log.line(line);
        }
        log.line(describe_data(&splits, &model_config));
        for note in &splits.notes {
            log.line(format!("note: {note}"));
        }
        if splits.val.is_none() {
            log.line("no validation images: the last weights are the result (data.val_fraction holds some out)");
        }
        log.line(format!("steps {total_steps}, {steps_per_epoch} an epoch"));
        if !schedule.reaches_its_peak() {
            log.line(format!(
                "warning: optim.warmup = {} is as long as training or longer: optim.lr is never reached",
                config.optim.warmup
            ));
        }
        if run.is_resumed() {
            log.line(format!("resumed at step {}", state.step));
        }
        watch.at(state.step);
        Ok(Self {
            first_step: state.step,
            stop,
            config,
            device,
            splits,
            run,
            log,
            watch,
            comm,
            saver: Saver::new(checkpoints),
            save_stall: Duration::ZERO,
            metrics,
            timing,
            bad_samples,
            named_bad: BTreeSet::new(),
            loader,
            evaluation,
            schedule,
            total_steps,
            num_parameters: model.parameters().len(),
            model: Some(model),
            optimizer,
            ema,
            loss,
            state,
            last_loss: None,
            last_top1: None,
            test_top1: None,
            warned: false,
            start: Instant::now(),
        })
    }
}

fn describe_data(splits: &Splits, model: &VimConfig) -> String {
    format!(
        "data {} train, {} val, {} test images of {} px, {} classes",
        splits.train.len(),
        splits.val.as_ref().map_or(0, Split::len),
        splits.test.len(),
        model.image_size,
        splits.train.num_classes()
    )
}

/// Whether the run in `run` has no checkpoint to go on from.
fn checkpoints_are_none(run: &Path) -> bool {
    retention::list(&checkpoints_in(run)).is_empty()
}

/// Every parameter must have its moments, of its size: a fresh one among old ones would be corrected
/// for steps that it has not seen.
fn check_moments(model: &Vim, optimizer: &AdamW, source: &str) -> Result<(), Error> {
    let (parameters, moments) = (model.parameters(), optimizer.moments());
    for parameter in &parameters {
        let count: usize = parameter.shape.iter().product();
        let fits = moments.get(&parameter.path).is_some_and(|moments| {
            moments.first.dims() == [count] && moments.second.dims() == [count]
        });
        if !fits {
            let problems = format!("the optimizer's moments of {} are not its own", parameter.path);
            return Err(Error::Weights { checkpoint: source.to_owned(), problems });
        }
    }
    Ok(())
}
