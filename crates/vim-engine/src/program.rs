//! What program this is, as records and reports name it.

use std::sync::OnceLock;

/// Its version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The target that it is built for.
pub const TARGET: Option<&str> = option_env!("VIM_TRAIN_TARGET");

// Told at the start, not compiled in: a new commit would compile this library anew.
static COMMIT: OnceLock<&str> = OnceLock::new();

/// Says which commit the program is built from. The first word counts.
pub fn set_commit(commit: &'static str) {
    let _ = COMMIT.set(commit);
}

/// The commit that the program is built from, if it has said so.
pub fn commit() -> Option<&'static str> {
    COMMIT.get().copied()
}
