//! The command line.

use clap::{CommandFactory, Parser};

use crate::commands::Command;
use crate::error::Error;

/// Train Vision Mamba under six discretizations, from a TOML file.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

impl Cli {
    /// Runs the command.
    pub fn run(&self) -> Result<(), Error> {
        self.command.run(Self::command())
    }
}

const EXIT_CODES: &str = "\
Exit codes:
    0  done
    1  the run failed, or a check of verify, doctor or eval-golden did; config diff found a difference
    2  bad command line
   65  data, a checkpoint or a script missing, damaged or unfit
   69  device not available, or lost; SLURM not available, or a job refused
   70  internal error
   71  the device ran out of memory
   73  the run folder is in use, or holds or awaits a run already; a file to be written is there already
   74  a file cannot be read or written; a run's folder is no longer in its place
   75  interrupted and saved: the same command with --resume auto goes on
   76  training diverged
   78  bad configuration
   79  a further Ctrl-C: ended at once, without saving
  130  Ctrl-C, saved

Results go to stdout, everything else to stderr. An error is one line: what, where, what to do.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
