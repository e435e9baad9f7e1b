#![doc = include_str!("../README.md")]

mod builder;
mod checks;
mod error;
mod launch;
mod options;
mod paths;
mod scope;
mod script;
mod settings;
mod shell;
mod write;

#[cfg(test)]
mod tests;

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
    checks::check_text(request.text)?;
    let commands = shell::commands(request.text)?;
    checks::check_commands(request.text, &commands)?;
    let launch = script::launch(&commands, request.arguments, request.line)?;
    let settings = settings::Settings::of(launch, request.model)?;
    Ok(write::write(request.name, settings))
}
