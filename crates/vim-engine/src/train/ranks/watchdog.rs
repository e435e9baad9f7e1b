//! A thread that ends a rank which makes no progress: another rank may hang, or be gone without
//! anybody noticing, and a kernel that waits for it never ends.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::low_level;
use vim_comm::Comm;

use crate::error::{Error, code};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(250);

/// Ranks that have met join each other, until this is dropped.
#[derive(Debug)]
pub(super) struct Joining(Arc<AtomicBool>);

impl Drop for Joining {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Ends the process with one line and `code::UNAVAILABLE` if ranks that have met do not join each
/// other within `timeout`: NCCL waits for ever for a connection that a firewall closes.
pub(super) fn watch_joining(timeout: Duration, name: String) -> Result<Joining, Error> {
    let (is_over, begin) = (Arc::new(AtomicBool::new(false)), Instant::now());
    let joining = Joining(Arc::clone(&is_over));
    start(name, move || {
        if is_over.load(Ordering::Relaxed) {
            ControlFlow::Break(None)
        } else if begin.elapsed() > timeout {
            ControlFlow::Break(Some(format!(
                "the ranks have met and do not connect within {} s (devices.timeout): see what \
                 NCCL_DEBUG=INFO says of interfaces, and whether a firewall is between them",
                timeout.as_secs()
            )))
        } else {
            ControlFlow::Continue(())
        }
    })?;
    Ok(joining)
}

/// Ends the process with one line and `code::UNAVAILABLE` if the ranks exchange nothing for
/// `timeout`, or the communicator reports a fault. `name` says who this is.
///
/// Nothing is saved: after such a fault nothing that the device holds is to be trusted.
pub(super) fn watch(comm: &Comm, timeout: Duration, name: String) -> Result<(), Error> {
    let comm = comm.clone();
    start(name, move || match comm.fault() {
        Some(fault) => {
            ControlFlow::Break(Some(format!("the connection of the ranks failed: {fault}")))
        }
        None if comm.idle() > timeout => ControlFlow::Break(Some(format!(
            "no progress for {} s (devices.timeout): this rank or another one hangs",
            timeout.as_secs()
        ))),
        None => ControlFlow::Continue(()),
    })
}

/// Starts a thread that looks until there is no more to look at, or ends the process.
fn start(
    name: String,
    mut look: impl FnMut() -> ControlFlow<Option<String>> + Send + 'static,
) -> Result<(), Error> {
    let watch = move || loop {
        thread::sleep(PAUSE);
        let what = match look() {
            ControlFlow::Continue(()) => continue,
            ControlFlow::Break(None) => break,
            ControlFlow::Break(Some(what)) => what,
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
