//! The plan of a sweep: the persistent list of its runs.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::config::Assignments;
use crate::error::SweepError;
use crate::grid::described;

/// Name of the file in a sweep's folder that lists its runs.
pub const PLAN: &str = "plan.jsonl";

/// A run requested by a configuration, without an index.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its values of the grid's keys.
    pub assignments: Assignments,
    /// Its folder in that of the sweep.
    pub name: String,
    /// Its effective configuration.
    pub values: Assignments,
}

/// A line of `plan.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedRun {
    /// The index of its task in a job array.
    pub index: usize,
    /// [`run_id`] of its configuration.
    pub id: String,
    /// Its folder in that of the sweep.
    pub name: String,
    /// Its values of the grid's keys.
    pub assignments: Assignments,
    /// Its configuration, relative to the sweep's folder.
    pub config: String,
}

/// `plan.jsonl`: all runs of a sweep in the order of their indices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SweepPlan {
    /// The runs; an entry's index is its position.
    pub entries: Vec<PlannedRun>,
}

impl SweepPlan {
    /// The plan of `runs`.
    ///
    /// # Errors
    ///
    /// If two of them are the same run or would have the same folder.
    pub fn new(runs: &[Candidate], free: impl Fn(&str) -> bool) -> Result<Self, SweepError> {
        let mut entries: Vec<PlannedRun> = Vec::new();
        for run in runs {
            let id = run_id(&run.values, &free);
            let both = |other: &PlannedRun| {
                let first = format!("{{ {} }}", described(&other.assignments));
                (first, format!("{{ {} }}", described(&run.assignments)))
            };
            if let Some(other) = entries.iter().find(|other| other.id == id) {
                let (first, second) = both(other);
                let differing = run
                    .assignments
                    .iter()
                    .filter(|(key, value)| other.assignments.get(*key) != Some(value));
                let keys: Vec<&str> = differing.map(|(key, _)| key.as_str()).collect();
                return Err(SweepError::SameRun { first, second, differences: keys.join(", ") });
            }
            if let Some(other) = entries.iter().find(|other| other.name == run.name) {
                let (first, second) = both(other);
                let keys: Vec<String> =
                    run.assignments.keys().map(|key| format!("{{{key}}}")).collect();
                let (name, suggestion) = (run.name.clone(), keys.join("-"));
                return Err(SweepError::SameFolder { first, second, name, suggestion });
            }
            entries.push(PlannedRun {
                index: entries.len(),
                config: format!("configs/{id}.toml"),
                id,
                name: run.name.clone(),
                assignments: run.assignments.clone(),
            });
        }
        Ok(Self { entries })
    }

    /// Parses the text of `plan.jsonl`; `path` is for errors.
    ///
    /// # Errors
    ///
    /// [`SweepError::Damaged`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, SweepError> {
        let damaged = |problem| SweepError::Damaged { path: path.to_owned(), problem };
        let mut entries: Vec<PlannedRun> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let entry: PlannedRun = serde_json::from_str(line)
                .map_err(|error| damaged(format!("line {}: {error}", number + 1)))?;
            if entry.index != entries.len() {
                let (line, index) = (number + 1, entry.index);
                return Err(damaged(format!("line {line} has index {index}, not {number}")));
            }
            entries.push(entry);
        }
        if entries.is_empty() {
            return Err(damaged("it is empty".into()));
        }
        Ok(Self { entries })
    }

    /// The text of `plan.jsonl`.
    pub fn to_jsonl(&self) -> String {
        let line = |entry| {
            serde_json::to_string(entry).expect("invariant: an entry has a JSON form") + "\n"
        };
        self.entries.iter().map(line).collect()
    }

    /// This plan, with the new ones of `runs` appended.
    ///
    /// `folder` is the sweep's; `recorded` returns the recorded configuration of a planned run.
    ///
    /// # Errors
    ///
    /// [`SweepError::Changed`] if a planned run is not in `runs` or has another configuration
    /// there.
    pub fn extended(
        &self,
        folder: &Path,
        runs: &[Candidate],
        free: impl Fn(&str) -> bool,
        recorded: impl Fn(&PlannedRun) -> Option<Assignments>,
    ) -> Result<Self, SweepError> {
        let asked = Self::new(runs, &free)?;
        let mut differences = Vec::new();
        for old in &self.entries {
            let same = asked.entries.iter().find(|new| new.id == old.id);
            if let Some(new) = same {
                if new.name != old.name {
                    differences.push(format!("{} is now called {}", old.name, new.name));
                }
                continue;
            }
            let now = runs.iter().find(|run| run.assignments == old.assignments);
            differences.push(match (now, recorded(old)) {
                (None, _) => format!("{} is no longer asked for", old.name),
                (Some(_), None) => format!("{} was planned with another configuration", old.name),
                (Some(now), Some(then)) => changes(&then, &now.values, &free),
            });
        }
        // Usually the same keys changed in all runs.
        let mut seen = BTreeSet::new();
        differences.retain(|difference| seen.insert(difference.clone()));
        if !differences.is_empty() {
            return Err(SweepError::Changed { folder: folder.to_owned(), differences });
        }
        let known: BTreeSet<&str> = self.entries.iter().map(|entry| entry.id.as_str()).collect();
        let mut plan = self.clone();
        for new in asked.entries.iter().filter(|new| !known.contains(new.id.as_str())) {
            plan.entries.push(PlannedRun { index: plan.entries.len(), ..new.clone() });
        }
        Ok(plan)
    }
}

/// Digits of an id: 40 bits; among 10,000 runs, two ids collide with a probability of 1 in 20,000.
const DIGITS: usize = 10;

/// The id of a run: hexadecimal digits of the BLAKE3 hash of its effective configuration `values`,
/// without the `free` keys, on which no result depends.
pub fn run_id(values: &Assignments, free: impl Fn(&str) -> bool) -> String {
    let mut hasher = blake3::Hasher::new();
    for (key, value) in values.iter().filter(|(key, _)| !free(key)) {
        // A zero byte separates keys unambiguously: no TOML text contains one.
        hasher.update(format!("{key} = {value}\0").as_bytes());
    }
    hasher.finalize().to_hex()[..DIGITS].to_owned()
}

fn changes(then: &Assignments, now: &Assignments, free: impl Fn(&str) -> bool) -> String {
    let keys: BTreeSet<&String> = then.keys().chain(now.keys()).collect();
    let show = |value: Option<&toml::Value>| {
        value.map_or_else(|| "not set".to_owned(), toml::Value::to_string)
    };
    let changed = keys.into_iter().filter(|key| !free(key) && then.get(*key) != now.get(*key));
    let changes: Vec<String> = changed
        .map(|key| format!("{key} (planned {}, now {})", show(then.get(key)), show(now.get(key))))
        .collect();
    if changes.is_empty() {
        return "this version makes other ids of the same configuration".to_owned();
    }
    changes.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(key: &str) -> bool {
        key.starts_with("run.") && key != "run.seed" || key == "data.workers"
    }

    fn run(method: &str, seed: i64, epochs: i64) -> Candidate {
        let assignments = Assignments::from([
            ("model.discretization".to_owned(), method.into()),
            ("run.seed".to_owned(), seed.into()),
        ]);
        let mut values = assignments.clone();
        values.insert("train.epochs".into(), epochs.into());
        Candidate { name: format!("{method}-s{seed}"), assignments, values }
    }

    fn extended(old: &[Candidate], new: &[Candidate]) -> Result<SweepPlan, SweepError> {
        let plan = SweepPlan::new(old, free).unwrap();
        let recorded = |entry: &PlannedRun| {
            let run = old.iter().find(|run| run.name == entry.name);
            run.map(|run| run.values.clone())
        };
        plan.extended(Path::new("s"), new, free, recorded)
    }

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let plan = SweepPlan::new(&[run("zoh", 0, 3), run("rk4", 1, 3)], free).unwrap();
        let text = plan.to_jsonl();
        assert_eq!(SweepPlan::parse(Path::new("p"), &text).unwrap(), plan);
        for broken in ["", "{", &text[..30], text.lines().nth(1).unwrap()] {
            let error = SweepPlan::parse(Path::new("p"), broken).unwrap_err().to_string();
            assert!(error.starts_with("p cannot be understood: "), "{error}");
        }
    }

    #[test]
    fn the_same_run_and_the_same_folder_are_refused() {
        let mut other = run("zoh", 0, 3);
        other.name = "other".into();
        other.assignments.insert("data.workers".into(), 3.into());
        other.values.insert("data.workers".into(), 3.into());
        let error = SweepPlan::new(&[run("zoh", 0, 3), other], free).unwrap_err().to_string();
        assert!(error.contains("are the same run") && error.contains("(data.workers)"), "{error}");
        let mut other = run("foh", 0, 3);
        other.name = "zoh-s0".into();
        let error = SweepPlan::new(&[run("zoh", 0, 3), other], free).unwrap_err().to_string();
        assert!(error.contains("run.name = \"{model.discretization}-{run.seed}\""), "{error}");
    }

    #[test]
    fn planning_again_adds_what_is_new_at_the_end() {
        let old = [run("zoh", 0, 3), run("rk4", 0, 3)];
        assert_eq!(extended(&old, &old).unwrap().entries.len(), 2);
        let new = [run("zoh", 0, 3), run("zoh", 1, 3), run("rk4", 0, 3)];
        let plan = extended(&old, &new).unwrap();
        let names: Vec<&str> = plan.entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["zoh-s0", "rk4-s0", "zoh-s1"]);
        assert_eq!(plan.entries[2].index, 2);
    }

    #[test]
    fn a_plan_that_changed_is_refused_with_what_differs() {
        let old = [run("zoh", 0, 3), run("rk4", 0, 3)];
        let error = extended(&old, &[run("zoh", 0, 4), run("rk4", 0, 4)]).unwrap_err().to_string();
        let expected = "s was planned otherwise: train.epochs (planned 3, now 4); restore";
        assert!(error.starts_with(expected), "{error}");
        let error = extended(&old, &old[..1]).unwrap_err().to_string();
        assert!(error.contains("rk4-s0 is no longer asked for"), "{error}");
        let mut renamed = old.clone();
        renamed[0].name = "x".into();
        let error = extended(&old, &renamed).unwrap_err().to_string();
        assert!(error.contains("zoh-s0 is now called x"), "{error}");
    }

    #[test]
    fn free_keys_do_not_count() {
        let values = |root: &str, seed: i64| {
            Assignments::from([
                ("run.root".to_owned(), root.into()),
                ("run.seed".to_owned(), seed.into()),
            ])
        };
        let id = |root, seed| run_id(&values(root, seed), |key| key == "run.root");
        assert_eq!(id("a", 1).len(), 10);
        assert_eq!(id("a", 1), id("b", 1));
        assert_ne!(id("a", 1), id("a", 2));
        // Ids name files in existing sweeps: they must not change between versions.
        assert_eq!(id("a", 1), "02c959e948");
    }
}
