//! The loader alone: how fast, and what holds it up.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Serialize;
use strum::VariantArray;
use vim_comm::Comm;
use vim_data::{Loader, LoaderStage, LoaderStats};

use crate::config::Config;
use crate::device::memory;
use crate::error::Error;
use crate::task::EvalSplit;
use crate::task::kinds::with_task;
use crate::task::named::NamedTask;

/// Batches that are not measured.
const WARM_UP: usize = 3;

/// How fast a loader is, and what holds it up.
#[derive(Debug, Serialize)]
pub struct LoaderReport {
    /// Images per second.
    pub images_per_second: f64,
    /// Images per second of processor time, over all threads.
    pub images_per_cpu_second: f64,
    /// Batches made.
    pub batches: u64,
    /// Images of them.
    pub images: u64,
    /// Images decoded; repeated draws of an image are decoded once.
    pub decoded: u64,
    /// Time that was measured.
    pub seconds: f64,
    /// Processor time of all threads in it.
    pub cpu_seconds: f64,
    /// Threads that make batches.
    pub workers: usize,
    /// Threads that read files.
    pub readers: usize,
    /// Images of a batch.
    pub batch_size: usize,
    /// Thread time per image in milliseconds, by stage.
    pub stages_ms: Vec<(LoaderStage, f64)>,
    /// Bytes read, in 10⁶ a second.
    pub mb_per_second: f64,
    /// Share of the time that a device would wait.
    pub waited_share: f64,
    /// Images that could not be read.
    pub bad: usize,
    /// Images with harmless damage.
    pub warned: u64,
    /// Memory of the loader's batches by docs/data.md.
    pub slab_mib: f64,
    /// The most memory of the process.
    pub peak_rss_mib: Option<f64>,
    /// What holds the loader up, and the remedy.
    pub bottleneck: &'static str,
}

/// Measures for `time`, in training or in the evaluation of `split`, with a device that takes
/// `step` for each batch.
pub fn measure(
    config: &Config,
    split: Option<EvalSplit>,
    time: Duration,
    step: Duration,
) -> Result<LoaderReport, Error> {
    with_task!(config.task, T => measure_as::<T>(config, split, time, step))
}

fn measure_as<T: NamedTask>(
    config: &Config,
    split: Option<EvalSplit>,
    time: Duration,
    step: Duration,
) -> Result<LoaderReport, Error> {
    let loading = match split {
        None => T::training(config, &Comm::single()),
        Some(_) => T::evaluation(config).ok_or_else(|| {
            Error::usage(format!(
                "--split times batches of one size; a {} evaluates images of their own sizes",
                config.task
            ))
        })?,
    };
    let splits = T::splits(config)?;
    let images = match split {
        None => splits.train,
        Some(EvalSplit::Test) => splits.test,
        Some(EvalSplit::Val) => splits.val.ok_or_else(|| {
            Error::failed("there are no validation images: data.val_fraction is 0")
        })?,
    };
    let (workers, readers, batch_size) = (loading.workers, loading.readers, loading.batch_size);
    let loader = Loader::new(images, loading)?;
    let mut batches = loader.batches(0..u64::MAX);
    for batch in batches.by_ref().take(WARM_UP) {
        batch?;
    }
    let (before, cpu_before, start) = (batches.stats(), cpu_seconds(), Instant::now());
    let (mut count, mut bad) = (0, 0);
    while start.elapsed() < time {
        match batches.next() {
            Some(batch) => {
                let batch = batch?;
                sleep(step);
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
    Ok(LoaderReport {
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
    })
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
