//! Ranks of a command that trains no run and records nothing: `doctor --ranks`, `bench scaling`,
//! `profile train`.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process;

use clap::Args;
use vim_comm::Comm;

use super::supervisor::{ANSWER, Supervisor};
use super::{Member, Rank};
use crate::config::{Config, DevicesConfig};
use crate::device::SelectedDevice;
use crate::error::Error;

/// What tells a process that it is a rank of its command.
#[derive(Debug, Default, Args)]
pub(crate) struct RankArg {
    /// What the process that starts ranks tells one of them.
    #[arg(long, hide = true, value_name = "JSON")]
    rank: Option<String>,
}

/// A process as one of the ranks of a command, or as the only one.
#[derive(Debug)]
pub(crate) struct Team {
    rank: Rank,
}

impl RankArg {
    /// The rank that this process is; `None` where the user started it.
    pub(crate) fn team(&self) -> Result<Option<Team>, Error> {
        let Some(text) = &self.rank else { return Ok(None) };
        Ok(Some(Team { rank: Rank::Member(Box::new(Member::of(text)?)) }))
    }
}

impl Team {
    /// Of the process that the user started.
    pub(crate) fn of_one() -> Self {
        Self { rank: Rank::Only }
    }

    /// Whether it is rank 0.
    pub(crate) fn is_lead(&self) -> bool {
        match &self.rank {
            Rank::Only => true,
            Rank::Member(member) => member.place.rank() == 0,
        }
    }

    /// Number of ranks.
    pub(crate) fn size(&self) -> usize {
        match &self.rank {
            Rank::Only => 1,
            Rank::Member(member) => member.place.world(),
        }
    }

    /// The device of this rank.
    pub(crate) fn device(&self, config: &DevicesConfig) -> Result<SelectedDevice, Error> {
        self.rank.device(config)
    }

    /// Joins the other ranks.
    pub(crate) fn join(&self, config: &Config, device: &SelectedDevice) -> Result<Comm, Error> {
        self.rank.join(config, device)
    }

    /// Gives `bytes` to the process that [started](start) the ranks, in place of what it was given before.
    pub(crate) fn answer(&self, config: &Config, bytes: &[u8]) -> Result<(), Error> {
        match &self.rank {
            Rank::Only => Ok(()),
            Rank::Member(member) => Ok(member.rendezvous(config).publish(ANSWER, bytes)?),
        }
    }
}

/// Starts this command again as a rank on each of `devices`, and waits for their end. Returns the
/// last [answer](Team::answer) of rank 0, which alone writes to stdout, and how the ranks ended.
pub(crate) fn start(
    config: &Config,
    devices: Vec<Option<usize>>,
) -> Result<(Option<Vec<u8>>, Result<(), Error>), Error> {
    let meeting = Meeting::new();
    let mut config = config.clone();
    config.run.root.clone_from(&meeting.folder);
    let ranks = devices.len();
    Ok(Supervisor::new(&config, devices, ranks)?.ask())
}

/// A folder of this machine where the ranks meet.
struct Meeting {
    folder: PathBuf,
}

impl Meeting {
    fn new() -> Self {
        Self { folder: env::temp_dir().join(format!("vim-train-ranks-{}", process::id())) }
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        // The ranks' own folder in it is removed by who started them.
        let _ = fs::remove_dir(&self.folder);
    }
}
