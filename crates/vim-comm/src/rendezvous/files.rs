//! Files that appear complete, and waiting for them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::CommError;

/// The names in a folder.
pub(super) type Names = BTreeSet<String>;

/// The shortest and the longest time between two looks.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(250)];

/// Looks at growing intervals, until a time is over.
pub(super) struct Waiting {
    end: Option<Instant>,
    pause: Duration,
}

impl Waiting {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { end: Instant::now().checked_add(timeout), pause: PAUSES[0] }
    }

    /// Sleeps until the next look; `false` if the time is over.
    pub(super) fn pause(&mut self) -> bool {
        let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return false;
        }
        sleep(left.map_or(self.pause, |left| left.min(self.pause)));
        self.pause = (self.pause * 3 / 2).min(PAUSES[1]);
        true
    }
}

/// The names in `folder`; none if it does not exist yet.
pub(super) fn list(folder: &Path) -> Result<Names, CommError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Names::new()),
        entries => entries.map_err(CommError::io("read", folder))?,
    };
    let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().into_string().ok());
    let names: io::Result<Vec<_>> = entries.map(name).collect();
    Ok(names.map_err(CommError::io("read", folder))?.into_iter().flatten().collect())
}

/// Writes a file that appears complete, and makes its folder if needed. With `only_new`, `false`
/// if a file of this name exists, which stays.
pub(super) fn publish_new(
    folder: &Path,
    name: &str,
    bytes: &[u8],
    only_new: bool,
) -> Result<bool, CommError> {
    // Process-wide: names must differ over all threads of the process, whoever calls.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    fs::create_dir_all(folder).map_err(CommError::io("make", folder))?;
    let path = folder.join(name);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!(".{name}-{host}-{}-{number}", process::id()));
    let put = || -> io::Result<bool> {
        fs::write(&temporary, bytes)?;
        if only_new {
            match fs::hard_link(&temporary, &path) {
                Ok(()) => {
                    fs::remove_file(&temporary)?;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    fs::remove_file(&temporary)?;
                    return Ok(false);
                }
                // Some file systems have no second names.
                Err(_) if path.try_exists()? => {
                    fs::remove_file(&temporary)?;
                    return Ok(false);
                }
                Err(_) => {}
            }
        }
        fs::rename(&temporary, &path)?;
        Ok(true)
    };
    put().map_err(|error| {
        let _ = fs::remove_file(&temporary);
        CommError::io("write", &path)(error)
    })
}

/// [`publish_new`] of a value.
pub(super) fn write_json(
    folder: &Path,
    name: &str,
    value: &impl Serialize,
    only_new: bool,
) -> Result<bool, CommError> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| CommError::io("write", &folder.join(name))(error.into()))?;
    text.push('\n');
    publish_new(folder, name, text.as_bytes(), only_new)
}

/// The value in a file.
pub(super) fn read_json<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<T, CommError> {
    let path = folder.join(name);
    let bytes = fs::read(&path).map_err(CommError::io("read", &path))?;
    serde_json::from_slice(&bytes).map_err(|error| CommError::io("read", &path)(error.into()))
}
