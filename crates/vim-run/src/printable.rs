//! Text for terminals and logs: names from outside cannot move the cursor or make up lines.

use std::borrow::Cow;
use std::os::fd::AsFd;

/// `text` with control characters, line breaks among them, byte order marks and spaces without a
/// width, and characters that change the direction of writing as in Rust's literals: `\n`,
/// `\u{1b}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_unprintable)
}

/// As [`printable`], with line breaks and tabs left as they are.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| !matches!(letter, '\n' | '\t') && is_unprintable(letter))
}

fn is_unprintable(letter: char) -> bool {
    let separates = matches!(letter, '\u{2028}' | '\u{2029}');
    let turns = matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let hides = matches!(letter, '\u{feff}' | '\u{200b}' | '\u{2060}');
    letter.is_control() || separates || turns || hides
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match is_escaped(letter) {
            true => safe.extend(letter.escape_default()),
            false => safe.push(letter),
        }
    }
    Cow::Owned(safe)
}

/// The columns of the terminal that `stream` is connected to, if it is one.
pub fn terminal_width(stream: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
}

/// `text` in lines as wide as the terminal of `stream`, by [`broken_line`]; as it is elsewhere.
pub fn fitted(text: &str, stream: impl AsFd) -> Cow<'_, str> {
    match terminal_width(stream) {
        Some(width) => {
            let lines = text.lines().flat_map(|line| broken_line(line, width));
            Cow::Owned(lines.collect::<Vec<_>>().join("\n"))
        }
        None => Cow::Borrowed(text),
    }
}

/// Where the last column of the row `line` begins, if it has several.
pub fn last_column(line: &str) -> Option<usize> {
    let text = line.trim_start();
    text.rfind("  ").map(|gap| line.len() - text.len() + gap + 2)
}

/// One line as several of `width` columns, broken between words; what is broken of a row's last
/// column hangs below it.
pub fn broken_line(line: &str, width: usize) -> Vec<String> {
    /// A column narrower than this goes below the others, indented by as much more than they.
    const NARROWEST: usize = 24;
    const INDENT: usize = 4;
    if line.chars().count() <= width {
        return vec![line.to_owned()];
    }
    let text = line.trim_start();
    let start = line.len() - text.len();
    let last = last_column(line);
    let below = if start == 0 { 0 } else { start + INDENT };
    let (first, rest, hang) = match last {
        Some(last) if last + NARROWEST <= width => (&line[..last], &line[last..], last),
        Some(last) => {
            let mut lines = broken_line(line[..last].trim_end(), width);
            lines.extend(filled(" ".repeat(below), &line[last..], below, width));
            return lines;
        }
        None => (&line[..start], text, below),
    };
    filled(first.to_owned(), rest, hang, width)
}

/// The words of `text` behind `first`, in lines of `width` columns, all but the first indented by
/// `hang`.
fn filled(first: String, text: &str, hang: usize, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut is_empty) = (first, true);
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, " ".repeat(hang)));
            is_empty = true;
        }
        line = if is_empty { format!("{line}{word}") } else { format!("{line} {word}") };
        is_empty = false;
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_broken_between_words() {
        for (line, expected) in [
            ("as it is", &["as it is"][..]),
            ("no validation images: the last", &["no validation", "images: the last"]),
            (
                "outcome   stopped by a signal of the terminal",
                &["outcome   stopped by a signal of", "          the terminal"],
            ),
            ("a/path/that/is/longer/than/a/line", &["a/path/that/is/longer/than/a/line"]),
        ] {
            let width = if line.starts_with("outcome") { 34 } else { 17 };
            assert_eq!(broken_line(line, width), expected, "{line}");
        }
    }

    #[test]
    fn what_moves_the_cursor_is_escaped() {
        assert_eq!(
            printable("\u{feff}a\nb\u{1b}[2J\u{9b}\r\tß\u{202e}\u{200b}"),
            r"\u{feff}a\nb\u{1b}[2J\u{9b}\r\tß\u{202e}\u{200b}"
        );
        assert_eq!(printable_lines("a\n\tb\u{7}"), "a\n\tb\\u{7}");
        for plain in ["", "Käse 🧀 \\n", "n01440764/x.JPEG"] {
            assert!(matches!(printable(plain), Cow::Borrowed(text) if text == plain));
        }
    }
}
