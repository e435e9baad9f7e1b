//! Why classes cannot be told apart or be given other labels.

use std::fmt;

/// One of the two lists of names that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassSide {
    /// Those that were recorded.
    Recorded,
    /// Those of the data.
    Data,
}

impl fmt::Display for ClassSide {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Recorded => "recorded classes",
            Self::Data => "classes of the data",
        })
    }
}

/// Why classes could not be matched by their names. Each text follows "failed to" and says what to
/// do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClassError {
    /// A name that two classes have.
    #[error(
        "tell the {side} apart by name: two are called `{name}` (names are compared in Unicode's \
         form NFC); rename or merge them"
    )]
    Twice {
        /// The name, as the second one has it.
        name: String,
        /// Where.
        side: ClassSide,
    },

    /// Classes that were not recorded.
    #[error("label the images as recorded: {} not among the recorded classes", are(names))]
    Unknown {
        /// Their names.
        names: Vec<String>,
    },

    /// More classes than a label map has labels.
    #[error("label the pixels as recorded: {classes} classes are more than the 255 of a label map")]
    TooMany {
        /// Number of recorded classes.
        classes: usize,
    },

    /// A match of other lists of names.
    #[error(
        "label {classes} classes as {recorded} recorded ones: they were matched as {matched} \
         and {of}; match the classes of these data"
    )]
    OtherMatch {
        /// Number of classes of the data.
        classes: usize,
        /// Number of recorded names.
        recorded: usize,
        /// Number of classes of the data that were matched.
        matched: usize,
        /// Number of recorded names that they were matched with.
        of: usize,
    },
}

/// `` `a` is ``, `` `a` and `b` are ``.
fn are(names: &[String]) -> String {
    format!("{} {}", listed(names), if names.len() == 1 { "is" } else { "are" })
}

/// The most names that a message lists.
const LISTED: usize = 20;

/// Names for a message, `` `a`, `b` and `c` ``; of many the first.
pub(crate) fn listed(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(LISTED).map(|name| format!("`{name}`")).collect();
    match (shown.as_slice(), names.len().saturating_sub(LISTED)) {
        ([], _) => String::new(),
        ([only], _) => only.clone(),
        ([before @ .., last], 0) => format!("{} and {last}", before.join(", ")),
        (_, more) => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_as_in_a_sentence() {
        let names: Vec<String> = (0..25).map(|number| number.to_string()).collect();
        assert_eq!(listed(&names[..0]), "");
        assert_eq!(are(&names[..1]), "`0` is");
        assert_eq!(are(&names[..3]), "`0`, `1` and `2` are");
        assert!(listed(&names).ends_with("`18`, `19` and 5 more"));
    }
}
