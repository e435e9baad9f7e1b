//! `vim-train sweep retry`.

use clap::Args;
use vim_sweep::{Entry, State};

use super::WhichArgs;
use super::error::StudyError;
use super::folder::Sweep;
use super::local::{self, LocalArgs};
use super::outcomes::state;
use crate::error::Error;

/// Shown below the options.
pub(super) const EXAMPLES: &str = "\
Examples:
  vim-train sweep retry data/runs/shapes-ablation --failed
  vim-train sweep retry data/runs/shapes-ablation --missing -j 2
  vim-train sweep retry data/runs/shapes-ablation --id 02c959e948

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
    /// How.
    #[command(flatten)]
    pub local: LocalArgs,
}

/// `vim-train sweep retry`.
pub(super) fn run(args: &RetryArgs) -> Result<(), Error> {
    let sweep = Sweep::find(&args.which)?;
    let entries = chosen(&sweep, args)?;
    if entries.is_empty() {
        eprintln!("no such runs in {}", sweep.folder.display());
        return Ok(());
    }
    local::train(&sweep, &entries, &args.local)
}

fn chosen<'a>(sweep: &'a Sweep, args: &RetryArgs) -> Result<Vec<&'a Entry>, StudyError> {
    let is_named = |entry: &Entry, id: &String| entry.id == *id || entry.name == *id;
    for id in &args.id {
        if !sweep.plan.entries.iter().any(|entry| is_named(entry, id)) {
            let (folder, asked) = (sweep.folder.clone(), format!("`{id}`"));
            return Err(StudyError::NoEntry { folder, asked });
        }
    }
    let failed = args.failed || (!args.missing && args.id.is_empty());
    let is_asked = |entry: &&Entry| {
        args.id.iter().any(|id| is_named(entry, id))
            || match state(&sweep.run(entry)) {
                State::Failed(_) => failed,
                State::Missing | State::Interrupted => args.missing,
                State::Finished | State::Running | State::Queued => false,
            }
    };
    Ok(sweep.plan.entries.iter().filter(is_asked).collect())
}
