//! The combinations of a grid.

use std::collections::BTreeMap;

use vim_config::nearest;

use crate::config::{Assignments, MAX_CELLS, SEED, SweepConfig};
use crate::error::SweepError;
use crate::matching::is_under;
use crate::metric::Metric;

/// The combinations of `config`. Keys are in alphabetical order with the seed last; the last key
/// varies fastest.
///
/// # Errors
///
/// If the grid is empty, too large or has a duplicate value, or if `exclude`, `must_match` or the
/// baseline do not match it.
pub fn cells(config: &SweepConfig) -> Result<Vec<Assignments>, SweepError> {
    check_name(&config.name)?;
    let axes = axes(config)?;
    let count = axes.iter().try_fold(1_usize, |count, (_, values)| count.checked_mul(values.len()));
    let Some(count) = count.filter(|&count| count <= MAX_CELLS) else {
        let lengths: Vec<String> =
            axes.iter().map(|(_, values)| values.len().to_string()).collect();
        return Err(SweepError::TooMany { runs: lengths.join(" × ") });
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
            return Err(SweepError::MatchesNothing {
                place: "sweep.exclude",
                combination: described(exclude),
                why: "another entry leaves it out already".into(),
            });
        }
        cells.retain(|cell| !has(cell, exclude));
    }
    if cells.is_empty() {
        return Err(SweepError::AllExcluded { cells: count });
    }
    let baseline = &config.report.baseline;
    if baseline.contains_key(SEED) {
        return Err(SweepError::MatchesNothing {
            place: "sweep.report.baseline",
            combination: described(baseline),
            why: "means are over the seeds, so that none is a baseline".into(),
        });
    }
    Metric::parse(&config.report.metric)?;
    check_combination("sweep.report.baseline", baseline, &axes)?;
    if !cells.iter().any(|cell| has(cell, baseline)) {
        return Err(SweepError::MatchesNothing {
            place: "sweep.report.baseline",
            combination: described(baseline),
            why: "sweep.exclude leaves it out".into(),
        });
    }
    Ok(cells)
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
    if good { Ok(()) } else { Err(SweepError::Name { name: name.to_owned() }) }
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
            return Err(SweepError::NoValues { key: (*key).to_owned() });
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
            return Err(SweepError::MatchesNothing {
                place,
                combination: described(combination),
                why: format!("the grid's values of {key} are {}", values.join(", ")),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(text: &str) -> Result<Vec<Assignments>, SweepError> {
        cells(&toml::from_str(text).unwrap())
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
    fn every_mistake_has_its_line() {
        let depth = "grid = { \"model.depth\" = [1, 2] }\n";
        for (text, expected) in [
            (String::new(), "nothing to sweep"),
            ("grid = { \"model.depth\" = [] }".into(), "model.depth has no values"),
            ("grid = { \"model.depth\" = [1, 2, 1] }".into(), "model.depth has the value 1 twice"),
            ("seeds = [3, 3]".into(), "run.seed has the value 3 twice"),
            ("seeds = [1]\ngrid = { \"run.seed\" = [1] }".into(), "sweep.seeds is short for"),
            (
                format!("{depth}exclude = [{{ \"model.deph\" = 1 }}]"),
                "did you mean `model.depth`? (its keys: model.depth)",
            ),
            (
                format!("{depth}exclude = [{{ \"model.depth\" = 3 }}]"),
                "no run has model.depth = 3: the grid's values of model.depth are 1, 2",
            ),
            (
                format!("{depth}exclude = [{{ \"model.depth\" = 1 }}, {{ \"model.depth\" = 1 }}]"),
                "another entry leaves it out already",
            ),
            (
                format!("{depth}exclude = [{{ \"model.depth\" = 1 }}, {{ \"model.depth\" = 2 }}]"),
                "sweep.exclude leaves no run of 2",
            ),
            (
                format!("{depth}report = {{ baseline = {{ \"model.depth\" = 9 }} }}"),
                "sweep.report.baseline: no run has model.depth = 9",
            ),
            (
                "grid = { \"optim.lr\" = [1e-3, 1e-4] }".into(),
                "optim.lr is in sweep.grid and in sweep.must_match (optim.lr)",
            ),
            (
                "grid = { \"devices.backend\" = [\"cpu\"] }".into(),
                "devices.backend is in sweep.grid and in sweep.must_match (devices)",
            ),
            (format!("name = \"../x\"\n{depth}"), "`../x` cannot be the name of a folder"),
        ] {
            let error = sweep(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_mistake_knows_the_key_it_is_in() {
        let depth = "grid = { \"model.depth\" = [1, 2] }\n";
        for (text, expected) in [
            ("grid = { \"model.depth\" = [] }".into(), "sweep.grid.model.depth"),
            ("seeds = [3, 3]".into(), "sweep.seeds"),
            (format!("{depth}exclude = [{{ \"model.deph\" = 1 }}]"), "sweep.exclude"),
            (
                format!("{depth}report = {{ baseline = {{ \"model.depth\" = 9 }} }}"),
                "sweep.report.baseline",
            ),
            (format!("{depth}report = {{ metric = \"val/topp1\" }}"), "sweep.report.metric"),
            ("grid = { \"optim.lr\" = [1e-3, 1e-4] }".into(), "sweep.grid.optim.lr"),
            (format!("name = \"../x\"\n{depth}"), "sweep.name"),
        ] {
            assert_eq!(sweep(&text).unwrap_err().key().as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_slip_is_not_a_million_runs() {
        let list: Vec<String> = (0..101).map(|number| number.to_string()).collect();
        let list = list.join(",");
        let text = format!("grid = {{ \"a.b\" = [{list}], \"a.c\" = [{list}] }}");
        assert!(sweep(&text).unwrap_err().to_string().contains("101 × 101 runs are more than"));
    }
}
