//! Ranks of a command that trains no run and records nothing: `doctor --ranks`, `bench scaling`,
//! `bench phases`.

use std::env;
use std::fs;
use std::process;
use std::thread;
use std::time::Instant;

use clap::Args;
use vim_comm::{Comm, Place, Rendezvous};

use super::nodes::GRACE;
use super::supervisor::{PAUSE, Started, Supervisor, end, ended};
use super::{Member, Rank, ShardCount, ShardsFrom};
use crate::config::{Config, DevicesConfig};
use crate::device::{SelectedDevice, threads};
use crate::error::{Error, code};

/// The file with what rank 0 found, for the process that started it.
const ANSWER: &str = "answer";

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

    /// The device of this rank, and the ranks, which it joins.
    pub(crate) fn enter(&self, config: &Config) -> Result<(SelectedDevice, Comm), Error> {
        threads::start(config.devices.threads)?;
        let chosen = self.device(&config.devices)?;
        let comm = self.join(config, &chosen)?;
        Ok((chosen, comm))
    }

    /// Gives `bytes` to the process that [started](start) the ranks, in place of what it was given
    /// before.
    pub(crate) fn answer(&self, config: &Config, bytes: &[u8]) -> Result<(), Error> {
        match &self.rank {
            Rank::Only => Ok(()),
            Rank::Member(member) => Ok(member.rendezvous(config).publish(ANSWER, bytes)?),
        }
    }
}

/// How the ranks of a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The last [answer](Team::answer) of rank 0.
    pub(crate) answer: Option<Vec<u8>>,
    /// The first rank that failed is the error.
    pub(crate) result: Result<(), Error>,
}

/// Starts this command again as a rank on each of `devices`, and waits for their end: the first
/// that fails ends all. Rank 0 alone writes to stdout.
pub(crate) fn start(config: &Config, devices: Vec<Option<usize>>) -> Result<Ended, Error> {
    let folder = env::temp_dir().join(format!("vim-train-ranks-{}", process::id()));
    fs::create_dir_all(&folder).map_err(Error::io("make", &folder))?;
    let world = devices.len();
    let members = devices.into_iter().enumerate().map(|(rank, gpu)| Member {
        place: Place::new(rank, vec![world]).expect("invariant: a rank of the world"),
        folder: folder.clone(),
        shards: ShardCount { count: world, from: ShardsFrom::Ranks },
        gpu,
        supervisor: process::id(),
        images: None,
    });
    let members: Vec<Member> = members.collect();
    let rendezvous = members[0].rendezvous(config);
    let mut ranks = Vec::new();
    let started = members.iter().try_for_each(|member| {
        ranks.push(Supervisor::start(member, world, false)?);
        Ok(())
    });
    let result = started.and_then(|()| watch(&mut ranks, &rendezvous));
    end(&mut ranks);
    // What they have said is told before this process ends.
    ranks.iter_mut().filter_map(|rank| rank.errors.take()).for_each(|errors| drop(errors.join()));
    let answer = fs::read(folder.join(ANSWER)).ok();
    // What stays is small, and nobody reads it.
    let _ = fs::remove_dir_all(&folder);
    Ok(Ended { answer, result })
}

/// Waits until all ranks have ended, or for a while after the first that failed, which is the
/// error.
fn watch(ranks: &mut [Started], rendezvous: &Rendezvous) -> Result<(), Error> {
    let mut failed: Vec<usize> = Vec::new();
    let mut deadline = None;
    let is_over = |deadline: Option<Instant>| deadline.is_some_and(|end| Instant::now() > end);
    while ranks.iter().any(|rank| rank.status.is_none()) && !is_over(deadline) {
        for (number, rank) in ranks.iter_mut().enumerate().filter(|(_, rank)| rank.status.is_none())
        {
            rank.status = rank.child.try_wait().ok().flatten();
            if rank.status.is_some_and(|status| !status.success()) {
                failed.push(number);
                deadline.get_or_insert(Instant::now() + GRACE);
                // Where that cannot be written, the ranks are ended all the same.
                let _ = rendezvous.abort(&format!("{} ended", rank.name));
            }
        }
        thread::sleep(PAUSE);
    }
    // A rank that misses another one may be seen to end before it.
    let code = |rank: usize| ranks[rank].status.and_then(|status| status.code());
    let misses = Some(i32::from(code::UNAVAILABLE));
    let cause = failed.iter().copied().find(|&rank| code(rank) != misses);
    let Some(first) = cause.or(failed.first().copied()) else { return Ok(()) };
    Err(ended(ranks[first].failure()))
}
