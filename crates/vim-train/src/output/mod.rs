//! Output of commands to stdout and files.

pub(crate) mod bar;
pub(crate) mod coco;
pub(crate) mod confusion;
pub(crate) mod picture;
pub mod progress;
pub(crate) mod sparkline;
pub mod summary;
mod target;

use std::io::{self, Write, stderr};
use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};
use serde::{Serialize, Serializer};
use vim_run::storage::{Disk, replace};
pub(crate) use vim_run::terminal_width;
use vim_run::{broken_line, printable, printable_lines};

use crate::error::Error;

pub(crate) use target::{OutputError, check_apart, check_distinct, check_free, check_no_input};

/// Writes a line to stderr, broken between words where that is a terminal.
pub(crate) fn say(line: &str) {
    match terminal_width(stderr()) {
        Some(width) => eprintln!("{}", broken_line(line, width).join("\n")),
        None => eprintln!("{line}"),
    }
}

/// Prints `text`, [printable](printable_lines), and a newline, unless it ends with one.
/// A closed pipe (`head`) is not an error.
pub fn print(text: &str) -> Result<(), Error> {
    print_raw(&printable_lines(text))
}

fn print_raw(text: &str) -> Result<(), Error> {
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
    print_raw(&json(value)?)
}

/// Writes `value` as indented JSON in place of the file at `path`.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    replace(&Disk, path, json(value)?.as_bytes()).map_err(Error::io("write", path))
}

/// `value` as indented JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string_pretty(value)
        .map_err(|error| Error::internal(format!("a result has no JSON form: {error}")))
}

/// Writes a path to JSON as it is printed: it need not be UTF-8.
pub(crate) fn as_shown<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// Rows as CSV.
pub(crate) fn csv<R: IntoIterator<Item: AsRef<[u8]>>>(
    rows: impl IntoIterator<Item = R>,
) -> Result<Vec<u8>, Error> {
    let failed = |error: String| Error::internal(format!("a table has no CSV form: {error}"));
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.write_record(row).map_err(|error| failed(error.to_string()))?;
    }
    writer.into_inner().map_err(|error| failed(error.to_string()))
}

/// Rows in aligned columns, right-aligned from column `left` on.
pub(crate) fn columns(head: &[&str], rows: Vec<Vec<String>>, left: usize) -> String {
    let mut table = Table::new();
    let cells = |row: Vec<String>| row.iter().map(|cell| printable(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.into_iter().map(cells).collect();
    table.load_preset(presets::NOTHING).set_header(head.iter().map(|name| printable(name)));
    table.add_rows(rows);
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if number >= left {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_line_whatever_is_in_it() {
        let rows = vec![vec!["a\nb".to_owned(), "\u{1b}[31m".to_owned()]];
        assert_eq!(columns(&["run", "error"], rows, 2), "run   error\na\\nb  \\u{1b}[31m\n");
    }
}
