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
        Lines::new(text).location(path, span)
    }
}

/// A text whose lines have been counted, for many locations in it.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    text: &'a str,
    /// Where each line starts.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    /// Counts the lines of `text`.
    pub fn new(text: &'a str) -> Self {
        let behind = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, starts: [0].into_iter().chain(behind).collect() }
    }

    /// The location of `span` in this text, the content of `path`.
    pub fn location(&self, path: impl Into<PathBuf>, span: &Range<usize>) -> Location {
        let position = self.position(span.start);
        Location { path: path.into(), position, caret: self.caret(position, span) }
    }

    /// Line and column, from 1, of byte `offset`.
    fn position(&self, offset: usize) -> (usize, usize) {
        let offset = offset.min(self.text.len());
        let line = self.starts.partition_point(|&start| start <= offset);
        let before = &self.text.as_bytes()[self.starts[line - 1]..offset];
        (line, String::from_utf8_lossy(before).chars().count() + 1)
    }

    fn caret(&self, (line, column): (usize, usize), span: &Range<usize>) -> String {
        let [most, before] = SHOWN;
        let skipped = if column > most { column - before } else { 0 };
        let whole = &self.text[self.starts[line - 1]..];
        let whole = whole.lines().next().unwrap_or_default();
        let mut letters = whole.chars().enumerate().skip(skipped);
        let mut shown: String = letters
            .by_ref()
            .take(most)
            .map(|(at, letter)| match letter {
                _ if skipped > 0 && at == skipped => '…',
                letter if letter.is_control() => '\u{fffd}',
                letter => letter,
            })
            .collect();
        if letters.next().is_some() {
            shown.pop();
            shown.push('…');
        }
        let column = column - skipped;
        let room = (shown.chars().count() + 1).saturating_sub(column).max(1);
        let marked =
            self.text.get(span.clone()).map_or(1, |marked| marked.chars().take(most).count());
        let length = marked.clamp(1, room);
        let (number, gutter) = (line.to_string(), " ".repeat(line.to_string().len()));
        let indent = " ".repeat(column - 1);
        let marks = "^".repeat(length);
        format!("{gutter} |\n{number} | {shown}\n{gutter} | {indent}{marks}")
    }
}

/// Line and column, from 1, of byte `offset` of `text`.
pub fn position(text: &str, offset: usize) -> (usize, usize) {
    Lines::new(text).position(offset)
}

/// Most characters of a line that are shown, and of those before the span.
const SHOWN: [usize; 2] = [160, 80];

/// The line of `text` in which `span` starts, with carets below the span. Of a long line the part
/// about the span is shown; control characters are replaced, one by one.
pub fn caret(text: &str, span: &Range<usize>) -> String {
    Location::new("", text, span).caret
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
    fn many_places_of_a_large_text_are_found_at_once() {
        let text = format!("{}x = 1\n", "# a comment\n".repeat(200_000)).repeat(2);
        let (start, lines) = (std::time::Instant::now(), Lines::new(&text));
        for offset in (0..text.len()).step_by(1000) {
            assert!(lines.location("x", &(offset..offset + 1)).position.0 <= 400_002);
        }
        // Each by itself would count millions of lines.
        assert!(start.elapsed().as_secs_f64() < 2.0, "{:?}", start.elapsed());
        assert_eq!(lines.position(text.len() - 2), (400_002, 5));
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
