//! The log: stderr and the run's `log.txt`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use indicatif::ProgressBar;

use crate::RunError;
use crate::printable::printable_lines;

/// The log; clones write to the same place.
#[derive(Clone, Debug)]
pub struct Log {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    bar: Option<ProgressBar>,
}

impl Log {
    /// A log on stderr that also appends to the file `path`.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(RunError::io("open", path))?;
        Ok(Self { inner: Arc::new(Mutex::new(Inner { file, bar: None })) })
    }

    /// Writes a line on stderr and to the file.
    pub fn line(&self, text: impl AsRef<str>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let print = || eprintln!("{}", printable_lines(text.as_ref()));
        match &inner.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
        inner.write(text.as_ref());
    }

    /// Writes a line to the file alone, for text that a progress bar shows already.
    pub fn file_line(&self, text: impl AsRef<str>) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).write(text.as_ref());
    }

    /// Suspends `bar` while lines are printed.
    pub fn set_bar(&self, bar: Option<ProgressBar>) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).bar = bar;
    }
}

impl Inner {
    fn write(&mut self, text: &str) {
        // A failure to write the log must not end the training.
        let text = printable_lines(text);
        let _ = self.file.write_all(format!("{text}\n").as_bytes());
    }
}
