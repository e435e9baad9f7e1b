//! The threads that compute on the CPU.

use std::error::Error as _;
use std::io;

use vim_data::CpuAllocation;

use crate::error::Error;

/// Starts the threads that compute on the CPU: `count`, or else one per core of the allocation.
/// A second call with another count is an internal error; too few threads to be had are not.
pub fn start(count: Option<usize>) -> Result<(), Error> {
    let count = count.unwrap_or_else(|| CpuAllocation::of_this_process().cores);
    let built = rayon::ThreadPoolBuilder::new().num_threads(count).build_global();
    let Err(error) = built else { return Ok(()) };
    let system = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    if let Some(system) = system {
        let threads = format!("{count} compute threads (devices.threads sets their number)");
        return Err(Error::io("start", threads)(io::Error::new(system.kind(), system.to_string())));
    }
    if self::count() == count {
        return Ok(());
    }
    Err(Error::internal(format!("{count} threads: {error}")))
}

/// The split of the cores between loader and compute threads, in one line.
pub fn describe(workers: usize) -> String {
    let CpuAllocation { cores, is_job, .. } = CpuAllocation::of_this_process();
    let plural = |number: usize| if number == 1 { "" } else { "s" };
    let (of, threads) = (if is_job { " of the allocation" } else { "" }, count());
    format!(
        "{cores} core{}{of}: {workers} loader thread{}, {threads} compute thread{}",
        plural(cores),
        plural(workers),
        plural(threads)
    )
}

/// Threads that compute on the CPU.
pub fn count() -> usize {
    rayon::current_num_threads()
}
