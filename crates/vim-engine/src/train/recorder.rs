//! Records of a run: metrics, timings, warnings; its checkpoints; how it ended, exit record and
//! summary.
//!
//! Rank 0 alone records and saves, at steps that all ranks have agreed on.

use std::collections::BTreeSet;
use std::mem;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use burn::tensor::Device;
use serde::Serialize;
use vim_data::{BadSample, Pixels, contact_sheet, encode_png};
use vim_kernels::{Implementation, POLYNOMIAL_LIMIT};
use vim_model::VimConfig;
use vim_run::checkpoint::{Content, PROVENANCE, Saver, Snapshot, Weights};
use vim_run::metrics::{JsonlWriter, Picture, Prefix, ScoreKind, Scores, Sinks};
use vim_run::signals::Stop;
use vim_run::{ExitReason, ExitRecord, Log, RunDir, TIMING, printable};

use super::Trainer;
use super::history::History;
use super::job_attempt::Successor;
use super::ranks::RankError;
use crate::device::memory::{device_memory, resident};
use crate::error::{Error, Failure, code};
use crate::output::progress::Speed;
use crate::output::summary::Summary;
use crate::task::{EvalSplit, Evaluation, Model, Task, share};

/// A line of `metrics.jsonl`, independent of the clock.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Metric<'a> {
    /// Mean loss and parts since the last record, other values at this step; no norm if the step
    /// was skipped.
    Train {
        step: u64,
        epoch: u64,
        loss: f64,
        lr: f64,
        grad_norm: Option<f64>,
        /// Of the loss, by their names.
        #[serde(flatten)]
        parts: &'a Scores,
    },
    /// A step that changed nothing, because loss or gradient were not finite.
    Skipped { step: u64, epoch: u64, reason: &'a str, in_a_row: u64 },
    /// An evaluation of a checkpoint's `weights`.
    Eval {
        step: u64,
        split: &'a str,
        checkpoint: &'a str,
        weights: &'a str,
        #[serde(flatten)]
        scores: &'a Scores,
        images: usize,
    },
}

/// The line of `timing.jsonl` with which each process begins.
#[derive(Serialize)]
struct Begun {
    step: u64,
    elapsed_s: f64,
}

/// A line of `timing.jsonl`; the speed counts from the last line or evaluation.
#[derive(Serialize)]
struct Timing {
    step: u64,
    images_per_second: f64,
    /// Since this process began to train.
    elapsed_s: f64,
    /// Time that the loop waited for saves since the last record.
    save_stall_s: f64,
    /// Time that the loop waited for images.
    data_wait_s: f64,
    /// Steps of this process that were replays of a graph.
    graph_replays: u64,
    /// Resident memory of this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
    /// Device memory of this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    device_memory_bytes: Option<u64>,
}

/// The start of a stretch of training.
pub(super) struct Pace {
    at: Instant,
    step: u64,
    waited: Duration,
}

impl Pace {
    /// Starts now, after `step` steps and a total wait for images of `waited`.
    pub(super) fn start(step: u64, waited: Duration) -> Self {
        Self { at: Instant::now(), step, waited }
    }
}

/// The files of a run's records.
pub(super) struct Recorder<'a> {
    log: &'a Log,
    device: Device,
    batch_size: usize,
    /// None but at rank 0.
    files: Option<Files>,
    /// Bad samples already named in the log.
    named_bad: BTreeSet<usize>,
    /// Time that the loop waited for saves since the last record.
    save_stall: Duration,
    warned: bool,
}

#[derive(Debug)]
struct Files {
    metrics: Sinks,
    timing: JsonlWriter,
    bad_samples: JsonlWriter,
}

impl<'a> Recorder<'a> {
    /// Records nothing but what its log is told.
    pub(super) fn without_files(log: &'a Log, device: &Device, batch_size: usize) -> Self {
        Self {
            log,
            device: device.clone(),
            batch_size,
            files: None,
            named_bad: BTreeSet::new(),
            save_stall: Duration::ZERO,
            warned: false,
        }
    }

    /// Opens the files of `run`; truncates the metrics to those `known` at `step`, because later
    /// records are written again.
    pub(super) fn open(
        run: &RunDir,
        log: &'a Log,
        device: &Device,
        batch_size: usize,
        (step, known): (u64, &Prefix),
    ) -> Result<Self, Error> {
        let mut timing = JsonlWriter::appending(&run.path().join(TIMING))?;
        // So that a process counts that ended before its first record, or soon after.
        timing.append(&Begun { step, elapsed_s: 0.0 })?;
        let files = Files {
            metrics: Sinks::open(run, known, step, log)?,
            timing,
            bad_samples: JsonlWriter::appending(&run.path().join("bad_samples.jsonl"))?,
        };
        Ok(Self { files: Some(files), ..Self::without_files(log, device, batch_size) })
    }

    /// `metrics.jsonl`.
    pub(super) fn records(&self) -> Result<&JsonlWriter, Error> {
        let files = self.files.as_ref();
        let files = files.ok_or_else(|| Error::internal("only rank 0 has records"))?;
        Ok(files.metrics.records())
    }

    /// Adds a line to `metrics.jsonl`.
    pub(super) fn metric(&mut self, metric: &Metric<'_>) -> Result<(), Error> {
        if let Some(files) = &mut self.files {
            files.metrics.append(metric)?;
        }
        Ok(())
    }

    pub(super) fn evaluation<T: Task>(
        &mut self,
        split: EvalSplit,
        checkpoint: &str,
        step: u64,
        weights: Weights,
        Evaluation { scores, images }: &Evaluation,
    ) -> Result<(), Error> {
        let average = match weights {
            Weights::Model => "",
            Weights::Ema => ", moving average",
        };
        let (split, weights) = (split.name(), weights.name());
        let shown = scores.describe(T::SCORES, ScoreKind::show);
        self.log.line(format!("{split} at step {step} ({checkpoint}{average}): {shown}"));
        let images = *images;
        self.metric(&Metric::Eval { step, split, checkpoint, weights, scores, images })
    }

    /// Shows what the model says of a few images of `split`, by their places, in TensorBoard.
    pub(super) fn pictures(
        &mut self,
        step: u64,
        split: EvalSplit,
        drawn: Vec<(usize, [Pixels; 3])>,
    ) -> Result<(), Error> {
        let Some(files) = &mut self.files else { return Ok(()) };
        let picture = |(position, pixels): (usize, [Pixels; 3])| {
            let sheet = contact_sheet(&pixels.map(Some), 3);
            let png = encode_png(&sheet).map_err(Error::io("encode", "a picture"))?;
            let tag = format!("{}/image {position}", split.name());
            Ok(Picture { tag, height: sheet.height, width: sheet.width, png })
        };
        let pictures = drawn.into_iter().map(picture).collect::<Result<Vec<_>, Error>>()?;
        files.metrics.pictures(step, &pictures);
        Ok(())
    }

    /// Records the speed since `pace`, the memory in use and the steps that were replays.
    pub(super) fn timing(
        &mut self,
        pace: &Pace,
        (step, graph_replays): (u64, u64),
        waited: Duration,
        elapsed: Duration,
    ) -> Result<Speed, Error> {
        let seconds = pace.at.elapsed().as_secs_f64();
        let images = (step - pace.step) * self.batch_size as u64;
        let data_wait_s = waited.saturating_sub(pace.waited).as_secs_f64();
        let speed = Speed {
            images_per_second: images as f64 / seconds,
            data_wait: data_wait_s / seconds,
            memory: resident(),
            device_memory: device_memory(&self.device),
        };
        let Speed { images_per_second, data_wait, memory, device_memory } = speed;
        let Some(files) = &mut self.files else { return Ok(speed) };
        files.timing.append(&Timing {
            step,
            images_per_second,
            elapsed_s: elapsed.as_secs_f64(),
            save_stall_s: mem::take(&mut self.save_stall).as_secs_f64(),
            data_wait_s,
            graph_replays,
            memory_bytes: memory,
            device_memory_bytes: device_memory,
        })?;
        let gib = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / f64::from(1 << 30));
        let scalars = [
            ("train/img_s", Some(images_per_second)),
            ("train/data_wait", Some(data_wait)),
            ("memory/host_gib", gib(memory)),
            ("memory/device_gib", gib(device_memory)),
        ];
        let known = scalars.into_iter().filter_map(|(tag, number)| Some((tag.into(), number?)));
        files.metrics.scalars(step, &known.collect::<Vec<_>>());
        Ok(speed)
    }

    /// Records unreadable images: once in the log, at every draw in `bad_samples.jsonl`.
    pub(super) fn bad(&mut self, samples: Vec<BadSample>) -> Result<(), Error> {
        let Some(files) = &mut self.files else { return Ok(()) };
        for bad in samples {
            if self.named_bad.insert(bad.index) {
                self.log.line(format!(
                    "warning: {} {}; another takes its place",
                    printable(&bad.name),
                    bad.reason
                ));
            }
            files.bad_samples.append(&bad)?;
        }
        Ok(())
    }

    /// Logs the implementation of each operation.
    pub(super) fn implementations(&self) {
        let all = vim_kernels::implementations_run();
        let kinds = [
            (Implementation::Kernel, "fused kernels"),
            (Implementation::Reference, "reference operations"),
        ];
        for (kind, label) in kinds {
            let of_kind = all.iter().filter(|(_, implementation)| *implementation == kind);
            let names: Vec<&str> = of_kind.map(|&(operation, _)| operation).collect();
            if !names.is_empty() {
                self.log.line(format!("{label}: {}", names.join(", ")));
            }
        }
    }

    /// Logs the first warning only.
    pub(super) fn warn_once(&mut self, warning: Option<String>) {
        if let Some(warning) = warning.filter(|_| !self.warned) {
            self.log.line(format!("warning: {warning}"));
            self.warned = true;
        }
    }
}

/// What ends a training before its last step.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A signal asked the run to stop.
    #[error("stopped by {} after step {step}: go on by the same command with --resume auto", stop.name())]
    Stopped {
        /// The signal.
        stop: Stop,
        /// Steps done and saved.
        step: u64,
    },

    /// The same, where the run goes on by itself.
    #[error("stopped by {} after step {step}, saved: {next}", stop.name())]
    Handed {
        /// The signal.
        stop: Stop,
        /// Steps done and saved.
        step: u64,
        /// What starts the next attempt.
        next: Successor,
    },

    /// The loss or the gradient is no longer finite.
    #[error(
        "training diverged at step {step}: {what}; lower optim.lr or set train.clip_grad, and start again with --fresh"
    )]
    Diverged {
        /// The step.
        step: u64,
        /// What is not finite, and its value.
        what: String,
    },
}

impl TrainError {
    /// Whether every rank ends by `error`, at the same step.
    pub(super) fn is_of_all(error: &Error) -> bool {
        error.downcast_ref::<Self>().is_some()
    }

    /// The signal that ended the run, if one did.
    pub(super) fn stop_of(error: &Error) -> Option<Stop> {
        let error = error.downcast_ref()?;
        if let Self::Stopped { stop, .. } = error { Some(*stop) } else { None }
    }
}

impl Failure for TrainError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Stopped { stop, .. } | Self::Handed { stop, .. } => stop.exit_code(),
            Self::Diverged { .. } => code::DIVERGED,
        }
    }

    fn is_fault(&self) -> bool {
        !matches!(self, Self::Handed { .. })
    }
}

/// The run's folder and its checkpoints.
pub(super) struct Lead<'a, T: Task> {
    pub(super) run: &'a RunDir,
    pub(super) saver: Saver,
    /// What each checkpoint says of its weights' origin.
    pub(super) record: Option<String>,
    /// The weights that were tested, and on how many images.
    pub(super) tested: Option<(Model<T>, usize)>,
}

impl<T: Task> Trainer<'_, T> {
    /// Records the unreadable images of all ranks, in the order of the steps and shards.
    pub(super) fn record_bad(&mut self) -> Result<(), Error> {
        let own = std::mem::take(&mut self.bad);
        let mut all: Vec<BadSample> = share(&self.comm, &own)?.into_iter().flatten().collect();
        all.sort_by_key(|bad| bad.batch);
        self.records.bad(all)
    }

    pub(super) fn newest_checkpoint(&mut self) -> String {
        // A save may be in flight; if it fails, an earlier checkpoint is the newest.
        if let Err(error) = self.wait_for_save() {
            self.log.line(format!("warning: {error}"));
        }
        let Some(lead) = &self.lead else { return String::new() };
        let checkpoints = lead.saver.checkpoints();
        match checkpoints.steps().last() {
            Some(step) => format!(
                "; the newest checkpoint is of step {step}, {}",
                checkpoints.path_of(*step).display()
            ),
            None => "; there is no checkpoint yet".into(),
        }
    }

    /// Saves and stops if a signal has arrived, at whichever rank.
    pub(super) fn stop_if_asked(&mut self) -> Result<(), Error> {
        let own = self.stop.get().map_or(0, Stop::signal);
        let signal = share(&self.comm, &own)?.into_iter().find(|&signal| signal != 0);
        let Some(stop) = signal.map(Stop::of) else { return Ok(()) };
        self.record_bad()?;
        self.save(false, false)?;
        self.wait_for_save()?;
        Err(TrainError::Stopped { stop, step: self.step() }.into())
    }

    /// Takes a snapshot; a thread writes it while the loop continues.
    pub(super) fn save(&mut self, is_best: bool, is_archived: bool) -> Result<(), Error> {
        self.check_alike()?;
        let Some(lead) = &mut self.lead else { return Ok(()) };
        lead.run.check()?;
        let start = Instant::now();
        // At most one snapshot in memory.
        lead.saver.wait()?;
        let counters = &mut self.train.counters;
        counters.epoch = counters.step / self.steps_per_epoch;
        counters.batch = counters.step % self.steps_per_epoch;
        let records = self.records.records()?;
        counters.metrics = records.prefix();
        let files = self.train.files().into_iter().map(|(name, arrays)| {
            let content = move || arrays.to_safetensors().map_err(|error| error.to_string());
            (name, Box::new(content) as Content)
        });
        let record = lead
            .record
            .clone()
            .map(|text| (PROVENANCE, Box::new(move || Ok(text.into_bytes())) as Content));
        let (files, state) = (files.chain(record).collect(), self.train.counters.clone());
        let snapshot = Snapshot { files, state, is_best, is_archived };
        lead.saver.start(snapshot, records.handle()?)?;
        self.records.save_stall += start.elapsed();
        Ok(())
    }

    /// Checks that the weights of all ranks are the same, to the bit.
    fn check_alike(&self) -> Result<(), Error> {
        if self.comm.size() == 1 {
            return Ok(());
        }
        let hashes = share(&self.comm, &self.train.hash()?)?;
        if hashes.iter().all(|hash| *hash == hashes[0]) {
            return Ok(());
        }
        let (step, hashes) = (self.step(), hashes.join(", "));
        Err(RankError::Parted { step, hashes }.into())
    }

    pub(super) fn wait_for_save(&mut self) -> Result<(), Error> {
        match &mut self.lead {
            Some(lead) => Ok(lead.saver.wait()?),
            None => Ok(()),
        }
    }

    /// Waits for the save in flight; returns its error unless `result` is an error already.
    pub(super) fn finish_saving<R>(&mut self, result: Result<R, Error>) -> Result<R, Error> {
        match (result, self.wait_for_save()) {
            (Ok(_), Err(error)) => Err(error),
            (Err(error), Err(second)) => {
                self.log.line(format!("warning: {second}"));
                Err(error)
            }
            (result, Ok(())) => result,
        }
    }

    pub(super) fn exit_record(&self, outcome: &Result<Option<f64>, Error>) -> ExitRecord {
        let (reason, error) = match outcome {
            Ok(Some(_)) => (ExitReason::Finished, None),
            Ok(None) => (ExitReason::Paused, None),
            Err(error) => {
                let reason = match error.downcast_ref() {
                    Some(TrainError::Stopped { .. } | TrainError::Handed { .. }) => {
                        ExitReason::Interrupted
                    }
                    Some(TrainError::Diverged { .. }) => ExitReason::Diverged,
                    None => ExitReason::Failed,
                };
                (reason, Some(error))
            }
        };
        let name = T::PRIMARY.name;
        let best = self.train.counters.best.map(|best| best.metric);
        let scores = [(name.to_owned(), self.test_score), (format!("best_{name}"), best)];
        ExitRecord {
            reason,
            step: self.step(),
            scores: scores.into_iter().filter_map(|(name, score)| Some((name, score?))).collect(),
            exit_code: error.map_or(0, Error::exit_code),
            error: error.map(ToString::to_string),
        }
    }

    pub(super) fn summary(&self, name: String, outcome: &Result<Option<f64>, Error>) -> Summary {
        let elapsed = self.start.elapsed();
        let images = (self.step() - self.first_step) * self.config.train.images() as u64;
        let history =
            self.lead.as_ref().map(|lead| History::read(lead.run.path(), &mut Vec::new()));
        Summary {
            name,
            outcome: match outcome {
                Ok(Some(_)) => "finished".into(),
                Ok(None) => "paused as asked: the same command with --resume auto goes on".into(),
                // The error itself follows.
                Err(error) => match error.downcast_ref() {
                    Some(TrainError::Stopped { stop, .. } | TrainError::Handed { stop, .. }) => {
                        format!("stopped by {}, saved", stop.name())
                    }
                    Some(TrainError::Diverged { .. }) => "diverged".into(),
                    None => "failed".into(),
                },
            },
            steps: (self.step(), self.total_steps),
            loss: self.last_loss,
            kind: T::PRIMARY,
            // Of the test images, the final score is the result.
            score: self.last_score.filter(|_| self.task.has_validation()),
            best: self.train.counters.best.map(|best| (best.metric, best.step)),
            test_score: self.test_score,
            curves: history.map_or([None, None], |history| history.drawn()),
            images_per_second: (images > 0).then(|| images as f64 / elapsed.as_secs_f64()),
            elapsed,
            folder: self.lead.as_ref().map_or_else(PathBuf::new, |lead| lead.run.path().to_owned()),
        }
    }
}

/// A warning of a polynomial method whose arguments, the `largest` so far, are beyond its range.
pub(super) fn range_warning(model: &VimConfig, largest: f64) -> Option<String> {
    (largest > POLYNOMIAL_LIMIT.into()).then(|| {
        format!(
            "|delta·A| reaches {largest:.1}; {} under series {} is a polynomial in it, whose input \
             gain beyond 2 is wrong, and soon of the wrong sign (docs/discretizations.md)",
            model.method_label(),
            model.ssm.series
        )
    })
}
