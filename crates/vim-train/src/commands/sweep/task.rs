//! `vim-train sweep task`: one run of a sweep, in this process.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;

use clap::{Args, Command, FromArgMatches};
use rustix::process::{Signal, getpid, kill_process};
use vim_data::CpuAllocation;
use vim_engine::Error;
use vim_engine::run_folder::check_nameable;
use vim_engine::work::sweep::SweepRunError;
use vim_engine::work::sweep::folder::Sweep;
use vim_engine::work::sweep::local::train_pack;
use vim_run::{CONFIG, EXIT, ExitRecord, RunError, write_exit_in};

use crate::commands::train::{self, TrainArgs};

const EXAMPLES: &str = "\
Examples:
  vim-train sweep task runs/ablation --index 3
  vim-train sweep task runs/ablation --index $PBS_ARRAY_INDEX    an array of a scheduler that is not SLURM

Numbers are of `sweep plan`'s list, from 0. It trains, or goes on, or says that the run is finished: the same command again and again.";

/// Train one run of a planned sweep in this process, as the others start it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TaskArgs {
    /// The sweep's folder.
    folder: PathBuf,
    /// The run's index in `plan.jsonl`; with --pack, that of a list.
    #[arg(long, value_name = "I")]
    index: usize,
    /// A file with lists of runs, of which one is trained side by side: sweep.pack = "node".
    #[arg(long, value_name = "FILE", hide = true)]
    pack: Option<PathBuf>,
    /// Cores to compute and to load images with; left out: as the configuration says.
    #[arg(long, value_name = "N", value_parser = crate::args::count)]
    threads: Option<usize>,
    /// Save and stop once stdin ends: who started it is gone. It also sees to the job of SLURM.
    #[arg(long, hide = true)]
    watched: bool,
    /// What a supervisor tells a rank that it starts.
    #[arg(long, hide = true, value_name = "JSON")]
    rank: Option<String>,
}

/// `vim-train sweep task`: `train --resume auto` of the run's frozen configuration.
pub(super) fn run(args: &TaskArgs) -> Result<(), Error> {
    let sweep = Sweep::open(&args.folder)?;
    if let Some(lists) = &args.pack {
        check_nameable(&sweep.folder)?;
        return train_pack(&sweep, lists, args.index);
    }
    let entry = sweep.plan.entries.get(args.index).ok_or_else(|| SweepRunError::NoEntry {
        folder: args.folder.clone(),
        asked: format!("with index {}", args.index),
    })?;
    check_nameable(&sweep.folder)?;
    // A rank ends with its supervisor.
    if args.watched && args.rank.is_none() {
        let watch = thread::Builder::new().spawn(stop_when_stdin_ends);
        watch.map_err(Error::io("start", "a thread"))?;
    }
    // Build the command line that a user would type, so that both behave the same.
    let mut words = vec!["train".to_owned(), "--resume=auto".to_owned()];
    words.push(sweep.folder.join(&entry.config).display().to_string());
    words.extend(args.watched.then(|| "--led".to_owned()));
    words.extend(args.rank.iter().map(|rank| format!("--rank={rank}")));
    // Use the folder's present path: it may have moved since the plan.
    let mut sets = vec![format!("run.root={}", quoted(&sweep.folder))];
    if args.watched {
        // A sweep that is run on this machine trains each run on this machine.
        sets.push("slurm.nodes=1".to_owned());
    }
    if let Some(threads) = args.threads {
        sets.push(format!("devices.threads={threads}"));
        let share = CpuAllocation { cores: threads, gpus: 1, is_job: false };
        sets.push(format!("data.workers={}", share.workers()));
    }
    words.extend(sets.into_iter().map(|set| format!("--set={set}")));
    let train = TrainArgs::augment_args(Command::new("train"))
        .try_get_matches_from(&words)
        .and_then(|matches| TrainArgs::from_arg_matches(&matches))
        .map_err(|error| Error::internal(format!("{words:?}: {error}")))?;
    let folder = sweep.run(entry);
    if args.rank.is_some() {
        return train::run(&train);
    }
    forget_early_end(&folder)?;
    train::run(&train).inspect_err(|error| record_early_end(&folder, error))
}

/// Quotes text for TOML: a folder may be called `1`.
fn quoted(folder: &Path) -> toml::Value {
    toml::Value::String(folder.display().to_string())
}

/// Sends this process a stop signal when stdin is closed.
fn stop_when_stdin_ends() {
    let mut byte = [0];
    while matches!(io::stdin().read(&mut byte), Ok(1)) {}
    // If the signal fails, the run merely continues.
    let _ = kill_process(getpid(), Signal::TERM);
}

/// Records the reason of a failure before the configuration is loaded, for `sweep status`.
fn record_early_end(folder: &Path, error: &Error) {
    let exit = ExitRecord::failed(error, error.exit_code());
    // Another process owns the folder and its records, or the run had one that is elsewhere by now.
    let is_displaced = matches!(error.downcast_ref(), Some(RunError::Displaced(_)));
    let is_ours = exit.exit_code != 73 && !is_displaced && !folder.join(CONFIG).exists();
    if is_ours && fs::create_dir_all(folder).is_ok() {
        // The caller reports the original error.
        let _ = write_exit_in(folder, &exit);
    }
}

fn forget_early_end(folder: &Path) -> Result<(), Error> {
    let path = folder.join(EXIT);
    if folder.join(CONFIG).exists() || !path.exists() {
        return Ok(());
    }
    match fs::remove_file(&path) {
        // Another node of the run was first.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(Error::io("remove", path)),
    }
}
