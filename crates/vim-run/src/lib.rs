#![doc = include_str!("../README.md")]

pub mod checkpoint;
mod error;
mod folder;
mod lock;
mod log;
pub mod metrics;
mod printable;
mod process;
pub mod signals;
pub mod storage;
mod temporary;

use std::env;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use error::{Displaced, RunError};
pub use folder::{
    CLASSES, CONFIG, ENVIRONMENT, EXIT, ExitReason, ExitRecord, Found, INIT, LOG, MAX_DEPTH,
    METRICS, Opened, PATHS, PER_CLASS, PREDICTIONS, RESULTS, Resume, RunDir, TIMING,
    checkpoints_in, finished, move_aside, write_exit_in,
};
pub use lock::{Holder, LOCK, Lock, LockError, is_held};
pub use log::Log;
pub use printable::{broken_line, fitted, last_column, printable, printable_lines, terminal_width};
pub use process::is_running;
pub use storage::write_file;

/// The last second that RFC 3339 can name, of the year 9999.
const LAST: Duration = Duration::from_secs(253_402_300_799);

/// `time` as RFC 3339 in UTC to the second, such as `2026-01-31T08:15:00Z`. A clock that is set
/// before 1970 or after 9999 is told by the nearest second of these years.
pub fn rfc3339(time: SystemTime) -> String {
    let time = time.clamp(UNIX_EPOCH, UNIX_EPOCH + LAST);
    humantime::format_rfc3339_seconds(time).to_string()
}

/// The machine's name.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The SLURM job of this process.
pub fn slurm_job() -> Option<String> {
    env::var("SLURM_JOB_ID").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_clock_is_no_fault() {
        let of = |time| rfc3339(time);
        let second = Duration::from_secs(1);
        assert_eq!(of(UNIX_EPOCH + 1_769_847_300 * second), "2026-01-31T08:15:00Z");
        assert_eq!(of(UNIX_EPOCH - second), "1970-01-01T00:00:00Z");
        assert_eq!(of(UNIX_EPOCH - Duration::from_secs(1 << 60)), "1970-01-01T00:00:00Z");
        assert_eq!(of(UNIX_EPOCH + LAST), "9999-12-31T23:59:59Z");
        assert_eq!(of(UNIX_EPOCH + Duration::from_secs(1 << 60)), "9999-12-31T23:59:59Z");
    }
}
