//! Metrics: which number of a run is compared.

use std::collections::BTreeSet;

use vim_config::nearest;

use crate::config::Pick;
use crate::error::SweepError;
use crate::outcome::{RunOutcome, Score};

/// The parsed name of a metric: `val/top1`, `val/ema/top1`, `train/loss`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    split: String,
    averaged: Option<String>,
    number: String,
}

/// Values of an evaluation.
const NUMBERS: [&str; 3] = ["top1", "top5", "loss"];
/// Averaged weights, as named in metrics.
const AVERAGED: [&str; 1] = ["ema"];

impl Metric {
    /// Parses `name`.
    ///
    /// # Errors
    ///
    /// [`SweepError::NoMetric`] if the name is not that of a metric.
    pub fn parse(name: &str) -> Result<Self, SweepError> {
        let parts: Vec<&str> = name.split('/').collect();
        let of = |split: &str, averaged: Option<&str>, number: &str| Self {
            split: split.to_owned(),
            averaged: averaged.map(str::to_owned),
            number: number.to_owned(),
        };
        match parts[..] {
            ["train", "loss"] => Ok(of("train", None, "loss")),
            [split @ ("val" | "test"), number] if NUMBERS.contains(&number) => {
                Ok(of(split, None, number))
            }
            ["val", averaged, number]
                if AVERAGED.contains(&averaged) && NUMBERS.contains(&number) =>
            {
                Ok(of("val", Some(averaged), number))
            }
            _ => {
                let averaged = AVERAGED.map(|name| format!("val/{name}"));
                let evaluations = ["val".to_owned()].into_iter().chain(averaged);
                let evaluations = evaluations.chain(["test".to_owned()]);
                let mut known: Vec<String> =
                    evaluations.flat_map(|of| NUMBERS.map(|name| format!("{of}/{name}"))).collect();
                known.push("train/loss".into());
                Err(no_metric(name, &known))
            }
        }
    }

    /// Whether it is measured on averaged weights, which only some runs have.
    pub fn is_of_average(&self) -> bool {
        self.averaged.is_some()
    }

    /// Whether it is a fraction of 1, shown as a percentage.
    pub fn is_share(&self) -> bool {
        self.number != "loss"
    }

    /// Its title in a table.
    pub fn title(&self) -> String {
        let number = match self.number.as_str() {
            "top1" => "top-1",
            "top5" => "top-5",
            other => other,
        };
        let averaged = self.averaged.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
        format!("{} {number}{averaged}", self.split)
    }

    /// How the value of each run was chosen, in words.
    pub fn choice(&self, pick: Pick, outcomes: &[RunOutcome]) -> String {
        if self.split == "test" {
            let tested = outcomes
                .iter()
                .filter_map(|run| Some(self.scores(run).last()?.checkpoint.as_str()));
            let tested: BTreeSet<&str> = tested.collect();
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

    fn scores<'a>(&'a self, run: &'a RunOutcome) -> impl DoubleEndedIterator<Item = &'a Score> {
        let is_asked = |score: &&Score| {
            // A test result counts whichever weights were tested.
            score.split == self.split && (self.split == "test" || score.averaged == self.averaged)
        };
        run.scores.iter().filter(is_asked)
    }

    /// The metric of `run` over its steps.
    pub fn curve(&self, run: &RunOutcome) -> Vec<(f64, f64)> {
        if self.split == "train" {
            return run.losses.clone();
        }
        let point = |score: &Score| Some((score.step as f64, *score.values.get(&self.number)?));
        self.scores(run).filter_map(point).collect()
    }

    /// The value of `run` that counts.
    pub fn value(&self, run: &RunOutcome, pick: Pick) -> Option<f64> {
        let mut values = self.curve(run).into_iter().map(|point| point.1);
        match (pick, self.split.as_str()) {
            (Pick::Last, _) | (Pick::Best, "test") => values.next_back(),
            (Pick::Best, _) if self.is_share() => values.max_by(f64::total_cmp),
            (Pick::Best, _) => values.min_by(f64::total_cmp),
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
pub fn metrics(outcomes: &[RunOutcome]) -> Vec<String> {
    let mut names = BTreeSet::new();
    for run in outcomes {
        if !run.losses.is_empty() {
            names.insert("train/loss".to_owned());
        }
        for score in &run.scores {
            let averaged = score.averaged.as_ref().filter(|_| score.split != "test");
            let averaged = averaged.map_or_else(String::new, |name| format!("{name}/"));
            names.extend(score.values.keys().map(|key| format!("{}/{averaged}{key}", score.split)));
        }
    }
    names.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_run_has_is_told_the_nearest() {
        for name in ["val/top1", "val/ema/top5", "test/loss", "train/loss"] {
            assert_eq!(Metric::parse(name).unwrap().is_of_average(), name.contains("ema"));
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
            assert_eq!(Metric::parse(name).unwrap_err().to_string(), expected);
        }
    }
}
