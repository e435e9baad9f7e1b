//! Learning rates by iteration, and the groups of parameters.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use vim_engine::Error;
use vim_engine::config::{Interval, OptimConfig, ScheduleKind};
use vim_engine::task::Placement;
use vim_engine::task::segmentation::placement;
use vim_engine::train::schedule::Schedule;
use vim_model::DecayGroups;
use vim_torch::{Section, read_checkpoint};

use super::{Row, field, json, unlike};

/// Of the largest rate; both sides compute in f64.
const TOLERANCE: f64 = 1e-12;

/// mmcv's `lr_config`, by `policy`, with a linear warm-up by iteration. What else an optimizer has
/// (the rates of its moving averages, its ε) is compared by no file and refused by its name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rates {
    #[serde(default)]
    policy: Policy,
    base: f64,
    iterations: u64,
    warmup_iterations: u64,
    warmup_ratio: f64,
    /// Of `poly`.
    power: Option<f64>,
    #[serde(default)]
    min_lr: f64,
    /// Of `step`: the iterations from which on the rate is one time less.
    #[serde(default)]
    step: Vec<u64>,
    /// Of `step`.
    gamma: Option<f64>,
    /// Iteration, from 0, and its learning rate.
    at: Vec<(u64, f64)>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Policy {
    #[default]
    Poly,
    Step,
}

#[derive(Deserialize)]
struct Groups {
    settings: Settings,
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    lr: f64,
    wd: f64,
    /// Layer decay.
    rate: f64,
    /// Layers that it is told of.
    n: usize,
}

#[derive(Deserialize)]
struct Group {
    lr: f64,
    weight_decay: f64,
    /// The original's names.
    parameters: Vec<String>,
}

pub(super) fn check(path: &Path) -> Result<Vec<Row>, Error> {
    let about: Value = json(path)?;
    let schedules: Vec<Rates> = field(path, &about, "schedule")?;
    let mut rows: Vec<Row> =
        schedules.iter().map(|rates| schedule(path, rates)).collect::<Result<_, _>>()?;
    for (name, _) in about.as_object().into_iter().flatten() {
        if name != "schedule" {
            rows.extend(groups(path, name, &field(path, &about, name)?)?);
        }
    }
    Ok(rows)
}

/// Rates and decays of the parameters of model `name`, whose shapes are in the checkpoint beside.
fn groups(path: &Path, name: &str, known: &Groups) -> Result<[Row; 2], Error> {
    let checkpoint = path.with_file_name(format!("{name}.pth"));
    let file = File::open(&checkpoint).map_err(Error::io("read", &checkpoint))?;
    let state = read_checkpoint(BufReader::new(file), Section::Model)
        .map_err(|error| unlike(&checkpoint, &error.to_string()))?
        .state;
    let Settings { lr, wd, rate, n } = known.settings;
    let (mut ours, mut theirs) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for group in &known.groups {
        for parameter in &group.parameters {
            let array = state.array(parameter).ok_or_else(|| {
                unlike(&checkpoint, &format!("it has no `{parameter}`, which {name} groups"))
            })?;
            // The pyramid is a part of the original's backbone.
            let ours_path = parameter.replace("backbone.fpn", "pyramid.fpn");
            let Placement { decays, layers_above } =
                placement(&ours_path, array.shape.len(), n, DecayGroups::Reference);
            ours[0].push(lr * rate.powi(layers_above as i32));
            ours[1].push(if decays { wd } else { 0.0 });
            theirs[0].push(group.lr);
            theirs[1].push(group.weight_decay);
        }
    }
    Ok([
        Row::new(format!("optim {name}, rates"), &ours[0], &theirs[0], TOLERANCE * lr),
        Row::new(format!("optim {name}, weight decay"), &ours[1], &theirs[1], 0.0),
    ])
}

fn schedule(path: &Path, rates: &Rates) -> Result<Row, Error> {
    let (is_stairs, schedule) = match rates.policy {
        Policy::Poly => (false, ScheduleKind::Poly),
        Policy::Step => (true, ScheduleKind::Step),
    };
    for (key, is_there, of_stairs) in [
        ("power", rates.power.is_some(), false),
        ("step", !rates.step.is_empty(), true),
        ("gamma", rates.gamma.is_some(), true),
        ("min_lr", is_stairs && rates.min_lr != 0.0, false),
    ] {
        if is_there && of_stairs != is_stairs {
            return Err(unlike(path, &format!("`{key}` is of another policy")));
        }
    }
    let optim = OptimConfig {
        lr: rates.base,
        min_lr: rates.min_lr,
        warmup_lr: rates.base * rates.warmup_ratio,
        warmup: Interval::Steps(rates.warmup_iterations),
        schedule,
        power: rates.power,
        milestones: rates.step.iter().map(|&at| Interval::Steps(at)).collect(),
        gamma: rates.gamma,
        ..OptimConfig::default()
    };
    // The steps of an epoch are of no consequence.
    let schedule = Schedule::new(&optim, 1, rates.iterations)?;
    let ours: Vec<f64> = rates.at.iter().map(|&(step, _)| schedule.lr(step)).collect();
    let theirs: Vec<f64> = rates.at.iter().map(|&(_, rate)| rate).collect();
    let name = format!("optim learning rates over {} iterations", rates.iterations);
    Ok(Row::new(name, &ours, &theirs, TOLERANCE * rates.base))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use schemars::schema_for;
    use serde_json::json;

    use super::*;

    fn row(rates: Value) -> Result<Row, String> {
        let path = Path::new("optim.json");
        let rates = serde_json::from_value(rates).map_err(|error| error.to_string())?;
        schedule(path, &rates).map_err(|error| error.to_string())
    }

    /// By mmcv's formula, in other words than ours: `(base − min) · (1 − i/n)^p + min`, with
    /// `1 − (1 − i/w)(1 − r)` of it before iteration `w`.
    #[test]
    fn powers_and_least_rates_are_read() {
        let of = |i: f64| (2e-3 - 1e-4) * (1.0 - i / 100.0_f64).powf(0.9) + 1e-4;
        let at = json!([[0, of(0.0) * 0.01], [5, of(5.0) * 0.505], [10, of(10.0)], [100, 1e-4]]);
        let rates = |power: Value| {
            json!({
                "base": 2e-3, "iterations": 100, "warmup_iterations": 10, "warmup_ratio": 0.01,
                "power": power, "min_lr": 1e-4, "at": at,
            })
        };
        assert!(row(rates(json!(0.9))).unwrap().within);
        assert!(!row(rates(json!(1.0))).unwrap().within);
        assert!(!row(rates(Value::Null)).unwrap().within);
    }

    /// Where each key of `[optim]` is in the JSON, or that it is refused there.
    #[test]
    fn every_key_is_read_or_refused_by_name() {
        const READ: [(&str, &str); 9] = [
            ("lr", "base"),
            ("min_lr", "min_lr"),
            ("warmup", "warmup_iterations"),
            ("warmup_lr", "warmup_ratio"),
            ("schedule", "policy"),
            ("power", "power"),
            ("milestones", "step"),
            ("gamma", "gamma"),
            ("weight_decay", "wd"),
        ];
        const REFUSED: [&str; 4] = ["name", "decay_groups", "betas", "eps"];
        let schema = schema_for!(OptimConfig);
        let keys: BTreeSet<&str> = schema
            .get("properties")
            .unwrap()
            .as_object()
            .unwrap()
            .keys()
            .map(|key| &**key)
            .collect();
        let known = READ.iter().map(|(key, _)| *key).chain(REFUSED).collect();
        assert_eq!(keys, known);
        let stairs = json!({
            "policy": "step", "base": 1.0, "iterations": 9, "warmup_iterations": 2,
            "warmup_ratio": 0.5, "step": [4], "gamma": 0.5,
            "at": [[0, 0.5], [1, 0.75], [2, 1.0], [4, 0.5]],
        });
        assert!(row(stairs.clone()).unwrap().within);
        for (_, key) in READ.into_iter().filter(|(_, key)| *key != "wd") {
            let mut other = stairs.clone();
            other[key] = match key {
                "policy" => json!("poly"),
                "step" => json!([1]),
                "warmup_iterations" => json!(1),
                _ => json!(0.25),
            };
            let is_seen = row(other)
                .map_or_else(|error| error.contains(key) || key == "policy", |row| !row.within);
            assert!(is_seen, "{key}");
        }
        for key in REFUSED {
            let mut other = stairs.clone();
            other[key] = json!(1);
            let error = row(other).unwrap_err();
            assert!(error.contains(&format!("`{key}`")), "{error}");
            let error = serde_json::from_value::<Settings>(
                json!({"lr": 1.0, "wd": 0.1, "rate": 0.9, "n": 2, key: 1}),
            );
            assert!(error.is_err_and(|error| error.to_string().contains(key)), "{key}");
        }
    }
}
