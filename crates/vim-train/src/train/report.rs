//! What a run says about itself: metrics, timings, warnings, its end.

use std::mem;
use std::time::{Duration, Instant};

use serde::Serialize;
use vim_data::BadSample;

use super::Trainer;
use crate::device::memory;
use crate::device::memory::device_memory;
use crate::error::Error;
use crate::output::progress::Speed;
use crate::output::summary::{Summary, percent, summary};
use crate::run::checkpoint::Weights;
use crate::run::run_dir::{ExitReason, ExitRecord};
use crate::train::evaluate::Scores;

/// A line of `metrics.jsonl`. Nothing in it depends on the clock.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Metric<'a> {
    /// Since the record before: the mean loss. At this step: the rest; no norm if it was skipped.
    Train { step: u64, epoch: u64, loss: f64, lr: f64, grad_norm: Option<f64> },
    /// A step that changed nothing, as its numbers were not finite.
    Skipped { step: u64, epoch: u64, reason: &'a str, in_a_row: u64 },
    /// An evaluation; `checkpoint` says of which checkpoint, `weights` of which of its weights.
    Eval {
        step: u64,
        split: &'a str,
        checkpoint: &'a str,
        weights: &'a str,
        loss: f64,
        top1: f64,
        top5: f64,
        images: usize,
    },
}

/// A line of `timing.jsonl`: since the line before, or the evaluation before, where there is no other unit.
#[derive(Serialize)]
struct Timing {
    step: u64,
    images_per_second: f64,
    /// Since this process began to train.
    elapsed_s: f64,
    /// How long saving has held the loop up since the record before.
    save_stall_s: f64,
    /// Time that the loop waited for images.
    data_wait_s: f64,
    /// What this process holds in RAM now.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
    /// What it holds on the device now.
    #[serde(skip_serializing_if = "Option::is_none")]
    device_memory_bytes: Option<u64>,
}

/// When a stretch of training began.
pub(super) struct Pace {
    at: Instant,
    step: u64,
    waited: Duration,
}

impl Pace {
    /// Now, after `step` steps and when the loop has `waited` for images as long as that.
    pub(super) fn start(step: u64, waited: Duration) -> Self {
        Self { at: Instant::now(), step, waited }
    }
}

impl Trainer<'_> {
    pub(super) fn record(
        &mut self,
        split: &str,
        checkpoint: &str,
        step: u64,
        weights: Weights,
        scores: Scores,
    ) -> Result<(), Error> {
        let Scores { images, loss, top1, top5 } = scores;
        let average = match weights {
            Weights::Model => "",
            Weights::Ema => ", moving average",
        };
        let weights = weights.name();
        self.log.line(format!(
            "{split} at step {step} ({checkpoint}{average}): loss {loss:.4}, top-1 {}, top-5 {}",
            percent(top1),
            percent(top5)
        ));
        self.metrics.append(&Metric::Eval {
            step,
            split,
            checkpoint,
            weights,
            loss,
            top1,
            top5,
            images,
        })
    }

    /// Records how fast the stretch since `pace` went, and what memory is held.
    pub(super) fn record_timing(
        &mut self,
        pace: &Pace,
        step: u64,
        waited: Duration,
        elapsed: Duration,
    ) -> Result<Speed, Error> {
        let seconds = pace.at.elapsed().as_secs_f64();
        let images = (step - pace.step) * self.config.train.batch_size as u64;
        let data_wait_s = waited.saturating_sub(pace.waited).as_secs_f64();
        let speed = Speed {
            images_per_second: images as f64 / seconds,
            data_wait: data_wait_s / seconds,
            memory: memory::resident(),
            device_memory: device_memory(&self.device),
        };
        let Speed { images_per_second, data_wait, memory, device_memory } = speed;
        self.timing.append(&Timing {
            step,
            images_per_second,
            elapsed_s: elapsed.as_secs_f64(),
            save_stall_s: mem::take(&mut self.save_stall).as_secs_f64(),
            data_wait_s,
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
        self.metrics.scalars(step, &known.collect::<Vec<_>>());
        Ok(speed)
    }

    /// Names the images that could not be read: in the log once, in `bad_samples.jsonl` each time that they were drawn.
    pub(super) fn record_bad(&mut self, samples: Vec<BadSample>) -> Result<(), Error> {
        for bad in samples {
            if self.named_bad.insert(bad.index) {
                self.log
                    .line(format!("warning: {} {}; another takes its place", bad.name, bad.reason));
            }
            self.bad_samples.append(&bad)?;
        }
        Ok(())
    }

    /// Says once which implementation of each operation runs.
    pub(super) fn log_implementations(&self) {
        for (operation, implementation) in vim_kernels::implementations_run() {
            self.log.line(format!("{operation}: {implementation}"));
        }
    }

    /// Warns once if a method that is a polynomial is used where a polynomial is no good.
    pub(super) fn warn_of_large_steps(&mut self) {
        let largest = vim_kernels::largest_polynomial_argument();
        if self.warned || largest <= vim_kernels::POLYNOMIAL_LIMIT {
            return;
        }
        self.warned = true;
        let (method, series) = (self.model().config().method_label(), self.config.ssm.series);
        self.log.line(format!(
            "warning: |delta·A| reaches {largest:.1}; {method} under series {series} is a polynomial in it, whose input gain beyond 2 is wrong, and soon of the wrong sign (docs/discretizations.md)"
        ));
    }

    pub(super) fn exit_record(&self, outcome: &Result<Option<Scores>, Error>) -> ExitRecord {
        let (reason, error) = match outcome {
            Ok(Some(_)) => (ExitReason::Finished, None),
            Ok(None) => (ExitReason::Paused, None),
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

    pub(super) fn summary(&self, name: String, outcome: &Result<Option<Scores>, Error>) -> String {
        let elapsed = self.start.elapsed();
        let images = (self.state.step - self.first_step) * self.config.train.batch_size as u64;
        summary(&Summary {
            name,
            outcome: match outcome {
                Ok(Some(_)) => "finished".into(),
                Ok(None) => "paused as asked: the same command with --resume auto goes on".into(),
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
