//! Requests to stop, from the scheduler, the terminal or the keyboard.
//!
//! A thread receives the signals. Before training it ends the process; during training it sets a
//! flag, which the loop reads at every step boundary.

use std::fs;
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use crate::slurm_job;

/// Exit code of a process that a further Ctrl-C ended at once.
pub const ENDED_AT_ONCE: u8 = 79;
/// How long after the first a second SIGINT is the same Ctrl-C: the terminal sends one to all its
/// processes, and wrappers such as `timeout` pass theirs on.
const RELAY: Duration = Duration::from_secs(2);
/// How long a line may take to be written when the process ends.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Why the run should stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// SIGTERM, SIGUSR1 or SIGUSR2, which schedulers send before they reclaim the machine, or
    /// SIGHUP of a terminal that is gone.
    Scheduler {
        /// The signal's number.
        signal: i32,
    },
    /// Ctrl-C.
    Keyboard,
}

impl Stop {
    /// The request that `signal` makes.
    pub fn of(signal: i32) -> Self {
        if signal == SIGINT { Self::Keyboard } else { Self::Scheduler { signal } }
    }

    /// The signal's number.
    pub fn signal(self) -> i32 {
        match self {
            Self::Keyboard => SIGINT,
            Self::Scheduler { signal } => signal,
        }
    }

    /// The signal's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Keyboard => "SIGINT",
            Self::Scheduler { signal: SIGUSR1 } => "SIGUSR1",
            Self::Scheduler { signal: SIGUSR2 } => "SIGUSR2",
            Self::Scheduler { signal: SIGHUP } => "SIGHUP",
            Self::Scheduler { .. } => "SIGTERM",
        }
    }

    /// What a training run says when the signal arrives: a step may take minutes.
    pub fn acknowledged(self) -> String {
        let again = match self {
            Self::Keyboard => "; once more ends without saving",
            Self::Scheduler { .. } => "",
        };
        format!("{}: saving after this step{again}", self.said())
    }

    /// The signal as its sender knows it.
    pub fn said(self) -> &'static str {
        if self == Self::Keyboard { "Ctrl-C" } else { self.name() }
    }

    /// The exit code of a stopped command: `EX_TEMPFAIL`, or a shell's 128 + SIGINT.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Scheduler { .. } => 75,
            Self::Keyboard => 130,
        }
    }
}

/// A signal ended a command that saves nothing.
#[derive(Debug, thiserror::Error)]
#[error("interrupted by {}: nothing was saved, run it again", stop.name())]
pub struct Interrupted {
    /// The signal.
    pub stop: Stop,
}

/// The request to stop; clones share it.
#[derive(Clone, Debug, Default)]
pub struct StopRequest {
    /// Number of the last signal, 0 for none.
    signal: Arc<AtomicUsize>,
    /// Whether signals wait for [`StopRequest::get`]; locked for good once one ends the process.
    is_deferred: Arc<Mutex<bool>>,
    /// Where the first request is told, if somebody [waits](StopRequest::first) for it.
    told: Arc<Mutex<Option<Sender<Stop>>>>,
}

impl StopRequest {
    /// Receives the signals from now on: until [`StopRequest::defer`], the first one ends the
    /// process. SIGHUP stays ignored if it is, as under `nohup`.
    ///
    /// # Errors
    ///
    /// If there is no thread or descriptor to be had.
    pub fn install() -> io::Result<Self> {
        let request = Self::default();
        let asked = [SIGINT, SIGTERM, SIGUSR1, SIGUSR2];
        let signals = Signals::new(asked.into_iter().chain(heeds_hangup().then_some(SIGHUP)))?;
        let receiver = request.clone();
        let receive = move || receiver.receive(signals);
        thread::Builder::new().name("signals".into()).spawn(receive)?;
        Ok(request)
    }

    /// From now on signals wait for [`StopRequest::get`], except a further Ctrl-C. Does not return
    /// if one is about to end the process, which therefore changes nothing any more.
    pub fn defer(&self) {
        *self.deferred() = true;
    }

    fn deferred(&self) -> MutexGuard<'_, bool> {
        self.is_deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive(&self, mut signals: Signals) {
        let mut interrupts = Interrupts::default();
        // In a job of SLURM the loop decides whether the job is requeued.
        let in_job = slurm_job().is_some();
        for signal in signals.forever() {
            let stop = Stop::of(signal);
            if stop == Stop::Keyboard && !interrupts.is_request(Instant::now()) {
                end("SIGINT again: ended at once, without saving".into(), ENDED_AT_ONCE);
            }
            self.raise(stop);
            let waits = in_job && stop != Stop::Keyboard;
            let is_deferred = self.deferred();
            if !waits && !*is_deferred {
                end(Interrupted { stop }.to_string(), stop.exit_code());
            }
        }
    }

    /// The request to stop, if any.
    pub fn get(&self) -> Option<Stop> {
        let signal = self.signal.load(Ordering::SeqCst) as i32;
        (signal != 0).then(|| Stop::of(signal))
    }

    /// Receives the first request, when it arrives.
    pub fn first(&self) -> Receiver<Stop> {
        let (sender, receiver) = channel();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        match self.get() {
            // Nobody may have listened yet.
            Some(stop) => drop(sender.send(stop)),
            None => *told = Some(sender),
        }
        receiver
    }

    /// Asks the run to stop from within the process.
    pub fn raise(&self, stop: Stop) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        self.signal.store(stop.signal() as usize, Ordering::SeqCst);
        if let Some(sender) = told.take() {
            // Who waited may be gone.
            let _ = sender.send(stop);
        }
    }
}

/// The SIGINTs of this process.
#[derive(Debug, Default)]
struct Interrupts {
    first: Option<Instant>,
    count: usize,
}

impl Interrupts {
    /// Whether a SIGINT at `now` asks the run to save and stop: the first, and one relayed by a
    /// wrapper. Any other demands the end.
    fn is_request(&mut self, now: Instant) -> bool {
        self.count += 1;
        let first = *self.first.get_or_insert(now);
        self.count <= 2 && now.saturating_duration_since(first) < RELAY
    }
}

/// Whether SIGHUP would end this process: not under `nohup`, which ignores it.
fn heeds_hangup() -> bool {
    // Without /proc the signal keeps its meaning.
    fs::read_to_string("/proc/self/status").is_ok_and(|status| !is_ignored(&status, SIGHUP))
}

/// Whether a process with this `/proc/PID/status` ignores `signal`.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Ends the process at once, with a line on stderr.
fn end(error: String, code: u8) -> ! {
    // Another thread may hold stderr, waiting for a reader that has stopped.
    let say = move || writeln!(io::stderr(), "error: {error}");
    if let Ok(said) = thread::Builder::new().spawn(say) {
        let start = Instant::now();
        while !said.is_finished() && start.elapsed() < LAST_WORDS {
            thread::sleep(Duration::from_millis(1));
        }
    }
    low_level::exit(i32::from(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relayed_interrupt_is_the_same_request() {
        let start = Instant::now();
        let after = |seconds: &[f64]| -> Vec<bool> {
            let mut interrupts = Interrupts::default();
            let at = |&seconds: &f64| start + Duration::from_secs_f64(seconds);
            seconds.iter().map(|seconds| interrupts.is_request(at(seconds))).collect()
        };
        assert_eq!(after(&[0.0, 0.1, 0.2]), [true, true, false], "a third is meant");
        assert_eq!(after(&[0.0, 1.9]), [true, true]);
        assert_eq!(after(&[0.0, 2.1]), [true, false], "no wrapper takes so long");
    }

    #[test]
    fn ignored_signals_are_known() {
        let status = "Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        let ignored = [SIGHUP, SIGINT].map(|signal| is_ignored(status, signal));
        assert_eq!(ignored, [true, false]);
        assert!(!is_ignored("", SIGHUP));
    }

    #[test]
    fn the_first_request_is_told_at_once() {
        let request = StopRequest::default();
        let (first, clone) = (request.first(), request.clone());
        thread::spawn(move || clone.raise(Stop::Keyboard));
        let stop = first.recv().unwrap();
        assert_eq!(
            stop.acknowledged(),
            "Ctrl-C: saving after this step; once more ends without saving"
        );
        request.raise(Stop::Scheduler { signal: SIGUSR1 });
        assert!(first.recv().is_err(), "once");
        let late = request.first().recv().unwrap();
        assert_eq!(late.acknowledged(), "SIGUSR1: saving after this step");
    }

    #[test]
    fn clones_share_the_request() {
        let request = StopRequest::default();
        let seen_by_the_loop = request.clone();
        assert_eq!(seen_by_the_loop.get(), None);
        request.raise(Stop::Scheduler { signal: SIGUSR2 });
        assert_eq!(seen_by_the_loop.get(), Some(Stop::Scheduler { signal: SIGUSR2 }));
        assert_eq!(seen_by_the_loop.get().map(Stop::name), Some("SIGUSR2"));
        request.raise(Stop::Keyboard);
        assert_eq!(seen_by_the_loop.get(), Some(Stop::Keyboard));
    }
}
