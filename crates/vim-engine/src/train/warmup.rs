//! The `warmup` command: compiles all kernels of a GPU run.

use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::tensor::Device;
use serde::Serialize;
use vim_kernels::largest_argument;
use vim_run::checkpoint::Weights;

use super::setup::ResolvedRun;
use super::state::TrainState;
use crate::config::Config;
use crate::device::machine::{self, Machine};
use crate::device::wait;
use crate::error::Error;
use crate::output::summary::bytes;
use crate::output::{print, print_json};
use crate::task::{BatchStream, Objective, Task};
use crate::train::ranks::{Rank, end_with_parent};
use crate::train::step::{Passes, Requests, StepGraph};

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    device: String,
    stages: Vec<Stage>,
    /// Where the machine code is cached, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<Cache>,
}

/// A repeated stage of a run.
#[derive(Debug, Serialize)]
struct Stage {
    name: &'static str,
    /// The first time, with compilation.
    first_s: f64,
    /// The second time.
    again_s: f64,
}

#[derive(Debug, Serialize)]
struct Cache {
    folder: PathBuf,
    bytes_before: u64,
    bytes: u64,
}

/// `vim-train warmup` of the configuration at `path` with `sets` over it, which ends with the
/// process `parent`, if there is one, and prints its result as JSON or as a table.
pub fn run<T: Task>(
    path: &Path,
    sets: &[String],
    parent: Option<u32>,
    json: bool,
) -> Result<(), Error> {
    if let Some(parent) = parent {
        end_with_parent(parent);
    }
    let config = Config::load_base(path, sets)?;
    config.train.known_images()?;
    let resolved = ResolvedRun::<T>::new(&config, true, &Rank::Only)?;
    let device = resolved.chosen.name.clone();
    if resolved.chosen.is_cpu() {
        return Err(Error::failed(
            "a CPU has nothing to warm up: kernels are compiled for GPUs; set devices.backend",
        ));
    }
    let kept = resolved.chosen.is_cuda().then(|| Machine::this().code_cache()).flatten();
    let bytes_before = kept.as_deref().map_or(0, machine::size);
    eprintln!("compiling for {device}");
    let stages = stages(&config, resolved)?;
    let cache = kept.map(|folder| {
        let bytes = machine::size(&folder);
        Cache { folder, bytes_before, bytes }
    });
    let report = Report { device, stages, cache };
    if json { print_json(&report) } else { print(&text(&report)) }
}

fn text(report: &Report) -> String {
    let mut lines = vec![format!("{:<20}{:>10}{:>10}", "", "first s", "again s")];
    for Stage { name, first_s, again_s } in &report.stages {
        lines.push(format!("{name:<20}{first_s:>10.2}{again_s:>10.3}"));
    }
    lines.push(match &report.cache {
        Some(Cache { folder, bytes_before, bytes: now }) => format!(
            "machine code: {} in {}, {} of it new",
            bytes(*now),
            folder.display(),
            bytes(now.saturating_sub(*bytes_before))
        ),
        None => "machine code is not kept for the next process here".into(),
    });
    lines.join("\n")
}

/// Times the stages of a run.
fn stages<T: Task>(config: &Config, resolved: ResolvedRun<T>) -> Result<Vec<Stage>, Error> {
    let ResolvedRun { chosen, task, comm, .. } = resolved;
    let (plain, objective) = (chosen.device, task.objective());
    let device = plain.clone().autodiff();
    let mut state = TrainState::new(objective, config, objective.init(&device)?);
    let mut graph = StepGraph::of(config, objective, &device, comm.size())?;
    // The shards of a step.
    let mut batches = task.batches(0..1);
    let step: Vec<T::Batch> = std::iter::from_fn(|| batches.next()).collect::<Result<_, _>>()?;
    let mut train_step = || {
        let shards =
            step.iter().map(|batch| task.upload(batch, &device)).collect::<Result<_, _>>()?;
        let lr = config.optim.lr;
        let asked = Requests::default();
        let passes = Passes::Graph(&mut graph);
        let pending = state.step(objective, shards, lr, &comm, asked, passes)?;
        state.finish(pending);
        Ok(())
    };
    let train = twice("training step", &device, &mut train_step)?;
    // The third is recorded, and keeps its memory beside what follows.
    train_step()?;
    let model = state.weights(Weights::Model);
    let evaluate = task.evaluation_batch(&plain)?;
    // As the loop evaluates.
    let evaluate = || largest_argument(&plain, || evaluate(&model)).map(|_| ());
    Ok(vec![train, twice("evaluation batch", &plain, evaluate)?])
}

fn twice(
    name: &'static str,
    device: &Device,
    mut work: impl FnMut() -> Result<(), Error>,
) -> Result<Stage, Error> {
    let mut time = || {
        let start = Instant::now();
        work()?;
        wait(device)?;
        Ok::<_, Error>(start.elapsed().as_secs_f64())
    };
    let first_s = time()?;
    eprintln!("{name}: {first_s:.1} s");
    Ok(Stage { name, first_s, again_s: time()? })
}
