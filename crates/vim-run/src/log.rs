//! The log: stderr and the run's `log.txt`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use indicatif::ProgressBar;

use crate::RunError;
use crate::printable::{fitted, printable_lines};

/// The log; clones write to the same place.
#[derive(Clone, Debug)]
pub struct Log {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    file: File,
    /// Whether stderr gets nothing.
    is_quiet: bool,
    /// Whether stderr was told that the file cannot be written.
    is_told: bool,
    bar: Option<ProgressBar>,
}

impl Log {
    /// A log on stderr that also appends to the file `path`.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(RunError::io("open", path))?;
        let path = path.to_owned();
        let inner = Inner { path, file, is_quiet: false, is_told: false, bar: None };
        Ok(Self { inner: Arc::new(Mutex::new(inner)) })
    }

    /// A log in the file `path` alone.
    pub fn open_quietly(path: &Path) -> Result<Self, RunError> {
        let log = Self::open(path)?;
        log.inner.lock().unwrap_or_else(PoisonError::into_inner).is_quiet = true;
        Ok(log)
    }

    /// Writes a line on stderr and to the file. Neither failing is an error: a run goes on without
    /// its terminal, and without its log.
    pub fn line(&self, text: impl AsRef<str>) {
        self.screen_line(&text);
        self.file_line(text);
    }

    /// Writes a line on stderr alone, for text that the file has otherwise.
    pub fn screen_line(&self, text: impl AsRef<str>) {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if !inner.is_quiet {
            inner.print(text.as_ref());
        }
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
    fn print(&self, text: &str) {
        let print = || {
            let _ = writeln!(io::stderr(), "{}", fitted(&printable_lines(text), io::stderr()));
        };
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    fn write(&mut self, text: &str) {
        let text = printable_lines(text);
        let written = self.file.write_all(format!("{text}\n").as_bytes());
        if let Err(error) = written
            && !self.is_told
        {
            self.is_told = true;
            self.print(&format!("warning: {}: {error}; the run goes on", self.path.display()));
        }
    }
}
