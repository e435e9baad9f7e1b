//! The readable records of a run's `metrics.jsonl` and `timing.jsonl`.

use std::io;
use std::path::Path;

use serde::Serialize;
use vim_run::metrics::{Curve, OWN_WEIGHTS, Record, RecordReader, ScoreKind, Scores};
use vim_run::{METRICS, TIMING};

use crate::output::sparkline::drawn;
use crate::task::EvalSplit;
use crate::task::kinds::PRIMARY;

/// A record of training.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Train {
    /// Steps done.
    pub step: u64,
    /// The epoch, from 0.
    pub epoch: Option<u64>,
    /// Mean loss since the record before.
    pub loss: Option<f64>,
    /// Learning rate.
    pub lr: Option<f64>,
    /// Norm of the gradient.
    pub grad_norm: Option<f64>,
}

/// An evaluation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluated {
    /// Training steps of the weights.
    pub step: u64,
    /// The checkpoint: `last` or `best`.
    pub checkpoint: String,
    /// The averaged weights, if not the model's own.
    pub averaged: Option<String>,
    /// Its scores.
    #[serde(flatten)]
    pub scores: Scores,
}

impl Evaluated {
    /// The number called `name`, where it is finite.
    pub fn score(&self, name: &str) -> Option<f64> {
        self.scores.get(name).filter(|number| number.is_finite())
    }
}

/// The best evaluation, and its step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Best {
    /// Its scores.
    #[serde(flatten)]
    pub score: Scores,
    /// Steps done at that evaluation.
    pub step: u64,
}

/// What the records of a run say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The newest record of training.
    pub last_train: Option<Train>,
    /// The training loss by step.
    pub loss: Curve,
    /// On the validation images.
    pub val: Vec<Evaluated>,
    /// On the test images, the newest.
    pub test: Option<Evaluated>,
    /// On the test images before that, where there are no validation images: by these, nothing was
    /// chosen.
    pub watched: Vec<Evaluated>,
    /// The median speed, in images per second: robust against the slow first records, which
    /// include tuning.
    pub median_speed: Option<f64>,
    /// Total working time of all processes, in seconds.
    pub seconds: f64,
}

impl History {
    pub(crate) fn read(folder: &Path, problems: &mut Vec<String>) -> Self {
        let mut history = Self::default();
        each(folder, METRICS, &["kind", "step"], problems, |record| history.add(&record));
        let (mut last, mut speeds) = (0.0, Vec::new());
        each(folder, TIMING, &["step"], problems, |timing| {
            speeds.extend(timing.number::<f64>("images_per_second"));
            let Some(elapsed) = timing.number::<f64>("elapsed_s") else { return };
            // Every process starts its own count, at 0; those of older builds do not say so.
            history.seconds += if elapsed < last { elapsed } else { elapsed - last };
            last = elapsed;
        });
        speeds.sort_unstable_by(f64::total_cmp);
        history.median_speed = speeds.get(speeds.len() / 2).copied();
        history
    }

    /// Adds a record of [`METRICS`].
    fn add(&mut self, record: &Record) {
        let number = |key: &str| record.number::<f64>(key);
        let Some(step) = record.number("step") else { return };
        if record.text("kind") == Some("train") {
            let (epoch, loss) = (record.number("epoch"), number("loss"));
            let (lr, grad_norm) = (number("lr"), number("grad_norm"));
            if let Some(loss) = loss {
                self.loss.push(step as f64, loss);
            }
            self.last_train = Some(Train { step, epoch, loss, lr, grad_norm });
            return;
        }
        let checkpoint = record.text("checkpoint").unwrap_or_default().to_owned();
        let averaged = record.text("weights").filter(|name| *name != OWN_WEIGHTS);
        let averaged = averaged.map(str::to_owned);
        let scores = record.measured().collect();
        let evaluated = Evaluated { step, checkpoint, averaged, scores };
        match record.text("split") {
            Some("val") => self.val.push(evaluated),
            Some("test") if self.is_result(&evaluated) => {
                self.watched.extend(self.test.replace(evaluated));
            }
            Some(_) | None => {}
        }
    }

    /// Whether `test` is the run's result: if both were tested, the model's own weights count, not
    /// their average.
    fn is_result(&self, test: &Evaluated) -> bool {
        let is_own = |known: &Evaluated| known.step == test.step && known.averaged.is_none();
        test.averaged.is_none() || !self.test.as_ref().is_some_and(is_own)
    }

    /// The score that the run goes by: its task's.
    pub(crate) fn primary(&self) -> ScoreKind {
        let all = || self.val.iter().chain(&self.watched).chain(&self.test);
        let is_measured = |kind: &&ScoreKind| all().any(|one| one.score(kind.name).is_some());
        PRIMARY.iter().find(is_measured).copied().unwrap_or(PRIMARY[0])
    }

    /// The best evaluation on the validation images; of equal ones the first, as in training.
    pub(crate) fn best(&self) -> Option<Best> {
        let primary = self.primary();
        let scored = self.val.iter().filter_map(|val| Some((val.score(primary.name)?, val.step)));
        let best =
            scored.reduce(|best, next| if primary.is_better(next.0, best.0) { next } else { best });
        best.map(|(score, step)| Best {
            score: [(primary.name, score)].into_iter().collect(),
            step,
        })
    }

    /// The newest evaluation of the model's own weights on the validation images.
    pub fn last_val(&self) -> Option<&Evaluated> {
        self.val.iter().rev().find(|val| val.averaged.is_none()).or(self.val.last())
    }

    /// The split that was evaluated during training.
    pub fn split(&self) -> EvalSplit {
        let is_watched = self.val.is_empty() && !self.watched.is_empty();
        if is_watched { EvalSplit::Test } else { EvalSplit::Val }
    }

    /// The courses of the training loss and of the primary score, in characters, each with its
    /// first and last value.
    pub fn drawn(&self) -> [Option<String>; 2] {
        let (score, primary) = (self.score_curve(), self.primary());
        let ends = score.first().zip(score.last()).map(|(first, last)| [*first, *last]);
        [
            drawn(&self.loss.points(), self.loss.ends(), |loss| format!("{loss:.4}")),
            drawn(&score, ends, |score| primary.show(score)),
        ]
    }

    /// The primary score of the model's own weights by step, on the split that was evaluated during
    /// training.
    pub fn score_curve(&self) -> Vec<(f64, f64)> {
        let all: Vec<&Evaluated> = match self.split() {
            EvalSplit::Val => self.val.iter().collect(),
            EvalSplit::Test => self.watched.iter().chain(&self.test).collect(),
        };
        let own = all.into_iter().filter(|evaluated| evaluated.averaged.is_none());
        let name = self.primary().name;
        own.filter_map(|one| Some((one.step as f64, one.score(name)?))).collect()
    }
}

/// Hands over the records in a file with the keys `needed`; the count of others is reported. An
/// absent file has none.
fn each(
    folder: &Path,
    name: &str,
    needed: &[&str],
    problems: &mut Vec<String>,
    mut take: impl FnMut(Record),
) {
    let reader = match RecordReader::open(&folder.join(name)) {
        Ok(reader) => reader,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => {
            problems.push(format!("{name} cannot be read: {error}"));
            return;
        }
    };
    let (mut first, mut others) = (None, 0_usize);
    for line in reader {
        let (number, record) = match line {
            Ok(line) => line,
            Err(error) => {
                problems.push(format!("{name} cannot be read to its end: {error}"));
                break;
            }
        };
        match record.filter(|record| needed.iter().all(|key| record.get(key).is_some())) {
            Some(record) => take(record),
            None if first.is_none() => first = Some(number),
            None => others += 1,
        }
    }
    if let Some(first) = first {
        let others = match others {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        problems.push(format!("{name}: line {first}{others} cannot be understood"));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_time_of_every_process_counts() {
        // A process ends after 3 s, the next one records after 5; in older builds that did not say
        // where one begins, after 2.
        let begun = r#"{"step":0,"elapsed_s":0.0}"#;
        let line = |elapsed| format!(r#"{{"step":1,"images_per_second":8,"elapsed_s":{elapsed}}}"#);
        let lines = [3, 5, 2].map(line);
        let [three, five, two] = lines.each_ref().map(String::as_str);
        for (lines, seconds) in [
            (vec![begun, three, begun, begun, five], 8.0),
            (vec![three, two, begun, three], 8.0),
            (vec![three, five], 5.0),
        ] {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join(TIMING), lines.join("\n") + "\n").unwrap();
            let mut problems = Vec::new();
            let history = History::read(folder.path(), &mut problems);
            assert_eq!((history.seconds, history.median_speed), (seconds, Some(8.0)), "{lines:?}");
            assert_eq!(problems, [""; 0]);
        }
    }
}
