//! `vim-train completions` and `vim-train man`, generated from the command line's definition.

use std::fs;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::error::Error;
use crate::output::print;

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  vim-train completions bash > ~/.local/share/bash-completion/completions/vim-train
  vim-train completions zsh > ~/.zfunc/_vim-train
  vim-train completions fish > ~/.config/fish/completions/vim-train.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  vim-train man ~/.local/share/man/man1
  man vim-train-train";

/// `vim-train completions`.
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell.
    pub shell: Shell,
}

/// `vim-train man`.
#[derive(Debug, Args)]
#[command(after_help = MAN_EXAMPLES)]
pub struct ManArgs {
    /// Folder to write the pages to; it is made if it is not there.
    pub folder: PathBuf,
}

/// Prints a shell's completions of `program`.
pub fn completions(args: &CompletionsArgs, program: &mut Command) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, program, "vim-train", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Writes a manual page for `program` and for each subcommand.
pub fn man(args: &ManArgs, program: Command) -> Result<(), Error> {
    fs::create_dir_all(&args.folder).map_err(Error::io("make", &args.folder))?;
    // Use the name of the binary, not of the crate.
    clap_mangen::generate_to(program.name("vim-train"), &args.folder)
        .map_err(Error::io("write pages to", &args.folder))?;
    print(&args.folder.display().to_string())
}
