//! Warnings about the validity of a comparison.

use std::collections::BTreeMap;

use crate::config::Assignments;
use crate::grid::check_matching;
use crate::outcome::{Machine, RunOutcome, RunState};

/// Warnings for readers of the numbers: runs that do not count, and runs computed under different
/// conditions.
pub fn warnings(
    outcomes: &[RunOutcome],
    must_match: &[String],
    free: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut warnings = Vec::new();
    for run in outcomes {
        let why = run.error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
        if matches!(run.state, RunState::Failed(_)) {
            warnings.push(format!("{} {}{why}", run.name, run.state));
        }
    }
    let mut unfinished: Vec<(String, Vec<&str>)> = Vec::new();
    for run in outcomes {
        if matches!(run.state, RunState::Failed(_) | RunState::Finished) {
            continue;
        }
        let state = run.state.to_string();
        match unfinished.iter_mut().find(|(known, _)| *known == state) {
            Some((_, names)) => names.push(&run.name),
            None => unfinished.push((state, vec![&run.name])),
        }
    }
    warnings.extend(unfinished.iter().map(|(state, names)| match names[..] {
        [name] => format!("{name} is {state}"),
        _ => format!("{} runs are {state}: {}", names.len(), names.join(", ")),
    }));
    // Planning checks `must_match`, but recorded configurations may differ from the planned ones.
    let recorded: Vec<(String, Assignments)> =
        outcomes.iter().map(|run| (run.name.clone(), run.values.clone())).collect();
    let known: Vec<String> = outcomes.iter().flat_map(|run| run.values.keys().cloned()).collect();
    for rule in must_match {
        let one = std::slice::from_ref(rule);
        if let Err(error @ crate::SweepError::Unlike { .. }) =
            check_matching(one, &recorded, &known, &free)
        {
            warnings.push(error.to_string());
        }
    }
    let (started, unknown): (Vec<&RunOutcome>, Vec<_>) =
        outcomes.iter().partition(|run| run.machine != Machine::default());
    let unknown: Vec<&str> = unknown
        .into_iter()
        .filter(|run| run.state == RunState::Finished)
        .map(|run| run.name.as_str())
        .collect();
    if !unknown.is_empty() {
        warnings
            .push(format!("on what these runs were trained is not known: {}", unknown.join(", ")));
    }
    for (column, what) in ["device", "cores", "threads", "version", "commit"].iter().enumerate() {
        let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for run in &started {
            let Machine { backend, cpus, threads, version, commit, .. } = &run.machine;
            let value = [backend, cpus, threads, version, commit][column];
            let value = value.as_deref().unwrap_or("not known");
            values.entry(value).or_default().push(&run.name);
        }
        if values.len() > 1 {
            let each: Vec<String> = values
                .iter()
                .map(|(value, names)| match names[..] {
                    [name] => format!("{value} ({name})"),
                    _ => format!("{value} ({} runs)", names.len()),
                })
                .collect();
            warnings.push(format!("the runs did not have the same {what}: {}", each.join(", ")));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::study;

    #[test]
    fn what_differs_is_said() {
        let mut runs = study(&[("zoh", &[0.7, 0.7]), ("rk4", &[0.6])]);
        let rules = ["train.batch_size".to_owned()];
        let warnings_of = |runs: &[RunOutcome]| warnings(runs, &rules, |_| false);
        assert!(warnings_of(&runs).is_empty());
        for (run, batch) in runs.iter_mut().zip([128, 128, 64]) {
            run.values.insert("train.batch_size".into(), i64::into(batch));
            run.machine.threads = Some(if batch == 64 { "1" } else { "2" }.into());
        }
        runs[1].state = RunState::Interrupted;
        let found = warnings_of(&runs);
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found[0], "zoh-s1 is interrupted");
        assert!(found[1].contains("train.batch_size is 128 in zoh-s0, zoh-s1 and 64 in rk4-s0"));
        assert_eq!(found[2], "the runs did not have the same threads: 1 (rk4-s0), 2 (2 runs)");
        runs[2].state = RunState::Interrupted;
        assert_eq!(warnings_of(&runs)[0], "2 runs are interrupted: zoh-s1, rk4-s0");
        for run in &mut runs {
            run.machine = Machine::default();
        }
        let unknown = "on what these runs were trained is not known: zoh-s0";
        assert_eq!(warnings_of(&runs)[2..], [unknown]);
    }
}
