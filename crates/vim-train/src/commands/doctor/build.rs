//! The program itself.

use super::Context;
use super::finding::Finding;
use crate::device::backends;

/// The program's version and features.
pub(super) fn program(_: &Context) -> Vec<Finding> {
    let backends: Vec<String> = backends().iter().map(ToString::to_string).collect();
    let turbo = if cfg!(feature = "turbo") { "libjpeg-turbo" } else { "JPEG decoder in Rust" };
    let commit = option_env!("VIM_TRAIN_COMMIT")
        .and_then(|commit| commit.get(..12))
        .map_or_else(String::new, |commit| format!(" ({commit})"));
    let target = option_env!("VIM_TRAIN_TARGET").unwrap_or(std::env::consts::ARCH);
    let detail = format!(
        "vim-train {}{commit} for {target}; backends {}; {turbo}",
        env!("CARGO_PKG_VERSION"),
        backends.join(", ")
    );
    let detail = if cfg!(debug_assertions) { format!("{detail}; unoptimised") } else { detail };
    if cfg!(debug_assertions) {
        let advice = "build with --release: this one is for development, and slow";
        return vec![Finding::warn("program", detail, advice)];
    }
    vec![Finding::pass("program", detail)]
}
