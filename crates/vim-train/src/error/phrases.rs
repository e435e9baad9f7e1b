//! Parts of the errors' texts that depend on their values.

use crate::device::fault::Load;

/// How much memory was asked for, where that is known.
pub(super) fn asked_for(bytes: Option<u64>) -> String {
    bytes.map_or_else(String::new, |bytes| {
        format!(" (another {:.1} MiB were asked for)", bytes as f64 / f64::from(1 << 20))
    })
}

/// What to do about it.
pub(super) fn advice(load: Option<Load>) -> String {
    load.map_or_else(
        || "take smaller batches or a larger device".to_owned(),
        |load| load.to_string(),
    )
}

/// A number of things.
pub(super) fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}
