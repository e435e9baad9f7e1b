//! Names of the files in a run's folder, and functions that write them.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::RunError;
use crate::storage::{Disk, replace};

/// The effective configuration.
pub const CONFIG: &str = "config.toml";
/// Program, machine and job of the last start.
pub const ENVIRONMENT: &str = "env.json";
/// How the last process ended.
pub const EXIT: &str = "exit.json";
/// The log.
pub const LOG: &str = "log.txt";
/// Results.
pub const METRICS: &str = "metrics.jsonl";
/// Speeds, waits and memory.
pub const TIMING: &str = "timing.jsonl";
/// How deep below `run.root` a run may be: names such as `sweep/zoh-s0` make folders.
pub const MAX_DEPTH: usize = 4;
/// The weights that the run started from.
pub const INIT: &str = "init.json";

pub(crate) fn write_json_in(
    run: &Path,
    name: &str,
    value: &impl Serialize,
) -> Result<(), RunError> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| RunError::Internal(format!("{name}: {error}")))?;
    text.push('\n');
    write_in(run, name, text.as_bytes())
}

pub(crate) fn write_in(run: &Path, name: &str, bytes: &[u8]) -> Result<(), RunError> {
    let path = run.join(name);
    replace(&Disk, &path, bytes).map_err(RunError::io("write", path))
}

/// The folder of the checkpoints of the run in `run`.
pub fn checkpoints_in(run: &Path) -> PathBuf {
    run.join("checkpoints")
}

/// Writes a whole file; makes its folder if needed.
///
/// # Errors
///
/// If the folder cannot be made or the file cannot be written.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(RunError::io("make", folder))?;
    }
    replace(&Disk, path, bytes).map_err(RunError::io("write", path))
}
