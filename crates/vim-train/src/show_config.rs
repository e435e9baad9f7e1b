//! `vim-train config`.

use crate::cli::ConfigArgs;
use crate::config::{Config, reference, schema};
use crate::error::Error;
use crate::output::{print, print_json};

/// Checks a configuration and prints it in full; or prints the schema, or the reference of keys.
///
/// # Errors
///
/// The configuration's first mistake.
pub fn run(args: &ConfigArgs) -> Result<(), Error> {
    if args.schema {
        return print_json(schema());
    }
    if args.doc {
        return print(&reference());
    }
    let config = match &args.config {
        Some(path) => Config::load_sweep(path, &args.overrides.set)?,
        None => Config::from_defaults(&args.overrides.set)?,
    };
    if args.json { print_json(&config) } else { print(&config.to_toml()) }
}
