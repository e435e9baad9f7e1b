//! `vim-train sweep run`: a sweep on this machine.

use clap::Args;
use vim_engine::Error;
use vim_engine::config::Gpus;
use vim_engine::work::sweep::local::{LocalOptions, train};
use vim_engine::work::sweep::plan::find_or_plan;
use vim_sweep::PlannedRun;

use super::WhichArgs;

const EXAMPLES: &str = "\
Examples:
  vim-train sweep run configs/ablation/shapes.toml          one run after the other
  vim-train sweep run configs/ablation/shapes.toml -j 2     two at a time, half of the cores each
  vim-train sweep run configs/ablation/cifar100.toml --gpus 0,1,2,3
  vim-train sweep run configs/ablation/cifar100.toml --gpus all    a whole node, in one job

Ctrl-C and SIGTERM let the runs at work save; the same command goes on, and passes over what is
finished. What a run says is in the sweep's folder, logs/INDEX-NAME.log.";

/// How a sweep is run on this machine.
#[derive(Debug, Args)]
pub(crate) struct LocalArgs {
    /// Runs at a time; the cores are divided among them. Left out: 1, or one on each of --gpus.
    #[arg(short, long, value_name = "N", value_parser = crate::args::count)]
    jobs: Option<usize>,
    /// GPUs to spread the runs over: by number, as in `0,1`, or `all` that this process sees. Each
    /// run sees one of them.
    #[arg(long, value_name = "LIST|all", value_parser = gpus)]
    gpus: Option<Gpus>,
    /// Start no other run once one has failed, as `sweep.on_failure = "stop"`; those at work go on.
    #[arg(long)]
    fail_fast: bool,
}

impl LocalArgs {
    pub(super) fn options(&self) -> LocalOptions {
        let Self { jobs, ref gpus, fail_fast } = *self;
        LocalOptions { jobs, gpus: gpus.clone(), fail_fast }
    }
}

/// Parses `all` or numbers with commas between them.
fn gpus(text: &str) -> Result<Gpus, String> {
    if text == "all" {
        return Ok(Gpus::All);
    }
    let numbers: Result<Vec<usize>, _> = text.split(',').map(str::parse).collect();
    numbers.map(Gpus::List).map_err(|_| format!("`{text}` is neither `all` nor a list as 0,1"))
}

/// Train what is not finished, on this machine.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    which: WhichArgs,
    #[command(flatten)]
    local: LocalArgs,
}

pub(super) fn run(args: &RunArgs) -> Result<(), Error> {
    let sweep = find_or_plan(&args.which.which())?;
    let all: Vec<&PlannedRun> = sweep.plan.entries.iter().collect();
    train(&sweep, &all, &args.local.options(), "run")
}
