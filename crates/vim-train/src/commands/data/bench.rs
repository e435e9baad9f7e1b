//! `vim-train data bench`: the loader alone.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use vim_engine::Error;
use vim_engine::config::Config;
use vim_engine::output::{print, print_json};
use vim_engine::task::EvalSplit;
use vim_engine::work::loader::{LoaderReport, measure};

use crate::args::Overrides;

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

pub(super) fn run(args: &BenchArgs) -> Result<(), Error> {
    let config = Config::load(&args.config, &args.overrides.set)?;
    let (time, step) = (Duration::from_secs(args.seconds), Duration::from_millis(args.step_ms));
    let report = measure(&config, args.split, time, step)?;
    if args.json { print_json(&report) } else { print(&table(&report)) }
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
