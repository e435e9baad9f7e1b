//! What a new version of the configuration format changed in what a file means, and how a file of
//! an older version keeps its meaning.

use std::collections::BTreeMap;

use toml::{Table, Value};

/// Version of the configuration format that this program writes, and of files that name none.
pub const VERSION: u64 = 2;

/// The oldest version that this program reads.
pub const OLDEST: u64 = 1;

/// The steps from [`OLDEST`] to [`VERSION`], one from each version to the next: each writes, where
/// a file says nothing, the keys that express what the older version meant.
const STEPS: [fn(&mut Table); (VERSION - OLDEST) as usize] = [held_out_by_the_run];

const VAL_FRACTION: &str = "data.val_fraction";
const VAL_SEED: &str = "data.val_seed";
const VAL_RULE: &str = "data.val_rule";
const RUN_SEED: &str = "run.seed";
/// How version 1 rounded the numbers of held-out images.
const ROUNDED: &str = "rounded";

/// From 1 to 2: held-out images have a seed of their own, and leave each class a training image.
fn held_out_by_the_run(table: &mut Table) {
    let seed = table.get("run").and_then(|run| run.get("seed")).cloned();
    let Some(Value::Table(data)) = table.get_mut("data") else { return };
    if data.get("val_fraction").is_some_and(holds_out) {
        data.entry("val_seed").or_insert_with(|| seed.unwrap_or(Value::Integer(0)));
        data.entry("val_rule").or_insert_with(|| ROUNDED.into());
    }
}

/// Whether this value of `data.val_fraction` holds images out.
fn holds_out(fraction: &Value) -> bool {
    fraction.as_float().or(fraction.as_integer().map(|whole| whole as f64)).unwrap_or(0.0) > 0.0
}

/// The version that a file's table has.
pub(super) fn version_of(table: &Table) -> u64 {
    let written = table.get("version").and_then(Value::as_integer);
    written.and_then(|number| u64::try_from(number).ok()).unwrap_or(VERSION)
}

/// Makes `table`, with all layers and assignments, one of [`VERSION`] that means the same; one of
/// an unknown version stays as it is.
pub(crate) fn upgrade(table: &mut Table) {
    let version = version_of(table);
    if !(OLDEST..VERSION).contains(&version) {
        return;
    }
    for (from, step) in (OLDEST..).zip(STEPS) {
        if from >= version {
            step(table);
        }
    }
    table.insert("version".to_owned(), Value::Integer(VERSION as i64));
}

/// The effective `values` in the oldest version that can express them: what gives the same results
/// has the same values, whichever version wrote it. Ids and comparisons of runs are of these.
///
/// The version is [`OLDEST`] in all: keys that only a newer one has stand beside it.
pub(crate) fn canonical(mut values: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    values.insert("version".to_owned(), Value::Integer(OLDEST as i64));
    let is_rounded = values.get(VAL_RULE).and_then(Value::as_str) == Some(ROUNDED);
    if is_rounded && values.get(VAL_SEED) == values.get(RUN_SEED) {
        values.remove(VAL_RULE);
        values.remove(VAL_SEED);
    }
    values
}

/// The version in whose words [canonical] values mean what they do; [`VERSION`] where it
/// makes no difference.
pub(crate) fn meant_version(values: &BTreeMap<String, Value>) -> u64 {
    let holds_out = values.get(VAL_FRACTION).is_some_and(holds_out);
    if holds_out && !values.contains_key(VAL_SEED) { 1 } else { VERSION }
}

#[cfg(test)]
mod tests {
    use super::super::dotted;
    use super::*;

    fn upgraded(text: &str) -> Table {
        let mut table = text.parse().unwrap();
        upgrade(&mut table);
        table
    }

    fn same(text: &str, expected: &str) {
        assert_eq!(upgraded(text), expected.parse().unwrap(), "{text}");
    }

    #[test]
    fn version_1_held_images_out_by_the_runs_seed() {
        same(
            "version = 1\nrun.seed = 3\ndata.val_fraction = 0.1",
            "version = 2\nrun.seed = 3\ndata = { val_fraction = 0.1, val_seed = 3, val_rule = \"rounded\" }",
        );
        same(
            "version = 1\ndata.val_fraction = 0.1",
            "version = 2\ndata = { val_fraction = 0.1, val_seed = 0, val_rule = \"rounded\" }",
        );
        same(
            "version = 1\nrun.seed = 3\ndata = { val_fraction = 0.1, val_seed = 7 }",
            "version = 2\nrun.seed = 3\ndata = { val_fraction = 0.1, val_seed = 7, val_rule = \"rounded\" }",
        );
    }

    #[test]
    fn nothing_else_changes() {
        for fraction in ["0", "0.0", "nan"] {
            let rest = format!("run.seed = 3\ndata.val_fraction = {fraction}");
            let table = upgraded(&format!("version = 1\n{rest}"));
            assert!(!table["data"].as_table().unwrap().contains_key("val_seed"), "{fraction}");
        }
        same("version = 1\nrun.seed = 3", "version = 2\nrun.seed = 3");
        for text in
            ["", "run.seed = 3\ndata.val_fraction = 0.1", "version = 2\ndata.val_fraction = 0.1"]
        {
            same(text, text);
        }
    }

    #[test]
    fn what_means_the_same_is_the_same() {
        let of = |text: &str| canonical(dotted(text.parse::<Table>().unwrap()));
        let old = of("version = 1\nrun.seed = 3\ndata.val_fraction = 0.1");
        let new = |seed: u64, rule: &str| {
            of(&format!(
                "version = 2\nrun.seed = 3\ndata = {{ val_fraction = 0.1, val_seed = {seed}{rule} }}"
            ))
        };
        let rounded = ", val_rule = \"rounded\"";
        assert_eq!(new(3, rounded), old);
        assert_eq!(meant_version(&old), 1);
        for other in [new(0, rounded), new(3, ""), new(0, "")] {
            assert_ne!(other, old);
            assert_eq!(meant_version(&other), VERSION);
        }
        assert_eq!(of("version = 2\nrun.seed = 3"), of("version = 1\nrun.seed = 3"));
        assert_eq!(meant_version(&of("run.seed = 3")), VERSION);
    }
}
