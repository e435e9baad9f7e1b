//! The reference of all keys, for docs/config-reference.md.

use serde_json::Value;
use vim_sweep::SweepConfig;

use super::Config;
use super::origins::preset_of;
use super::schema::{Node, PATH, paths};

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
        let default =
            default.map_or_else(|| "–".to_owned(), |value| format!("`{}`", in_toml(value)));
        let effect = node.description().replace('\n', " ").replace('|', "\\|");
        text.push_str(&format!("| `{key}` | {} | {default} | {effect} |\n", kind(node)));
    }
    text.trim_start().to_owned()
}

/// The defaults with the optional `[sweep]` section.
fn all_sections() -> Config {
    Config { sweep: Some(SweepConfig::default()), ..Config::default() }
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

fn in_toml(value: &Value) -> String {
    match value.as_f64() {
        Some(number) if value.is_f64() && number != 0.0 && number.abs() < 1e-3 => {
            format!("{number:e}")
        }
        Some(_) | None => value.to_string(),
    }
}

/// What a key takes.
fn kind(node: Node) -> String {
    match node.choices() {
        Some(choices) => {
            let quoted: Vec<String> = choices.iter().map(|name| format!("`\"{name}\"`")).collect();
            quoted.join(", ")
        }
        None => kind_of(node.resolved()),
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
        return "length of training".to_owned();
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
