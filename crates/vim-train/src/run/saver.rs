//! Saving in the background: the loop takes a snapshot and goes on, a thread writes it.
//!
//! One save is in flight at most, and the next waits for it: so checkpoints appear in the order in which they were
//! taken, and one that is named as the best was there before any that remembers it. Two things hold the loop up:
//! reading the arrays from the device, and a disk that needs longer for a checkpoint than training does to the next.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use vim_model::NamedArrays;
use vim_torch::WriteError;

use crate::error::Error;
use crate::run::checkpoint::{Checkpoints, State};
use crate::run::metrics::JsonlWriter;

/// Name of the thread; its panics come back as errors.
pub(crate) const THREAD: &str = "checkpoint";

/// A checkpoint in the host's memory, yet to be written.
#[derive(Debug)]
pub struct Snapshot {
    /// Its files, by name.
    pub files: Vec<(&'static str, NamedArrays)>,
    /// Where training stood.
    pub state: State,
    /// Whether it is the best so far.
    pub is_best: bool,
    /// Whether it is to be kept for good.
    pub is_archived: bool,
}

impl Snapshot {
    /// Writes the checkpoint once everything in `metrics` that it remembers is on the disk.
    fn write(&self, checkpoints: &Checkpoints, metrics: &JsonlWriter) -> Result<(), Error> {
        metrics.sync()?;
        let files = self.files.iter().map(|(name, arrays)| Ok((*name, arrays.to_safetensors()?)));
        let files = files.collect::<Result<Vec<_>, WriteError>>();
        let files = files.map_err(|error| Error::Internal(error.to_string()))?;
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
    running: Option<JoinHandle<Result<(), Error>>>,
}

impl Saver {
    /// A saver into the folder of `checkpoints`.
    #[must_use]
    pub fn new(checkpoints: Checkpoints) -> Self {
        Self { checkpoints: Arc::new(checkpoints), running: None }
    }

    /// The folder that it writes to.
    #[must_use]
    pub fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// Starts to write `snapshot`, after the save before it; `metrics` is what its state remembers the length of.
    ///
    /// # Errors
    ///
    /// Those of the save before, or if no thread can be started.
    pub fn start(&mut self, snapshot: Snapshot, metrics: JsonlWriter) -> Result<(), Error> {
        self.wait()?;
        let checkpoints = Arc::clone(&self.checkpoints);
        let write = move || snapshot.write(&checkpoints, &metrics);
        let thread = thread::Builder::new().name(THREAD.into()).spawn(write);
        let started = Error::io("start a thread to save into", self.checkpoints.folder());
        self.running = Some(thread.map_err(started)?);
        Ok(())
    }

    /// What became of the save before, if it has ended; returns at once.
    ///
    /// # Errors
    ///
    /// Those of that save, once.
    pub fn check(&mut self) -> Result<(), Error> {
        let has_ended = self.running.as_ref().is_some_and(JoinHandle::is_finished);
        if has_ended { self.wait() } else { Ok(()) }
    }

    /// Returns when nothing is being written.
    ///
    /// # Errors
    ///
    /// Those of the save in flight, once.
    pub fn wait(&mut self) -> Result<(), Error> {
        match self.running.take() {
            Some(thread) => thread.join().unwrap_or_else(|panic| Err(Error::from_panic(&*panic))),
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
