//! A thread that ends a rank which makes no progress: another rank may hang, or be gone without
//! anybody noticing, and a kernel that waits for it never ends.

use std::io::Write as _;
use std::thread;
use std::time::Duration;

use signal_hook::low_level;
use vim_comm::Comm;

use crate::error::{Error, code};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(250);

/// Ends the process with one line and `code::UNAVAILABLE` if the ranks exchange nothing for
/// `timeout`, or the communicator reports a fault. `name` says who this is.
///
/// Nothing is saved: after such a fault nothing that the device holds is to be trusted.
pub(super) fn watch(comm: &Comm, timeout: Duration, name: String) -> Result<(), Error> {
    let comm = comm.clone();
    let watch = move || loop {
        thread::sleep(PAUSE);
        let what = match comm.fault() {
            Some(fault) => format!("the connection of the ranks failed: {fault}"),
            None if comm.idle() > timeout => format!(
                "no progress for {} s (devices.timeout): this rank or another one hangs",
                timeout.as_secs()
            ),
            None => continue,
        };
        // Another thread may hold stderr; the exit code says it then.
        let line = format!("error: {name}: {what}\n");
        let say = move || std::io::stderr().write_all(line.as_bytes());
        if let Ok(said) = thread::Builder::new().spawn(say) {
            thread::sleep(PAUSE);
            drop(said);
        }
        // `std::process::exit` runs handlers, in which a driver may wait for the hanging kernel.
        low_level::exit(i32::from(code::UNAVAILABLE));
    };
    let started = thread::Builder::new().name("watchdog".into()).spawn(watch);
    started.map(drop).map_err(Error::io("start", "the watchdog"))
}
