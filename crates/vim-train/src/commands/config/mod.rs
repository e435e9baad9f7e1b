//! `vim-train config`: shows configurations and the origin of their values.

mod migrate;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::args::{DeviceArg, Overrides};
use crate::config::{
    Config, Loaded, check_key, dotted_values, embedded, in_toml, reference, schema,
};
use crate::error::Error;
use crate::output::{columns, print, print_json};
use crate::run_folder::recorded_config;

const EXAMPLES: &str = "\
Examples:
  vim-train config configs/debug.toml                 the file with all defaults filled in
  vim-train config show configs/debug.toml --origin   the same, and where each value comes from
  vim-train config get configs/debug.toml optim.lr    one value
  vim-train config diff configs/debug.toml data/runs/zoh-s0
  vim-train config migrate pt-vim-t.sh -o configs/mine.toml
  vim-train config > configs/mine.toml                all defaults, to start from
  vim-train config list                               the configurations that are built in
  vim-train config --schema > vim-train.schema.json   for completion in an editor

Without a subcommand it is `config show`. What it prints is itself a configuration file, and is what
a run records. docs/config-reference.md has every key.";

/// Check, show and compare configurations, and make them of the original's scripts.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: Option<ConfigCommand>,
    #[command(flatten)]
    show: ShowArgs,
    /// Print the JSON schema of configuration files instead.
    #[arg(long, conflicts_with_all = ["config", "set", "json", "origin", "doc"])]
    schema: bool,
    /// Print the reference of all keys as Markdown instead, as in docs/config-reference.md.
    #[arg(long, conflicts_with_all = ["config", "set", "json", "origin"])]
    doc: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    Show(ShowArgs),
    List(ListArgs),
    Get(GetArgs),
    Diff(DiffArgs),
    Migrate(migrate::MigrateArgs),
}

pub(crate) fn run(args: &ConfigArgs) -> Result<(), Error> {
    if args.schema {
        return print_json(schema());
    }
    if args.doc {
        return print(&reference());
    }
    match &args.command {
        None => show(&args.show),
        Some(ConfigCommand::Show(args)) => show(args),
        Some(ConfigCommand::List(args)) => list(args),
        Some(ConfigCommand::Get(args)) => get(args),
        Some(ConfigCommand::Diff(args)) => diff(args),
        Some(ConfigCommand::Migrate(args)) => migrate::run(args),
    }
}

const SHOW_EXAMPLES: &str = "\
Examples:
  vim-train config show configs/debug.toml --set optim.lr=5e-4
  vim-train config show configs/debug.toml --origin    lr = 0.001  # configs/debug.toml:24
  vim-train config show configs/debug.toml --json

An origin is `default`, `preset NAME`, a line of the file or of one that it extends, `VIM_USE_CUDA_KERNEL`,
or `--set`, as which --device counts.";

/// Check a configuration and print it in full: defaults, extended files and --set included.
#[derive(Debug, Args)]
#[command(after_help = SHOW_EXAMPLES)]
pub(crate) struct ShowArgs {
    /// Configuration file, or the name of a built-in one; without one, the defaults are printed.
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    device: DeviceArg,
    /// Say behind each value where it comes from.
    #[arg(long)]
    origin: bool,
    /// Print the configuration as JSON; with --origin, an entry for each key.
    #[arg(long)]
    json: bool,
}

/// A key in the document of `--origin --json`.
#[derive(Debug, Serialize)]
struct Entry {
    value: toml::Value,
    origin: String,
}

fn show(args: &ShowArgs) -> Result<(), Error> {
    let sets = args.device.over(&args.overrides.set);
    let loaded = match &args.config {
        Some(path) => Loaded::read(path, &sets)?,
        None => Loaded::defaults(&sets)?,
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

const LIST_EXAMPLES: &str = "\
Examples:
  vim-train config list
  vim-train config show quickstart
  vim-train train quickstart --set model.discretization=bilinear

Any command that takes a configuration file takes such a name; a file of that name comes before it.";

/// List the configurations that are built in, and need no file.
#[derive(Debug, Args)]
#[command(after_help = LIST_EXAMPLES)]
pub(crate) struct ListArgs {
    /// Print the names as JSON.
    #[arg(long)]
    json: bool,
}

fn list(args: &ListArgs) -> Result<(), Error> {
    if args.json {
        return print_json(&embedded().iter().map(|(name, _)| name).collect::<Vec<_>>());
    }
    // The first line of each says it, up to the details.
    let about = |text: &str| {
        let line = text.lines().next().unwrap_or_default().trim_start_matches("# ");
        line.split([':', ',', '.']).next().unwrap_or_default().to_owned()
    };
    let rows = embedded().iter().map(|(name, text)| vec![(*name).to_owned(), about(text)]);
    print(&columns(&["name", "what it trains"], rows.collect(), 2))
}

const GET_EXAMPLES: &str = "\
Examples:
  vim-train config get configs/debug.toml optim.lr
  vim-train config get data/runs/zoh-s0 run.name       of a run, as it was recorded
  vim-train config get configs/debug.toml model        a whole section
  vim-train config get configs/ablation/shapes.toml sweep.name
  root=$(vim-train config get configs/debug.toml run.root)

Text is printed without quotes. A key that is not set is an error, exit code 1.";

/// Print the value of one key.
#[derive(Debug, Args)]
#[command(after_help = GET_EXAMPLES)]
pub(crate) struct GetArgs {
    /// Configuration file, or a run's folder; of a sweep's file, its configuration without the
    /// grid, and its section `sweep`.
    config: PathBuf,
    /// The key, such as `optim.lr`, or a section.
    key: String,
    #[command(flatten)]
    overrides: Overrides,
    /// Print the value as JSON.
    #[arg(long)]
    json: bool,
}

fn get(args: &GetArgs) -> Result<(), Error> {
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

const DIFF_EXAMPLES: &str = "\
Examples:
  vim-train config diff configs/debug.toml configs/quickstart.toml
  vim-train config diff configs/debug.toml data/runs/zoh-s0       what has changed since the run
  vim-train config diff data/runs/zoh-s0 data/runs/foh-s0 --json

Files are compared with all defaults filled in, so only what has an effect is listed. A sweep's file stands for
its configuration without the grid; [sweep] is compared where both have one. Exit code 0 if they are the same,
1 if they differ.";

/// List the keys in which two configurations differ.
#[derive(Debug, Args)]
#[command(after_help = DIFF_EXAMPLES)]
pub(crate) struct DiffArgs {
    /// A configuration file, a sweep's included, or a run's folder.
    a: PathBuf,
    /// Another one.
    b: PathBuf,
    /// Print the differences as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, PartialEq, Serialize)]
struct Difference {
    key: String,
    a: Option<toml::Value>,
    b: Option<toml::Value>,
}

fn diff(args: &DiffArgs) -> Result<(), Error> {
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
fn load(path: &Path, sets: &[String]) -> Result<Config, Error> {
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
