//! A sweep on this machine.

use std::collections::VecDeque;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf, absolute};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use vim_data::CpuAllocation;
use vim_run::printable;
use vim_run::signals::{Stop, StopRequest};
use vim_sweep::{OnFailure, PlannedRun, RunState};

use super::folder::{Sweep, log_of, outcome, state};
use super::job::{self, SharedJob};
use super::watch::{Shown, Watch, ended_by, last_line};
use super::{SweepRunError, packs};
use crate::Error;
use crate::config::{Backend, DevicesConfig, Gpus, Loaded};
use crate::device;
use crate::output::summary::{counted, duration};
use crate::train::job_attempt::Successor;
use crate::work::runs::steps;

/// How a sweep is run on this machine.
#[derive(Clone, Debug, Default)]
pub struct LocalOptions {
    /// Runs at a time; `None`: 1, or one on each of [`Self::gpus`].
    pub jobs: Option<usize>,
    /// GPUs to spread the runs over.
    pub gpus: Option<Gpus>,
    /// Start no other run once one has failed.
    pub fail_fast: bool,
}

/// Trains the unfinished `entries` and waits for them. Fails if a run fails or a signal arrives. In
/// a job of SLURM, whose history is called `name`, sees to it that they go on.
pub fn train(
    sweep: &Sweep,
    entries: &[&PlannedRun],
    options: &LocalOptions,
    name: &str,
) -> Result<(), Error> {
    let stop = StopRequest::install().map_err(Error::io("install", "signal handlers"))?;
    stop.defer();
    if options.gpus.is_some() {
        check_gpus_are_used(sweep, entries)?;
    }
    let gpus = options.gpus.as_ref().map(visible).transpose()?.unwrap_or_default();
    let jobs = options.jobs.unwrap_or(gpus.len().max(1));
    let CpuAllocation { cores, .. } = CpuAllocation::of_this_process();
    let on_failure = sweep.origins.sweep.on_failure;
    let mut runner = Runner {
        sweep,
        gpus,
        threads: (jobs > 1).then_some((cores / jobs).max(1)),
        watch: Watch::new(),
        waiting: VecDeque::new(),
        slots: (0..jobs).map(|_| None).collect(),
        stops_at_failure: options.fail_fast || on_failure == OnFailure::Stop,
        started: 0,
        failures: Vec::new(),
        begun: Instant::now(),
        trained: 0.0,
    };
    let job = SharedJob::of(sweep, entries, name)?;
    let attempt = job.as_ref().map(SharedJob::attempt);
    runner.queue(entries);
    if let Some(attempt) = attempt.as_ref().filter(|_| !runner.waiting.is_empty()) {
        let step = job::steps(sweep, entries);
        attempt.begin(step, step > 0)?;
    }
    runner.work(&stop)?;
    let stopped = stop.get().filter(|_| runner.left(entries) > 0);
    let exit_code = match stopped {
        Some(stop) => stop.exit_code(),
        None => u8::from(!runner.failures.is_empty()),
    };
    let next = attempt
        .as_ref()
        .and_then(|attempt| job::end(attempt, job::steps(sweep, entries), exit_code, stopped));
    runner.finish(&stop, entries, next)
}

/// Trains the runs of pack number `index` of the file `lists`, side by side.
pub fn train_pack(sweep: &Sweep, lists: &Path, index: usize) -> Result<(), Error> {
    let all = packs::read(lists)?;
    let known = |run: &u32| sweep.plan.entries.get(*run as usize);
    let entries: Option<Vec<&PlannedRun>> =
        all.get(index).map(|pack| pack.iter().map(known).collect()).unwrap_or_default();
    let entries = entries.filter(|entries| !entries.is_empty());
    let entries = entries.ok_or_else(|| SweepRunError::NoEntry {
        folder: sweep.folder.clone(),
        asked: format!("in pack {index} of {}", lists.display()),
    })?;
    let config = Loaded::run(&sweep.folder.join(&entries[0].config), &[])?.config;
    let most = sweep.origins.sweep.max_parallel.map_or(usize::MAX, std::num::NonZero::get);
    let gpus = match config.devices.backend {
        Backend::Auto | Backend::Cuda => Some(Gpus::All),
        Backend::Cpu | Backend::Wgpu | Backend::Tch => None,
    };
    let options = LocalOptions { jobs: Some(entries.len().min(most)), gpus, fail_fast: false };
    let stem = lists.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    train(sweep, &entries, &options, &format!("{stem}-{index}"))
}

/// Whether a run computes on the GPUs that `CUDA_VISIBLE_DEVICES` names.
fn uses_visible_gpus(devices: &DevicesConfig) -> bool {
    match devices.backend {
        Backend::Auto | Backend::Cuda => true,
        Backend::Tch => matches!(devices.gpus, Gpus::List(_)),
        Backend::Cpu | Backend::Wgpu => false,
    }
}

/// An error if none of the runs does. One whose configuration cannot be read fails by itself.
fn check_gpus_are_used(sweep: &Sweep, entries: &[&PlannedRun]) -> Result<(), Error> {
    let mut backend = None;
    for entry in entries {
        match Loaded::run(&sweep.folder.join(&entry.config), &[]) {
            Ok(run) if uses_visible_gpus(&run.config.devices) => return Ok(()),
            Ok(run) => backend = Some(run.config.devices.backend),
            Err(_) => {}
        }
    }
    backend.map_or(Ok(()), |backend| Err(SweepRunError::GpusUnused(backend).into()))
}

/// The variable that names the GPUs of a process.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// The names of GPUs in `CUDA_VISIBLE_DEVICES`.
fn visible(gpus: &Gpus) -> Result<Vec<String>, Error> {
    let of_this_process = env::var(VISIBLE).unwrap_or_default();
    if *gpus == Gpus::All && !of_this_process.is_empty() {
        return Ok(of_this_process.split(',').map(|name| name.trim().to_owned()).collect());
    }
    let count = if *gpus == Gpus::All { device::count_cuda("--gpus all")? } else { 0 };
    Ok(gpus.numbers(count).iter().map(usize::to_string).collect())
}

struct Runner<'a> {
    sweep: &'a Sweep,
    /// Their names in `CUDA_VISIBLE_DEVICES`.
    gpus: Vec<String>,
    /// Threads of each run; `None` keeps the configuration's value for a single run at a time.
    threads: Option<usize>,
    watch: Watch,
    waiting: VecDeque<Waiting<'a>>,
    slots: Vec<Option<AtWork<'a>>>,
    stops_at_failure: bool,
    started: usize,
    /// A line for each run that failed.
    failures: Vec<String>,
    begun: Instant,
    /// How much was trained here of the runs that have ended, in runs.
    trained: f64,
}

/// Exit code of a process whose run folder is locked.
const IN_USE: i32 = 73;
/// Time to wait for a locked run folder: a run whose runner was killed may still be saving.
const PATIENCE: Duration = Duration::from_secs(30);
/// Polling interval of a locked folder.
const LOOK: Duration = Duration::from_secs(1);

struct Waiting<'a> {
    entry: &'a PlannedRun,
    /// When the folder was first found locked.
    held: Option<Instant>,
    not_before: Instant,
}

struct AtWork<'a> {
    entry: &'a PlannedRun,
    held: Option<Instant>,
    child: Child,
    log: PathBuf,
    since: Instant,
    shown: Shown,
}

impl<'a> Runner<'a> {
    /// Orders the runs to train and reports the others.
    fn queue(&mut self, entries: &[&'a PlannedRun]) {
        let mut finished = 0;
        for entry in entries {
            if state(&self.sweep.run(entry)) == RunState::Finished {
                finished += 1;
            } else {
                let not_before = Instant::now();
                self.waiting.push_back(Waiting { entry, held: None, not_before });
            }
        }
        let (jobs, waiting) = (self.slots.len().min(self.waiting.len()), self.waiting.len());
        let threads = self
            .threads
            .map_or_else(String::new, |threads| format!(", {} each", counted(threads, "thread")));
        self.watch.line(&format!(
            "{}: {} to train, {finished} finished; {jobs} at a time{threads}",
            self.sweep.folder.display(),
            counted(waiting, "run")
        ));
    }

    fn work(&mut self, stop: &StopRequest) -> Result<(), Error> {
        let mut asked = false;
        let mut shown_at = Instant::now();
        loop {
            let is_stopping = stop.get().is_some();
            for slot in 0..self.slots.len() {
                self.collect(slot, is_stopping)?;
            }
            let gives_up = self.stops_at_failure && !self.failures.is_empty();
            for slot in 0..self.slots.len() {
                if self.slots[slot].is_none()
                    && !is_stopping
                    && !gives_up
                    && let Some(next) = self.next()
                {
                    self.slots[slot] = Some(self.start(next, slot)?);
                }
            }
            if is_stopping && !asked {
                asked = true;
                stop.get().iter().for_each(|stop| self.ask_to_stop(*stop));
            }
            if self.slots.iter().all(Option::is_none)
                && (self.waiting.is_empty() || is_stopping || gives_up)
            {
                return Ok(());
            }
            if shown_at.elapsed() > Duration::from_secs(1) {
                shown_at = Instant::now();
                for run in self.slots.iter_mut().flatten() {
                    run.shown.update(&self.sweep.run(run.entry));
                }
                self.watch.show_whole(self.whole().unwrap_or_default());
            }
            sleep(Duration::from_millis(50));
        }
    }

    /// The first run that may start; drops runs that another process finished or keeps locked.
    fn next(&mut self) -> Option<Waiting<'a>> {
        let now = Instant::now();
        for _ in 0..self.waiting.len() {
            let mut next = self.waiting.pop_front()?;
            if next.not_before > now {
                self.waiting.push_back(next);
                continue;
            }
            match state(&self.sweep.run(next.entry)) {
                RunState::Finished => {}
                RunState::Running if next.held.is_some_and(|held| now - held > PATIENCE) => {
                    let name = &next.entry.name;
                    self.watch.line(&format!("{name}: another process is at work on it"));
                }
                RunState::Running => {
                    next.held = next.held.or(Some(now));
                    next.not_before = now + LOOK;
                    self.waiting.push_back(next);
                }
                RunState::Queued
                | RunState::Interrupted
                | RunState::Failed(_)
                | RunState::Missing => return Some(next),
            }
        }
        None
    }

    fn start(&mut self, next: Waiting<'a>, slot: usize) -> Result<AtWork<'a>, Error> {
        let Waiting { entry, held, .. } = next;
        let program = env::current_exe().map_err(Error::io("find", "the program itself"))?;
        let (log, out) = self.open_log(entry)?;
        let err = out.try_clone().map_err(Error::io("open", &log))?;
        let mut command = Command::new(program);
        command.args(["sweep", "task", "--watched", "--index", &entry.index.to_string()]);
        command.args(self.threads.map(|threads| format!("--threads={threads}")));
        // Absolute, because a supervisor appends to these arguments.
        let folder = &self.sweep.folder;
        command.arg(absolute(folder).map_err(Error::io("find", folder))?);
        if !self.gpus.is_empty() {
            command.env(VISIBLE, &self.gpus[slot % self.gpus.len()]);
        }
        // Own process group: a terminal's Ctrl-C would reach the runs a second time.
        command.process_group(0).stdin(Stdio::piped()).stdout(out).stderr(err);
        let child = command.spawn().map_err(Error::io("start", "the program itself"))?;
        self.started += 1;
        self.watch.line(&format!("{} started", self.label(entry)));
        let (shown, since) = (self.watch.show(&entry.name, &self.sweep.run(entry)), Instant::now());
        Ok(AtWork { entry, held, child, log, since, shown })
    }

    /// A run's log, opened for appending.
    fn open_log(&self, entry: &PlannedRun) -> Result<(PathBuf, File), Error> {
        let path = log_of(&self.sweep.folder, entry.index, &entry.name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(Error::io("make", folder))?;
        }
        let file = OpenOptions::new().create(true).append(true).open(&path);
        Ok((path.clone(), file.map_err(Error::io("open", path))?))
    }

    /// How many runs are left, and for how long at the pace so far: `2 runs left, for about 3m`.
    fn whole(&self) -> Option<String> {
        let shares = self.slots.iter().flatten().map(|run| run.shown.shares());
        let (trained, left) = shares
            .fold((self.trained, self.waiting.len() as f64), |sum, share| {
                (sum.0 + share.0, sum.1 + share.1)
            });
        let runs = self.waiting.len() + self.slots.iter().flatten().count();
        let seconds = self.begun.elapsed().as_secs_f64() * left / trained;
        let time = Duration::try_from_secs_f64(seconds).ok().filter(|_| trained > 0.0);
        let time = time.map_or_else(String::new, |time| format!(", for about {}", duration(time)));
        (runs > 0).then(|| format!("{} left{time}", counted(runs, "run")))
    }

    fn label(&self, entry: &PlannedRun) -> String {
        format!("[{}/{}] {}", entry.index + 1, self.sweep.plan.entries.len(), entry.name)
    }

    /// Records the end of the run in `slot`, if it has ended.
    fn collect(&mut self, slot: usize, is_stopping: bool) -> Result<(), Error> {
        let Some(run) = &mut self.slots[slot] else { return Ok(()) };
        let ended = run.child.try_wait().map_err(Error::io("wait for", &run.log))?;
        let Some(status) = ended else { return Ok(()) };
        let Some(mut run) = self.slots[slot].take() else { return Ok(()) };
        let (label, time) = (self.label(run.entry), duration(run.since.elapsed()));
        let said = last_line(&run.log, !status.success());
        run.shown.update(&self.sweep.run(run.entry));
        self.trained += run.shown.shares().0;
        drop(run.shown);
        match status.code() {
            Some(0) => {
                let whole = self.whole().map_or_else(String::new, |whole| format!("; {whole}"));
                self.watch.line(&format!("{label} finished after {time}: {said}{whole}"));
            }
            Some(75 | 130) if is_stopping => {
                let ended = outcome(self.sweep, run.entry);
                let reached = ended.step.map_or(said, |_| {
                    format!("saved at step {}", steps(ended.step, ended.total_steps))
                });
                self.watch.line(&format!("{label} stopped: {reached}"));
            }
            // Locked since the last poll: retry until the time limit.
            Some(IN_USE) if run.held.is_none_or(|held| held.elapsed() < PATIENCE) => {
                let now = Instant::now();
                let (held, not_before) = (run.held.or(Some(now)), now + LOOK);
                self.waiting.push_back(Waiting { entry: run.entry, held, not_before });
            }
            code => {
                self.watch.line(&format!("{label} {} after {time}: {said}", ended_by(status)));
                let log = run.log.display();
                let how = code.map_or_else(|| ended_by(status), |code| format!("exit code {code}"));
                self.failures.push(format!("{}: {how}: {said} ({log})", run.entry.name));
            }
        }
        Ok(())
    }

    /// Asks all running runs to save and stop.
    fn ask_to_stop(&self, stop: Stop) {
        let at_work = counted(self.slots.iter().flatten().count(), "run");
        self.watch.line(&format!(
            "{}: {at_work} to save after this step; a further Ctrl-C after two seconds does not wait",
            stop.said()
        ));
        for run in self.slots.iter().flatten() {
            if let Some(pid) = Pid::from_raw(run.child.id().cast_signed()) {
                // A run that has ended meanwhile is collected as ended.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
    }

    /// How many of the `entries` are not finished.
    fn left(&self, entries: &[&PlannedRun]) -> usize {
        let is_left = |entry: &&&PlannedRun| state(&self.sweep.run(entry)) != RunState::Finished;
        entries.iter().filter(is_left).count()
    }

    fn finish(
        self,
        stop: &StopRequest,
        entries: &[&PlannedRun],
        next: Option<Successor>,
    ) -> Result<(), Error> {
        for failure in &self.failures {
            eprintln!("{}", printable(failure));
        }
        let folder = self.sweep.folder.clone();
        let left = self.left(entries);
        let finished = entries.len() - left;
        if let Some(stop) = stop.get() {
            return Err(match next {
                Some(next) => SweepRunError::Handed { stop, left, next }.into(),
                None => SweepRunError::Stopped { stop, left }.into(),
            });
        }
        if !self.failures.is_empty() {
            let (failed, started) = (self.failures.len(), self.started);
            return Err(SweepRunError::Failed { folder, failed, started }.into());
        }
        let folder = folder.display();
        eprintln!(
            "{finished} of {} finished; `vim-train sweep summarize {folder}` puts them together",
            counted(entries.len(), "run")
        );
        Ok(())
    }
}
