//! Finds runs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use vim_run::MAX_DEPTH;
use vim_sweep::PLAN;

use super::run::{Run, holds_run};
use crate::config::nearest;
use crate::error::{Error, Failure, code};

/// Folders of a sweep that hold no runs.
const SWEEP_FOLDERS: [&str; 3] = ["configs", "logs", vim_slurm::submissions::FOLDER];

/// The runs in `root` by name, and folders without runs, so that none is overlooked.
pub(super) fn all(root: &Path) -> Result<Vec<Run>, Error> {
    let inside = folders(root).map_err(Error::io("list", root))?;
    if holds_run(root) {
        return Ok(vec![named(root)]);
    }
    let mut found = Vec::new();
    for folder in inside {
        collect(&folder, MAX_DEPTH, &mut found);
    }
    let mut runs: Vec<Run> = found
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            Run::read(&path, name)
        })
        .collect();
    runs.sort_by(|a, b| a.row.name.cmp(&b.row.name));
    Ok(runs)
}

fn collect(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let before = found.len();
    if !holds_run(folder) && depth > 1 {
        // An unreadable folder is listed with its error.
        for inside in folders(folder).unwrap_or_default() {
            let below = found.len();
            collect(&inside, depth - 1, found);
            // Of nested folders without runs, list only the outermost.
            if found.len() == below + 1 && found.last() == Some(&inside) && !holds_run(&inside) {
                found.pop();
            }
        }
    }
    if found.len() == before {
        found.push(folder.to_owned());
    }
}

/// The subfolders of `folder`, without hidden ones and a sweep's own.
fn folders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let holds_sweep = folder.join(PLAN).is_file();
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let hidden = name.to_string_lossy().starts_with('.');
        let is_sweeps = holds_sweep && SWEEP_FOLDERS.iter().any(|folder| name == *folder);
        if !hidden && !is_sweeps && entry.path().is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// There is no such run.
#[derive(Debug, thiserror::Error)]
#[error(
    "{name} is neither a run's folder nor the name of a run in {}{}: `vim-train runs list` names them, --root looks elsewhere",
    root.display(),
    nearest.as_ref().map_or_else(String::new, |name| format!(" (is it `{name}`?)"))
)]
struct NoRun {
    name: String,
    root: PathBuf,
    nearest: Option<String>,
}

impl Failure for NoRun {
    fn exit_code(&self) -> u8 {
        code::DATA
    }
}

/// Resolves `name` to a run: a folder, else a name in `root`.
pub(super) fn one(name: &Path, root: &Path) -> Result<Run, Error> {
    let candidates = [name.to_owned(), root.join(name)];
    if let Some(path) = candidates.iter().find(|path| holds_run(path)) {
        return Ok(named(path));
    }
    let known: Vec<String> = all(root)
        .unwrap_or_default()
        .into_iter()
        .filter(|run| holds_run(&run.row.path))
        .map(|run| run.row.name)
        .collect();
    let name = name.display().to_string();
    Err(NoRun { nearest: nearest(&name, &known), name, root: root.to_owned() }.into())
}

fn named(path: &Path) -> Run {
    // The canonical path gives `.` a name.
    let full = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = full.file_name().unwrap_or(full.as_os_str()).to_string_lossy().into_owned();
    Run::read(path, name)
}
