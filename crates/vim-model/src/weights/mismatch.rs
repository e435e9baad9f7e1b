//! Differences between a checkpoint and a model.

use std::fmt;

/// A tensor of a checkpoint whose shape is not the model's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeMismatch {
    /// Its name in the checkpoint.
    pub key: String,
    /// The shape that the model has, as the checkpoint would store it.
    pub expected: Vec<usize>,
    /// The shape in the file.
    pub got: Vec<usize>,
}

/// Every difference. All names and shapes are the checkpoint's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateDictMismatch {
    /// Parameters that the file lacks, with the model's shape.
    pub missing: Vec<(String, Vec<usize>)>,
    /// Keys that are not the model's.
    pub unexpected: Vec<String>,
    /// Parameters of another shape.
    pub wrong_shape: Vec<ShapeMismatch>,
    /// Keys that cannot be read as floats, with the reason.
    pub unreadable: Vec<String>,
}

impl StateDictMismatch {
    /// Whether there is no difference.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// One line for every difference.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.groups()
            .into_iter()
            .flat_map(|(what, items)| items.into_iter().map(move |item| format!("{what}: {item}")))
            .collect()
    }

    fn groups(&self) -> [(&'static str, Vec<String>); 4] {
        let missing = self.missing.iter();
        let wrong_shape = self.wrong_shape.iter().map(|ShapeMismatch { key, expected, got }| {
            format!("{key} (expected {expected:?}, got {got:?})")
        });
        [
            ("missing", missing.map(|(key, shape)| format!("{key} {shape:?}")).collect()),
            ("not in the model", self.unexpected.clone()),
            ("of another shape", wrong_shape.collect()),
            ("unreadable", self.unreadable.clone()),
        ]
    }
}

impl std::error::Error for StateDictMismatch {}

/// In one line, each group cut after a few names.
impl fmt::Display for StateDictMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 4;
        let mut parts = Vec::new();
        for (what, items) in self.groups().into_iter().filter(|(_, items)| !items.is_empty()) {
            let shown = items[..items.len().min(SHOWN)].join(", ");
            let more = items.len().saturating_sub(SHOWN);
            let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
            parts.push(format!("{what}: {shown}{rest}"));
        }
        f.write_str(&parts.join("; "))
    }
}
