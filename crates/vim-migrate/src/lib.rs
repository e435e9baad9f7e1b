#![doc = include_str!("../README.md")]

mod broken;
mod error;
mod launch;
mod maker;
mod options;
mod paths;
mod scope;
mod script;
mod settings;
mod words;
mod write;

#[cfg(test)]
mod tests;

pub use error::{MigrateError, Trouble};

/// A script, and what there is to know about it.
#[derive(Clone, Copy)]
pub struct Script<'a> {
    /// What to call it.
    pub name: &'a str,
    /// What it holds.
    pub text: &'a str,
    /// What it is called with: its `$1`, `$2`, …
    pub arguments: &'a [String],
    /// A line of the command to take, where there are several.
    pub line: Option<usize>,
    /// The model that a name of the original stands for, or what is known instead.
    pub model: &'a dyn Fn(&str) -> Result<Model, String>,
}

/// The model that a name of the original stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The value of `model.preset`.
    pub preset: String,
    /// The value of `model.discretization`.
    pub discretization: String,
}

/// Something in the script that the configuration does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotCarried {
    /// What was written.
    pub what: String,
    /// In which line, from 1.
    pub line: usize,
    /// Why not, and what to do.
    pub why: String,
}

/// What came of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The configuration, with all below as comments in it.
    pub toml: String,
    /// What it does not say.
    pub not_carried: Vec<NotCarried>,
    /// What to know besides.
    pub notes: Vec<String>,
}

/// Turns a launch script of the original's classification into a configuration.
///
/// # Errors
///
/// If the script is broken, starts no such training or several, or does not say itself what it trains.
pub fn migrate(request: Script<'_>) -> Result<Migration, MigrateError> {
    broken::check_text(request.text)?;
    let commands = words::commands(request.text)?;
    broken::check_commands(request.text, &commands)?;
    let launch = script::launch(&commands, request.arguments, request.line)?;
    let settings = settings::Settings::of(launch, request.model)?;
    Ok(write::write(request.name, settings))
}
