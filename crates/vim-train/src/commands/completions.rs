//! `vim-train completions` and `vim-train man`, generated from the command line's definition.

use std::path::PathBuf;
use std::{fs, io};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use vim_engine::Error;
use vim_engine::output::{check_free, print};
use vim_run::storage::{Disk, replace};

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  vim-train completions bash > ~/.local/share/bash-completion/completions/vim-train
  vim-train completions zsh > ~/.zfunc/_vim-train
  vim-train completions fish > ~/.config/fish/completions/vim-train.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  vim-train man ~/.local/share/man/man1
  man vim-train-train";

/// Print completions for a shell.
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Write manual pages, one for each command.
#[derive(Debug, Args)]
#[command(after_help = MAN_EXAMPLES)]
pub(crate) struct ManArgs {
    /// Folder to write the pages to; it is made if it is not there.
    folder: PathBuf,
    /// Write over pages that are there.
    #[arg(long)]
    force: bool,
}

pub(crate) fn completions(args: &CompletionsArgs, mut program: Command) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "vim-train", &mut script);
    print(&String::from_utf8_lossy(&script))
}

pub(crate) fn man(args: &ManArgs, program: Command) -> Result<(), Error> {
    fs::create_dir_all(&args.folder).map_err(Error::io("make", &args.folder))?;
    // Use the name of the binary, not of the crate.
    let mut program = program.name("vim-train").disable_help_subcommand(true);
    program.build();
    let mut pages = Vec::new();
    collect(with_usage(program), &mut pages).map_err(Error::io("write pages to", &args.folder))?;
    // Write only after all are known to be free.
    for (name, _) in &pages {
        check_free(&args.folder.join(name), args.force)?;
    }
    let mut added = Vec::new();
    for (name, page) in &pages {
        let path = args.folder.join(name);
        let is_new = !path.exists();
        if let Err(error) = replace(&Disk, &path, page) {
            // A manual with pages missing looks whole.
            for page in &added {
                let _ = fs::remove_file(page);
            }
            return Err(Error::io("write", &path)(error));
        }
        added.extend(is_new.then_some(path));
    }
    print(&args.folder.display().to_string())
}

/// Adds the pages of the command and its subcommands with the names of their files.
fn collect(command: Command, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    for inside in command.get_subcommands().filter(|inside| !inside.is_hide_set()) {
        collect(inside.clone(), pages)?;
    }
    let man = Man::new(command);
    let mut page = Vec::new();
    man.render(&mut page)?;
    pages.push((man.get_filename(), page));
    Ok(())
}

/// The command and its subcommands with the synopsis that `--help` shows: clap_mangen's own lists
/// options without their values, the required ones last.
fn with_usage(mut command: Command) -> Command {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").to_owned();
    command.override_usage(usage).mut_subcommands(with_usage)
}
