//! The numbers that an evaluation measures, by name.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde::{Deserialize, Deserializer};

use super::Record;

/// The key of an evaluation's record, where scans were seen: the largest |delta·A| of all images,
/// tokens, channels and states, delta after its softplus.
pub const LARGEST_DELTA_A: &str = "largest_delta_a";

/// A score: its key in records, and how it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScoreKind {
    /// Key in records, such as `top1`.
    pub name: &'static str,
    /// Name in the log, such as `top-1`.
    pub label: &'static str,
    /// Whether the score is a share of 1, shown in percent.
    pub is_share: bool,
    /// Whether larger is better.
    pub larger_is_better: bool,
}

impl ScoreKind {
    /// The mean loss.
    pub const LOSS: Self =
        Self { name: "loss", label: "loss", is_share: false, larger_is_better: false };

    /// A share of 1; larger is better.
    pub const fn share(name: &'static str, label: &'static str) -> Self {
        Self { name, label, is_share: true, larger_is_better: true }
    }

    /// `number` as shown.
    pub fn show(&self, number: f64) -> String {
        if self.is_share { format!("{:.2} %", number * 100.0) } else { format!("{number:.4}") }
    }

    /// Whether `number` is better than `best`.
    pub fn is_better(&self, number: f64, best: f64) -> bool {
        if self.larger_is_better { number > best } else { number < best }
    }
}

/// Numbers by name, in record order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores(Vec<(String, f64)>);

impl Scores {
    /// The number called `name`.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, number)| *number)
    }

    /// Adds a number.
    pub fn push(&mut self, name: &str, number: f64) {
        self.0.push((name.to_owned(), number));
    }

    /// All numbers with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, number)| (name.as_str(), *number))
    }

    /// `loss 0.1234, top-1 97.00 %`, as `kinds` label and `show` writes them.
    pub fn describe(
        &self,
        kinds: &[ScoreKind],
        show: impl Fn(&ScoreKind, f64) -> String,
    ) -> String {
        let shown =
            self.iter().map(|(name, number)| match kinds.iter().find(|kind| kind.name == name) {
                Some(kind) => format!("{} {}", kind.label, show(kind, number)),
                None => format!("{name} {}", show(&ScoreKind::LOSS, number)),
            });
        shown.collect::<Vec<_>>().join(", ")
    }
}

impl<N: Into<String>> FromIterator<(N, f64)> for Scores {
    fn from_iter<I: IntoIterator<Item = (N, f64)>>(scores: I) -> Self {
        Self(scores.into_iter().map(|(name, number)| (name.into(), number)).collect())
    }
}

impl Serialize for Scores {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, number) in &self.0 {
            map.serialize_entry(name, number)?;
        }
        map.end()
    }
}

/// Reads the numbers of a map, and ignores all other values.
impl<'de> Deserialize<'de> for Scores {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let record = Record::deserialize(deserializer)?;
        Ok(record.fields().filter_map(|(name, value)| Some((name, value.as_f64()?))).collect())
    }
}
