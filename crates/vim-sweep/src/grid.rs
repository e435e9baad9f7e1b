//! The combinations of a grid, and whether its runs are like for like.

use std::collections::BTreeMap;

use vim_config::nearest;
use vim_run::metrics::ScoreKind;

use crate::config::{Assignments, MAX_CELLS, SEED, SweepConfig};
use crate::error::SweepError;
use crate::metric::Metric;

/// The combinations of `config`, whose runs measure `scores`.
///
/// Keys are in alphabetical order with the seed last; the last key varies fastest.
///
/// # Errors
///
/// If the grid is empty, too large or has a duplicate value, or if `exclude`, `must_match` or the
/// baseline do not match it.
pub fn cells(config: &SweepConfig, scores: &[ScoreKind]) -> Result<Vec<Assignments>, SweepError> {
    check_name(&config.name)?;
    let axes = axes(config)?;
    let count = axes.iter().try_fold(1_usize, |count, (_, values)| count.checked_mul(values.len()));
    let Some(count) = count.filter(|&count| count <= MAX_CELLS) else {
        let lengths: Vec<String> =
            axes.iter().map(|(_, values)| values.len().to_string()).collect();
        return Err(SweepError::TooMany(lengths.join(" × ")));
    };
    let mut cells = vec![Assignments::new()];
    for (key, values) in &axes {
        let extended = cells.iter().flat_map(|cell| {
            values.iter().map(move |value| {
                let mut cell = cell.clone();
                cell.insert((*key).to_owned(), value.clone());
                cell
            })
        });
        cells = extended.collect();
    }
    for exclude in &config.exclude {
        check_combination("sweep.exclude", exclude, &axes)?;
        if !cells.iter().any(|cell| has(cell, exclude)) {
            let why = "another entry leaves it out already";
            return Err(matches_nothing("sweep.exclude", exclude, why));
        }
        cells.retain(|cell| !has(cell, exclude));
    }
    if cells.is_empty() {
        return Err(SweepError::AllExcluded(count));
    }
    let baseline = &config.report.baseline;
    if baseline.contains_key(SEED) {
        let why = "means are over the seeds, so that none is a baseline";
        return Err(matches_nothing("sweep.report.baseline", baseline, why));
    }
    Metric::parse(&config.report.metric, scores)?;
    check_combination("sweep.report.baseline", baseline, &axes)?;
    if !cells.iter().any(|cell| has(cell, baseline)) {
        let why = "sweep.exclude leaves it out";
        return Err(matches_nothing("sweep.report.baseline", baseline, why));
    }
    Ok(cells)
}

fn matches_nothing(
    place: &'static str,
    combination: &Assignments,
    why: impl Into<String>,
) -> SweepError {
    SweepError::MatchesNothing { place, combination: described(combination), why: why.into() }
}

/// Whether `cell` has every value of `combination`.
pub(crate) fn has(cell: &Assignments, combination: &Assignments) -> bool {
    combination.iter().all(|(key, value)| cell.get(key) == Some(value))
}

/// A combination as text: `model.discretization = "zoh", run.seed = 0`.
pub fn described(cell: &Assignments) -> String {
    let parts: Vec<String> = cell.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    parts.join(", ")
}

fn check_name(name: &str) -> Result<(), SweepError> {
    let is_plain = |c: char| c.is_alphanumeric() || "-_.+=,@".contains(c);
    // A letter or digit first: not a hidden folder, `..` or an option.
    let good = name.starts_with(char::is_alphanumeric) && name.chars().all(is_plain);
    if good { Ok(()) } else { Err(SweepError::Name(name.to_owned())) }
}

type Axes<'a> = Vec<(&'a str, Vec<toml::Value>)>;

/// The varying keys with their values, the seed last.
fn axes(config: &SweepConfig) -> Result<Axes<'_>, SweepError> {
    let mut axes: BTreeMap<&str, Vec<toml::Value>> = BTreeMap::new();
    for (key, values) in &config.grid {
        axes.insert(key, values.clone());
    }
    if !config.seeds.is_empty() {
        // The check of the configuration reports seeds beyond the range of TOML integers.
        let seeds = config.seeds.iter().map(|&seed| {
            i64::try_from(seed).map_or_else(|_| toml::Value::String(seed.to_string()), Into::into)
        });
        if axes.insert(SEED, seeds.collect()).is_some() {
            return Err(SweepError::Seeds);
        }
    }
    if axes.is_empty() {
        return Err(SweepError::Empty);
    }
    for (key, values) in &axes {
        if values.is_empty() {
            return Err(SweepError::NoValues((*key).to_owned()));
        }
        for (number, value) in values.iter().enumerate() {
            if values[..number].contains(value) {
                return Err(SweepError::Twice { key: (*key).to_owned(), value: value.to_string() });
            }
        }
        let rule = config.must_match.iter().find(|rule| is_under(key, rule));
        if let Some(rule) = rule {
            return Err(SweepError::MustMatchInGrid { key: (*key).to_owned(), rule: rule.clone() });
        }
    }
    let seeds = axes.remove_entry(SEED);
    Ok(axes.into_iter().chain(seeds).collect())
}

/// Checks that the grid has every key and value of `combination`.
fn check_combination(
    place: &'static str,
    combination: &Assignments,
    axes: &Axes<'_>,
) -> Result<(), SweepError> {
    for (key, value) in combination {
        let Some((_, values)) = axes.iter().find(|(name, _)| name == key) else {
            let keys: Vec<&str> = axes.iter().map(|(name, _)| *name).collect();
            return Err(SweepError::NotInGrid {
                place,
                key: key.clone(),
                nearest: nearest(key, keys.iter().copied()).map(str::to_owned),
                known: keys.join(", "),
            });
        };
        if !values.contains(value) {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            let why = format!("the grid's values of {key} are {}", values.join(", "));
            return Err(matches_nothing(place, combination, why));
        }
    }
    Ok(())
}

/// Whether `key` falls under `rule`, an entry of `must_match`: that key, or a key of that section.
pub(crate) fn is_under(key: &str, rule: &str) -> bool {
    key.strip_prefix(rule).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Checks that every key under `must_match`, except `free` ones, has the same effective value in
/// all `runs` (name and configuration). `known`: all existing keys.
///
/// # Errors
///
/// The first unknown entry, or the first differing key with its values and their runs.
pub fn check_matching(
    must_match: &[String],
    runs: &[(String, Assignments)],
    known: &[String],
    free: impl Fn(&str) -> bool,
) -> Result<(), SweepError> {
    for rule in must_match {
        if !known.iter().any(|key| is_under(key, rule)) {
            let names = known.iter().map(String::as_str);
            let nearest = nearest(rule, names).map(str::to_owned);
            return Err(SweepError::UnknownMustMatch { key: rule.clone(), nearest });
        }
        let keys = runs.iter().flat_map(|(_, values)| values.keys());
        let mut keys: Vec<&String> = keys.filter(|key| is_under(key, rule) && !free(key)).collect();
        keys.sort();
        keys.dedup();
        for key in keys {
            let mut by_value: BTreeMap<String, Vec<&str>> = BTreeMap::new();
            for (name, values) in runs {
                let value = values.get(key).map_or("not set".to_owned(), ToString::to_string);
                by_value.entry(value).or_default().push(name);
            }
            if by_value.len() > 1 {
                let values: Vec<String> = by_value
                    .into_iter()
                    .map(|(value, names)| format!("{value} in {}", some(&names)))
                    .collect();
                return Err(SweepError::Unlike { key: key.clone(), values: values.join(" and ") });
            }
        }
    }
    Ok(())
}

/// The first few `names`.
fn some(names: &[&str]) -> String {
    const SHOWN: usize = 3;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::SCORES;

    fn sweep(text: &str) -> Result<Vec<Assignments>, SweepError> {
        cells(&toml::from_str(text).unwrap(), SCORES)
    }

    #[test]
    fn the_seed_varies_fastest() {
        let cells = sweep(
            "seeds = [0, 1]\ngrid = { \"train.loss\" = [\"bce\"], \"model.depth\" = [2, 1] }",
        )
        .unwrap();
        let depths = cells.iter().map(|cell| cell["model.depth"].as_integer().unwrap());
        assert_eq!(depths.collect::<Vec<_>>(), [2, 2, 1, 1]);
        let seeds = cells.iter().map(|cell| cell[SEED].as_integer().unwrap());
        assert_eq!(seeds.collect::<Vec<_>>(), [0, 1, 0, 1]);
        assert_eq!(described(&cells[0]), "model.depth = 2, run.seed = 0, train.loss = \"bce\"");
    }

    #[test]
    fn exclude_takes_partial_combinations() {
        let cells = sweep(
            "seeds = [0, 1, 2]\ngrid = { \"model.depth\" = [1, 2] }\n\
             exclude = [{ \"model.depth\" = 1, \"run.seed\" = 2 }, { \"run.seed\" = 0 }]",
        )
        .unwrap();
        assert_eq!(cells.len(), 3);
    }

    #[test]
    fn every_mistake_has_its_line_and_key() {
        for (text, expected, key) in [
            ("", "nothing to sweep", "sweep.grid"),
            ("grid = { D = [] }", "model.depth has no values", "sweep.grid.model.depth"),
            (
                "grid = { D = [1, 2, 1] }",
                "model.depth has the value 1 twice",
                "sweep.grid.model.depth",
            ),
            ("seeds = [3, 3]", "run.seed has the value 3 twice", "sweep.seeds"),
            (
                "seeds = [1]\ngrid = { \"run.seed\" = [1] }",
                "sweep.seeds is short for",
                "sweep.seeds",
            ),
            (
                "GRID exclude = [{ \"model.deph\" = 1 }]",
                "did you mean `model.depth`? (its keys: model.depth)",
                "sweep.exclude",
            ),
            (
                "GRID exclude = [{ D = 3 }]",
                "no run has model.depth = 3: the grid's values of model.depth are 1, 2",
                "sweep.exclude",
            ),
            (
                "GRID exclude = [{ D = 1 }, { D = 1 }]",
                "another entry leaves it out already",
                "sweep.exclude",
            ),
            (
                "GRID exclude = [{ D = 1 }, { D = 2 }]",
                "sweep.exclude leaves no run of 2",
                "sweep.exclude",
            ),
            (
                "GRID report = { baseline = { D = 9 } }",
                "sweep.report.baseline: no run has model.depth = 9",
                "sweep.report.baseline",
            ),
            (
                "GRID report = { metric = \"val/topp1\" }",
                "did you mean `val/top1`",
                "sweep.report.metric",
            ),
            (
                "grid = { \"optim.lr\" = [1e-3, 1e-4] }",
                "optim.lr is in sweep.grid and in sweep.must_match (optim.lr)",
                "sweep.grid.optim.lr",
            ),
            (
                "grid = { \"devices.backend\" = [\"cpu\"] }",
                "devices.backend is in sweep.grid and in sweep.must_match (devices)",
                "sweep.grid.devices.backend",
            ),
            ("GRID name = \"../x\"", "`../x` cannot be the name of a folder", "sweep.name"),
        ] {
            let text = text.replace("GRID ", "grid = { D = [1, 2] }\n");
            let error = sweep(&text.replace("D =", "\"model.depth\" =")).unwrap_err();
            assert!(error.to_string().contains(expected), "{text}: {error}");
            assert_eq!(error.key().as_deref(), Some(key), "{text}");
        }
    }

    #[test]
    fn a_slip_is_not_a_million_runs() {
        let list: Vec<String> = (0..101).map(|number| number.to_string()).collect();
        let list = list.join(",");
        let text = format!("grid = {{ \"a.b\" = [{list}], \"a.c\" = [{list}] }}");
        assert!(sweep(&text).unwrap_err().to_string().contains("101 × 101 runs are more than"));
    }

    fn run(name: &str, batch: i64, threads: i64) -> (String, Assignments) {
        let values = [
            ("train.batch_size".to_owned(), batch.into()),
            ("devices.threads".to_owned(), threads.into()),
            ("devices.backend".to_owned(), "cpu".into()),
        ];
        (name.to_owned(), Assignments::from(values))
    }

    fn check(rules: &[&str], runs: &[(String, Assignments)]) -> Result<(), SweepError> {
        let rules: Vec<String> = rules.iter().map(|rule| (*rule).to_owned()).collect();
        let known = ["train.batch_size", "devices.threads", "devices.backend"].map(str::to_owned);
        check_matching(&rules, runs, &known, |key| key == "devices.threads")
    }

    #[test]
    fn a_difference_names_the_values_and_the_runs() {
        let mut runs: Vec<_> = (0..4).map(|seed| run(&format!("zoh-s{seed}"), 128, 1)).collect();
        check(&["train.batch_size"], &runs).unwrap();
        runs.push(run("rk4-s0", 64, 1));
        let error = check(&["train.batch_size"], &runs).unwrap_err().to_string();
        let expected =
            "train.batch_size is 128 in zoh-s0, zoh-s1, zoh-s2 and 1 more and 64 in rk4-s0";
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn sections_leave_out_what_no_result_depends_on() {
        check(&["devices"], &[run("a", 1, 1), run("b", 1, 2)]).unwrap();
    }

    #[test]
    fn entries_are_keys() {
        let error = check(&["train.batchsize"], &[run("a", 1, 1)]).unwrap_err().to_string();
        assert!(error.contains("did you mean `train.batch_size`"), "{error}");
        assert!(check(&["train.batch"], &[run("a", 1, 1)]).is_err());
    }
}
