//! Where weights are: what a user calls a file, a run or a checkpoint by, found on the disk.

use std::fs;
use std::path::{Path, PathBuf, absolute};

use vim_run::checkpoint::{Selection, is_checkpoint};
use vim_run::{CLASSES, CONFIG, ENVIRONMENT, MAX_DEPTH, METRICS, PATHS, TIMING, checkpoints_in};
use vim_torch::ReadError;

use super::WeightsError;
use crate::config::nearest;
use crate::error::Error;
use crate::run_folder::{holds_run, only_submitted};

/// Weights or a run, as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file of weights.
    File(PathBuf),
    /// The folder of a checkpoint.
    Checkpoint(PathBuf),
    /// The folder of a run, and which of its checkpoints.
    Run(PathBuf, Selection),
}

impl Place {
    /// Finds `name`, which may be any of these:
    ///
    /// - `best` or `last`, a checkpoint of the run `at_hand`;
    /// - a file of weights, the folder of a checkpoint, or the folder of a run, which stands for
    ///   its best checkpoint;
    /// - `RUN/checkpoints/best` and `RUN/checkpoints/last`;
    /// - all of these by the name of a run in `root`.
    ///
    /// # Errors
    ///
    /// [`WeightsError::NotFound`], [`WeightsError::NotBegun`] and [`WeightsError::NoRun`];
    /// [`WeightsError::Unreadable`] for a missing file with the extension of weights.
    pub fn find(name: &Path, root: &Path, at_hand: Option<&Path>) -> Result<Self, Error> {
        let selection = selection(name);
        if let (Some(selection), Some(run)) = (selection, at_hand) {
            return Ok(Self::Run(run.to_owned(), selection));
        }
        let places = [name.to_owned(), root.join(name)];
        if let Some(found) = places.iter().find_map(|at| Self::at(at)) {
            return Ok(found);
        }
        if let Some(folder) = places.iter().find(|at| only_submitted(at)) {
            return Err(WeightsError::NotBegun(folder.display().to_string()).into());
        }
        let shown = name.display().to_string();
        if selection.is_some() {
            return Err(WeightsError::NoRun { which: shown }.into());
        }
        let extension = name.extension().and_then(|extension| extension.to_str());
        let is_file = |extension| ["pth", "pt", "ckpt", "safetensors"].contains(&extension);
        if extension.is_some_and(is_file)
            && let Err(error) = fs::metadata(name)
        {
            let source = ReadError::Io(error);
            return Err(WeightsError::Unreadable { path: shown, source }.into());
        }
        let mut known = Vec::new();
        collect_runs(root, root, MAX_DEPTH, &mut known);
        let nearest = nearest(&shown, &known);
        Err(WeightsError::NotFound { name: shown, root: root.to_owned(), nearest }.into())
    }

    /// The weights or the run at `path`, if there are any.
    fn at(path: &Path) -> Option<Self> {
        // `best` is a file that names a checkpoint; `last` is no file at all.
        if let Some(selection) = path.file_name().and_then(|name| selection(Path::new(name)))
            && let Some(run) = parent(path).and_then(|folder| run_with(&folder))
        {
            return Some(Self::Run(run, selection));
        }
        match path {
            _ if !path.exists() => None,
            // Pipes are files as well.
            _ if !path.is_dir() => Some(Self::File(path.to_owned())),
            _ if holds_run(path) => Some(Self::Run(path.to_owned(), Selection::Best)),
            _ if is_checkpoint(path) => Some(Self::Checkpoint(path.to_owned())),
            _ => run_with(path).map(|run| Self::Run(run, Selection::Best)),
        }
    }

    /// The files and folders that are read there, none of which an output may replace.
    pub fn inputs(&self) -> Vec<PathBuf> {
        let own = match self {
            Self::File(path) | Self::Checkpoint(path) => Some(path.clone()),
            Self::Run(..) => None,
        };
        let of_run = |run: PathBuf| {
            let names = [CONFIG, PATHS, CLASSES, ENVIRONMENT, METRICS, TIMING];
            names.map(|name| run.join(name)).into_iter().chain([checkpoints_in(&run)])
        };
        own.into_iter().chain(self.run().into_iter().flat_map(of_run)).collect()
    }

    /// The folder of the run, if it is one or lies in one.
    pub fn run(&self) -> Option<PathBuf> {
        match self {
            Self::File(_) => None,
            Self::Checkpoint(path) => run_with(&parent(path)?),
            Self::Run(run, _) => Some(run.clone()),
        }
    }
}

/// The checkpoint of a run that `name` stands for, alone.
pub fn selection(name: &Path) -> Option<Selection> {
    match name.to_str() {
        Some("best") => Some(Selection::Best),
        Some("last") => Some(Selection::Last),
        Some(_) | None => None,
    }
}

/// The run whose checkpoints are in `folder`.
fn run_with(folder: &Path) -> Option<PathBuf> {
    let run = parent(folder)?;
    let inside = checkpoints_in(&run);
    (inside.is_dir() && absolute(inside).ok()? == absolute(folder).ok()?).then_some(run)
}

/// The folder that holds `path`, also where the path does not name it.
fn parent(path: &Path) -> Option<PathBuf> {
    let named = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let whole = || absolute(path).ok()?.parent().map(Path::to_owned);
    named.map(Path::to_owned).or_else(whole)
}

/// Adds the names of the runs below `folder`, relative to `root`.
fn collect_runs(root: &Path, folder: &Path, depth: usize, names: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if holds_run(&path) {
            let name = path.strip_prefix(root).unwrap_or(&path);
            names.push(name.display().to_string());
        } else if depth > 1 && path.is_dir() {
            collect_runs(root, &path, depth - 1, names);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_a_run_and_its_checkpoints_is_understood() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let run = root.join("sub/a");
        let step = run.join("checkpoints/step-00000008");
        fs::create_dir_all(&step).unwrap();
        fs::write(run.join("config.toml"), "").unwrap();
        fs::write(root.join("x.pth"), "").unwrap();
        let find = |name: &Path| Place::find(name, root, None).unwrap();
        let (best, last) =
            (Place::Run(run.clone(), Selection::Best), Place::Run(run.clone(), Selection::Last));
        for (name, expected) in [
            ("sub/a", &best),
            ("sub/a/checkpoints", &best),
            ("sub/a/checkpoints/best", &best),
            ("sub/a/checkpoints/last", &last),
            ("sub/a/checkpoints/step-00000008", &Place::Checkpoint(step.clone())),
            ("x.pth", &Place::File(root.join("x.pth"))),
        ] {
            assert_eq!(find(Path::new(name)), *expected, "{name} in the root");
            assert_eq!(find(&root.join(name)), *expected, "{name} by its path");
        }
        assert_eq!(find(&step).run(), Some(run.clone()));
        assert_eq!(find(Path::new("x.pth")).run(), None);
        assert_eq!(Place::find(Path::new("last"), root, Some(&run)).unwrap(), last);
    }

    #[test]
    fn a_name_of_nothing_is_one_line() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("fruit/checkpoints")).unwrap();
        fs::create_dir_all(root.path().join("other")).unwrap();
        let said = |name: &str| {
            let error = Place::find(Path::new(name), root.path(), None).unwrap_err();
            (error.exit_code(), error.to_string())
        };
        let shown = root.path().display();
        let (code, text) = said("friut");
        assert_eq!((code, text.lines().count()), (65, 1));
        assert!(text.contains(&format!("no run in {shown} (is it `fruit`?)")), "{text}");
        assert!(said("other").1.starts_with("other is no file"), "a folder of something else");
        assert!(said("best").1.contains("RUN/checkpoints/best"));
        assert_eq!(said("absent.pth").0, 74);
    }
}
