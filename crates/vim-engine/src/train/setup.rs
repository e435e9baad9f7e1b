//! Builds a trainer from a configuration and a run's folder.

use std::fs;
use std::path::Path;
use std::time::Instant;

use burn::module::Module;
use burn::tensor::Device;
use vim_comm::{Comm, LibraryInfo};
use vim_run::checkpoint::{self, Checkpoint, Checkpoints, PROVENANCE, Saver, State};
use vim_run::signals::StopRequest;
use vim_run::{INIT, Log, RunDir, RunError, checkpoints_in, finished};

use super::Trainer;
use super::ranks::Rank;
use super::recorder::{Lead, Recorder};
use super::result::last_counts;
use super::schedule::Schedule;
use super::state::TrainState;
use super::step::StepGraph;
use crate::config::{Config, ConfigError};
use crate::device::fault::BatchFootprint;
use crate::device::machine::Machine;
use crate::device::memory::Pages;
use crate::device::{SelectedDevice, threads};
use crate::error::Error;
use crate::fatal::CrashGuard;
use crate::run_folder::recorded_classes;
use crate::task::backends::{self, Work};
use crate::task::{InitFor, InitRecord, InitWeights, Model, Objective, Task};
use crate::train::environment::Environment;
use crate::weights::provenance::check_images;
use crate::weights::record::Recorded;

/// The checked parts of a run that need no folder.
pub(super) struct ResolvedRun<T: Task> {
    pub(super) chosen: SelectedDevice,
    pub(super) comm: Comm,
    pub(super) task: T,
    pub(super) schedule: Schedule,
    pub(super) steps_per_epoch: u64,
    pub(super) total_steps: u64,
    /// The sizes that determine how much device memory the run needs.
    pub(super) footprint: BatchFootprint,
    /// Set if the run starts now from the weights of `train.init`.
    pub(super) init: Option<InitWeights<Model<T>>>,
    /// What rank 0 records with the weights.
    pub(super) record: Option<Recorded>,
}

impl<T: Task> ResolvedRun<T> {
    /// The part of `rank` in the run of `config`, which starts anew if `fresh` is set or it has no
    /// checkpoint. Joins the other ranks.
    pub(super) fn new(config: &Config, fresh: bool, rank: &Rank) -> Result<Self, Error> {
        threads::start(config.devices.threads)?;
        let chosen = rank.device(&config.devices)?;
        backends::check(config.task, Work::Train, &chosen)?;
        let comm = rank.join(config, &chosen)?;
        // A run that resumes has its weights in a checkpoint, and its classes beside them; one that
        // is finished may have been copied without.
        let folder = config.run_folder()?;
        let is_finished = || finished(&folder).is_ok_and(|exit| exit.is_some());
        let begins =
            fresh || (checkpoint::list(&checkpoints_in(&folder)).is_empty() && !is_finished());
        let classes = if begins { Vec::new() } else { recorded_classes(&folder)? };
        let task = T::open(config, &chosen.device, &comm, &classes)?;
        let steps_per_epoch = task.steps_per_epoch();
        let (schedule, total_steps) = schedule(config, &task)?;
        let record = if comm.rank() == 0 { task.record() } else { None };
        let device = chosen.device.clone().autodiff();
        let init = if begins && comm.rank() == 0 {
            let data = record.as_ref().and_then(|record| record.data.clone()).unwrap_or_default();
            let held_out = task.has_validation() || data.test_fraction > 0.0;
            let of = InitFor { classes: task.class_names().to_vec(), data, held_out };
            task.objective().load_init(&device, &of)?
        } else {
            None
        };
        let footprint = BatchFootprint::of(&config.train, task.mixes_pairs());
        Ok(Self {
            chosen,
            comm,
            task,
            schedule,
            steps_per_epoch,
            total_steps,
            footprint,
            init,
            record,
        })
    }
}

/// The learning-rate schedule and the number of steps.
fn schedule<T: Task>(config: &Config, task: &T) -> Result<(Schedule, u64), ConfigError> {
    let steps_per_epoch = task.steps_per_epoch();
    let total_steps = config.train.total_steps(steps_per_epoch);
    Ok((Schedule::new(&config.optim, steps_per_epoch, total_steps)?, total_steps))
}

/// Runs the start-up checks of `train` that need neither images nor the device; returns a text for
/// each file missing on this machine.
pub(crate) fn preflight<T: Task>(config: &Config) -> Result<Vec<String>, ConfigError> {
    let (task, absent) = T::preflight(config)?;
    if let Some(task) = task {
        schedule(config, &task)?;
    }
    Ok(absent)
}

impl<'a, T: Task> Trainer<'a, T> {
    pub(super) fn new(
        config: &'a Config,
        resolved: ResolvedRun<T>,
        run: &'a RunDir,
        log: &'a Log,
        stop: StopRequest,
        guard: &'a CrashGuard,
    ) -> Result<Self, Error> {
        let ResolvedRun {
            chosen,
            comm,
            task,
            schedule,
            steps_per_epoch,
            total_steps,
            init,
            record,
            ..
        } = resolved;
        let (nccl, hardware) = (comm.library(), chosen.with_hardware());
        let environment = Environment::of_this_process(hardware, threads::count(), total_steps);
        let environment = Environment { nccl: nccl.clone(), ..environment };
        record_start(run, log, &environment, task.class_names())?;

        // 1. Model and optimizer: from the newest whole checkpoint, else from the seed.
        let device = chosen.device.clone().autodiff();
        let (model, init_lines) = initial_model(&task, init, run, &device)?;
        let train = TrainState::new(task.objective(), config, model);
        let (folder, keep) = (checkpoints_in(run.path()), config.checkpoint.keep_last);
        let checkpoints = Checkpoints::with_storage(&folder, keep, run.storage())?;
        let kind = chosen.kind();
        let (on, steps) = ((&device, kind.as_str()), steps_per_epoch);
        let resumption = Resumption { config, run, log, on, steps, record: record.as_ref() };
        let mut train = resumption.restored(train, &checkpoints)?;
        train.counters.steps_per_epoch = steps_per_epoch;
        train.counters.device = kind;

        // 2. Files, and the first lines of the log.
        let (step, known) = (train.counters.step, &train.counters.metrics);
        let records = Recorder::open(run, log, &device, config.train.images(), (step, known))?;
        run.sync()?;
        log.line(format!("run {}", run.path().display()));
        say_machine(log, config, &chosen, nccl);
        say_task(log, config, &task, &train, (&device, init_lines))?;
        let graph = StepGraph::of(config, task.objective(), &device, comm.size())?;
        log.file_line(graph.described());
        say_steps(log, config, &schedule, (total_steps, steps_per_epoch));
        if run.is_resumed() {
            log.line(format!("resumed at step {step}"));
        }
        guard.at(step);
        Ok(Self {
            config,
            task,
            device,
            comm,
            graph,
            pages: Pages::default(),
            lead: Some(Lead {
                run,
                saver: Saver::new(checkpoints),
                record: record.map(|record| record.to_toml()),
                tested: None,
            }),
            log,
            guard,
            stop,
            train,
            schedule,
            steps_per_epoch,
            total_steps,
            records,
            bad: Vec::new(),
            first_step: step,
            last_loss: None,
            last_score: None,
            test_score: None,
            start: Instant::now(),
        })
    }
}

/// Records what the run begins on, and says what is odd about its folder.
fn record_start(
    run: &RunDir,
    log: &Log,
    environment: &Environment,
    classes: &[String],
) -> Result<(), Error> {
    run.write_environment(environment)?;
    record_classes(classes, run)?;
    if let Some(aside) = run.moved_aside() {
        log.line(format!("the run that was here is now {}", aside.display()));
    }
    if !run.is_locked() {
        log.line(
            "warning: this file system has no locks; nothing keeps a second run out of the folder",
        );
    }
    Ok(())
}

/// The model before training, from the weights `init` where there are some, and what the log says
/// of these.
fn initial_model<T: Task>(
    task: &T,
    init: Option<InitWeights<Model<T>>>,
    run: &RunDir,
    device: &Device,
) -> Result<(Model<T>, Vec<String>), Error> {
    let Some(InitWeights { model, record, lines }) = init else {
        return Ok((task.objective().init(device)?, Vec::new()));
    };
    check_same_init(&record, run.path())?;
    run.write_init(&record)?;
    Ok((model, lines))
}

/// What a run that goes on is compared with its checkpoint by.
struct Resumption<'a> {
    config: &'a Config,
    run: &'a RunDir,
    log: &'a Log,
    /// The device, and its kind.
    on: (&'a Device, &'a str),
    /// Steps of an epoch.
    steps: u64,
    record: Option<&'a Recorded>,
}

impl Resumption<'_> {
    /// `train` from the newest whole one of `checkpoints`, or as it is where there is none.
    fn restored<M: Module>(
        &self,
        train: TrainState<M>,
        checkpoints: &Checkpoints,
    ) -> Result<TrainState<M>, Error> {
        let latest = checkpoints.latest_valid()?;
        for error in &latest.passed_over {
            self.log.line(format!("warning: {error}; passed over, and kept under another name"));
        }
        let Some(mut checkpoint) = latest.checkpoint else { return Ok(train) };
        let source = checkpoint.path.display().to_string();
        for change in changed_images(&mut checkpoint, self.record, self.config)? {
            self.log.line(format!("warning: trained so far on other images: {change}"));
        }
        let mut train = train.restored(checkpoint, self.config, self.on.0, &source)?;
        self.check(&mut train.counters, checkpoints, &source)?;
        Ok(train)
    }

    /// Compares the `counters` of the checkpoint `source` with this start.
    fn check(
        &self,
        counters: &mut State,
        checkpoints: &Checkpoints,
        source: &str,
    ) -> Result<(), Error> {
        let &Self { log, on: (_, kind), steps, .. } = self;
        if counters.steps_per_epoch != steps {
            return Err(Error::failed(format!(
                "{source} counts {} steps an epoch, these data make {steps}: data.path \
                 holds other images than those trained on",
                counters.steps_per_epoch
            )));
        }
        if counters.device != kind {
            log.line(format!(
                "warning: so far this run was on {}, now it is on {kind}: the numbers will differ \
                 in rounding",
                counters.device
            ));
        }
        for change in self.run.rounding() {
            log.line(format!("warning: {change}: the numbers will differ in rounding"));
        }
        if let Some(best) = counters.best
            && Checkpoint::read(&checkpoints.path_of(best.step)).is_err()
        {
            log.line(format!(
                "warning: the best checkpoint, of step {}, is lost; the best is now sought among \
                 later ones",
                best.step
            ));
            counters.best = None;
        }
        Ok(())
    }
}

/// Says what the run computes on.
fn say_machine(log: &Log, config: &Config, chosen: &SelectedDevice, nccl: Option<LibraryInfo>) {
    log.line(format!("device {}, {}", chosen.with_hardware(), config.train.precision));
    if let Some(LibraryInfo { version, path }) = nccl {
        log.line(format!("NCCL {version}, {}", path.display()));
    }
    log.line(threads::describe(config.data.workers.count()));
    if chosen.is_cuda() {
        log.line(match Machine::this().code_cache() {
            Some(folder) => format!(
                "compiling what is not yet in {} (vim-train warmup does it beforehand)",
                folder.display()
            ),
            None => {
                "compiling; nothing is kept for the next process, as CUDA_CACHE_DISABLE says".into()
            }
        });
    } else if !chosen.is_cpu() {
        log.line("compiling what the first step needs");
    }
}

/// Says how many steps there are, `(in all, in an epoch)`.
fn say_steps(log: &Log, config: &Config, schedule: &Schedule, (all, in_epoch): (u64, u64)) {
    log.line(format!("steps {all}, {in_epoch} an epoch"));
    if !schedule.reaches_its_peak() {
        log.line(format!(
            "warning: optim.warmup = {} is as long as training or longer: optim.lr is never \
             reached",
            config.optim.warmup
        ));
    }
}

/// Says what is trained on which data; `init_lines` are of the weights that it starts from.
fn say_task<T: Task>(
    log: &Log,
    config: &Config,
    task: &T,
    train: &TrainState<Model<T>>,
    (device, init_lines): (&Device, Vec<String>),
) -> Result<(), Error> {
    let about = task.describe()?;
    log.line(format!("model {} parameters, {}", about.parameters, about.model));
    let warning = task.device_warning(train.model(), device);
    for line in warning.into_iter().chain(init_lines) {
        log.line(line);
    }
    log.line(about.data);
    for note in &about.notes {
        log.line(format!("note: {note}"));
    }
    if let Some(line) = last_counts(task) {
        let is_watched = config.data.watch_test && task.is_measured();
        let watched = if is_watched {
            "; the test images are watched, and choose nothing (data.watch_test)"
        } else {
            ""
        };
        log.line(format!("{line}{watched}"));
    }
    Ok(())
}

/// Records the names of the classes, unless they are recorded. Of a run that goes on they are.
fn record_classes(names: &[String], run: &RunDir) -> Result<(), Error> {
    if !names.is_empty() && recorded_classes(run.path())? != names {
        run.write_classes(names)?;
    }
    Ok(())
}

/// What of the images is no longer as `checkpoint` records it: an error, unless
/// `train.allow_changed_data` is set.
fn changed_images(
    checkpoint: &mut Checkpoint,
    now: Option<&Recorded>,
    config: &Config,
) -> Result<Vec<String>, Error> {
    let source = checkpoint.path.display().to_string();
    // Checkpoints of earlier versions have none.
    let Ok(text) = checkpoint.take(PROVENANCE) else { return Ok(Vec::new()) };
    let recorded = Recorded::parse(&String::from_utf8_lossy(&text)).map_err(|error| {
        let why = error.message().trim().replace('\n', ", ");
        Error::data(format!("{source} has a {PROVENANCE} that this version cannot read: {why}"))
    })?;
    let (Some(recorded), Some(now)) = (recorded.data, now.and_then(|now| now.data.as_ref())) else {
        return Ok(Vec::new());
    };
    Ok(check_images(&source, &recorded, now, config.train.allow_changed_data)?)
}

/// Checks that a run stopped before its first checkpoint starts from the same weights again.
fn check_same_init(record: &InitRecord, run: &Path) -> Result<(), Error> {
    let Ok(text) = fs::read(run.join(INIT)) else { return Ok(()) };
    let Ok(recorded) = serde_json::from_slice::<InitRecord>(&text) else { return Ok(()) };
    if recorded.blake3 == record.blake3 {
        return Ok(());
    }
    let (before, now) = (recorded.blake3, &record.blake3);
    let difference = format!("train.init's content (recorded BLAKE3 {before}, now {now})");
    let (path, differences) = (run.to_owned(), vec![difference]);
    Err(RunError::ConfigChanged { path, differences, instead: None }.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::classification::Classification;

    fn config(sets: &[&str]) -> Config {
        let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
        Config::from_defaults(&sets).unwrap()
    }

    #[test]
    fn what_train_would_refuse_is_foreseen() {
        let cifar = ["data.dataset=cifar100", "data.path=/no/such", "data.val_fraction=0.1"];
        let small = ["model.image_size=32", "model.patch_size=4"];
        for (sets, expected) in [
            (
                &["data.shapes.train=100", small[0], small[1]][..],
                "train.batch_size: failed to cut 100 training images into batches of 128 without a \
                 partial one: an epoch would hold none; lower the batch size",
            ),
            (
                &["data.shapes.train=140", "data.val_fraction=0.1", small[0], small[1]],
                "train.batch_size: failed to cut 126 training images into batches of 128 without a \
                 partial one: an epoch would hold none; lower the batch size",
            ),
            (
                &[cifar[0], cifar[1], cifar[2], small[0], small[1], "train.batch_size=45056"],
                "train.batch_size: failed to cut 45000 training images into batches of 45056 \
                 without a partial one: an epoch would hold none; lower the batch size",
            ),
            (
                &[cifar[0]],
                "data.dataset: failed to open dataset `cifar100`: `data.path` is not set; point it \
                 at the archive as downloaded, or at the folder holding it",
            ),
            (
                &["model.image_size=16", "model.patch_size=4"],
                "model.image_size: 16 is out of range: expected 32, the size of the dataset's \
                 images, which augment.crop = \"pad\" does not change",
            ),
            (
                &["data.dataset=imagenet", "data.path=/no/such", "data.prefetch=0"],
                "data.prefetch: 0 is out of range: expected 1 or more",
            ),
        ] {
            assert_eq!(
                preflight::<Classification>(&config(sets)).unwrap_err().to_string(),
                expected,
                "{sets:?}"
            );
        }
    }

    #[test]
    fn files_that_may_be_elsewhere_are_told() {
        let told = |key: &str| {
            format!("{key}: /no/such is not on this machine: it must be there where the run starts")
        };
        let path = "data.path=/no/such";
        let drawn = config(&[path, "model.image_size=32", "model.patch_size=4"]);
        assert_eq!(preflight::<Classification>(&drawn).unwrap(), [""; 0], "drawn images need none");
        let found = preflight::<Classification>(&config(&[
            "data.dataset=imagenet",
            path,
            "train.init=/no/such",
        ]));
        assert_eq!(found.unwrap(), [told("data.path"), told("train.init")]);
        let here = preflight::<Classification>(&config(&["data.dataset=imagenet", "data.path=/"]))
            .unwrap();
        assert_eq!(here, [""; 0]);
    }
}
