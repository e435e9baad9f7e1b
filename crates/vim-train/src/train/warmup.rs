//! The `warmup` command: has everything compiled that a run on a GPU compiles.

use std::path::PathBuf;
use std::time::Instant;

use burn::module::Module;
use burn::tensor::Device;
use clap::Args;
use serde::Serialize;
use vim_data::{Batch, Loader, Split};

use super::course::Course;
use super::setup::Plan;
use super::step::update;
use crate::cli::Overrides;
use crate::commands::profile::wait;
use crate::config::Config;
use crate::device::code_cache;
use crate::device::machine::Machine;
use crate::error::Error;
use crate::output::summary::bytes;
use crate::output::{print, print_json};
use crate::train::batches::to_tensors;
use crate::train::ema::Ema;
use crate::train::optim::{AdamW, Gradients};
use crate::train::pass::forward_backward;

/// What `vim-train warmup --help` ends with.
pub const EXAMPLES: &str = "\
Examples:
  vim-train warmup configs/vim_tiny_imagenet.toml --set data.path=DIR
  vim-train warmup configs/vim_tiny_cifar100.toml --set devices.backend=cuda --json

Does two training steps and two evaluation batches of the configuration, on its own data, and keeps
nothing but the machine code: NVIDIA's driver stores it, for this GPU, driver and build, in
~/.nv/ComputeCache or where CUDA_CACHE_PATH says, and every later process finds it there. `train`
does the same by itself at its first step: this is for a job array, so that one job compiles and not
all of them, or for a node-local CUDA_CACHE_PATH. Methods, precision, batch and model sizes have
kernels of their own: warm up with the --set that you train with. A sweep's file is taken without its
grid: for a sweep over methods, once with --set model.discretization=METHOD for each.";

/// `vim-train warmup`.
#[derive(Debug, Args)]
pub struct WarmupArgs {
    /// Configuration file; of a sweep's file, its configuration without the grid.
    pub config: PathBuf,
    /// What differs from the file.
    #[command(flatten)]
    pub overrides: Overrides,
    /// Print the result on stdout as JSON.
    #[arg(long)]
    pub json: bool,
}

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    device: String,
    stages: Vec<Stage>,
    /// Where the machine code is, if it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<Cache>,
}

/// Something that a run does again and again.
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

/// `vim-train warmup`.
///
/// # Errors
///
/// Whatever would keep `train` from its first step.
pub fn run(args: &WarmupArgs) -> Result<(), Error> {
    let config = Config::load_base(&args.config, &args.overrides.set)?;
    let plan = Plan::new(&config, true)?;
    let device = plan.chosen.name.clone();
    if plan.chosen.is_cpu() {
        return Err(Error::Failed(
            "a CPU has nothing to warm up: kernels are compiled for GPUs; set devices.backend"
                .into(),
        ));
    }
    let kept = plan.chosen.is_cuda().then(|| code_cache::folder(&Machine::this())).flatten();
    let bytes_before = kept.as_deref().map_or(0, code_cache::size);
    eprintln!("compiling for {device}");
    let stages = stages(&config, plan)?;
    let cache = kept.map(|folder| {
        let bytes = code_cache::size(&folder);
        Cache { folder, bytes_before, bytes }
    });
    let report = Report { device, stages, cache };
    if args.json { print_json(&report) } else { print(&text(&report)) }
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

/// What a run does, as a run does it.
fn stages(config: &Config, plan: Plan) -> Result<Vec<Stage>, Error> {
    let Plan { chosen, splits, course, .. } = plan;
    let Course { model: shape, loader, evaluation, loss, .. } = course;
    let plain = chosen.device;
    let device = plain.clone().autodiff();
    let built = shape.init(&device, config.run.seed)?;
    let mut ema = Ema::new(&config.train, &built);
    let with = &config.train;
    let model = built.with_precision(with.precision)?.with_recompute(with.recompute);
    // As in training, nothing else holds the weights while they are updated.
    let mut held = Some(model);
    let mut optimizer = AdamW::new(&config.optim);
    let statistics = splits.train.statistics(config.data.normalize);

    let batch = first(&loader)?;
    let train = twice("training step", &device, || {
        let model = held.take().expect("invariant: taken only within a step");
        let (images, targets) = to_tensors(&batch, statistics, &device)?;
        let (value, gradients) =
            forward_backward(&model, images, &targets, &loss, 0, with.accumulate)?;
        let gradients = Gradients::new(&model, gradients);
        let lr = config.optim.lr;
        let clip = with.clip_grad;
        let (model, queued) =
            update(&mut optimizer, ema.as_mut(), model, value, gradients, clip, lr);
        let _ = queued.read(&mut optimizer);
        held = Some(model);
        Ok(())
    })?;

    let split: &Split = splits.val.as_ref().unwrap_or(&splits.test);
    let statistics = split.statistics(config.data.normalize);
    let batch = first(&Loader::new(split.clone(), evaluation)?)?;
    let model = held.expect("invariant: taken only within a step").valid();
    let evaluation = twice("evaluation batch", &plain, || {
        let (images, _) = to_tensors(&batch, statistics, &plain)?;
        let _: Vec<f32> = model.forward(images)?.into_data().iter().collect();
        Ok(())
    })?;
    Ok(vec![train, evaluation])
}

fn first(loader: &Loader) -> Result<Batch, Error> {
    let batch = loader.epoch(0, 0).next();
    Ok(batch.expect("invariant: a loader has at least one batch")?)
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
