//! `vim-train train --dry-run`: runs all checks and prints the plan without making a folder.

use std::path::Path;
use std::time::Duration;

use rustix::fs::statvfs;
use serde::Serialize;
use vim_data::Stage;
use vim_run::Found;

use super::batch_size;
use super::estimate::images_per_second;
use super::options::TrainOptions;
use super::result::last_counts;
use super::setup::ResolvedRun;
use crate::config::Config;
use crate::device::{self, threads};
use crate::error::Error;
use crate::output::summary::{duration, rate};
use crate::output::{print, print_json};
use crate::run_folder;
use crate::task::{Description, Task};
use crate::train::ranks::{Rank, ShardCount, ShardsFrom};

/// The plan of a run.
#[derive(Debug, Serialize)]
pub(super) struct Preview {
    folder: String,
    found: Found,
    device: String,
    threads: String,
    model: String,
    parameters: u64,
    data: String,
    /// What is said of the weights of `train.init`.
    init: Vec<String>,
    notes: Vec<String>,
    batch_size: usize,
    accumulate: usize,
    shards: usize,
    /// What tells the number of shards.
    shards_from: ShardsFrom,
    epochs: u64,
    steps_per_epoch: u64,
    total_steps: u64,
    stop_after: Option<u64>,
    /// How long the steps would take, where they were timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    /// Bytes on the device for weights, gradients and averages; activations come on top.
    least_device_bytes: u64,
    /// Bytes of prefetched batches.
    loader_bytes: u64,
    checkpoint_bytes: u64,
    free_bytes: Option<u64>,
}

/// Runs the checks of `train`, and prints the plan.
pub(super) fn run<T: Task + 'static>(options: &TrainOptions, config: &Config) -> Result<(), Error> {
    let (mut config, sought) = batch_size::recorded_or_usual(options, config)?;
    let shards = ShardCount::planned(options, &config);
    if shards.from == ShardsFrom::Record && shards.count > 1 {
        config.train.shards = Some(shards.count);
    }
    let config = &config;
    let found = run_folder::look(config, options.resume, options.fresh)?;
    // Only the job may stage: staging fills the node's disk.
    let mut here = config.clone();
    here.data.stage = Stage::Off;
    let resolved = ResolvedRun::<T>::new(&here, options.fresh, &Rank::Only)?;
    let mut preview = resolved.preview(config, found, shards, options.steps)?;
    preview.notes.extend(sought);
    if options.time {
        let is_here = options.nodes.is_none() && config.slurm.nodes < 2;
        let one = is_here && options.ranks.is_none() && device::gpus(&config.devices)?.is_empty();
        let device = &resolved.chosen;
        preview.time = Some(match one {
            true => time(&preview, images_per_second::<T>(&here, device, TIMED)?),
            false => "not timed: the run has more devices than this process".to_owned(),
        });
    }
    if options.json { print_json(&preview) } else { print(&preview.text()) }
}

/// The longest that steps are timed.
pub const TIMED: Duration = Duration::from_secs(20);

/// How long the steps of `preview` take at this speed.
fn time(preview: &Preview, images_per_second: Option<f64>) -> String {
    let Some(speed) = images_per_second else {
        let limit = TIMED.as_secs();
        return format!("not timed: the first step took more than {limit} s");
    };
    let step = preview.batch_size as f64 / speed;
    let end = preview.stop_after.unwrap_or(preview.total_steps).min(preview.total_steps);
    let all = Duration::try_from_secs_f64(step * end as f64);
    // Where a run goes on, some of them are done.
    let of = if matches!(preview.found, Found::Run) { " from the first on" } else { "" };
    format!(
        "about {} for {end} steps{of}, {step:.2} s each here ({} img/s); evaluations come on top",
        duration(all.unwrap_or(Duration::MAX)),
        rate(speed)
    )
}

impl<T: Task> ResolvedRun<T> {
    fn preview(
        &self,
        config: &Config,
        found: Found,
        shards: ShardCount,
        stop_after: Option<u64>,
    ) -> Result<Preview, Error> {
        let Description { model, parameters, image_bytes, data, mut notes } =
            self.task.describe()?;
        notes.extend(last_counts(&self.task).map(str::to_owned));
        let init = self.init.iter().flat_map(|init| init.lines.clone()).collect();
        let weights = parameters * 4;
        // Weights, their gradients and the optimizer's two moments; then the moving average.
        let copies = 4 + u64::from(config.train.ema.is_some());
        let batches = config.data.prefetch as u64 + 1;
        let folder = config.run_folder()?;
        Ok(Preview {
            found,
            device: self.chosen.name.clone(),
            threads: threads::describe(config.data.workers.count()),
            model: format!("{model}, {}", config.train.precision),
            parameters,
            data,
            init,
            notes,
            batch_size: config.train.images(),
            accumulate: config.train.accumulate,
            shards: shards.count,
            shards_from: shards.from,
            epochs: config.train.passes(self.steps_per_epoch),
            steps_per_epoch: self.steps_per_epoch,
            total_steps: self.total_steps,
            stop_after,
            time: None,
            least_device_bytes: weights * copies,
            loader_bytes: image_bytes * config.train.images() as u64 * batches,
            checkpoint_bytes: checkpoints_of(config, parameters),
            free_bytes: free_for(&folder),
            folder: folder.display().to_string(),
        })
    }
}

impl Preview {
    fn text(&self) -> String {
        let mib = |bytes: u64| match bytes {
            1..0x10_0000 => "under 1 MiB".to_owned(),
            _ => format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20)),
        };
        let parts = match self.accumulate {
            1 => String::new(),
            parts => format!(", in {parts} parts"),
        };
        let stop = match self.stop_after {
            Some(steps) if steps < self.total_steps => format!(", stops after {steps}"),
            Some(_) | None => String::new(),
        };
        let mut lines = vec![
            format!("run {}: {}", self.folder, self.found.describe()),
            format!("device {}", self.device),
            self.threads.clone(),
            format!("model {} parameters, {}", self.parameters, self.model),
            self.data.clone(),
        ];
        lines.extend(self.init.iter().cloned());
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines.push(format!("batch {} images{parts}", self.batch_size));
        let shards = ShardCount { count: self.shards, from: self.shards_from };
        lines.push(shards.describe());
        lines.push(format!(
            "steps {}, {} an epoch, {} epochs{stop}",
            self.total_steps, self.steps_per_epoch, self.epochs
        ));
        lines.extend(self.time.iter().map(|time| format!("time {time}")));
        lines.push(format!(
            "memory {} on the device for weights, gradients and averages, and more for \
             activations; {} for batches",
            mib(self.least_device_bytes),
            mib(self.loader_bytes)
        ));
        let free = self.free_bytes.map_or("unknown".into(), mib);
        lines.push(format!(
            "disk about {} for checkpoints, {free} free",
            mib(self.checkpoint_bytes)
        ));
        lines.push("nothing was started".to_owned());
        lines.join("\n")
    }
}

/// Bytes of the kept checkpoints and the one being written: weights, the optimizer's two moments,
/// and the moving average if set.
pub(crate) fn checkpoints_of(config: &Config, parameters: u64) -> u64 {
    // The newest, the best, and the one being written.
    let kept = config.checkpoint.keep_last as u64 + 2;
    let arrays = 3 + u64::from(config.train.ema.is_some());
    parameters * arrays * 4 * kept
}

/// Free bytes on the file system of `folder`, which need not exist; `None` if unknown.
fn free_for(folder: &Path) -> Option<u64> {
    let found = folder.ancestors().find(|one| one.is_dir());
    let existing = found.filter(|one| !one.as_os_str().is_empty()).unwrap_or(Path::new("."));
    statvfs(existing).ok().map(|disk| disk.f_bavail * disk.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_and_kept_checkpoints_count() {
        let mut config = Config::default();
        assert_eq!(checkpoints_of(&config, 10), 10 * 3 * 4 * 4);
        config.train.ema = Some(0.99);
        config.checkpoint.keep_last = 3;
        assert_eq!(checkpoints_of(&config, 10), 10 * 4 * 4 * 5);
    }

    #[test]
    fn a_folder_to_be_made_is_on_its_parents_disk() {
        let folder = tempfile::tempdir().unwrap();
        assert!(free_for(&folder.path().join("a/b")).unwrap() > 0);
        assert!(free_for(Path::new("not/there")).unwrap() > 0);
    }
}
