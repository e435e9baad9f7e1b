//! The configuration as commented TOML.

use crate::settings::Settings;
use crate::{Migration, NotCarried};

/// Prints the `settings` of the script `name`.
pub(crate) fn write(name: &str, settings: Settings) -> Migration {
    let Settings { line, entries, mut not_carried, notes } = settings;
    not_carried.sort_by_key(|not| not.line);
    let mut toml = format!("# What {name} trains in line {line}, by the original's main.py.\n");
    if !not_carried.is_empty() {
        toml.push_str("#\n# Not carried over:\n");
        for NotCarried { what, line, why } in &not_carried {
            toml.push_str(&comment(&format!("line {line}: {what}: {why}")));
        }
    }
    if !notes.is_empty() {
        toml.push_str("#\n# To know:\n");
        for note in &notes {
            toml.push_str(&comment(note));
        }
    }
    toml.push_str("\nversion = 1\n");
    let mut section = "";
    for entry in &entries {
        let (of, key) = entry.key.split_once('.').unwrap_or(("", entry.key));
        if of != section {
            section = of;
            toml.push_str(&format!("\n[{section}]\n"));
        }
        toml.push_str(&format!("{key} = {}  # {}\n", entry.value, one_line(&entry.comment)));
    }
    Migration { toml, not_carried, notes }
}

fn comment(text: &str) -> String {
    format!("#   {}\n", one_line(text))
}

/// Text on one line: a line break would end the comment.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
