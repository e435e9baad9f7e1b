//! A configuration as text: names checked, decoded, printed.

use std::collections::BTreeMap;
use std::ops::Range;

use toml_edit::{Document, DocumentMut, Item, Table, TableLike, Value};

use super::error::{ConfigError, Problem, nearest, nearest as nearest_of};
use super::file::VERSION;
use super::schema::{Node, paths};
use super::{Config, KeyOrigin};

/// A problem and its byte range in the text.
pub(super) type Located = (Box<ConfigError>, Option<Range<usize>>);

/// Decodes a configuration; names are checked first, because the schema can suggest similar ones.
pub(super) fn decode(text: &str) -> Result<Config, Located> {
    let document = Document::parse(text).map_err(|error| {
        let message = error.message().trim().replace('\n', ", ");
        (Box::new(ConfigError::new("", Problem::Syntax { message })), error.span())
    })?;
    check_version(&document)?;
    check_names(document.as_table(), Node::root(), "")?;
    let decoder = toml::Deserializer::parse(text).map_err(|error| syntax(&error))?;
    serde_path_to_error::deserialize(decoder).map_err(|error| {
        let key = error.path().to_string();
        let error = error.into_inner();
        let message = in_plain_words(error.message());
        (Box::new(ConfigError::new(key, Problem::Type { message })), error.span())
    })
}

pub(super) fn syntax(error: &toml::de::Error) -> Located {
    let message = error.message().replace('\n', ", ");
    (Box::new(ConfigError::new("", Problem::Syntax { message })), error.span())
}

/// Checks the version before the keys, because another version may have other keys.
fn check_version(document: &Document<&str>) -> Result<(), Located> {
    let Some(item) = document.get("version") else { return Ok(()) };
    match item.as_integer() {
        Some(found) if u64::try_from(found) != Ok(VERSION) => {
            Err((Box::new(ConfigError::new("version", Problem::Version { found })), item.span()))
        }
        // The decoder reports anything but an integer.
        Some(_) | None => Ok(()),
    }
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
    // A correct key in the wrong section is as common a mistake as a misspelt key.
    let elsewhere = || {
        let ending = format!(".{key}");
        paths().into_iter().map(|(path, _)| path).find(|path| path.ends_with(&ending))
    };
    let nearest = nearest(key, &known).or_else(elsewhere);
    ConfigError::new(path, Problem::UnknownKey { nearest, known })
}

fn check_choice(item: &Item, node: Node, path: &str) -> Result<(), Located> {
    let Some(known) = node.choices() else { return Ok(()) };
    let Some(value) = item.as_str() else {
        // `true` in place of "layer" counts as an unknown name, too.
        let written = item.to_string().trim().to_owned();
        let problem = Problem::UnknownValue { value: written, nearest: None, known };
        return Err((Box::new(ConfigError::new(path, problem)), item.span()));
    };
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

/// Prints `config` in full; unset keys become comments at the end of their section.
pub(super) fn print(config: &Config) -> String {
    let text = toml::to_string(config).expect("invariant: a configuration has a TOML form");
    let mut document: DocumentMut =
        text.parse().expect("invariant: what the TOML writer wrote is TOML");
    let mut comments = String::new();
    annotate(document.as_table_mut(), Node::root(), &mut comments);
    document.set_trailing(comments);
    document.to_string().trim_start().to_owned()
}

/// A TOML comment belongs to the item after it, so a section's comments go to the next header.
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

/// Checks that `key` is a key or a section of the schema.
pub(crate) fn check_key(key: &str) -> Result<(), ConfigError> {
    let (mut node, mut path) = (Node::root(), String::new());
    for name in key.split('.') {
        path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        node = node.get(name).ok_or_else(|| unknown_key(&path, name, node))?;
    }
    Ok(())
}

/// A value as a configuration file writes it.
pub(crate) fn in_toml(value: &toml::Value) -> String {
    match value.as_float() {
        Some(number) if number != 0.0 && number.abs() < 1e-3 => format!("{number:e}"),
        Some(_) | None => value.to_string(),
    }
}

/// Prints `config` in full, each value followed by its origin.
pub(super) fn print_with_origins(config: &Config, origins: &BTreeMap<String, KeyOrigin>) -> String {
    fn add(table: &mut Table, prefix: &str, origins: &BTreeMap<String, KeyOrigin>) {
        for (key, item) in table.iter_mut() {
            let path = if prefix.is_empty() { key.to_string() } else { format!("{prefix}.{key}") };
            if let Some(section) = item.as_table_mut() {
                add(section, &path, origins);
            } else if let (Some(value), Some(origin)) = (item.as_value_mut(), origins.get(&path)) {
                value.decor_mut().set_suffix(format!("  # {origin}"));
            }
        }
    }
    let printed = print(config);
    let mut document: DocumentMut =
        printed.parse().expect("invariant: a printed configuration is TOML");
    add(document.as_table_mut(), "", origins);
    document.to_string()
}

/// A small number as 1e-8, where the TOML writer would write out the zeros.
fn short(number: f64) -> Value {
    format!("{number:e}").parse().unwrap_or_else(|_| Value::from(number))
}
