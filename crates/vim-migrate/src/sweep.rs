//! Several trainings as one configuration with a grid.

use std::collections::BTreeSet;

use crate::NotCarried;
use crate::builder::{ConfigBuilder, Setting};
use crate::error::{MigrateError, MigrateProblem};

/// Keys that name a run: a sweep gives its runs names.
const NAMES: [&str; 2] = ["run.name", "run.root"];
/// The keys that a study varies; where others differ too, they take the first training's values.
const STUDIED: [&str; 3] = ["model.preset", "model.discretization", "run.seed"];
const SEED: &str = "run.seed";

/// A key of the grid, and its values as TOML.
pub(crate) type Axis = (&'static str, Vec<String>);

/// The configuration that all of `builders` share, and the grid of what they differ in; no grid if
/// they are one training. Values that the grid cannot vary are listed as not carried over.
pub(crate) fn combine(
    builders: Vec<ConfigBuilder>,
) -> Result<(ConfigBuilder, Vec<Axis>), MigrateError> {
    let mut keys: Vec<&'static str> = Vec::new();
    for entry in builders.iter().flat_map(|builder| &builder.entries) {
        if !keys.contains(&entry.key) && !NAMES.contains(&entry.key) {
            keys.push(entry.key);
        }
    }
    let varied = |key: &&'static str| {
        let values: BTreeSet<_> = builders.iter().map(|builder| value(builder, key)).collect();
        values.len() > 1
    };
    let varied: Vec<&'static str> = keys.into_iter().filter(varied).collect();
    let studied = |most: usize| -> Vec<&'static str> {
        varied.iter().copied().filter(|key| STUDIED[most..].contains(key)).collect()
    };
    let choices = [varied.clone(), studied(0), studied(1)];
    let grid = choices.into_iter().find_map(|keys| grid(&builders, &keys));
    let Some(axes) = grid.filter(|axes| varied.is_empty() || !axes.is_empty()) else {
        let mut lines: Vec<usize> = builders.iter().map(|builder| builder.launch.line).collect();
        lines.dedup();
        let problem = MigrateProblem::Several { lines, keys: varied };
        return Err(MigrateError { line: None, problem });
    };
    let mut builders = builders.into_iter();
    let mut base = builders.next().expect("invariant: there is a training");
    for other in builders {
        let equal: Vec<&'static str> =
            varied.iter().copied().filter(|key| axes.iter().all(|(axis, _)| axis != key)).collect();
        merge(&mut base, &other, &equal);
    }
    Ok((base, axes))
}

fn value<'a>(builder: &'a ConfigBuilder, key: &str) -> Option<&'a str> {
    let entry = builder.entries.iter().find(|entry| entry.key == key);
    entry.map(|entry| entry.value.as_str())
}

/// The values of `keys`, if the trainings are all of their combinations.
fn grid(builders: &[ConfigBuilder], keys: &[&'static str]) -> Option<Vec<Axis>> {
    let mut axes: Vec<Axis> = keys.iter().map(|&key| (key, Vec::new())).collect();
    let mut combinations = BTreeSet::new();
    for builder in builders {
        let mut combination = Vec::new();
        for (key, values) in &mut axes {
            let value = value(builder, key)?;
            if !values.iter().any(|known| known == value) {
                values.push(value.to_owned());
            }
            combination.push(value);
        }
        combinations.insert(combination);
    }
    let all = axes.iter().try_fold(1_usize, |all, (_, values)| all.checked_mul(values.len()))?;
    (combinations.len() == all).then_some(axes)
}

/// Adds to `base` what `other` does not carry over, and the values that only `other` has.
fn merge(base: &mut ConfigBuilder, other: &ConfigBuilder, keys: &[&'static str]) {
    let launch = &other.launch;
    let of = launch.script.as_ref().map_or_else(String::new, |script| format!("{script}: "));
    for note in &launch.notes {
        if !base.launch.notes.contains(note) {
            base.launch.notes.push(note.clone());
        }
    }
    let mut lost = Vec::new();
    for NotCarried { what, why, .. } in &launch.not_carried {
        // One line is enough for an option whose value is another in each training.
        let name = |what: &str| what.split([' ', '=']).next().map(str::to_owned);
        let is_known = |known: &NotCarried| name(&known.what) == name(what) && known.why == *why;
        if !base.launch.not_carried.iter().any(is_known) {
            lost.push((format!("{of}{what}"), why.clone()));
        }
    }
    for key in keys {
        let shown = |value: Option<&str>| value.unwrap_or("its default").to_owned();
        let (first, here) = (shown(value(base, key)), shown(value(other, key)));
        if first != here {
            let why = format!("the first training's {first} is for all: one recipe is compared");
            lost.push((format!("{of}{key} = {here}"), why));
        }
    }
    for (what, why) in lost {
        if !base.launch.not_carried.iter().any(|known| known.what == what) {
            base.launch.drop(what, launch.line, why);
        }
    }
}

/// Makes `base` the configuration of a sweep over `axes`, called `name`; returns its section.
pub(crate) fn section(base: &mut ConfigBuilder, name: &str, axes: &[Axis]) -> String {
    let is_axis = |key: &str| axes.iter().any(|(axis, _)| *axis == key);
    base.entries.retain(|entry| !is_axis(entry.key) && entry.key != NAMES[0]);
    let others = axes.iter().filter(|(key, _)| *key != SEED);
    let mut parts: Vec<String> = others.clone().map(|(key, _)| format!("{{{key}}}")).collect();
    parts.extend(is_axis(SEED).then(|| format!("s{{{SEED}}}")));
    let (key, value) = (NAMES[0], toml_edit::Value::from(parts.join("-")).to_string());
    let comment = "by what the runs differ in".to_owned();
    base.entries.insert(0, Setting { key, value, comment, is_open: false });
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    let name: String = name.chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
    let mut section = format!("\n[sweep]\nname = {}\n", toml_edit::Value::from(name));
    let axis = |(key, values): &Axis| format!("\"{key}\" = [{}]", values.join(", "));
    let grid: Vec<String> = others.map(axis).collect();
    if !grid.is_empty() {
        section.push_str(&format!("grid = {{ {} }}\n", grid.join(", ")));
    }
    for (_, seeds) in axes.iter().filter(|(key, _)| *key == SEED) {
        section.push_str(&format!("seeds = [{}]\n", seeds.join(", ")));
    }
    section
}

#[cfg(test)]
mod tests;
