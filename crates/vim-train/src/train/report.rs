//! What a run says about itself: metrics, timings, warnings, its end.

use serde::Serialize;
use vim_data::Batches;

use super::Trainer;
use crate::error::Error;
use crate::eval::Scores;
use crate::run_dir::{ExitReason, ExitRecord};
use crate::summary::{Summary, percent, summary};

/// A line of `metrics.jsonl`. Nothing in it depends on the clock.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Metric<'a> {
    /// Since the record before: the mean loss. At this step: the rest.
    Train { step: u64, epoch: u64, loss: f64, lr: f64, grad_norm: f64 },
    /// An evaluation; `checkpoint` says of which weights.
    Eval {
        step: u64,
        split: &'a str,
        checkpoint: &'a str,
        loss: f64,
        top1: f64,
        top5: f64,
        images: usize,
    },
}

/// A line of `timing.jsonl`.
#[derive(Serialize)]
pub(super) struct Timing {
    pub(super) step: u64,
    pub(super) images_per_second: f64,
    pub(super) elapsed_s: f64,
    /// How long saving has held the loop up since the record before.
    pub(super) save_stall_s: f64,
}

impl Trainer<'_> {
    pub(super) fn record(
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

    /// Names the images that could not be read: in the log once, in `bad_samples.jsonl` each time that they were drawn.
    pub(super) fn record_bad(&mut self, batches: &mut Batches) -> Result<(), Error> {
        for bad in batches.take_bad() {
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
