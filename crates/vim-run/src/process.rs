//! What the system tells of a process by its number: whether it is there, ends, or is another one
//! by now.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// `PF_EXITING` of Linux, among the flags in `/proc/PID/stat`.
const EXITING: u64 = 4;
/// SIGKILL among the pending signals there.
const KILLED: u64 = 1 << (9 - 1);

/// Whether a process is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It is not, or another one has its number.
    Gone,
    /// It ends, or is ended with its parent: it may have files open for a moment.
    Ending,
    /// It is, as far as can be seen.
    Running,
}

impl Presence {
    /// Of the process `pid` of this machine, of which [`identity`] was recorded where there is one.
    pub(crate) fn of(pid: u32, recorded: Option<&str>) -> Self {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        // Only ESRCH proves absence: another user's process may refuse the test.
        if number.is_none_or(|pid| test_kill_process(pid) == Err(Errno::SRCH)) {
            return Self::Gone;
        }
        let Some(stat) = Stat::of(pid) else { return Self::Running };
        let now = boot().map(|boot| stat.identity(&boot));
        if let (Some(recorded), Some(now)) = (recorded, now)
            && recorded != now
        {
            return Self::Gone;
        }
        // A rank ends with the process that started it, a moment later.
        let parent = Stat::of(stat.parent);
        if stat.is_ending() || parent.is_some_and(|parent| parent.is_ending()) {
            return Self::Ending;
        }
        Self::Running
    }
}

/// Whether this machine has a process with the number `pid`.
pub fn is_running(pid: u32) -> bool {
    Presence::of(pid, None) != Presence::Gone
}

/// What tells the process `pid` from others of this machine that had or will have its number: the
/// boot, and when in it the process started. None where the system does not tell.
pub(crate) fn identity(pid: u32) -> Option<String> {
    Some(Stat::of(pid)?.identity(&boot()?))
}

fn boot() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// Some of `/proc/PID/stat`.
struct Stat {
    state: char,
    parent: u32,
    flags: u64,
    pending: u64,
    start: u64,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name, in brackets, may hold anything.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // proc(5) counts from 1, and the third is the first behind the name.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: number(4)?.try_into().ok()?,
            flags: number(9)?,
            pending: number(31)?,
            start: number(22)?,
        })
    }

    fn identity(&self, boot: &str) -> String {
        format!("{boot}/{}", self.start)
    }

    fn is_ending(&self) -> bool {
        "ZXx".contains(self.state) || self.flags & EXITING != 0 || self.pending & KILLED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_a_later_one_of_its_number() {
        let own = std::process::id();
        let identity = identity(own);
        assert_eq!(Presence::of(own, identity.as_deref()), Presence::Running);
        assert_eq!(Presence::of(own, None), Presence::Running, "as earlier versions recorded it");
        let Some(identity) = identity else { return };
        assert_eq!(Presence::of(own, Some(&format!("{identity}1"))), Presence::Gone);
        assert_eq!(Presence::of(own, Some("another boot/1")), Presence::Gone);
    }

    #[test]
    fn the_living_are_told_from_the_dead() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        while Presence::of(pid, None) == Presence::Running {
            std::thread::yield_now();
        }
        assert_eq!(Presence::of(pid, None), Presence::Ending, "ended, and nobody has waited");
        child.wait().unwrap();
        assert_eq!(Presence::of(pid, None), Presence::Gone);
        assert_eq!(Presence::of(0, None), Presence::Gone);
        assert_eq!(Presence::of(u32::MAX, None), Presence::Gone);
    }

    #[test]
    fn names_of_processes_may_hold_anything() {
        let line = |state: char, flags: u64, pending: u64| {
            format!(
                "7 (a) Z 1 () {state} 3 7 7 0 -1 {flags} 1 2 3 4 5 6 7 8 20 0 1 0 99 1 1 1 1 1 1 1 1 {pending} 0"
            )
        };
        let stat = |state, flags, pending| Stat::parse(&line(state, flags, pending)).unwrap();
        let plain = stat('S', 0x40_0040, 0x4000);
        assert_eq!((plain.parent, plain.identity("b")), (3, "b/99".to_owned()));
        assert!(!plain.is_ending());
        assert!(stat('Z', 0, 0).is_ending());
        assert!(stat('D', EXITING, 0).is_ending());
        assert!(stat('D', 0, KILLED | 0x4000).is_ending());
        assert!(Stat::parse("").is_none() && Stat::parse("7 (a) S 1").is_none());
    }
}
