#![doc = include_str!("../README.md")]

mod builder;
mod error;
mod launch;
mod options;
mod scope;
mod script;
mod settings;
mod shell;

#[cfg(test)]
mod tests;

use builder::ConfigBuilder;
use launch::Launch;

pub use error::{MigrateError, MigrateProblem};

/// A script and the context of its migration.
#[derive(Clone, Copy)]
pub struct Script<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
    /// Its arguments `$1`, `$2`, …
    pub arguments: &'a [String],
    /// A line of the launch to migrate, if there are several.
    pub line: Option<usize>,
    /// Resolves the original's name of a model; the error says which names are known.
    pub model: &'a dyn Fn(&str) -> Result<Model, String>,
}

/// A model in the terms of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The value of `model.preset`.
    pub preset: String,
    /// The value of `model.discretization`.
    pub discretization: String,
}

/// A part of the script without a counterpart in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotCarried {
    /// The text of the part.
    pub what: String,
    /// Its line, from 1.
    pub line: usize,
    /// The reason, and advice.
    pub why: String,
}

/// The result of a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The configuration, with everything below as comments.
    pub toml: String,
    /// The parts without a counterpart.
    pub not_carried: Vec<NotCarried>,
    /// Notes on the configuration.
    pub notes: Vec<String>,
}

/// Migrates a launch script of the original's classification to a configuration.
///
/// # Errors
///
/// If the script is malformed, does not start exactly one such training (in `line`), or leaves its
/// options to the environment.
pub fn migrate(request: Script<'_>) -> Result<Migration, MigrateError> {
    script::check_text(request.text)?;
    let commands = shell::commands(request.text)?;
    script::check_commands(request.text, &commands)?;
    let launch = script::launch(&commands, request.arguments, request.line)?;
    Ok(write(request.name, ConfigBuilder::of(launch, request.model)?))
}

/// The configuration of the script `name` as commented TOML.
fn write(name: &str, ConfigBuilder { launch, entries }: ConfigBuilder) -> Migration {
    let Launch { line, mut not_carried, notes, .. } = launch;
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
        toml.extend(notes.iter().map(|note| comment(note)));
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
