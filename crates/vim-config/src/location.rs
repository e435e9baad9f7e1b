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

/// Most characters of a line that are shown, and of those before the span.
const SHOWN: [usize; 2] = [160, 80];

/// The line of `text` in which `span` starts, with carets below the span. Of a long line the part
/// about the span is shown; control characters are replaced, one by one.
pub fn caret(text: &str, span: &Range<usize>) -> String {
    let (line, column) = position(text, span.start);
    let [most, before] = SHOWN;
    let skipped = if column > most { column - before } else { 0 };
    let whole = text.lines().nth(line - 1).unwrap_or_default();
    let is_cut = whole.chars().nth(skipped + most).is_some();
    let letters = whole.chars().enumerate().skip(skipped).take(most);
    let shown: String = letters
        .map(|(at, letter)| match letter {
            _ if skipped > 0 && at == skipped => '…',
            _ if is_cut && at + 1 == skipped + most => '…',
            letter if letter.is_control() => '\u{fffd}',
            letter => letter,
        })
        .collect();
    let column = column - skipped;
    let room = (shown.chars().count() + 1).saturating_sub(column).max(1);
    let marked = text.get(span.clone()).map_or(1, |marked| marked.chars().take(most).count());
    let length = marked.clamp(1, room);
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
    fn a_long_line_is_cut_and_no_control_character_is_shown() {
        let text = format!("x = \"{}\u{1b}\" # {}", "a".repeat(500), "b".repeat(1 << 20));
        let shown = caret(&text, &(505..506));
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= SHOWN[0] + 4), "{shown}");
        assert!(lines[1].contains("aaa\u{fffd}\" # b") && lines[1].ends_with("b…"), "{shown}");
        let at = lines[2].chars().position(|letter| letter == '^').unwrap();
        assert_eq!(lines[1].chars().nth(at), Some('\u{fffd}'));
        let shown = caret(&text, &(0..1));
        assert!(shown.contains("1 | x = ") && shown.contains("a…\n"), "{shown}");
        assert_eq!(caret(&text, &(4..text.len())).matches('^').count(), SHOWN[0] - 4);
    }

    #[test]
    fn carets_mark_the_span() {
        let text = "a = 1\nbb = \"x\"\n";
        assert_eq!(caret(text, &(6..8)), "  |\n2 | bb = \"x\"\n  | ^^");
        assert_eq!(caret(text, &(11..100)), "  |\n2 | bb = \"x\"\n  |      ^");
    }
}
