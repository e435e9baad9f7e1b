//! `vim-train data bench`: the loader alone.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use strum::VariantArray;
use vim_comm::Comm;
use vim_data::{Loader, LoaderStage, LoaderStats};

use crate::args::Overrides;
use crate::config::{Config, TaskKind};
use crate::device::memory;
use crate::error::Error;
use crate::output::{print, print_json};
use crate::task::{EvalSplit, detection, loaders, segmentation};

const EXAMPLES: &str = "\
Examples:
  vim-train data bench configs/vim_tiny_imagenet.toml
  vim-train data bench configs/vim_tiny_imagenet.toml --set data.workers=16 --set augment.repeats=1
  vim-train data bench configs/vim_tiny_imagenet.toml --split test --seconds 30 --json
  vim-train data bench configs/vim_tiny_imagenet.toml --step-ms 250     can it feed steps of that length, and in which memory?

Batches are made as in training and thrown away: no model runs, no GPU is needed. The first batches warm up.
img/s per CPU is images over the processor time of the whole process: multiply it by the cores of a job to know what they
can feed. A GPU that trains N img/s wants N / that many cores.";

/// Time the loader alone, and name what holds it up.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Configuration file.
    config: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// Measure the evaluation of these images instead of training.
    #[arg(long, value_enum)]
    split: Option<EvalSplit>,
    /// How long to measure.
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Take so long over each batch, as a device does; 0 takes them as fast as they come.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    step_ms: u64,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

const WARM_UP: usize = 3;

#[derive(Debug, Serialize)]
struct LoaderReport {
    images_per_second: f64,
    /// Images per second of processor time, over all threads.
    images_per_cpu_second: f64,
    batches: u64,
    images: u64,
    /// Images decoded; repeated draws of an image are decoded once.
    decoded: u64,
    seconds: f64,
    cpu_seconds: f64,
    workers: usize,
    readers: usize,
    batch_size: usize,
    /// Thread time per image in milliseconds, by stage.
    stages_ms: Vec<(LoaderStage, f64)>,
    mb_per_second: f64,
    /// Share of the time that a device would wait.
    waited_share: f64,
    bad: usize,
    warned: u64,
    /// Memory of the loader's batches by docs/data.md, and of the process.
    slab_mib: f64,
    peak_rss_mib: Option<f64>,
    bottleneck: &'static str,
}

pub(super) fn run(args: &BenchArgs) -> Result<(), Error> {
    let config = Config::load(&args.config, &args.overrides.set)?;
    let is_dense = config.task != TaskKind::Classification;
    if is_dense && args.split.is_some() {
        return Err(Error::failed(format!(
            "--split times batches of one size; a {} evaluates images of their own sizes",
            config.task
        )));
    }
    let open = match config.task {
        TaskKind::Classification => vim_data::open::<vim_data::Class>,
        TaskKind::Segmentation => vim_data::open::<vim_data::LabelMap>,
        TaskKind::Detection => vim_data::open::<vim_data::ImageObjects>,
    };
    let splits = open(&config.data, config.run.seed)?;
    let size = config.model.image_size;
    let (split, loading) = match args.split {
        None => {
            let comm = Comm::single();
            let loading = match config.task {
                TaskKind::Classification => loaders::training(&config, size, &comm),
                TaskKind::Segmentation => segmentation::training(&config, &comm),
                TaskKind::Detection => detection::training(&config, &comm),
            };
            (splits.train, loading)
        }
        Some(EvalSplit::Test) => (splits.test, loaders::evaluation(&config, size, &Comm::single())),
        Some(EvalSplit::Val) => {
            let val = splits.val.ok_or_else(|| {
                Error::failed("there are no validation images: data.val_fraction is 0")
            })?;
            (val, loaders::evaluation(&config, size, &Comm::single()))
        }
    };
    let (workers, readers, batch_size) = (loading.workers, loading.readers, loading.batch_size);
    let loader = Loader::new(split, loading)?;
    let mut batches = loader.batches(0..u64::MAX);
    for batch in batches.by_ref().take(WARM_UP) {
        batch?;
    }
    let (before, cpu_before, start) = (batches.stats(), cpu_seconds(), Instant::now());
    let (mut count, mut bad) = (0, 0);
    while start.elapsed() < Duration::from_secs(args.seconds) {
        match batches.next() {
            Some(batch) => {
                let batch = batch?;
                sleep(Duration::from_millis(args.step_ms));
                drop(batch);
            }
            None => break,
        }
        count += 1;
        bad += batches.take_bad().len();
    }
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu_before);
    let after = batches.stats();
    let images = count * batch_size as u64;
    let made = (after.images - before.images).max(1) as f64;
    let stage_ms =
        |stage: LoaderStage| (after.busy(stage) - before.busy(stage)).as_secs_f64() * 1e3 / made;
    let report = LoaderReport {
        images_per_second: images as f64 / seconds,
        images_per_cpu_second: images as f64 / cpu.max(f64::MIN_POSITIVE),
        batches: count,
        images,
        decoded: after.decoded - before.decoded,
        seconds,
        cpu_seconds: cpu,
        workers,
        readers,
        batch_size,
        stages_ms: LoaderStage::VARIANTS.iter().map(|&stage| (stage, stage_ms(stage))).collect(),
        mb_per_second: (after.bytes - before.bytes) as f64 / 1e6 / seconds,
        waited_share: (after.waited - before.waited).as_secs_f64() / seconds,
        bad,
        warned: after.warned - before.warned,
        slab_mib: loader.memory() as f64 / f64::from(1 << 20),
        peak_rss_mib: memory::peak_resident().map(|bytes| bytes as f64 / f64::from(1 << 20)),
        bottleneck: if (after.waited - before.waited).as_secs_f64() < 0.02 * seconds {
            "none: batches are there before they are asked for"
        } else {
            bottleneck(&before, &after, workers, seconds)
        },
    };
    if args.json { print_json(&report) } else { print(&table(&report)) }
}

/// The loader's bottleneck and the remedy.
fn bottleneck(
    before: &LoaderStats,
    after: &LoaderStats,
    workers: usize,
    seconds: f64,
) -> &'static str {
    let busy = |stage: LoaderStage| (after.busy(stage) - before.busy(stage)).as_secs_f64();
    let [read, work] =
        [busy(LoaderStage::Read), LoaderStage::VARIANTS[1..].iter().map(|&s| busy(s)).sum()];
    let cores = vim_data::CpuAllocation::of_this_process().cores;
    if work < 0.7 * workers as f64 * seconds && read > work {
        return "storage: workers wait for files; raise data.readers, stage to a local disk, or use archives or packs";
    }
    if workers < cores {
        return "workers: all are busy and cores are idle; raise data.workers";
    }
    let most = LoaderStage::VARIANTS[1..].iter().max_by(|&&a, &&b| busy(a).total_cmp(&busy(b)));
    match most {
        Some(LoaderStage::Augment) => {
            "cores: operations on pixels take most; ask for more cores per GPU"
        }
        Some(LoaderStage::Resize) => "cores: resizing takes most; ask for more cores per GPU",
        Some(LoaderStage::Decode | LoaderStage::Read) | None => {
            "cores: decoding takes most; ask for more cores per GPU, raise augment.repeats, or build with --features turbo"
        }
    }
}

fn table(report: &LoaderReport) -> String {
    let stages: Vec<String> =
        report.stages_ms.iter().map(|(stage, ms)| format!("{stage} {ms:.3}")).collect();
    let rss = report
        .peak_rss_mib
        .map_or_else(String::new, |rss| format!(", process at most {rss:.0} MiB"));
    format!(
        "{:.0} img/s, {:.0} img/s per CPU; {} batches of {} in {:.1} s with {} workers and {} readers\n\
         per image, ms of a thread: {}; {:.1} MB/s read, {} of {} images decoded\n\
         batches {:.0} MiB{rss}; waited {:.1} % of the time; {} bad, {} with harmless damage\n\
         bottleneck: {}",
        report.images_per_second,
        report.images_per_cpu_second,
        report.batches,
        report.batch_size,
        report.seconds,
        report.workers,
        report.readers,
        stages.join(", "),
        report.mb_per_second,
        report.decoded,
        report.images,
        report.slab_mib,
        100.0 * report.waited_share,
        report.bad,
        report.warned,
        report.bottleneck,
    )
}

/// Processor time of all threads of this process so far.
fn cpu_seconds() -> f64 {
    // Linux reports ticks of 10 ms to every process.
    let ticks = || {
        let text = fs::read_to_string("/proc/self/stat").ok()?;
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        Some(fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?)
    };
    ticks().unwrap_or(f64::NAN) / 100.0
}
