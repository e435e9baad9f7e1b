//! Metrics: which number of a run is compared.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;

use serde::{Serialize, Serializer};
use vim_config::nearest;
use vim_run::metrics::{LARGEST_DELTA_A, ScoreKind};

use crate::config::Pick;
use crate::error::SweepError;
use crate::outcome::{RunOutcome, Score};

/// A number that runs are compared by: `val/top1`, `val/ema/top1`, `train/loss`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// `train`, `val` or `test`.
    split: &'static str,
    /// Averaged weights, as named in metrics; `None` for the model's own.
    averaged: Option<&'static str>,
    pub(crate) score: ScoreKind,
}

impl fmt::Display for Metric {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/", self.split)?;
        self.averaged.map_or(Ok(()), |name| write!(formatter, "{name}/"))?;
        formatter.write_str(self.score.name)
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Metric {
    /// Parses `name`; evaluations measure `scores`.
    ///
    /// # Errors
    ///
    /// [`SweepError::NoMetric`] if the name is not that of a metric.
    pub fn parse(name: &str, scores: &[ScoreKind]) -> Result<Self, SweepError> {
        // As the error lists them: losses last.
        let (shares, others): (Vec<_>, Vec<_>) = scores.iter().partition(|score| score.is_share);
        let scores = [shares, others].concat();
        let evaluations = [("val", None), ("val", Some("ema")), ("test", None)];
        let evaluated = evaluations.into_iter().flat_map(|(split, averaged)| {
            scores.iter().map(move |&&score| Self { split, averaged, score })
        });
        let train = Self { split: "train", averaged: None, score: ScoreKind::LOSS };
        let all: Vec<Self> = evaluated.chain([train]).collect();
        all.iter()
            .find(|metric| metric.to_string() == name)
            .copied()
            .ok_or_else(|| no_metric(name, &all.iter().map(Self::to_string).collect::<Vec<_>>()))
    }

    /// Whether it is measured on averaged weights, which only some runs have.
    pub fn is_of_average(&self) -> bool {
        self.averaged.is_some()
    }

    /// Whether it is a fraction of 1, shown as a percentage.
    pub fn is_share(&self) -> bool {
        self.score.is_share
    }

    /// The unit behind a title.
    pub(crate) fn unit(&self) -> &'static str {
        if self.is_share() { ", %" } else { "" }
    }

    /// What a value is multiplied by where it is drawn.
    pub(crate) fn factor(&self) -> f64 {
        if self.is_share() { 100.0 } else { 1.0 }
    }

    /// The better of two values compares as the greater.
    pub(crate) fn compare(&self, a: f64, b: f64) -> Ordering {
        if self.score.larger_is_better { a.total_cmp(&b) } else { b.total_cmp(&a) }
    }

    /// The metric that has a curve: of a test result, that of the validation, unless the test
    /// images were watched in its place.
    pub(crate) fn course(self, outcomes: &[RunOutcome]) -> Self {
        let evaluations =
            |run: &RunOutcome, split| run.scores.iter().filter(|one| one.split == split).count();
        let is_watched = outcomes.iter().any(|run| evaluations(run, "test") > 1)
            && outcomes.iter().all(|run| evaluations(run, "val") == 0);
        let split = if self.split == "test" && !is_watched { "val" } else { self.split };
        Self { split, ..self }
    }

    /// Its title in a table.
    pub fn title(&self) -> String {
        let averaged = self.averaged.map_or_else(String::new, |name| format!(" ({name})"));
        format!("{} {}{averaged}", self.split, self.score.label)
    }

    /// How the value of each run was chosen, in words.
    pub fn choice(&self, pick: Pick, outcomes: &[RunOutcome]) -> String {
        if self.split == "test" {
            let tested = |run| Some(self.scores(run).last()?.checkpoint.as_str());
            let tested: BTreeSet<&str> = outcomes.iter().filter_map(tested).collect();
            return match tested.into_iter().collect::<Vec<_>>()[..] {
                ["best"] => "of the checkpoint that was best on val".into(),
                ["last"] => "of the last weights".into(),
                [] => "not measured yet".into(),
                _ => "of the checkpoint that was best on val, or of the last weights where there \
                      was none"
                    .into(),
            };
        }
        match pick {
            Pick::Last => "last evaluation, nothing selected".into(),
            Pick::Best => format!(
                "best evaluation, selected on {}, the split that it was measured on: too good by \
                 the selection",
                self.split
            ),
        }
    }

    fn scores(self, run: &RunOutcome) -> impl DoubleEndedIterator<Item = &Score> {
        run.scores.iter().filter(move |score| {
            // A test result counts whichever weights were tested.
            let of_weights = self.split == "test" || score.averaged.as_deref() == self.averaged;
            score.split == self.split && of_weights
        })
    }

    /// The metric of `run` over its steps.
    pub fn curve(&self, run: &RunOutcome) -> Vec<(f64, f64)> {
        if self.split == "train" {
            return run.losses.clone();
        }
        let point = |score: &Score| Some((score.step as f64, *score.values.get(self.score.name)?));
        self.scores(run).filter_map(point).collect()
    }

    /// The value of `run` that counts.
    pub fn value(&self, run: &RunOutcome, pick: Pick) -> Option<f64> {
        let mut values = self.curve(run).into_iter().map(|point| point.1);
        match pick {
            Pick::Best if self.split != "test" => values.max_by(|a, b| self.compare(*a, *b)),
            Pick::Best | Pick::Last => values.next_back(),
        }
    }

    /// Formats a value.
    pub fn show(&self, value: f64) -> String {
        if self.is_share() { format!("{:.2}", 100.0 * value) } else { format!("{value:.4}") }
    }

    /// Formats a difference of two values, with a sign.
    pub fn show_difference(&self, value: f64) -> String {
        let text = self.show(value.abs());
        // No sign if it rounds to zero.
        let is_nothing = text.chars().all(|c| matches!(c, '0' | '.'));
        match value {
            _ if is_nothing => text,
            _ if value < 0.0 => format!("−{text}"),
            _ => format!("+{text}"),
        }
    }
}

pub(crate) fn no_metric(name: &str, known: &[String]) -> SweepError {
    SweepError::NoMetric {
        metric: name.to_owned(),
        nearest: nearest(name, known.iter().map(String::as_str)).map(str::to_owned),
        known: known.join(", "),
    }
}

/// The names of all metrics in `outcomes`.
pub(crate) fn metrics(outcomes: &[RunOutcome]) -> Vec<String> {
    let mut names = BTreeSet::new();
    for run in outcomes {
        if !run.losses.is_empty() {
            names.insert("train/loss".to_owned());
        }
        for score in &run.scores {
            let averaged = score.averaged.as_ref().filter(|_| score.split != "test");
            let averaged = averaged.map_or_else(String::new, |name| format!("{name}/"));
            // It is no score.
            let keys = score.values.keys().filter(|key| *key != LARGEST_DELTA_A);
            names.extend(keys.map(|key| format!("{}/{averaged}{key}", score.split)));
        }
    }
    names.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{SCORES, outcome};

    #[test]
    fn the_largest_argument_is_no_metric() {
        let mut run = outcome("zoh", 0, 0.5);
        let before = metrics(&[run.clone()]);
        run.scores[0].values.insert(LARGEST_DELTA_A.into(), 3.0);
        assert_eq!(metrics(&[run]), before);
    }

    #[test]
    fn a_test_result_has_the_curve_of_what_was_evaluated_during_training() {
        let test = Metric::parse("test/top1", SCORES).unwrap();
        let mut run = outcome("zoh", 0, 0.5);
        assert_eq!(test.course(&[run.clone()]).to_string(), "val/top1");
        for score in &mut run.scores {
            score.split = "test".into();
        }
        assert_eq!(test.course(&[run.clone()]).to_string(), "test/top1");
        assert_eq!(test.curve(&run), [(10.0, 0.25), (20.0, 0.5)]);
        assert_eq!(test.value(&run, Pick::Best), Some(0.5), "the last, whichever was best");
    }

    #[test]
    fn a_name_that_no_run_has_is_told_the_nearest() {
        for name in ["val/top1", "val/ema/top5", "test/loss", "train/loss"] {
            assert_eq!(Metric::parse(name, SCORES).unwrap().is_of_average(), name.contains("ema"));
        }
        let all = "val/top1, val/top5, val/loss, val/ema/top1, val/ema/top5, val/ema/loss, \
                   test/top1, test/top5, test/loss, train/loss";
        for (name, nearest) in [
            ("val/topp1", ", did you mean `val/top1`?"),
            ("val/eam/top1", ", did you mean `val/ema/top1`?"),
            ("test/ema/top1", ", did you mean `val/ema/top1`?"),
            ("train/top1", ", did you mean `train/loss`?"),
            ("accuracy", ""),
        ] {
            let expected = format!("no run has the metric `{name}`{nearest} (there are: {all})");
            assert_eq!(Metric::parse(name, SCORES).unwrap_err().to_string(), expected);
        }
    }
}
