//! Results on stdout.

pub mod progress;
pub mod summary;

use std::io::{self, Write};

use serde::Serialize;

use crate::error::Error;

/// Prints `text` and a newline, unless it ends with one.
///
/// # Errors
///
/// If stdout cannot be written. A reader that has seen enough, such as `head`, is no error.
pub fn print(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    let written = write!(stdout, "{text}{newline}").and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::io("write to", "stdout")(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Prints `value` as indented JSON.
///
/// # Errors
///
/// As [`print()`].
pub fn print_json(value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Error::Internal(format!("a result has no JSON form: {error}")))?;
    print(&text)
}
