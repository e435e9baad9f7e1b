//! Saving in the background: the loop takes a snapshot and a thread writes it.
//!
//! At most one save is in flight, and the next waits for it: checkpoints appear in order, and the
//! best one exists before any checkpoint that refers to it. The loop waits only to read arrays from
//! the device, and for a disk that is slower than the time between two checkpoints.

use std::any::Any;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::RunError;
use crate::checkpoint::{Checkpoints, State};
use crate::metrics::JsonlWriter;

/// Name of the thread; its panics become errors.
pub const THREAD: &str = "checkpoint";

/// Serializes a file on the writing thread.
pub type Content = Box<dyn FnOnce() -> Result<Vec<u8>, String> + Send>;

/// A checkpoint in host memory, not yet written.
pub struct Snapshot {
    /// The files, by name.
    pub files: Vec<(&'static str, Content)>,
    /// The state of training.
    pub state: State,
    /// Whether the checkpoint is the best so far.
    pub is_best: bool,
    /// Whether the checkpoint is archived.
    pub is_archived: bool,
}

impl Snapshot {
    /// Syncs `metrics`, whose length the state records, then writes the checkpoint.
    fn write(self, checkpoints: &Checkpoints, metrics: &JsonlWriter) -> Result<(), RunError> {
        metrics.sync()?;
        let files = self.files.into_iter().map(|(name, content)| Ok((name, content()?)));
        let files = files.collect::<Result<Vec<_>, String>>().map_err(RunError::Internal)?;
        let files: Vec<(&str, &[u8])> =
            files.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
        if self.is_archived {
            // Before the save, so that no crash leaves an archived checkpoint unlisted.
            checkpoints.archive(self.state.step)?;
        }
        checkpoints.save(&files, &self.state)?;
        if self.is_best {
            checkpoints.mark_best(self.state.step)?;
        }
        Ok(())
    }
}

/// Writes checkpoints one at a time on a thread. Dropping waits for the save in flight.
#[derive(Debug)]
pub struct Saver {
    checkpoints: Arc<Checkpoints>,
    /// The save in flight, or a finished one whose result was not read.
    running: Option<JoinHandle<Result<(), RunError>>>,
}

impl Saver {
    /// A saver into the folder of `checkpoints`.
    pub fn new(checkpoints: Checkpoints) -> Self {
        Self { checkpoints: Arc::new(checkpoints), running: None }
    }

    /// The folder of the checkpoints.
    pub fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// Starts to write `snapshot` after the previous save; its state records the length of
    /// `metrics`.
    ///
    /// # Errors
    ///
    /// The previous save's error, or if no thread can be started.
    pub fn start(&mut self, snapshot: Snapshot, metrics: JsonlWriter) -> Result<(), RunError> {
        self.wait()?;
        let checkpoints = Arc::clone(&self.checkpoints);
        let write = move || snapshot.write(&checkpoints, &metrics);
        let thread = thread::Builder::new().name(THREAD.into()).spawn(write);
        let started = RunError::io("start a thread to save into", self.checkpoints.folder());
        self.running = Some(thread.map_err(started)?);
        Ok(())
    }

    /// The result of the previous save, if it has ended; returns at once.
    ///
    /// # Errors
    ///
    /// That save's error, once.
    pub fn check(&mut self) -> Result<(), RunError> {
        let has_ended = self.running.as_ref().is_some_and(JoinHandle::is_finished);
        if has_ended { self.wait() } else { Ok(()) }
    }

    /// Returns when nothing is being written.
    ///
    /// # Errors
    ///
    /// The error of the save in flight, once.
    pub fn wait(&mut self) -> Result<(), RunError> {
        match self.running.take() {
            Some(thread) => thread.join().unwrap_or_else(|panic| Err(panicked(&*panic))),
            None => Ok(()),
        }
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        // Callers that need the result call `wait` first.
        let _ = self.wait();
    }
}

fn panicked(panic: &(dyn Any + Send)) -> RunError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let line = text.unwrap_or("a panic without a message").split_whitespace();
    RunError::Internal(line.collect::<Vec<_>>().join(" "))
}
