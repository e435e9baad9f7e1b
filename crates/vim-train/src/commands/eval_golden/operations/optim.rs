//! Learning rates by iteration, and the groups of parameters.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use vim_model::DecayGroups;
use vim_torch::{Section, read_checkpoint};

use super::{Row, field, json, unlike};
use crate::config::{Interval, OptimConfig, ScheduleKind};
use crate::error::Error;
use crate::task::Placement;
use crate::task::segmentation::placement;
use crate::train::schedule::Schedule;

/// Of the largest rate; both sides compute in f64.
const TOLERANCE: f64 = 1e-12;

#[derive(Deserialize)]
struct Poly {
    base: f64,
    iterations: u64,
    warmup_iterations: u64,
    warmup_ratio: f64,
    power: f64,
    min_lr: f64,
    /// Iteration, from 0, and its learning rate.
    at: Vec<(u64, f64)>,
}

#[derive(Deserialize)]
struct Groups {
    settings: Settings,
    groups: Vec<Group>,
}

#[derive(Deserialize)]
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
    let schedules: Vec<Poly> = field(path, &about, "schedule")?;
    let mut rows: Vec<Row> =
        schedules.iter().map(|poly| schedule(path, poly)).collect::<Result<_, _>>()?;
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

fn schedule(path: &Path, poly: &Poly) -> Result<Row, Error> {
    if poly.power != 1.0 {
        return Err(unlike(path, "a schedule of another power than 1"));
    }
    let optim = OptimConfig {
        lr: poly.base,
        min_lr: poly.min_lr,
        warmup_lr: poly.base * poly.warmup_ratio,
        warmup: Interval::Steps(poly.warmup_iterations),
        schedule: ScheduleKind::Poly,
        ..OptimConfig::default()
    };
    // The steps of an epoch are of no consequence.
    let schedule = Schedule::new(&optim, 1, poly.iterations)?;
    let ours: Vec<f64> = poly.at.iter().map(|&(step, _)| schedule.lr(step)).collect();
    let theirs: Vec<f64> = poly.at.iter().map(|&(_, rate)| rate).collect();
    let name = format!("optim learning rates over {} iterations", poly.iterations);
    Ok(Row::new(name, &ours, &theirs, TOLERANCE * poly.base))
}
