//! Tasks of an array that train several runs side by side on a node: `sweep.pack = "node"`.
//!
//! Which runs a task trains is in a file beside the batch script, of the same name: a list of lists
//! of indices.

use std::path::{Path, PathBuf};

use vim_data::{InputKind, read_input};
use vim_slurm::{JobArray, JobRequest, Site, split};
use vim_sweep::Pack;

use super::SweepRunError;
use super::folder::Sweep;
use crate::Error;
use crate::config::Config;
use crate::work::slurm::request::{node_request, site_and_request};

/// Prefixes of the names of batch scripts; the array's offset and the submission's number follow.
const SINGLE: &str = "tasks-from-";
const PACKED: &str = "packs-from-";

/// The runs that the tasks of a submitted array train.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tasks {
    /// What a task's number lacks.
    offset: u32,
    /// The runs of each; none where a task trains the run of its number.
    packs: Option<Vec<Vec<u32>>>,
}

impl Tasks {
    /// Of an array that was submitted with `script`.
    pub fn of(script: &Path) -> Self {
        let name = script.file_name().unwrap_or_default().to_string_lossy();
        let offset = |prefix: &str| -> Option<u32> {
            name.strip_prefix(prefix)?.split_once('-')?.0.parse().ok()
        };
        let single = offset(SINGLE).unwrap_or(0);
        match offset(PACKED) {
            // Without the file nothing is known of the runs, as of a job that SLURM has forgotten.
            Some(offset) => Self { offset, packs: Some(read(script).unwrap_or_default()) },
            None => Self { offset: single, packs: None },
        }
    }

    /// Whether a task may train several runs.
    pub fn are_packed(&self) -> bool {
        self.packs.is_some()
    }

    /// The runs of task number `task`.
    pub(crate) fn runs(&self, task: u32) -> Vec<u32> {
        let index = task.saturating_add(self.offset);
        match &self.packs {
            None => vec![index],
            Some(packs) => packs.get(index as usize).cloned().unwrap_or_default(),
        }
    }

    /// The runs of task number `task` in words, where there are several: `runs 4-7`.
    pub fn several(&self, task: u32) -> Option<String> {
        let indices = self.runs(task);
        let runs = JobArray { indices, offset: 0, throttle: None };
        (runs.indices.len() > 1).then(|| format!("runs {runs}"))
    }
}

/// The lists in the file beside `script`.
pub(super) fn read(script: &Path) -> Result<Vec<Vec<u32>>, Error> {
    let path = lists_of(script);
    let text = read_input(&path, InputKind::Record).map_err(Error::input(&path))?;
    serde_json::from_slice(&text)
        .map_err(|error| Error::data(format!("{} lists no runs: {error}", path.display())))
}

fn lists_of(script: &Path) -> PathBuf {
    script.with_extension("json")
}

/// An array to submit.
pub struct Array {
    /// Its tasks.
    pub array: JobArray,
    /// The name of its batch script.
    pub script: String,
    /// The runs of all packs, where there are any.
    packs: Option<Vec<Vec<u32>>>,
}

impl Array {
    /// Arrays for the runs `indices`, `each` to a task, of at most `largest` tasks; `known` arrays
    /// were submitted before. At most `most` runs are at work at a time.
    pub fn all(
        indices: &[u32],
        each: Option<usize>,
        largest: u32,
        most: Option<usize>,
        known: usize,
    ) -> Vec<Self> {
        let packs = each.map(|each| indices.chunks(each).map(<[u32]>::to_vec).collect::<Vec<_>>());
        let numbers: Vec<u32> = match &packs {
            None => indices.to_vec(),
            Some(packs) => (0..u32::try_from(packs.len()).unwrap_or(u32::MAX)).collect(),
        };
        let throttle = most.map(|most| (most / each.unwrap_or(1)).max(1));
        let throttle = throttle.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
        let arrays = split(&numbers, largest, throttle).into_iter().zip(known + 1..);
        let prefix = if packs.is_some() { PACKED } else { SINGLE };
        let named = |(array, number): (JobArray, usize)| {
            let script = format!("{prefix}{}-{number}.sh", array.offset);
            Self { array, script, packs: packs.clone() }
        };
        arrays.map(named).collect()
    }

    /// Lines that say which runs the tasks train, where they train several.
    pub fn described(&self) -> Vec<String> {
        let tasks = Tasks { offset: self.array.offset, packs: self.packs.clone() };
        let line = |task: &u32| Some(format!("task {task}: {}", tasks.several(*task)?));
        self.array.indices.iter().filter_map(line).collect()
    }

    /// Writes the file beside `script` that the tasks read, if they need one, and returns its path.
    pub fn write_lists(&self, script: &Path) -> Result<(), Error> {
        let Some(packs) = &self.packs else { return Ok(()) };
        let path = lists_of(script);
        let text = serde_json::to_vec(packs)
            .map_err(|error| Error::internal(format!("{}: {error}", path.display())))?;
        vim_run::write_file(&path, &text).map_err(Into::into)
    }

    /// The arguments of `sweep task` before the task's number.
    pub fn arguments(&self, script: &Path) -> Vec<String> {
        let lists = |_| ["--pack".to_owned(), lists_of(script).display().to_string()];
        self.packs.iter().flat_map(lists).chain(["--index".to_owned()]).collect()
    }
}

/// The site, the request of a task, and how many runs it trains, if that is not one.
pub fn request(
    sweep: &Sweep,
    config: &Config,
) -> Result<(Option<Site>, JobRequest, Option<usize>), Error> {
    let section = &sweep.origins.sweep;
    match section.pack {
        Pack::Run if section.per_node.is_some() => Err(SweepRunError::Unpacked.into()),
        Pack::Run => {
            let (site, request) = site_and_request(config)?;
            Ok((site, request, None))
        }
        Pack::Node => {
            let (site, request, gpus) = node_request(config)?;
            let each = section.per_node.map(std::num::NonZero::get);
            let each = each.or((gpus > 0).then_some(gpus as usize));
            Ok((site, request, Some(each.ok_or(SweepRunError::PackSize)?)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_remembers_its_runs() {
        let folder = tempfile::tempdir().unwrap();
        let arrays = Array::all(&[0, 2, 3, 5, 7], Some(2), 2, Some(4), 3);
        let shown: Vec<String> =
            arrays.iter().map(|one| format!("{} {}", one.script, one.array)).collect();
        assert_eq!(shown, ["packs-from-0-4.sh 0-1%2", "packs-from-2-5.sh 0%2"]);
        assert_eq!(arrays[0].described(), ["task 0: runs 0,2", "task 1: runs 3,5"]);
        assert_eq!(arrays[1].described(), [""; 0], "one run");
        let script = folder.path().join(&arrays[1].script);
        arrays[1].write_lists(&script).unwrap();
        let tasks = Tasks::of(&script);
        assert!(tasks.are_packed());
        assert_eq!((tasks.runs(0), tasks.runs(1)), (vec![7], vec![]));
        let lists = folder.path().join("packs-from-2-5.json").display().to_string();
        assert_eq!(arrays[1].arguments(&script), ["--pack", &lists, "--index"]);
    }

    #[test]
    fn a_task_without_a_pack_is_its_run() {
        let arrays = Array::all(&[1, 2005], None, 1001, Some(4), 2);
        assert_eq!(arrays[1].script, "tasks-from-2002-4.sh");
        assert_eq!(arrays[1].array.to_string(), "3%4");
        let script = Path::new("/x/slurm").join(&arrays[1].script);
        arrays[1].write_lists(&script).unwrap();
        assert_eq!(Tasks::of(&script).runs(3), [2005]);
        assert_eq!(arrays[1].arguments(&script), ["--index"]);
        assert_eq!(Tasks::of(Path::new("job.sh")), Tasks { offset: 0, packs: None });
    }
}
