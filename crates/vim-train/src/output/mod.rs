//! Output of commands to stdout and files.

mod error;
pub mod progress;
pub mod summary;

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::error::Error;
pub(crate) use error::{OutputError, check_free};

/// Prints `text` and a newline, unless it ends with one.
/// A closed pipe (`head`) is not an error.
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
pub fn print_json(value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Error::internal(format!("a result has no JSON form: {error}")))?;
    print(&text)
}

/// Rows in aligned columns, right-aligned from column `left` on.
pub(crate) fn columns(head: &[&str], rows: Vec<Vec<String>>, left: usize) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(head.iter().copied()).add_rows(rows);
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if number >= left {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}
