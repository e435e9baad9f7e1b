//! Saving in the background: the loop takes a snapshot and goes on, a thread writes it.
//!
//! One save is in flight at most, and the next waits for it: so checkpoints appear in the order in which they were
//! taken, and one that is named as the best was there before any that remembers it. Two things hold the loop up:
//! reading the arrays from the device, and a disk that needs longer for a checkpoint than training does to the next.

use std::any::Any;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::RunError;
use crate::checkpoint::{Checkpoints, State};
use crate::metrics::JsonlWriter;

/// Name of the thread; its panics come back as errors.
pub const THREAD: &str = "checkpoint";

/// Makes the bytes of a file, on the thread that writes it.
pub type Content = Box<dyn FnOnce() -> Result<Vec<u8>, String> + Send>;

/// A checkpoint in the host's memory, yet to be written.
pub struct Snapshot {
    /// Its files, by name.
    pub files: Vec<(&'static str, Content)>,
    /// Where training stood.
    pub state: State,
    /// Whether it is the best so far.
    pub is_best: bool,
    /// Whether it is to be kept for good.
    pub is_archived: bool,
}

impl Snapshot {
    /// Writes the checkpoint once everything in `metrics` that it remembers is on the disk.
    fn write(self, checkpoints: &Checkpoints, metrics: &JsonlWriter) -> Result<(), RunError> {
        metrics.sync()?;
        let files = self.files.into_iter().map(|(name, content)| Ok((name, content()?)));
        let files = files.collect::<Result<Vec<_>, String>>().map_err(RunError::Internal)?;
        let files: Vec<(&str, &[u8])> =
            files.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
        if self.is_archived {
            // Before it is there: between the two, nothing could tell that it must stay.
            checkpoints.archive(self.state.step)?;
        }
        checkpoints.save(&files, &self.state)?;
        if self.is_best {
            checkpoints.mark_best(self.state.step)?;
        }
        Ok(())
    }
}

/// Writes checkpoints, one at a time, on a thread of its own. Dropping it waits for the one in flight.
#[derive(Debug)]
pub struct Saver {
    checkpoints: Arc<Checkpoints>,
    /// The save in flight, or one that has ended and was not asked after.
    running: Option<JoinHandle<Result<(), RunError>>>,
}

impl Saver {
    /// A saver into the folder of `checkpoints`.
    pub fn new(checkpoints: Checkpoints) -> Self {
        Self { checkpoints: Arc::new(checkpoints), running: None }
    }

    /// The folder that it writes to.
    pub fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// Starts to write `snapshot`, after the save before it; `metrics` is what its state remembers the length of.
    ///
    /// # Errors
    ///
    /// Those of the save before, or if no thread can be started.
    pub fn start(&mut self, snapshot: Snapshot, metrics: JsonlWriter) -> Result<(), RunError> {
        self.wait()?;
        let checkpoints = Arc::clone(&self.checkpoints);
        let write = move || snapshot.write(&checkpoints, &metrics);
        let thread = thread::Builder::new().name(THREAD.into()).spawn(write);
        let started = RunError::io("start a thread to save into", self.checkpoints.folder());
        self.running = Some(thread.map_err(started)?);
        Ok(())
    }

    /// What became of the save before, if it has ended; returns at once.
    ///
    /// # Errors
    ///
    /// Those of that save, once.
    pub fn check(&mut self) -> Result<(), RunError> {
        let has_ended = self.running.as_ref().is_some_and(JoinHandle::is_finished);
        if has_ended { self.wait() } else { Ok(()) }
    }

    /// Returns when nothing is being written.
    ///
    /// # Errors
    ///
    /// Those of the save in flight, once.
    pub fn wait(&mut self) -> Result<(), RunError> {
        match self.running.take() {
            Some(thread) => thread.join().unwrap_or_else(|panic| Err(panicked(&*panic))),
            None => Ok(()),
        }
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        // Whoever wants to know how it ended has asked; here a run is at its end for a reason of its own.
        let _ = self.wait();
    }
}

fn panicked(panic: &(dyn Any + Send)) -> RunError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let line = text.unwrap_or("a panic without a message").split_whitespace();
    RunError::Internal(line.collect::<Vec<_>>().join(" "))
}
