//! `vim-train config show`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::args::Overrides;
use crate::config::{Loaded, dotted_values};
use crate::error::Error;
use crate::output::{print, print_json};

pub(super) const EXAMPLES: &str = "\
Examples:
  vim-train config show configs/debug.toml --set optim.lr=5e-4
  vim-train config show configs/debug.toml --origin    lr = 0.001  # configs/debug.toml:24
  vim-train config show configs/debug.toml --json

An origin is `default`, `preset NAME`, a line of the file or of one that it extends, `VIM_USE_CUDA_KERNEL`,
or `--set`.";

/// `vim-train config show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Configuration file; without one, the defaults are printed.
    pub config: Option<PathBuf>,
    /// What differs from the file.
    #[command(flatten)]
    pub overrides: Overrides,
    /// Say behind each value where it comes from.
    #[arg(long)]
    pub origin: bool,
    /// Print the configuration as JSON; with --origin, an entry for each key.
    #[arg(long)]
    pub json: bool,
}

/// A key in the document of `--origin --json`.
#[derive(Debug, Serialize)]
struct Entry {
    value: toml::Value,
    origin: String,
}

/// Checks a configuration and prints it in full.
pub(super) fn run(args: &ShowArgs) -> Result<(), Error> {
    let sets = &args.overrides.set;
    let loaded = match &args.config {
        Some(path) => Loaded::read(path, sets)?,
        None => Loaded::defaults(sets)?,
    };
    match (args.json, args.origin) {
        (false, false) => print(&loaded.config.to_toml()),
        (false, true) => print(&loaded.to_toml_with_origins()),
        (true, false) => print_json(&loaded.config),
        (true, true) => {
            let mut values = dotted_values(&loaded.config);
            let entries: BTreeMap<String, Entry> = loaded
                .origins
                .iter()
                .filter_map(|(key, origin)| {
                    let value = values.remove(key)?;
                    Some((key.clone(), Entry { value, origin: origin.to_string() }))
                })
                .collect();
            print_json(&entries)
        }
    }
}
