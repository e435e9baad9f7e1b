#![doc = include_str!("../README.md")]

mod builder;
mod error;
mod launch;
mod options;
mod scope;
mod script;
mod settings;
mod shell;
mod sweep;
mod walk;

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
    /// Finds the text of a script that this one calls, by its path or what is known of it.
    pub called: &'a dyn Fn(&str) -> Option<String>,
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

/// Migrates a launch script of the original's classification to a configuration: one that starts
/// several trainings, by itself, in loops or by other scripts, to that of a sweep.
///
/// # Errors
///
/// If the script is malformed, starts no such training (in `line`) or some that are no grid, or
/// leaves its options to the environment.
pub fn migrate(request: Script<'_>) -> Result<Migration, MigrateError> {
    let found = walk::launches(request.text, request.arguments, request.called)?;
    let launches = script::choose(found, request.line)?;
    let builders = launches.into_iter().map(|launch| {
        let (script, line) = (launch.script.clone(), launch.line);
        ConfigBuilder::of(launch, request.model).map_err(|error| match script {
            Some(script) => error.inside(script, line),
            None => error,
        })
    });
    let (mut base, axes) = sweep::combine(builders.collect::<Result<Vec<_>, _>>()?)?;
    if let Some(script) = &base.launch.script {
        base.launch.notes.push(format!("lines without a script's name are those of {script}"));
    }
    let name = request.name.strip_suffix(".sh").unwrap_or(request.name);
    let runs: usize = axes.iter().map(|(_, values)| values.len()).product();
    let section = if runs > 1 { sweep::section(&mut base, name, &axes) } else { String::new() };
    let what = match runs {
        1 => format!("What {} trains in line {}", request.name, base.launch.line),
        _ => format!("The {runs} runs that {} trains", request.name),
    };
    Ok(write(&what, base, &section))
}

/// The configuration as commented TOML, with the section of a sweep at its end.
fn write(what: &str, ConfigBuilder { launch, entries }: ConfigBuilder, sweep: &str) -> Migration {
    let Launch { mut not_carried, notes, .. } = launch;
    not_carried.sort_by_key(|not| not.line);
    let mut toml = format!("# {what}, by the original's main.py.\n");
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
    toml.push_str("\nversion = 3\n");
    let mut section = "";
    for entry in &entries {
        let (of, key) = entry.key.split_once('.').unwrap_or(("", entry.key));
        if of != section {
            section = of;
            toml.push_str(&format!("\n[{section}]\n"));
        }
        let (start, todo) = if entry.is_open { ("# ", "TODO: ") } else { ("", "") };
        let comment = one_line(&entry.comment);
        toml.push_str(&format!("{start}{key} = {}  # {todo}{comment}\n", entry.value));
    }
    toml.push_str(sweep);
    Migration { toml, not_carried, notes }
}

fn comment(text: &str) -> String {
    format!("#   {}\n", one_line(text))
}

/// Text on one line: a line break would end the comment.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
