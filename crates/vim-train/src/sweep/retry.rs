//! `vim-train sweep retry`.

use clap::Args;
use vim_sweep::{Entry, Outcome, State};

use super::WhichArgs;
use super::error::StudyError;
use super::folder::Sweep;
use super::local::{self, LocalArgs};
use super::queue::outcomes_with_jobs;
use super::submit;
use crate::error::Error;

/// Shown below the options.
pub(super) const EXAMPLES: &str = "\
Examples:
  vim-train sweep retry data/runs/shapes-ablation --failed
  vim-train sweep retry data/runs/shapes-ablation --missing -j 2
  vim-train sweep retry data/runs/shapes-ablation --id 02c959e948
  vim-train sweep retry data/runs/cifar100-ablation --failed --submit

Each goes on in its folder from its newest checkpoint. A run that diverged (76) diverges again at the
same step, because nothing in it is left to chance: change the sweep's configuration instead.";

/// `vim-train sweep retry`.
#[derive(Debug, Args)]
pub struct RetryArgs {
    /// Which sweep.
    #[command(flatten)]
    pub which: WhichArgs,
    /// Those that failed, which is also what is retried where nothing is said.
    #[arg(long)]
    pub failed: bool,
    /// Those that were never started, or were stopped or killed.
    #[arg(long)]
    pub missing: bool,
    /// The run with this id or name; may be repeated.
    #[arg(long, value_name = "ID")]
    pub id: Vec<String>,
    /// By SLURM, as an array, instead of on this machine.
    #[arg(long, conflicts_with_all = ["jobs", "gpus", "fail_fast"])]
    pub submit: bool,
    /// How.
    #[command(flatten)]
    pub local: LocalArgs,
}

/// `vim-train sweep retry`.
pub(super) fn run(args: &RetryArgs) -> Result<(), Error> {
    let sweep = Sweep::find(&args.which)?;
    let chosen = chosen(&sweep, args)?;
    if chosen.is_empty() {
        eprintln!("no such runs in {}", sweep.folder.display());
        return Ok(());
    }
    if args.submit {
        return submit::submit(&sweep, &chosen, false, false);
    }
    let entries: Vec<&Entry> = chosen.iter().map(|run| &sweep.plan.entries[run.index]).collect();
    local::train(&sweep, &entries, &args.local)
}

fn chosen(sweep: &Sweep, args: &RetryArgs) -> Result<Vec<Outcome>, StudyError> {
    let is_named = |run: &Outcome, id: &String| run.id == *id || run.name == *id;
    let outcomes = outcomes_with_jobs(sweep);
    for id in &args.id {
        if !outcomes.iter().any(|run| is_named(run, id)) {
            let (folder, asked) = (sweep.folder.clone(), format!("`{id}`"));
            return Err(StudyError::NoEntry { folder, asked });
        }
    }
    let failed = args.failed || (!args.missing && args.id.is_empty());
    let is_asked = |run: &Outcome| match run.state {
        // What is at work or in the queue is not to be there twice.
        State::Finished | State::Running | State::Queued => false,
        _ if args.id.iter().any(|id| is_named(run, id)) => true,
        State::Failed(_) => failed,
        State::Missing | State::Interrupted => args.missing,
    };
    Ok(outcomes.into_iter().filter(is_asked).collect())
}
