//! `vim-train config diff`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::config::{Config, dotted_values, in_toml};
use crate::error::Error;
use crate::output::{columns, print, print_json};
use crate::run_folder::recorded_config;

pub(super) const EXAMPLES: &str = "\
Examples:
  vim-train config diff configs/debug.toml configs/quickstart.toml
  vim-train config diff configs/debug.toml data/runs/zoh-s0       what has changed since the run
  vim-train config diff data/runs/zoh-s0 data/runs/foh-s0 --json

Files are compared with all defaults filled in, so only what has an effect is listed. A sweep's file stands for
its configuration without the grid; [sweep] is compared where both have one. Exit code 0 if they are the same,
1 if they differ.";

/// `vim-train config diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// A configuration file, a sweep's included, or a run's folder.
    pub a: PathBuf,
    /// Another one.
    pub b: PathBuf,
    /// Print the differences as JSON.
    #[arg(long)]
    pub json: bool,
}

/// A key with different values.
#[derive(Debug, PartialEq, Serialize)]
struct Difference {
    key: String,
    a: Option<toml::Value>,
    b: Option<toml::Value>,
}

/// Prints the keys that differ.
pub(super) fn run(args: &DiffArgs) -> Result<(), Error> {
    let (mut a, mut b) = (load(&args.a, &[])?, load(&args.b, &[])?);
    if a.sweep.is_none() || b.sweep.is_none() {
        (a.sweep, b.sweep) = (None, None);
    }
    let differences = differences(&a, &b);
    if args.json {
        print_json(&differences)?;
    } else if !differences.is_empty() {
        let value = |value: &Option<toml::Value>| value.as_ref().map_or("not set".into(), in_toml);
        let rows =
            differences.iter().map(|one| vec![one.key.clone(), value(&one.a), value(&one.b)]);
        let (a, b) = (args.a.display().to_string(), args.b.display().to_string());
        print(&columns(&["key", &a, &b], rows.collect(), 3))?;
    }
    match differences.len() {
        0 => Ok(()),
        1 => Err(Error::failed("they differ in 1 key")),
        count => Err(Error::failed(format!("they differ in {count} keys"))),
    }
}

/// The configuration in a file (also a sweep's) or recorded in a run's folder.
pub(super) fn load(path: &Path, sets: &[String]) -> Result<Config, Error> {
    if !path.is_dir() {
        return Ok(Config::load_sweep(path, sets)?);
    }
    let recorded = recorded_config(path)?;
    if sets.is_empty() { Ok(recorded) } else { Ok(Config::load(&path.join("config.toml"), sets)?) }
}

fn differences(a: &Config, b: &Config) -> Vec<Difference> {
    let (mut a, mut b) = (dotted_values(a), dotted_values(b));
    let keys: BTreeSet<String> = a.keys().chain(b.keys()).cloned().collect();
    keys.into_iter()
        .map(|key| Difference { a: a.remove(&key), b: b.remove(&key), key })
        .filter(|one| one.a != one.b)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_an_effect_differs() {
        let load = |text| Config::from_toml(text).unwrap();
        let a = load("[model]\ndepth = 24\n");
        assert_eq!(differences(&a, &load("")), [], "24 is the preset's");
        let b = load("[train]\nclip_grad = 1.0\n[optim]\nlr = 0.01\n");
        let found = differences(&a, &b);
        let keys: Vec<&str> = found.iter().map(|one| one.key.as_str()).collect();
        assert_eq!(keys, ["optim.lr", "train.clip_grad"]);
        assert_eq!(found[1].a, None);
        assert_eq!(found[0].b, Some(toml::Value::Float(0.01)));
    }
}
