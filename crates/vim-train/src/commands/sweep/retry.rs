//! `vim-train sweep retry`.

use clap::Args;
use vim_engine::Error;
use vim_engine::work::sweep::SweepRunError;
use vim_engine::work::sweep::folder::{Sweep, outcomes_with_jobs};
use vim_engine::work::sweep::local;
use vim_slurm::JobId;
use vim_slurm::submissions;
use vim_sweep::{PlannedRun, RunOutcome, RunState};

use super::local::LocalArgs;
use super::{WhichArgs, submit};

const EXAMPLES: &str = "\
Examples:
  vim-train sweep retry data/runs/shapes-ablation --failed
  vim-train sweep retry data/runs/shapes-ablation --missing -j 2
  vim-train sweep retry data/runs/shapes-ablation --id 02c959e948
  vim-train sweep retry data/runs/cifar100-ablation --failed --submit    by SLURM
  vim-train sweep retry data/runs/shapes-ablation --failed --missing      all that is left
  vim-train sweep retry data/runs/shapes-ablation --failed --id foh-s1    and this one

What is selected adds up:
  (nothing)   failed: it ended with an error, or its job did
  --failed    the same
  --missing   missing: never started; interrupted: stopped or killed; failed only with --failed
  --id ID     this run, be it failed, missing or interrupted; others only with --failed, --missing
A run that is finished, at work or in the queue is never selected, by its id neither.

A sweep that was submitted to SLURM is trained here only with --local, or in a job.

Each goes on in its folder from its newest checkpoint. A run that diverged (76) diverges again at
the same step, because nothing in it is left to chance: change the sweep's configuration instead.";

/// Train failed or missing runs again, in their folders.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Those that failed, which is also what is retried where none of --failed, --missing and --id
    /// is given.
    #[arg(long)]
    failed: bool,
    /// Those that were never started, or were stopped or killed; with --failed, those that failed
    /// besides.
    #[arg(long)]
    missing: bool,
    /// The run with this id or name, besides those of --failed and --missing where these are given;
    /// may be repeated.
    #[arg(long, value_name = "ID")]
    id: Vec<String>,
    /// By SLURM, as an array, instead of on this machine.
    #[arg(long, conflicts_with_all = ["jobs", "gpus", "fail_fast", "here"])]
    submit: bool,
    /// On this machine, though the sweep was submitted to SLURM.
    #[arg(long = "local")]
    here: bool,
    #[command(flatten)]
    local: LocalArgs,
}

pub(super) fn run(args: &RetryArgs) -> Result<(), Error> {
    let sweep = Sweep::find(&args.which.which())?;
    let chosen = chosen(&sweep, args)?;
    if chosen.is_empty() {
        let folder = sweep.folder.display();
        eprintln!(
            "nothing to retry in {folder}: no run that was asked for failed or is missing; runs \
             that are finished, running or queued are left alone"
        );
        return Ok(());
    }
    if args.submit {
        return submit::submit(&sweep, &chosen, false, false);
    }
    let submissions = submissions::read(&sweep.folder)
        .map_err(Error::io("read", submissions::path(&sweep.folder)))?;
    // In a job this is a compute node.
    if !args.here && !submissions.is_empty() && JobId::of_this_process().is_none() {
        return Err(SweepRunError::Submitted(args.typed()).into());
    }
    let entries: Vec<&PlannedRun> =
        chosen.iter().map(|run| &sweep.plan.entries[run.index]).collect();
    local::train(&sweep, &entries, &args.local.options(), "run")
}

impl RetryArgs {
    /// The command as it was typed, but for the options of a sweep on this machine.
    fn typed(&self) -> String {
        let mut words = vec!["vim-train sweep retry".to_owned()];
        words.push(self.which.sweep.display().to_string());
        words.extend(self.which.overrides.set.iter().map(|set| format!("--set {set}")));
        words.extend(self.failed.then(|| "--failed".to_owned()));
        words.extend(self.missing.then(|| "--missing".to_owned()));
        words.extend(self.id.iter().map(|id| format!("--id {id}")));
        words.join(" ")
    }

    /// Whether the run with this id and name is selected as it stands.
    fn selects(&self, id: &str, name: &str, state: RunState) -> bool {
        let is_named = self.id.iter().any(|asked| asked == id || asked == name);
        let failed = self.failed || (!self.missing && self.id.is_empty());
        match state {
            // Running and queued runs are never started twice.
            RunState::Finished | RunState::Running | RunState::Queued => false,
            RunState::Failed(_) => is_named || failed,
            RunState::Missing | RunState::Interrupted => is_named || self.missing,
        }
    }
}

fn chosen(sweep: &Sweep, args: &RetryArgs) -> Result<Vec<RunOutcome>, SweepRunError> {
    let outcomes = outcomes_with_jobs(sweep);
    for id in &args.id {
        if !outcomes.iter().any(|run| run.id == *id || run.name == *id) {
            let (folder, asked) = (sweep.folder.clone(), format!("`{id}`"));
            return Err(SweepRunError::NoEntry { folder, asked });
        }
    }
    let is_selected = |run: &RunOutcome| args.selects(&run.id, &run.name, run.state);
    Ok(outcomes.into_iter().filter(is_selected).collect())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: RetryArgs,
    }

    /// The runs that `options` select of one in every state, called by its first letter.
    fn selected(options: &str) -> String {
        let words = ["retry", "study"].into_iter().chain(options.split_whitespace());
        let Line { args } = Line::try_parse_from(words).unwrap();
        let runs = [
            ("F", RunState::Finished),
            ("r", RunState::Running),
            ("q", RunState::Queued),
            ("i", RunState::Interrupted),
            ("f", RunState::Failed(65)),
            ("m", RunState::Missing),
        ];
        let of = |(name, state)| args.selects("0123456789", name, state).then_some(name);
        runs.into_iter().filter_map(of).collect()
    }

    #[test]
    fn what_is_selected_adds_up() {
        for (options, expected) in [
            ("", "f"),
            ("--failed", "f"),
            ("--missing", "im"),
            ("--failed --missing", "ifm"),
            ("--id i", "i"),
            ("--id f --id m", "fm"),
            ("--id i --failed", "if"),
            ("--id f --missing", "ifm"),
            ("--id m --failed --missing", "ifm"),
            // An id selects neither finished nor active runs.
            ("--id F --id r --id q", ""),
            ("--id F --missing", "im"),
            // An id does as well as a name.
            ("--id 0123456789", "ifm"),
        ] {
            assert_eq!(selected(options), expected, "{options}");
        }
    }
}
