//! `vim-train bench scaling`: a training step on one GPU and on several.
//!
//! Each number of GPUs is a set of processes of its own, which train as a run does, each on a shard
//! of as many images. Rank 0 measures, and gives its rows to the process that started the ranks.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};
use vim_comm::LibraryInfo;

use super::{Latency, RankStepArgs, Throughput};
use crate::args::count;
use crate::config::{Config, DevicesConfig, config_inputs};
use crate::device::{self, DeviceName};
use crate::error::Error;
use crate::output::summary::rate;
use crate::output::{check_free, check_no_input, json, print, print_json, write_json};
use crate::train::environment::Environment;
use crate::train::measure::{Subject, Times};
use crate::train::ranks::{Ended, Team, start};

const SCALING_HELP: &str = "\
Examples:
  vim-train bench scaling configs/vim_tiny_imagenet.toml --gpus 1,2,4,8 --batch 128,512 --set train.precision=bf16
  vim-train bench scaling configs/debug.toml --device cpu --gpus 1,2 --batch 8 --steps 5

Each GPU takes --batch images a step, so that more GPUs make the whole batch larger. Processes start anew for each
number of GPUs, and each compiles; VIM_TRAIN_SHARE_GPU=1 lets several share a GPU, which shows that it works and not
how fast it is.

Columns:
  batch         images of a step on each GPU
  ms [p10 p90]  one step, the device waited for after it: median and spread
  img/s         steps queued one behind the other, one wait at the end; on all GPUs together
  efficiency    img/s over those of as many times one GPU
  MiB each      the most memory in use on a GPU, or in a process beyond what it held before

A row that does not run gives its reason; larger batches on as many GPUs are then not tried.";

/// Time a training step on several numbers of GPUs, each with as many images.
#[derive(Debug, Args)]
#[command(after_help = SCALING_HELP)]
pub(super) struct ScalingArgs {
    #[command(flatten)]
    common: RankStepArgs,
    /// Numbers of GPUs, or, on a CPU, of processes.
    #[arg(long, value_name = "N,M", value_delimiter = ',', value_parser = count,
        default_values_t = [1, 2])]
    gpus: Vec<usize>,
    /// Images of a step on each GPU.
    #[arg(long, value_name = "N,M", value_delimiter = ',', value_parser = count,
        default_values_t = [128])]
    batch: Vec<usize>,
    /// Steps to time, one by one and queued.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = count)]
    steps: usize,
    /// Instead of the file's `[devices]`: cpu or cuda.
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceName>,
    /// Write the results to a file as JSON, after every number of GPUs.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What is written and printed.
#[derive(Debug, Serialize)]
struct ScalingDocument {
    command: &'static str,
    config: String,
    model: String,
    method: String,
    dtype: String,
    num_classes: usize,
    warmup: usize,
    steps: usize,
    environment: Environment,
    overrides: Vec<String>,
    results: Vec<ScalingRow>,
}

/// A number of GPUs and of images on each.
#[derive(Debug, Serialize)]
struct ScalingRow {
    gpus: usize,
    /// Images of a step on each GPU.
    batch: usize,
    #[serde(flatten)]
    measured: Option<Measured>,
    /// Images a second over those of as many times one GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    efficiency: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What rank 0 measures at a batch size.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Measured {
    /// The device of rank 0.
    device: String,
    /// NCCL's library, where it is used.
    library: Option<LibraryInfo>,
    latency: Latency,
    throughput: Throughput,
    /// The largest of the ranks'.
    peak_memory_bytes: Option<u64>,
}

pub(super) fn run(args: &ScalingArgs) -> Result<(), Error> {
    let mut config = Config::load(&args.common.config, &args.common.overrides.set)?;
    if let Some(name) = &args.device {
        let (backend, gpus) = (name.backend, name.gpus());
        config.devices = DevicesConfig { backend, gpus, ..config.devices };
    }
    if let Some(team) = args.common.rank.team()? {
        return measure(&team, args, &config);
    }
    if let Some(output) = &args.output {
        let read = config_inputs([&args.common.config]);
        check_no_input(output, read.iter().map(PathBuf::as_path))?;
        check_free(output, args.common.force)?;
    }
    let worlds = ascending(&args.gpus);
    // What is not there is said before anything is measured.
    let devices: Vec<_> = worlds
        .iter()
        .map(|&world| device::of_ranks(&config.devices, world, "--gpus"))
        .collect::<Result<_, _>>()?;
    let mut document = ScalingDocument {
        command: "bench scaling",
        config: args.common.config.display().to_string(),
        model: config.model.preset.to_string(),
        method: config.model.method_label(),
        dtype: config.train.precision.to_string(),
        num_classes: args.common.classes.unwrap_or(config.task.usual_classes()),
        warmup: args.common.warmup,
        steps: args.steps,
        environment: Environment::of_this_process(config.devices.backend.to_string(), 0, 0),
        overrides: args.common.overrides.set.clone(),
        results: Vec::new(),
    };
    if !args.common.json {
        print(&head(&document))?;
    }
    for (world, devices) in worlds.into_iter().zip(devices) {
        let Ended { answer, result } = start(&config, devices)?;
        let measured: Vec<Measured> = match answer {
            Some(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| Error::internal(format!("the rows of rank 0: {error}")))?,
            None => Vec::new(),
        };
        let mut error = result.err().map(|error| error.to_string());
        for (number, batch) in ascending(&args.batch).into_iter().enumerate() {
            let measured = measured.get(number).cloned();
            let error = if measured.is_some() {
                None
            } else {
                let smaller = "not tried: a smaller batch did not run".to_owned();
                Some(error.replace(smaller.clone()).unwrap_or(smaller))
            };
            let efficiency = efficiency(&document.results, world, batch, measured.as_ref());
            let row = ScalingRow { gpus: world, batch, measured, efficiency, error };
            if !args.common.json {
                print(&line(&row))?;
            }
            document.results.push(row);
        }
        if let Some(output) = &args.output {
            write_json(output, &document)?;
        }
    }
    if args.common.json { print_json(&document) } else { Ok(()) }
}

/// Each number once, in order.
fn ascending(numbers: &[usize]) -> Vec<usize> {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Images a second over those of as many times one GPU, if that was measured.
fn efficiency(
    rows: &[ScalingRow],
    world: usize,
    batch: usize,
    measured: Option<&Measured>,
) -> Option<f64> {
    let one = rows.iter().find(|row| row.gpus == 1 && row.batch == batch);
    let own = measured?.throughput.img_s;
    let of_one = match one {
        Some(one) => one.measured.as_ref()?.throughput.img_s,
        None if world == 1 => own,
        None => return None,
    };
    Some(own / (of_one * world as f64))
}

/// As one of the ranks: every batch size, and rank 0's answer after each.
fn measure(team: &Team, args: &ScalingArgs, config: &Config) -> Result<(), Error> {
    let (chosen, comm) = team.enter(config)?;
    let (device, library) = (chosen.with_hardware(), comm.library());
    let subject = Subject::new(config, &chosen.device, args.common.classes, comm)?;
    let (batches, steps) = (ascending(&args.batch), (args.common.warmup, args.steps));
    let mut rows = Vec::new();
    subject.train_on_ranks(&batches, steps, false, |times, peak_memory_bytes| {
        let (device, library) = (device.clone(), library.clone());
        let Times { latency, throughput, .. } = times;
        rows.push(Measured { device, library, latency, throughput, peak_memory_bytes });
        if team.is_lead() { team.answer(config, json(&rows)?.as_bytes()) } else { Ok(()) }
    })
}

fn head(document: &ScalingDocument) -> String {
    let ScalingDocument { config, num_classes, method, dtype, .. } = document;
    format!(
        "bench scaling of {config} ({num_classes} classes), {method}, {dtype}\n\n{:>5}{:>7}{:>11} [{:>9} {:>9}]{:>10}{:>12}{:>12}{:>10}",
        "gpus", "batch", "ms", "p10", "p90", "img/s", "img/s each", "efficiency", "MiB each"
    )
}

fn line(row: &ScalingRow) -> String {
    let start = format!("{:>5}{:>7}", row.gpus, row.batch);
    let Some(Measured { latency, throughput, peak_memory_bytes, .. }) = &row.measured else {
        return format!("{start}  {}", row.error.as_deref().unwrap_or("no times"));
    };
    let dash = || "-".to_owned();
    format!(
        "{start}{:>11.3} [{:>9.3} {:>9.3}]{:>10}{:>12}{:>12}{:>10}",
        latency.median_ms,
        latency.p10_ms,
        latency.p90_ms,
        rate(throughput.img_s),
        rate(throughput.img_s / row.gpus as f64),
        row.efficiency.map_or_else(dash, |share| format!("{share:.4}")),
        peak_memory_bytes.map_or_else(dash, |bytes| (bytes >> 20).to_string()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(img_s: f64) -> Measured {
        let latency = Latency {
            steps: 1,
            median_ms: 1.0,
            p10_ms: 1.0,
            p90_ms: 1.0,
            mean_ms: 1.0,
            std_ms: 0.0,
            min_ms: 1.0,
            max_ms: 1.0,
        };
        let throughput = Throughput { img_s, images: 8, seconds: 1.0 };
        let device = "cuda:0".into();
        Measured { device, library: None, latency, throughput, peak_memory_bytes: None }
    }

    #[test]
    fn efficiency_is_against_one_gpu_of_the_same_batch() {
        let row = |batch, measured| ScalingRow {
            gpus: 1,
            batch,
            measured,
            efficiency: None,
            error: None,
        };
        let rows = [row(8, Some(measured(100.0))), row(16, None)];
        let of = |world, batch, img_s| efficiency(&rows, world, batch, Some(&measured(img_s)));
        assert_eq!(of(2, 8, 190.0), Some(0.95));
        assert_eq!(of(2, 16, 190.0), None, "one GPU did not run it");
        assert_eq!(of(2, 32, 190.0), None, "one GPU was not asked for");
        assert_eq!(of(1, 32, 190.0), Some(1.0));
        assert_eq!(efficiency(&rows, 2, 8, None), None);
    }
}
