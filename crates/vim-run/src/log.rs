//! The log: stderr and the run's `log.txt`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use indicatif::ProgressBar;

use crate::RunError;

/// The log; clones write to the same place.
#[derive(Clone, Debug)]
pub struct Log {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    file: Option<File>,
    bar: Option<ProgressBar>,
}

impl Log {
    /// A log that also appends to the file `path`.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self::over(Some(file.map_err(RunError::io("open", path))?)))
    }

    /// A log on stderr alone.
    pub fn to_stderr() -> Self {
        Self::over(None)
    }

    fn over(file: Option<File>) -> Self {
        Self { inner: Arc::new(Mutex::new(Inner { file, bar: None })) }
    }

    /// Writes a line on stderr and to the file.
    pub fn line(&self, text: impl AsRef<str>) {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let print = || eprintln!("{}", text.as_ref());
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
    fn write(&self, text: &str) {
        if let Some(mut file) = self.file.as_ref() {
            // A failure to write the log must not end the training.
            let _ = file.write_all(format!("{text}\n").as_bytes());
        }
    }
}
