//! The process that starts the ranks of a machine, watches them, and ends them together.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{self, Child, ChildStderr, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use vim_comm::{CommError, Node, Place, Rendezvous};
use vim_run::signals::StopRequest;
use vim_run::{
    EXIT, ExitRecord, LOCK, LOG, Lock, Log, Resume, host_name, slurm_job, write_exit_in,
};
use vim_slurm::SlurmConfig;

use super::nodes::{Ends, GRACE, NodePlace, RankEnd, Verdict, ending};
use super::{LOCAL_RANKS, Member, RankError, ShardCount};
use crate::config::Config;
use crate::error::{Error, code};
use crate::train::job_attempt::{JobAttempt, Successor};

/// The file by which rank 0 says that the run's folder is its own.
pub(super) const OPENED: &str = "opened";
/// The file by which rank 0 says that it ended because another rank has.
pub(super) const MISSES: &str = "misses";
/// [`GRACE`] after a rank was killed: a GPU that reads another one's memory waits for a dead
/// rank for ever. A save that takes longer is lost, as by any kill.
const KILLED_GRACE: Duration = Duration::from_secs(2);
/// The signals that [`StopRequest`] receives.
const NAMED: [Signal; 5] = [Signal::INT, Signal::TERM, Signal::USR1, Signal::USR2, Signal::HUP];
/// Pause between two looks at the ranks.
pub(super) const PAUSE: Duration = Duration::from_millis(20);
/// Pause between two looks whether another node has ended the run.
const LOOK: Duration = Duration::from_secs(1);

/// What the name of a rank is followed by where its failure is the reason to end the others.
const ENDED: &str = " ended";

/// Whether `error` says no more than that another rank has failed.
pub(super) fn is_of_another(error: &CommError) -> bool {
    if let CommError::Aborted { reason } = error {
        return reason.starts_with("rank ") && reason.ends_with(ENDED);
    }
    matches!(error, CommError::Lost { .. })
}

/// Ends this process when the process `parent`, which started it, ends.
pub(in crate::train) fn end_with_parent(parent: u32) {
    // Where that cannot be had, the supervisor ends its ranks wherever it can.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let now = getppid().map(|pid| pid.as_raw_nonzero().get());
    if now.and_then(|pid| u32::try_from(pid).ok()) != Some(parent) {
        process::exit(i32::from(code::UNAVAILABLE));
    }
}

/// The ranks of this machine, before they start.
#[derive(Debug)]
pub(in crate::train) struct Supervisor {
    /// Those of this node.
    members: Vec<Member>,
    /// All nodes.
    nodes: Vec<Node>,
    /// This node.
    number: usize,
    /// The run's folder.
    run: PathBuf,
    /// What becomes of its job.
    slurm: SlurmConfig,
    resume: Resume,
    rendezvous: Rendezvous,
    /// The signal that the ranks were sent last.
    forwarded: Option<i32>,
    /// By which later starts know that the rendezvous is in use.
    _lock: Option<Lock>,
}

/// A rank that runs or has ended.
pub(super) struct Started {
    pub(super) child: Child,
    /// The reader of its stderr; the last line that it keeps is the rank's error.
    pub(super) errors: Option<JoinHandle<Option<String>>>,
    pub(super) name: String,
    pub(super) status: Option<ExitStatus>,
}

impl Supervisor {
    /// The supervisor of the node in `place` of `nodes`, which have met.
    pub(super) fn new(
        config: &Config,
        place: &NodePlace,
        nodes: Vec<Node>,
        devices: Vec<Option<usize>>,
        shards: ShardCount,
        resume: Resume,
    ) -> Result<Self, Error> {
        let run = config.run_folder()?;
        let folder = place.folder(config);
        fs::create_dir_all(&folder).map_err(Error::io("make", &folder))?;
        // Where there can be no lock, the number of the process tells.
        let lock = if place.count == 1 { Lock::acquire(&folder.join(LOCK)).ok() } else { None };
        let ranks: Vec<usize> = nodes.iter().map(|node| node.ranks).collect();
        let first: usize = ranks[..place.number].iter().sum();
        let members = devices.into_iter().enumerate().map(|(local, gpu)| Member {
            place: Place::new(first + local, ranks.clone())
                .expect("invariant: a rank of the world"),
            folder: folder.clone(),
            shards,
            gpu,
            supervisor: process::id(),
            images: Some(config.train.images()),
        });
        let members: Vec<Member> = members.collect();
        let rendezvous = members[0].rendezvous(config);
        let (number, slurm) = (place.number, config.slurm.clone());
        let forwarded = None;
        Ok(Self { members, nodes, number, run, slurm, resume, rendezvous, forwarded, _lock: lock })
    }

    /// Ends the run on all nodes because of `error`, before the ranks have started.
    pub(in crate::train) fn give_up(&self, error: &impl std::fmt::Display) {
        let reason = format!("node {} ({}): {error}", self.number, host_name());
        // Where that cannot be written, the others miss this node's ranks.
        let _ = self.rendezvous.abort(&reason);
        if self.nodes.len() == 1 {
            self.clean();
        }
    }

    /// Starts the ranks and waits for their end. The first that fails ends all, on all nodes, and
    /// its exit code is that of the run.
    pub(in crate::train) fn run(mut self, stop: &StopRequest) -> Result<(), Error> {
        stop.defer();
        let mut ranks = Vec::new();
        for member in &self.members {
            match Self::start(member, self.members.len(), true) {
                Ok(rank) => ranks.push(rank),
                Err(error) => {
                    end(&mut ranks);
                    self.give_up(&error);
                    return Err(error);
                }
            }
        }
        let first = self.watch(&mut ranks, stop);
        let code = |rank: usize| ranks[rank].status.and_then(|status| status.code());
        // What rank 0 knows of another one's failure it leaves to this process to tell.
        let missed = self.missed();
        // What all of a node's ranks agreed on is told by its first one. A rank without a code was
        // killed, perhaps by this process.
        let agreed =
            |rank: usize| missed.is_none() && code(rank).is_some() && code(rank) == code(0);
        let first = first.map(|first| if agreed(first) { 0 } else { first });
        let lead = code(0).map(|code| code as u8).filter(|_| missed.is_none());
        let mut own = first.map(|first| ranks[first].failure());
        if let (Some(0), Some(own), Some(missed)) = (first, &mut own, missed) {
            own.what = format!("failed: {missed}");
        }
        let (rendezvous, nodes, number) = (&self.rendezvous, &self.nodes, self.number);
        let ends = Ends { rendezvous, nodes, number, stop };
        if self.number > 0 {
            return match ends.hear(own) {
                Verdict { code: 0, .. } => Ok(()),
                Verdict { failure: Some(failure), .. } => Err(ended(failure)),
                Verdict { code, failure: None } => {
                    let host = &self.nodes[0].host;
                    eprintln!("the run has ended on node 0 ({host}), with exit code {code}");
                    process::exit(i32::from(code));
                }
            };
        }
        let mut verdict = ends.decide(own, lead);
        let has_opened = self.rendezvous.has(OPENED);
        if let Some(lost) = verdict.failure.as_mut().filter(|lost| lost.is_node && has_opened)
            && let Some(next) = self.go_on()
        {
            lost.what = format!("{}: {next}", lost.what);
        }
        let error = verdict.failure.clone().map(ended);
        let recorded = match &error {
            Some(error) if has_opened => self.record(error),
            Some(_) | None => Ok(()),
        };
        ends.tell(&verdict);
        self.clean();
        recorded?;
        match error {
            Some(error) => Err(error),
            None if verdict.code == 0 => Ok(()),
            // Rank 0 writes to this process's stderr and to the run's folder itself.
            None => process::exit(i32::from(verdict.code)),
        }
    }

    /// What rank 0, if it is of this node, said of another rank that ended it.
    fn missed(&self) -> Option<String> {
        fs::read_to_string(self.rendezvous.folder.join(MISSES)).ok().filter(|_| self.number == 0)
    }

    /// Starts `member`, one of `ranks` ranks on this machine. Rank 0 writes to this process's
    /// streams where `lead_tells`, else to stdout alone.
    pub(super) fn start(member: &Member, ranks: usize, lead_tells: bool) -> Result<Started, Error> {
        let program = env::current_exe().map_err(Error::io("find", "this program"))?;
        let is_lead = member.place.rank() == 0;
        let text = serde_json::to_string(member)
            .map_err(|error| Error::internal(format!("--rank: {error}")))?;
        let mut command = Command::new(program);
        command.args(env::args_os().skip(1)).arg("--rank").arg(text);
        command.env(LOCAL_RANKS, ranks.to_string());
        command.envs(vim_comm::environment(member.place.nodes()));
        if vim_comm::shares_gpu() {
            // NCCL takes ranks that share a GPU for ranks of several hosts, and connects them by
            // its sockets.
            command.env("NCCL_HOSTID", format!("rank-{}", member.place.rank()));
            command.envs([("NCCL_P2P_DISABLE", "1"), ("NCCL_SHM_DISABLE", "1")]);
        }
        // A group of its own: Ctrl-C reaches a rank once, through this process.
        command.stdin(Stdio::null()).process_group(0);
        if !is_lead {
            command.stdout(Stdio::null());
        }
        if !is_lead || !lead_tells {
            command.stderr(Stdio::piped());
        }
        let mut child = command.spawn().map_err(Error::io("start", "a rank"))?;
        let rank = member.place.rank();
        let errors = child.stderr.take().map(|stderr| thread::spawn(move || relay(rank, stderr)));
        let device = member.gpu.map_or_else(|| "cpu".to_owned(), |gpu| format!("cuda:{gpu}"));
        let name = format!("rank {rank} (node {}, {device})", host_name());
        Ok(Started { child, errors, name, status: None })
    }

    /// Waits until all ranks have ended; returns the first that failed.
    fn watch(&mut self, ranks: &mut [Started], stop: &StopRequest) -> Option<usize> {
        // In the order in which they were seen to fail.
        let mut failed: Vec<usize> = Vec::new();
        let mut deadline = None;
        let (mut looked, mut has_told) = (Instant::now(), self.nodes.len() == 1);
        loop {
            self.forward(ranks, stop);
            if self.nodes.len() > 1 && looked.elapsed() > LOOK {
                looked = Instant::now();
                if self.rendezvous.aborted().is_some() {
                    deadline.get_or_insert(looked + GRACE);
                }
            }
            for (number, rank) in ranks.iter_mut().enumerate() {
                if rank.status.is_some() {
                    continue;
                }
                rank.status = rank.child.try_wait().ok().flatten();
                if let Some(status) = rank.status.filter(|status| !status.success()) {
                    failed.push(number);
                    let grace = if status.code().is_some() { GRACE } else { KILLED_GRACE };
                    let at = Instant::now() + grace;
                    deadline = Some(deadline.map_or(at, |set: Instant| set.min(at)));
                    // Where that cannot be written, the ranks are ended all the same.
                    let _ = self.rendezvous.abort(&format!("{}{ENDED}", rank.name));
                }
            }
            if deadline.is_some() && !has_told {
                has_told = true;
                // Where that cannot be written, the others wait less long.
                let _ = self.rendezvous.publish(&ending(self.number), b"");
            }
            let all_ended = ranks.iter().all(|rank| rank.status.is_some());
            if all_ended || deadline.is_some_and(|deadline| Instant::now() > deadline) {
                // A rank that misses another one may be seen to end before it.
                let misses = Some(i32::from(code::UNAVAILABLE));
                let code = |&rank: &usize| ranks[rank].status.and_then(|status| status.code());
                let cause = failed.iter().copied().find(|rank| code(rank) != misses);
                // So may rank 0, which says so.
                let has_missed = self.missed().is_some();
                let other = failed.iter().copied().find(|&rank| rank > 0 || !has_missed);
                let first = cause.or(other).or(failed.first().copied());
                end(ranks);
                return first;
            }
            thread::sleep(PAUSE);
        }
    }

    /// Sends the ranks the signal that this process was sent.
    fn forward(&mut self, ranks: &mut [Started], stop: &StopRequest) {
        let request = stop.get();
        if let (Some(request), None) = (request, self.forwarded) {
            eprintln!("{}", request.acknowledged());
        }
        let signal = request.map(|stop| stop.signal());
        if let Some(number) = signal
            && signal != self.forwarded
            && let Some(signal) = NAMED.iter().copied().find(|signal| signal.as_raw() == number)
        {
            self.forwarded = Some(number);
            for rank in ranks.iter().filter(|rank| rank.status.is_none()) {
                // It may have ended meanwhile.
                let _ = kill_process(Pid::from_child(&rank.child), signal);
            }
        }
    }

    /// Has the job go on without the node that is lost, if this is a job. Returns what does.
    fn go_on(&self) -> Option<Successor> {
        slurm_job()?;
        let log = Log::open(&self.run.join(LOG));
        let log = log.inspect_err(|error| eprintln!("warning: {error}")).ok()?;
        let attempt = JobAttempt::new(&self.slurm, &self.run, &log, self.resume, false);
        attempt.lost_node(self.recorded_step())
    }

    /// The step that rank 0 has recorded last.
    fn recorded_step(&self) -> u64 {
        let written = fs::read(self.run.join(EXIT)).ok();
        let known = written.and_then(|bytes| serde_json::from_slice::<ExitRecord>(&bytes).ok());
        known.map_or(0, |known| known.step)
    }

    /// Records the end of the run, whose lead is gone or knows only that another rank is.
    fn record(&self, error: &Error) -> Result<(), Error> {
        let step = self.recorded_step();
        let exit = ExitRecord { step, ..ExitRecord::failed(error, error.exit_code()) };
        Ok(write_exit_in(&self.run, &exit)?)
    }

    /// Removes the folder where the ranks have met.
    fn clean(&self) {
        // What stays is small, and nothing reads it.
        let _ = fs::remove_dir_all(&self.rendezvous.folder);
        if let Some(all) = self.rendezvous.folder.parent() {
            let _ = fs::remove_dir(all);
        }
    }
}

impl Started {
    /// How this rank, which has ended, failed.
    pub(super) fn failure(&mut self) -> RankEnd {
        let said = self.errors.take().and_then(|errors| errors.join().ok().flatten());
        let status = self.status.unwrap_or_default();
        let (what, code) = match (status.code(), status.signal(), said) {
            (Some(code), _, Some(error)) => (format!("failed: {error}"), code as u8),
            (Some(code), _, None) => (format!("ended with exit code {code}"), code as u8),
            (None, Some(signal), _) => {
                (format!("was killed by signal {signal}"), code::UNAVAILABLE)
            }
            (None, None, _) => ("ended".to_owned(), code::UNAVAILABLE),
        };
        let is_cause = status.code() != Some(i32::from(code::UNAVAILABLE));
        let exited = status.code().map(|code| code as u8);
        let name = self.name.clone();
        RankEnd { name, what, exited, code, is_cause, is_node: false }
    }
}

/// The error of a run that the failure of a rank ended.
pub(super) fn ended(RankEnd { name, what, code, .. }: RankEnd) -> Error {
    RankError::Ended { name, what, code }.into()
}

/// Kills the ranks that still run.
pub(super) fn end(ranks: &mut [Started]) {
    for rank in ranks.iter_mut().filter(|rank| rank.status.is_none()) {
        let _ = rank.child.kill();
        rank.status = rank.child.wait().ok();
    }
}

/// Copies a rank's stderr to that of this process, its lines marked; returns the last error, which
/// is told by who knows whether it was the first.
fn relay(rank: usize, stderr: ChildStderr) -> Option<String> {
    let mut last = None;
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        match line.strip_prefix("error: ") {
            Some(error) => last = Some(error.to_owned()),
            None => eprintln!("[rank {rank}] {line}"),
        }
    }
    last
}
