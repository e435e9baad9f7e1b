//! Text for terminals and logs: names from outside cannot move the cursor or make up lines.

use std::borrow::Cow;

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

#[cfg(test)]
mod tests {
    use super::*;

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
