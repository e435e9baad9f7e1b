//! Evaluation during and at the end of training, and the choice of the best checkpoint.

use burn::module::Module;
use vim_kernels::largest_argument;
use vim_run::checkpoint::{Best, Checkpoint, Weights};
use vim_run::metrics::LARGEST_DELTA_A;
use vim_run::storage::write_file;

use super::Trainer;
use super::state::model_from_bytes;
use crate::error::Error;
use crate::task::{EvalSplit, Evaluation, Model, Task, Tested, share};

impl<T: Task> Trainer<'_, T> {
    /// The images of the evaluations during training: the validation images, else the test images,
    /// which are then only watched.
    pub(super) fn watched(&self) -> Option<EvalSplit> {
        if self.task.has_validation() {
            return Some(EvalSplit::Val);
        }
        let is_watched = self.config.data.watch_test && self.task.is_measured();
        is_watched.then_some(EvalSplit::Test)
    }

    /// Evaluates during training; returns whether it is the best so far on the validation images.
    /// The test images choose nothing.
    pub(super) fn validate(&mut self) -> Result<bool, Error> {
        let Some(split) = self.watched() else {
            self.train.counters.eval_pending = false;
            return Ok(false);
        };
        // Evaluate all before recording any, so that a repetition on resume records none twice.
        let mut all = Vec::new();
        for weights in self.train.kinds() {
            let Some(scores) = self.evaluate(&self.train.weights(weights), split)? else {
                // The pending evaluation is saved with the state, and repeated on resume.
                return self.stop_if_asked().map(|()| false);
            };
            all.push((weights, scores));
        }
        self.train.counters.eval_pending = false;
        let step = self.step();
        if self.lead.is_some() {
            let (model, device) = (self.train.weights(Weights::Model), self.device.clone().inner());
            let pictures = self.task.pictures(&model, split, &device)?;
            self.records.pictures(step, split, pictures)?;
        }
        let mut is_best = false;
        for (weights, evaluation) in all {
            let metric = primary::<T>(&evaluation);
            if weights == Weights::Model {
                self.last_score = Some(metric);
            }
            self.records.evaluation::<T>(split, "last", step, weights, &evaluation)?;
            let best = &mut self.train.counters.best;
            let chooses = split == EvalSplit::Val;
            if chooses && best.is_none_or(|best| T::PRIMARY.is_better(metric, best.metric)) {
                *best = Some(Best { metric, step, weights });
                is_best = true;
            }
        }
        Ok(is_best)
    }

    /// Evaluates the run's result on the test images; returns the primary score.
    pub(super) fn test(&mut self) -> Result<f64, Error> {
        let now = self.step();
        // Without validation images both the weights and their average are tested, and the weights
        // are the result.
        let last = || -> Vec<(Model<T>, Weights)> {
            let kinds = self.train.kinds().into_iter();
            kinds.map(|kind| (self.train.weights(kind), kind)).collect()
        };
        let (models, step, which) = match self.train.counters.best {
            None => (last(), now, "last"),
            Some(Best { step, weights, .. }) if step == now => {
                (vec![(self.train.weights(weights), weights)], now, "best")
            }
            Some(Best { step, weights, .. }) => match self.load(step, weights)? {
                Some(model) => (vec![(model, weights)], step, "best"),
                None => (last(), now, "last"),
            },
        };
        let (mut all, mut first) = (Vec::new(), None);
        for (model, weights) in models {
            let device = self.device.clone().inner();
            let test = || self.task.test(&model, &device, &self.stop);
            let Some(tested) = self.with_largest(test, |tested| &mut tested.evaluation)? else {
                self.stop_if_asked()?;
                return Err(Error::internal("an evaluation ended early, and nobody asked"));
            };
            let tested_images = tested.evaluation.images;
            all.push((weights, tested));
            first.get_or_insert((model, tested_images));
        }
        let is_measured = self.task.is_measured();
        for (weights, Tested { evaluation, .. }) in all.iter().filter(|_| is_measured) {
            self.records.evaluation::<T>(EvalSplit::Test, which, step, *weights, evaluation)?;
        }
        if let Some(lead) = &mut self.lead {
            lead.tested = first;
        }
        let (_, tested) = all.first().expect("invariant: there are weights to test");
        if let Some(lead) = &self.lead {
            self.records.records()?.sync()?;
            if let Some((name, table)) = &tested.table {
                lead.run.check()?;
                write_file(&lead.run.path().join(name), table)?;
            }
        }
        let score = primary::<T>(&tested.evaluation);
        self.test_score = Some(score).filter(|score| !score.is_nan());
        Ok(score)
    }

    /// Weights of the checkpoint of `step`, for evaluation; none if it is damaged.
    fn load(&self, step: u64, weights: Weights) -> Result<Option<Model<T>>, Error> {
        let read = self.lead.as_ref().map(|lead| -> Result<Vec<u8>, Error> {
            let path = lead.saver.checkpoints().path_of(step);
            let bytes = Checkpoint::read(&path)?.take(weights.file())?;
            // Read here too, so that rank 0 alone decides.
            model_from_bytes(self.train.model().valid(), &bytes, &path.display().to_string())?;
            Ok(bytes)
        });
        let bytes = read.transpose().unwrap_or_else(|error| {
            self.log.line(format!("warning: {error}; testing the last weights instead"));
            None
        });
        let bytes = self.comm.broadcast(bytes.unwrap_or_default())?;
        if bytes.is_empty() {
            return Ok(None);
        }
        model_from_bytes(self.train.model().valid(), &bytes, "the best checkpoint").map(Some)
    }

    fn evaluate(&self, model: &Model<T>, split: EvalSplit) -> Result<Option<Evaluation>, Error> {
        let evaluate =
            || self.task.evaluate(model, split, &self.device.clone().inner(), &self.stop);
        self.with_largest(evaluate, |evaluation| evaluation)
    }

    /// What `run` measures, and among the scores of the evaluation `of` it, the largest |delta·A|
    /// of its scans, on whichever rank.
    fn with_largest<V>(
        &self,
        run: impl FnOnce() -> Result<Option<V>, Error>,
        of: impl FnOnce(&mut V) -> &mut Evaluation,
    ) -> Result<Option<V>, Error> {
        let (measured, own) = largest_argument(&self.device, run)?;
        let Some(mut measured) = measured else { return Ok(None) };
        // By their bits: JSON has only finite numbers, and those that are not negative order so.
        let all = share(&self.comm, &own.map(f32::to_bits))?;
        if let Some(bits) = all.into_iter().flatten().max() {
            of(&mut measured).scores.push(LARGEST_DELTA_A, f32::from_bits(bits).into());
        }
        Ok(Some(measured))
    }
}

/// The score that chooses the best checkpoint; NaN if not measured.
fn primary<T: Task>(evaluation: &Evaluation) -> f64 {
    evaluation.scores.get(T::PRIMARY.name).unwrap_or(f64::NAN)
}
