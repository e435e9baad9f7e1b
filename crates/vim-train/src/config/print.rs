//! A configuration as text: in full, by key, and the reference of all keys.

use std::collections::BTreeMap;

use serde_json::Value;
use toml_edit::{DocumentMut, Table};
use vim_config::escape;
use vim_data::{DenseRecipe, ObjectRecipe};
use vim_dense::SegmenterConfig;
use vim_dense::detection::DetectorConfig;
use vim_sweep::SweepConfig;

use super::schema::{Node, PATH, paths};
use super::{Config, Loaded};

impl Config {
    /// The configuration as TOML that loads to the same configuration.
    ///
    /// Unset keys without a default are written as comments.
    pub fn to_toml(&self) -> String {
        let text = toml::to_string(self).expect("invariant: a configuration has a TOML form");
        let mut document: DocumentMut =
            text.parse().expect("invariant: what the TOML writer wrote is TOML");
        let mut comments = String::new();
        annotate(document.as_table_mut(), Node::root(), &mut comments);
        document.set_trailing(comments);
        document.to_string().trim_start().to_owned()
    }
}

/// A TOML comment belongs to the item after it, so a section's comments go to the next header.
fn annotate(table: &mut Table, node: Node, comments: &mut String) {
    for (key, item) in table.iter_mut() {
        let Some(child) = node.get(&key) else { continue };
        if let Some(number) = item.as_float().filter(|x| *x != 0.0 && x.abs() < 1e-3) {
            *item = toml_edit::value(short(number));
        } else if let Some(path) = item.as_str().filter(|_| child.is_path()) {
            *item = toml_edit::value(escape(path));
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

impl Loaded {
    /// As [`Config::to_toml`], with the origin of each value as a comment.
    pub fn to_toml_with_origins(&self) -> String {
        let mut document: DocumentMut =
            self.config.to_toml().parse().expect("invariant: a printed configuration is TOML");
        add_origins(document.as_table_mut(), "", &self.origins);
        document.to_string()
    }
}

fn add_origins(table: &mut Table, prefix: &str, origins: &BTreeMap<String, String>) {
    for (key, item) in table.iter_mut() {
        let path = if prefix.is_empty() { key.to_string() } else { format!("{prefix}.{key}") };
        if let Some(section) = item.as_table_mut() {
            add_origins(section, &path, origins);
        } else if let (Some(value), Some(origin)) = (item.as_value_mut(), origins.get(&path)) {
            value.decor_mut().set_suffix(format!("  # {origin}"));
        }
    }
}

/// A small number as 1e-8, where the TOML writer would write out the zeros.
fn short(number: f64) -> toml_edit::Value {
    format!("{number:e}").parse().unwrap_or_else(|_| number.into())
}

/// A value as a configuration file writes it.
pub(crate) fn in_toml(value: &toml::Value) -> String {
    match value.as_float() {
        Some(number) if number != 0.0 && number.abs() < 1e-3 => format!("{number:e}"),
        Some(_) | None => value.to_string(),
    }
}

/// Every key that is set in `config`, by its path.
pub(crate) fn dotted_values(config: &Config) -> BTreeMap<String, toml::Value> {
    dotted(toml::Table::try_from(config).expect("invariant: a configuration has a TOML form"))
}

/// Every key that is set in `value`, by its path; the path is empty if `value` is no table.
pub(crate) fn dotted(value: impl Into<toml::Value>) -> BTreeMap<String, toml::Value> {
    fn collect(prefix: &str, value: toml::Value, into: &mut BTreeMap<String, toml::Value>) {
        if let toml::Value::Table(table) = value {
            for (key, value) in table {
                let path = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
                collect(&path, value, into);
            }
        } else {
            into.insert(prefix.to_owned(), value);
        }
    }
    let mut values = BTreeMap::new();
    collect("", value.into(), &mut values);
    values
}

/// The section whose preset decides an unwritten `key`.
pub(super) fn preset_of(key: &str) -> Option<&str> {
    let (section, key) = key.split_once('.')?;
    (["model", "augment"].contains(&section) && key != "preset").then_some(section)
}

/// Every key as Markdown: a table per section with kind, default and effect.
///
/// `vim-train config --doc` prints it, and a test compares it with docs/config-reference.md.
pub fn reference() -> String {
    let defaults =
        serde_json::to_value(all_sections()).expect("invariant: a configuration has a JSON form");
    let mut text = String::new();
    let mut section = String::new();
    for (path, node) in in_file_order(paths()) {
        let (parent, key) = path.rsplit_once('.').unwrap_or(("", &path));
        if text.is_empty() || parent != section {
            section = parent.to_owned();
            let title = match parent {
                "" => "Above all sections".to_owned(),
                _ => format!("`[{section}]`"),
            };
            text.push_str(&format!("\n## {title}\n\n"));
            text.push_str("| key | value | default | effect |\n|---|---|---|---|\n");
        }
        let default = match preset_of(&path) {
            Some(_) => None, // the preset's value
            None => defaults.pointer(&format!("/{}", path.replace('.', "/"))),
        };
        let default = default.map_or_else(|| "–".to_owned(), |value| format!("`{}`", shown(value)));
        let effect = node.description().replace('\n', " ").replace('|', "\\|");
        text.push_str(&format!("| `{key}` | {} | {default} | {effect} |\n", kind(node)));
    }
    text.trim_start().to_owned()
}

/// The defaults with the optional sections.
fn all_sections() -> Config {
    Config {
        segmentation: Some(SegmenterConfig::default()),
        pairs: Some(DenseRecipe::default()),
        detection: Some(DetectorConfig::default()),
        objects: Some(ObjectRecipe::default()),
        sweep: Some(SweepConfig::default()),
        ..Config::default()
    }
}

/// Sorts keys as in a printed configuration; keys never printed come last in their section.
fn in_file_order(mut paths: Vec<(String, Node)>) -> Vec<(String, Node)> {
    let printed = all_sections().effective().to_toml();
    let mut section = String::new();
    let mut order: Vec<String> = Vec::new();
    for line in printed.lines() {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']').to_owned();
        } else if let Some(key) = line.trim_start_matches("# ").split(' ').next() {
            let above = if section.is_empty() { String::new() } else { format!("{section}.") };
            order.push(format!("{above}{key}"));
        }
    }
    // Keys that are never printed, such as `extends`, end their section.
    let place = |path: &str| order.iter().position(|printed| printed == path);
    paths.sort_by_key(|(path, _)| (path.contains('.'), place(path).unwrap_or(usize::MAX)));
    paths
}

fn shown(value: &Value) -> String {
    match value.as_f64() {
        Some(number) if value.is_f64() && number != 0.0 && number.abs() < 1e-3 => {
            format!("{number:e}")
        }
        Some(_) | None => value.to_string(),
    }
}

/// What an interval is.
const LENGTH: &str = "length of training";

/// What a key takes.
fn kind(node: Node) -> String {
    match node.choices() {
        Some(choices) => {
            let quoted: Vec<String> = choices.iter().map(|name| format!("`\"{name}\"`")).collect();
            quoted.join(", ")
        }
        None => match node.items().map(|items| kind_of(items.resolved())).as_deref() {
            Some(LENGTH) => "list of lengths of training".to_owned(),
            Some(_) | None => kind_of(node.resolved()),
        },
    }
}

fn kind_of(schema: &Value) -> String {
    if let Some(forms) = schema.get("oneOf").and_then(Value::as_array) {
        return forms.iter().map(kind_of).collect::<Vec<_>>().join(" or ");
    }
    if let Some(constant) = schema.get("const") {
        return format!("`{constant}`");
    }
    if schema.get("pattern").is_some() {
        return LENGTH.to_owned();
    }
    if schema.get("format") == Some(&Value::from(PATH)) {
        return PATH.to_owned();
    }
    let named = match schema.get("type") {
        // An optional key has the types [T, null]; T is shown.
        Some(Value::Array(types)) => types.first().and_then(Value::as_str),
        other => other.and_then(Value::as_str),
    };
    match named {
        Some("array") => {
            let items = schema.get("items").map(kind_of).unwrap_or_default();
            format!("list of {items}s")
        }
        Some("string") => "text".to_owned(),
        Some(name) => name.to_owned(),
        None => String::new(),
    }
}
