//! `train.batch_size = "auto"`: the number, sought once, when a run first starts.
//!
//! Each number is tried by `vim-train warmup` in a process of its own, which does two training
//! steps and two evaluation batches on the run's data: what it runs out of hurts nobody else.

use std::env;
use std::fs;
use std::process::{self, Command, Output, Stdio};

use vim_run::{LOCK, RunDir};

use super::TrainOptions;
use super::ranks::devices;
use crate::config::{BatchSize, Config, ConfigError, Problem};
use crate::device;
use crate::error::{Error, code};
use crate::run_folder::{look, recorded_config};

/// Most images that are tried: larger batches are a choice of their own.
const MOST: usize = 1024;
/// The second number that is tried, or the next one that can be.
const SECOND: usize = 64;

/// `config` with a number in the place of `"auto"`: that of the run's record, or as many images as
/// fit. A rank has it from its supervisor.
pub(super) fn sought(options: &TrainOptions, config: Config) -> Result<Config, Error> {
    if config.train.batch_size != BatchSize::Auto || options.rank.is_some() {
        return Ok(config);
    }
    if let Some(images) = recorded(options, &config) {
        return Ok(with(config, images));
    }
    look(&config, options.resume, options.fresh)?;
    let ranks = check(options, &config)?;
    // Another start of the run would look for memory on the same GPU.
    let folder = config.run_folder()?;
    let is_new = !folder.exists();
    let lock = RunDir::lock(&folder)?;
    if let Some(images) = recorded(options, &config) {
        return Ok(with(config, images));
    }
    let step = config.train.step();
    eprintln!("seeking train.batch_size on {}", ranks.name);
    let found = largest(step, |images| tried(options, &config, &ranks, images));
    if is_new && found.is_err() {
        // A run that does not start leaves no folder; what cannot be removed is in nobody's way.
        let _ = fs::remove_file(folder.join(LOCK));
        let _ = fs::remove_dir(&folder);
    }
    drop(lock);
    let (found, other) = found?;
    let limit = match other {
        Some(why) => format!("as more cannot be trained ({why})"),
        None if found + step > MOST => format!("the most that is tried being {MOST}"),
        None => "by the device's memory".to_owned(),
    };
    eprintln!(
        "note: train.batch_size = {found}, a multiple of {step}, {limit}; it is recorded, and \
         optim.lr stays {}",
        config.optim.lr
    );
    Ok(with(config, found))
}

/// For a dry run: [`sought`] without seeking, and what to say of it.
pub(super) fn recorded_or_usual(
    options: &TrainOptions,
    config: &Config,
) -> Result<(Config, Option<String>), Error> {
    if config.train.batch_size != BatchSize::Auto {
        return Ok((config.clone(), None));
    }
    if let Some(images) = recorded(options, config) {
        return Ok((with(config.clone(), images), None));
    }
    check(options, config)?;
    let images = config.train.images();
    let note = format!(
        "train.batch_size = \"auto\" is sought when the run starts; {images} stands for it here"
    );
    Ok((with(config.clone(), images), Some(note)))
}

fn with(mut config: Config, images: usize) -> Config {
    config.train.batch_size = BatchSize::Images(images);
    config
}

/// The number that the run of `config` began with, if it goes on.
fn recorded(options: &TrainOptions, config: &Config) -> Option<usize> {
    if options.fresh {
        return None;
    }
    let recorded = recorded_config(&config.run_folder().ok()?).ok()?;
    recorded.train.known_images().ok()
}

/// The ranks that share a batch.
struct Ranks {
    count: usize,
    /// The number of the first one's GPU, of several.
    gpu: Option<usize>,
    /// The first one's device.
    name: String,
}

/// Checks that there is memory to seek a number by, and that it depends on nothing but the run.
fn check(options: &TrainOptions, config: &Config) -> Result<Ranks, Error> {
    let refused = |why: &str| {
        let why = format!("\"auto\" {why}");
        Error::from(ConfigError::new("train.batch_size", Problem::Type(why)))
    };
    let nodes = options.nodes.map_or(config.slurm.nodes as usize, usize::from);
    if nodes > 1 {
        return Err(refused(
            "is sought on one machine, not on several: write a number, or start the run on one \
             first, which records it",
        ));
    }
    let devices = devices(options, config, false)?;
    if devices.len() > 1 && config.train.shards.is_none() {
        return Err(refused(
            "on several GPUs needs train.shards: without it, both would follow from the machine",
        ));
    }
    let count = devices.len().max(1);
    if !config.train.shards().is_multiple_of(count) {
        return Err(refused(&format!("needs train.shards to be a multiple of the {count} GPUs")));
    }
    let chosen = device::choose(&config.devices)?;
    if chosen.is_cpu() || chosen.name == "tch" || devices.first() == Some(&None) {
        return Err(refused(
            "fits a batch to a GPU's memory, and this run is on a CPU, where a larger batch is \
             slower and fits until the machine swaps: write a number",
        ));
    }
    let gpu = if devices.len() > 1 { devices[0] } else { None };
    Ok(Ranks { count, gpu, name: chosen.name })
}

/// Whether a rank's part of a batch of `images` fits; else why not.
fn tried(
    options: &TrainOptions,
    config: &Config,
    ranks: &Ranks,
    images: usize,
) -> Result<Result<(), Failed>, Error> {
    let program = env::current_exe().map_err(Error::io("find", "this program"))?;
    let mut sets = options.sets.clone();
    sets.push(format!("train.batch_size={}", images / ranks.count));
    if let Some(shards) = config.train.shards {
        sets.push(format!("train.shards={}", (shards / ranks.count).max(1)));
    }
    sets.extend(ranks.gpu.map(|gpu| format!("devices.gpus=[{gpu}]")));
    let mut command = Command::new(program);
    command.arg("warmup").arg(&options.config).arg("--parent").arg(process::id().to_string());
    command.args(sets.iter().flat_map(|set| ["--set", set]));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let Output { status, stderr, .. } =
        command.output().map_err(Error::io("start", "a trial of a batch size"))?;
    if status.success() {
        eprintln!("batch of {images}: fits");
        return Ok(Ok(()));
    }
    let said = String::from_utf8_lossy(&stderr);
    let why = said.lines().rev().find_map(|line| line.strip_prefix("error: "));
    let why = why.map_or_else(|| status.to_string(), str::to_owned);
    eprintln!("batch of {images}: {why}");
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(Err(Failed { code: code.unwrap_or(code::UNAVAILABLE), why }))
}

/// Why a batch does not fit.
#[derive(Debug)]
struct Failed {
    code: u8,
    why: String,
}

/// The largest multiple of `step` up to [`MOST`] that `fits`, less a tenth where the memory is not
/// enough for a larger one, as a run needs somewhat more than the two steps of a trial; and what
/// else keeps a larger one from being trained.
fn largest(
    step: usize,
    mut fits: impl FnMut(usize) -> Result<Result<(), Failed>, Error>,
) -> Result<(usize, Option<String>), Error> {
    let most = (MOST / step).max(1);
    let (mut good, mut bad, mut limit) = (0, most + 1, None);
    // The smallest first: what else is wrong, it says.
    let mut next = 1;
    loop {
        match fits(next * step)? {
            Ok(()) => good = next,
            Err(Failed { code, why }) if next == 1 => {
                let why = format!("train.batch_size: not even {step} images can be trained: {why}");
                return Err(Error::with_code(code, why));
            }
            Err(failed) => (bad, limit) = (next, Some(failed)),
        }
        // Exact to an eighth.
        if bad - good <= (good / 8).max(1) {
            break;
        }
        let larger = (2 * good).max(SECOND / step).min(most);
        next = if bad > most { larger } else { good.midpoint(bad) };
    }
    // Another limit than memory's is kept to the image.
    let (good, other) = match limit {
        None => (good, None),
        Some(Failed { code: code::MEMORY, .. }) => ((good * 9 / 10).max(1), None),
        Some(Failed { why, .. }) => (good, Some(why)),
    };
    Ok((good * step, other))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found where `room` images fit, and after how many trials.
    fn found(step: usize, room: usize) -> (Option<usize>, usize) {
        let mut trials = 0;
        let found = largest(step, |images| {
            assert!(images.is_multiple_of(step) && images <= MOST.max(step), "{images}");
            trials += 1;
            let failed = || Failed { code: code::MEMORY, why: "out of memory".into() };
            Ok(if images <= room { Ok(()) } else { Err(failed()) })
        });
        (found.ok().map(|(images, _)| images), trials)
    }

    #[test]
    fn a_batch_is_a_multiple_that_fits_with_room_left() {
        for step in [8, 16, 24, 64, 2048] {
            for room in [8, 20, 63, 100, 300, 700, 1023, 5000] {
                let (images, trials) = found(step, room);
                assert!(trials <= 12, "{trials} for {step}, {room}");
                let Some(images) = images else {
                    assert!(room < step, "{step}, {room}");
                    continue;
                };
                assert!(images.is_multiple_of(step) && images <= room, "{images}: {step}, {room}");
                let least = (room.min(MOST) * 3 / 4).saturating_sub(step);
                assert!(images >= least, "{images} < {least}: {step}, {room}");
                let is_short = room < (MOST / step).max(1) * step && images > step;
                assert!(!is_short || 10 * images <= 9 * room, "{images}: {step}, {room}");
            }
        }
        assert_eq!(found(8, 5000).0, Some(MOST));
        // An epoch of 64 images is no shortage of memory.
        let few = || Failed { code: code::CONFIG, why: "an epoch has 64 images".into() };
        let found = largest(8, |images| Ok(if images <= 64 { Ok(()) } else { Err(few()) }));
        assert_eq!(found.unwrap(), (64, Some("an epoch has 64 images".to_owned())));
    }

    #[test]
    fn of_each_shard_eight_images_in_equal_parts() {
        let step = |shards, accumulate| {
            let mut train = Config::default().train;
            (train.shards, train.accumulate) = (shards, accumulate);
            train.batch_size = BatchSize::Auto;
            assert!(train.images().is_multiple_of(train.step()), "{train:?}");
            train.step()
        };
        assert_eq!([step(None, 1), step(Some(4), 1), step(None, 2)], [8, 32, 8]);
        assert_eq!([step(None, 3), step(Some(2), 16)], [24, 32]);
    }
}
