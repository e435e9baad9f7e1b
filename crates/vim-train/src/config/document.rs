//! A configuration as text: names checked, decoded, printed.

use std::ops::Range;

use toml_edit::{Document, DocumentMut, Item, Table, TableLike, Value};

use super::Config;
use super::error::{ConfigError, Problem, nearest, nearest as nearest_of};
use super::schema::{Node, paths};

/// A problem, and the bytes of the text that it is about.
pub(super) type Located = (Box<ConfigError>, Option<Range<usize>>);

/// Decodes a configuration; every name is checked first, because the schema knows what is near it.
pub(super) fn decode(text: &str) -> Result<Config, Located> {
    let document = Document::parse(text).map_err(|error| {
        let message = error.message().trim().replace('\n', ", ");
        (Box::new(ConfigError::new("", Problem::Syntax { message })), error.span())
    })?;
    check_names(document.as_table(), Node::root(), "")?;
    let decoder = toml::Deserializer::parse(text).map_err(|error| syntax(&error))?;
    serde_path_to_error::deserialize(decoder).map_err(|error| {
        let key = error.path().to_string();
        let error = error.into_inner();
        let message = in_plain_words(error.message());
        (Box::new(ConfigError::new(key, Problem::Type { message })), error.span())
    })
}

fn syntax(error: &toml::de::Error) -> Located {
    let message = error.message().replace('\n', ", ");
    (Box::new(ConfigError::new("", Problem::Syntax { message })), error.span())
}

fn check_names(table: &dyn TableLike, node: Node, prefix: &str) -> Result<(), Located> {
    for (key, item) in table.iter() {
        let path = if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
        let Some(child) = node.get(key) else {
            let span = table.get_key_value(key).and_then(|(key, _)| key.span());
            return Err((Box::new(unknown_key(&path, key, node)), span));
        };
        match (item.as_table_like(), child.keys()) {
            (Some(section), Some(_)) => check_names(section, child, &path)?,
            (Some(_), None) | (None, _) => check_choice(item, child, &path)?,
        }
    }
    Ok(())
}

fn unknown_key(path: &str, key: &str, node: Node) -> ConfigError {
    let known = node.keys().unwrap_or_default();
    // A key that is right, but in the wrong section, is as common a mistake as a misspelt one.
    let elsewhere = || {
        let ending = format!(".{key}");
        paths().into_iter().map(|(path, _)| path).find(|path| path.ends_with(&ending))
    };
    let nearest = nearest(key, &known).or_else(elsewhere);
    ConfigError::new(path, Problem::UnknownKey { nearest, known })
}

fn check_choice(item: &Item, node: Node, path: &str) -> Result<(), Located> {
    let (Some(value), Some(known)) = (item.as_str(), node.choices()) else { return Ok(()) };
    if known.iter().any(|name| name == value) {
        return Ok(());
    }
    let aliases: Vec<String> = node.aliases().into_iter().map(str::to_owned).collect();
    if aliases.iter().any(|name| name == value) {
        return Ok(());
    }
    let nearest = nearest(value, &known).or_else(|| nearest_of(value, &aliases));
    let problem = Problem::UnknownValue { value: value.to_owned(), nearest, known };
    Err((Box::new(ConfigError::new(path, problem)), item.span()))
}

/// A decoder's message without the names of Rust's types.
fn in_plain_words(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    let expected = match expected {
        "usize" | "u64" | "u32" => "an integer, 0 or more",
        "f64" => "a number",
        other if other.starts_with("struct ") => "a section",
        other => other,
    };
    format!("{found}, expected {expected}")
}

/// Line and column, from 1, of byte `offset` of `text`.
pub(super) fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    (line, String::from_utf8_lossy(&before[line_start..]).chars().count() + 1)
}

/// The line of `text` that `span` starts in, and below it carets under the span.
pub(super) fn caret(text: &str, span: &Range<usize>) -> String {
    let (line, column) = position(text, span.start);
    let shown = text.lines().nth(line - 1).unwrap_or_default();
    let room = (shown.chars().count() + 1).saturating_sub(column).max(1);
    let length = text.get(span.clone()).map_or(1, |marked| marked.chars().count()).clamp(1, room);
    let (number, gutter) = (line.to_string(), " ".repeat(line.to_string().len()));
    let indent = " ".repeat(column - 1);
    let marks = "^".repeat(length);
    format!("{gutter} |\n{number} | {shown}\n{gutter} | {indent}{marks}")
}

/// Prints `config` in full; keys that are not set stand as comments at the end of their section.
pub(super) fn print(config: &Config) -> String {
    let text = toml::to_string(config).expect("invariant: a configuration has a TOML form");
    let mut document: DocumentMut =
        text.parse().expect("invariant: what the TOML writer wrote is TOML");
    let mut comments = String::new();
    annotate(document.as_table_mut(), Node::root(), &mut comments);
    document.set_trailing(comments);
    document.to_string().trim_start().to_owned()
}

/// Comments belong to what follows them in a TOML document, so a section's go to the next one's header.
fn annotate(table: &mut Table, node: Node, comments: &mut String) {
    for (key, item) in table.iter_mut() {
        let Some(child) = node.get(&key) else { continue };
        if let Some(number) = item.as_float().filter(|x| *x != 0.0 && x.abs() < 1e-3) {
            *item = toml_edit::value(short(number));
        } else if let Some(section) = item.as_table_mut() {
            section.decor_mut().set_prefix(format!("{comments}\n"));
            comments.clear();
            for key in child.keys().unwrap_or_default() {
                if !section.contains_key(&key) {
                    comments.push_str(&format!("# {key} is not set\n"));
                }
            }
            annotate(section, child, comments);
        }
    }
}

/// A small number as people write it, 1e-8, where the TOML writer counts out the zeros.
fn short(number: f64) -> Value {
    format!("{number:e}").parse().unwrap_or_else(|_| Value::from(number))
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
