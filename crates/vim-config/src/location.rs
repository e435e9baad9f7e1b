//! Locations in a text, for error messages.

use std::ops::Range;
use std::path::PathBuf;

/// A location in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file.
    pub path: PathBuf,
    /// Line and column, from 1.
    pub position: (usize, usize),
    /// The line with carets under the location.
    pub caret: String,
}

impl Location {
    /// The location of `span` in `text`, the content of `path`.
    pub fn new(path: impl Into<PathBuf>, text: &str, span: &Range<usize>) -> Self {
        Self { path: path.into(), position: position(text, span.start), caret: caret(text, span) }
    }
}

/// Line and column, from 1, of byte `offset` of `text`.
pub fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    (line, String::from_utf8_lossy(&before[line_start..]).chars().count() + 1)
}

/// The line of `text` in which `span` starts, with carets below the span.
pub fn caret(text: &str, span: &Range<usize>) -> String {
    let (line, column) = position(text, span.start);
    let shown = text.lines().nth(line - 1).unwrap_or_default();
    let room = (shown.chars().count() + 1).saturating_sub(column).max(1);
    let length = text.get(span.clone()).map_or(1, |marked| marked.chars().count()).clamp(1, room);
    let (number, gutter) = (line.to_string(), " ".repeat(line.to_string().len()));
    let indent = " ".repeat(column - 1);
    let marks = "^".repeat(length);
    format!("{gutter} |\n{number} | {shown}\n{gutter} | {indent}{marks}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters() {
        let text = "a = 1\nß = 2\n";
        assert_eq!(position(text, 0), (1, 1));
        assert_eq!(position(text, 6), (2, 1));
        assert_eq!(position(text, text.find('2').unwrap()), (2, 5));
        assert_eq!(position(text, 1000), (3, 1));
    }

    #[test]
    fn carets_mark_the_span() {
        let text = "a = 1\nbb = \"x\"\n";
        assert_eq!(caret(text, &(6..8)), "  |\n2 | bb = \"x\"\n  | ^^");
        assert_eq!(caret(text, &(11..100)), "  |\n2 | bb = \"x\"\n  |      ^");
    }
}
