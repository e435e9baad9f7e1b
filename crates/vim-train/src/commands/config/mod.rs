//! `vim-train config`: shows configurations and the origin of their values.

mod diff;
mod get;
mod migrate;
mod show;

use clap::{Args, Subcommand};

use crate::config::{reference, schema};
use crate::error::Error;
use crate::output::{print, print_json};
use diff::DiffArgs;
use get::GetArgs;
use migrate::MigrateArgs;
use show::ShowArgs;

const EXAMPLES: &str = "\
Examples:
  vim-train config configs/debug.toml                 the file with all defaults filled in
  vim-train config show configs/debug.toml --origin   the same, and where each value comes from
  vim-train config get configs/debug.toml optim.lr    one value
  vim-train config diff configs/debug.toml data/runs/zoh-s0
  vim-train config migrate pt-vim-t.sh -o configs/mine.toml
  vim-train config > configs/mine.toml                all defaults, to start from
  vim-train config --schema > vim-train.schema.json   for completion in an editor

Without a subcommand it is `config show`. What it prints is itself a configuration file, and is what
a run records. docs/config-reference.md has every key.";

/// `vim-train config`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ConfigArgs {
    /// What to do; left out: show.
    #[command(subcommand)]
    pub command: Option<ConfigCommand>,
    /// What to show.
    #[command(flatten)]
    pub show: ShowArgs,
    /// Print the JSON schema of configuration files instead.
    #[arg(long, conflicts_with_all = ["config", "set", "json", "origin", "doc"])]
    pub schema: bool,
    /// Print the reference of all keys as Markdown instead, as in docs/config-reference.md.
    #[arg(long, conflicts_with_all = ["config", "set", "json", "origin"])]
    pub doc: bool,
}

/// A subcommand of `vim-train config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration and print it in full: defaults, extended files and --set included.
    #[command(after_help = show::EXAMPLES)]
    Show(ShowArgs),
    /// Print the value of one key.
    #[command(after_help = get::EXAMPLES)]
    Get(GetArgs),
    /// List the keys in which two configurations differ.
    #[command(after_help = diff::EXAMPLES)]
    Diff(DiffArgs),
    /// Turn a launch script of the original into a configuration.
    #[command(after_help = migrate::EXAMPLES)]
    Migrate(MigrateArgs),
}

/// `vim-train config`.
pub fn run(args: &ConfigArgs) -> Result<(), Error> {
    if args.schema {
        return print_json(schema());
    }
    if args.doc {
        return print(&reference());
    }
    match &args.command {
        None => show::run(&args.show),
        Some(ConfigCommand::Show(args)) => show::run(args),
        Some(ConfigCommand::Get(args)) => get::run(args),
        Some(ConfigCommand::Diff(args)) => diff::run(args),
        Some(ConfigCommand::Migrate(args)) => migrate::run(args),
    }
}
