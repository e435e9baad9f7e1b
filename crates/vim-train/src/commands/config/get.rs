//! `vim-train config get`.

use std::path::PathBuf;

use clap::Args;

use super::diff::load;
use crate::args::Overrides;
use crate::config::{check_key, in_toml};
use crate::error::Error;
use crate::output::{print, print_json};

pub(super) const EXAMPLES: &str = "\
Examples:
  vim-train config get configs/debug.toml optim.lr
  vim-train config get data/runs/zoh-s0 run.name       of a run, as it was recorded
  vim-train config get configs/debug.toml model        a whole section
  vim-train config get configs/ablation/shapes.toml sweep.name
  root=$(vim-train config get configs/debug.toml run.root)

Text is printed without quotes. A key that is not set is an error, exit code 1.";

/// `vim-train config get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// Configuration file, or a run's folder; of a sweep's file, its configuration without the
    /// grid, and its section `sweep`.
    pub config: PathBuf,
    /// The key, such as `optim.lr`, or a section.
    pub key: String,
    /// What differs from the file.
    #[command(flatten)]
    pub overrides: Overrides,
    /// Print the value as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Prints the value of one key.
pub(super) fn run(args: &GetArgs) -> Result<(), Error> {
    check_key(&args.key)?;
    let config = load(&args.config, &args.overrides.set)?;
    let table = toml::Table::try_from(&config)
        .map_err(|error| Error::internal(format!("a configuration has no TOML form: {error}")))?;
    let value = args
        .key
        .split('.')
        .try_fold(&toml::Value::Table(table), |value, name| value.get(name))
        .cloned();
    let Some(value) = value else {
        let (key, file) = (&args.key, args.config.display());
        return Err(Error::failed(format!("{key} is not set in {file}, and has no default")));
    };
    if args.json {
        return print_json(&value);
    }
    match &value {
        toml::Value::String(text) => print(text),
        toml::Value::Table(table) => print(&table.to_string()),
        toml::Value::Integer(_)
        | toml::Value::Float(_)
        | toml::Value::Boolean(_)
        | toml::Value::Datetime(_)
        | toml::Value::Array(_) => print(&in_toml(&value)),
    }
}
