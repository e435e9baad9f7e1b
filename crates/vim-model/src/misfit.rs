//! How a checkpoint and a model disagree.

use std::fmt;

/// A tensor of a checkpoint whose shape is not the model's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misshapen {
    /// Its name in the checkpoint.
    pub key: String,
    /// The shape that the model has, as the checkpoint would store it.
    pub expected: Vec<usize>,
    /// The shape in the file.
    pub got: Vec<usize>,
}

/// Every disagreement. All names and shapes are the checkpoint's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Misfit {
    /// What the model has and the file does not, with the model's shape.
    pub missing: Vec<(String, Vec<usize>)>,
    /// What the file has and the model does not.
    pub unmatched: Vec<String>,
    /// What both have, in different shapes.
    pub misshapen: Vec<Misshapen>,
    /// What cannot be read as floats, with the reason.
    pub unreadable: Vec<String>,
}

impl Misfit {
    /// Whether they agree.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Every disagreement in a line of its own.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.groups()
            .into_iter()
            .flat_map(|(what, items)| items.into_iter().map(move |item| format!("{what}: {item}")))
            .collect()
    }

    fn groups(&self) -> [(&'static str, Vec<String>); 4] {
        let missing = self.missing.iter();
        let misshapen = self.misshapen.iter().map(|Misshapen { key, expected, got }| {
            format!("{key} (expected {expected:?}, got {got:?})")
        });
        [
            ("missing", missing.map(|(key, shape)| format!("{key} {shape:?}")).collect()),
            ("not in the model", self.unmatched.clone()),
            ("of another shape", misshapen.collect()),
            ("unreadable", self.unreadable.clone()),
        ]
    }
}

impl std::error::Error for Misfit {}

/// In one line, each group cut after a few names.
impl fmt::Display for Misfit {
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
