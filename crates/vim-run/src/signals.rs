//! Requests to stop, from the scheduler or the keyboard.
//!
//! A handler only sets a flag, because saving inside a handler can deadlock on locks of the
//! interrupted thread. The loop reads the flag at every step boundary.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::flag;

/// Why the run should stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// SIGTERM, SIGUSR1 or SIGUSR2, which schedulers send before they reclaim the machine.
    Scheduler {
        /// The signal's number.
        signal: i32,
    },
    /// Ctrl-C.
    Keyboard,
}

impl Stop {
    /// The signal's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Keyboard => "SIGINT",
            Self::Scheduler { signal: SIGUSR1 } => "SIGUSR1",
            Self::Scheduler { signal: SIGUSR2 } => "SIGUSR2",
            Self::Scheduler { .. } => "SIGTERM",
        }
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

/// The flag that the handlers set; clones share it.
#[derive(Clone, Debug, Default)]
pub struct StopRequest {
    /// Number of the last signal, 0 for none.
    signal: Arc<AtomicUsize>,
}

impl StopRequest {
    /// Installs the handlers. A second Ctrl-C ends the process at once, without a checkpoint.
    pub fn install() -> io::Result<Self> {
        let request = Self::default();
        let once = Arc::new(AtomicBool::new(false));
        // Before the handler that sets `once`: handlers run in registration order.
        let exit_code = i32::from(Stop::Keyboard.exit_code());
        flag::register_conditional_shutdown(SIGINT, exit_code, Arc::clone(&once))?;
        flag::register(SIGINT, once)?;
        for signal in [SIGINT, SIGTERM, SIGUSR1, SIGUSR2] {
            flag::register_usize(signal, Arc::clone(&request.signal), signal as usize)?;
        }
        Ok(request)
    }

    /// The request to stop, if any.
    pub fn get(&self) -> Option<Stop> {
        match self.signal.load(Ordering::Relaxed) as i32 {
            0 => None,
            SIGINT => Some(Stop::Keyboard),
            signal => Some(Stop::Scheduler { signal }),
        }
    }

    /// Asks the run to stop from within the process.
    pub fn raise(&self, stop: Stop) {
        let signal = match stop {
            Stop::Keyboard => SIGINT,
            Stop::Scheduler { signal } => signal,
        };
        self.signal.store(signal as usize, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
