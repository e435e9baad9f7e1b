//! The `[sweep]` section.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use schemars::JsonSchema;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};

/// Values of a configuration by key path.
pub type Assignments = BTreeMap<String, toml::Value>;

/// The key whose values are repetitions of the same experiment.
pub const SEED: &str = "run.seed";

/// The most runs of a sweep; more is a slip in a list rather than a plan.
pub const MAX_CELLS: usize = 10_000;

/// The default of `sweep.must_match`; `devices` is a section.
pub const DEFAULT_MUST_MATCH: [&str; 4] =
    ["train.batch_size", "optim.lr", "train.epochs", "devices"];

/// The `[sweep]` section: the runs, and how they are compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SweepConfig {
    /// Name of the sweep's folder in `run.root`; the folders of its runs are in it.
    pub name: String,
    /// Keys, each with the list of its values, as in `"model.discretization" = ["zoh", "foh"]`:
    /// every combination is a run.
    #[serde(deserialize_with = "lists", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, Vec<serde_json::Value>>")]
    pub grid: BTreeMap<String, Vec<toml::Value>>,
    /// Combinations to leave out, as in
    /// `[{ "model.discretization" = "rk4", "train.epochs" = 300 }]`; one that names only some of
    /// the grid's keys stands for all combinations with them.
    #[serde(deserialize_with = "combinations", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<BTreeMap<String, serde_json::Value>>")]
    pub exclude: Vec<Assignments>,
    /// Values of `run.seed`, the repetitions that means and deviations are over: short for that key
    /// in the grid.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub seeds: Vec<u64>,
    /// Keys, or sections, whose effective values must be the same in every run, and are therefore
    /// not in the grid.
    pub must_match: Vec<String>,
    /// Runs at work at a time, as SLURM's array is throttled; left out: as many as there is room
    /// for. `sweep run` goes by its `-j`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<NonZeroUsize>,
    /// What a task of SLURM's array trains: one `run`, or, with `node`, as many runs side by side
    /// as a node has GPUs, each on one of them (docs/experiments.md).
    pub pack: Pack,
    /// With `pack = "node"`: how many runs a node trains side by side; left out: as many as the
    /// GPUs of `slurm.gpus_per_node`, or of the site's nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_node: Option<NonZeroUsize>,
    /// What `sweep run` does when a run fails: `continue` with the others, or `stop` starting any.
    pub on_failure: OnFailure,
    /// What `sweep summarize` reports.
    pub report: ReportConfig,
}

impl Default for SweepConfig {
    fn default() -> Self {
        Self {
            name: "sweep".into(),
            grid: BTreeMap::new(),
            exclude: Vec::new(),
            seeds: Vec::new(),
            must_match: DEFAULT_MUST_MATCH.map(str::to_owned).to_vec(),
            max_parallel: None,
            pack: Pack::default(),
            per_node: None,
            on_failure: OnFailure::default(),
            report: ReportConfig::default(),
        }
    }
}

/// What a task of an array trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pack {
    /// A run.
    #[default]
    Run,
    /// Several runs side by side, on a whole node.
    Node,
}

/// What to do when a run of a sweep fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// Continue with the others.
    #[default]
    Continue,
    /// Do not start any other.
    Stop,
}

/// The `[sweep.report]` section: what is compared, and with what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReportConfig {
    /// What is compared: `val/top1`, `val/top5`, `val/loss`, `test/top1`, `test/top5`, `test/loss`,
    /// `train/loss`; of averaged weights as `val/ema/top1`.
    pub metric: String,
    /// Which evaluation of a run counts: its `last`, or its `best`, which the report labels as
    /// selected on the split that it was measured on. A test result is always the run's one.
    pub pick: Pick,
    /// What the others are compared with, seed by seed, as in `{ "model.discretization" = "zoh" }`;
    /// not set: no comparison.
    #[serde(deserialize_with = "combination", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub baseline: Assignments,
}

impl Default for ReportConfig {
    fn default() -> Self {
        Self { metric: "val/top1".into(), pick: Pick::default(), baseline: Assignments::new() }
    }
}

/// The evaluation of a run that counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pick {
    /// The last one, without selection.
    #[default]
    Last,
    /// The best one, which is biased: it is selected on the split that it is measured on.
    Best,
}

/// Deserializes keys with lists. `model.discretization` without quotes is a nested table and means
/// the same as with quotes.
fn lists<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Vec<toml::Value>>, D::Error> {
    let lists = combination(deserializer)?.into_iter().map(|(key, value)| {
        let Some(values) = value.as_array() else {
            return Err(D::Error::custom(format!(
                "{key} = {value} is not a list of values, as in \"{key}\" = [{value}]"
            )));
        };
        Ok((key, values.clone()))
    });
    lists.collect()
}

fn combinations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Assignments>, D::Error> {
    Ok(Vec::<toml::Table>::deserialize(deserializer)?.into_iter().map(flat).collect())
}

fn combination<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Assignments, D::Error> {
    toml::Table::deserialize(deserializer).map(flat)
}

/// Flattens nested tables to key paths.
fn flat(table: toml::Table) -> Assignments {
    let mut all = Assignments::new();
    for (key, value) in table {
        if let toml::Value::Table(inner) = value {
            let inner = flat(inner).into_iter();
            all.extend(inner.map(|(path, value)| (format!("{key}.{path}"), value)));
        } else {
            all.insert(key, value);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_may_be_quoted_or_not() {
        let quoted: SweepConfig = toml::from_str(
            "grid = { \"model.discretization\" = [\"zoh\"], \"train.epochs\" = [1, 2] }\n\
             exclude = [{ \"train.epochs\" = 2 }]",
        )
        .unwrap();
        let plain: SweepConfig = toml::from_str(
            "exclude = [{ train.epochs = 2 }]\n\
             [grid]\nmodel.discretization = [\"zoh\"]\ntrain.epochs = [1, 2]",
        )
        .unwrap();
        assert_eq!(quoted, plain);
        assert_eq!(
            quoted.grid.keys().collect::<Vec<_>>(),
            ["model.discretization", "train.epochs"]
        );
    }

    #[test]
    fn a_value_that_is_no_list_is_told_the_form() {
        let error = toml::from_str::<SweepConfig>("grid = { \"optim.lr\" = 1e-3 }").unwrap_err();
        assert!(error.to_string().contains("\"optim.lr\" = [0.001]"), "{error}");
    }

    #[test]
    fn what_is_printed_loads_again() {
        let text = "name = \"x\"\nseeds = [0, 1]\n[grid]\n\"optim.lr\" = [1e-3]\n\
                    [report]\nbaseline = { \"optim.lr\" = 1e-3 }";
        let config: SweepConfig = toml::from_str(text).unwrap();
        let printed = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<SweepConfig>(&printed).unwrap(), config);
    }
}
