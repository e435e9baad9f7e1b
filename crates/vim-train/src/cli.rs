//! The command line.

use std::io::{self, Write as _, stdout};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::{Command as Program, CommandFactory, Parser};

use crate::args::check_homes;
use crate::commands::Command;
use crate::error::Error;
use crate::fatal;
use crate::output::terminal_width;

/// Columns of the help where they are not known, and the most.
const HELP_WIDTH: usize = 100;

/// Train Vision Mamba under six discretizations, from a TOML file.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

impl Cli {
    /// Runs the command.
    pub fn run(&self) -> Result<(), Error> {
        check_homes(std::env::args_os().skip(1))?;
        self.command.run(Self::command())
    }
}

/// A program: reads its command line, runs `work` on it, and says on stderr why that failed. A
/// mistake in the command line, and `--help`, end the process.
///
/// To be called before there is another thread: it sets an environment variable.
pub fn main_of<P: Parser>(work: fn(&P) -> Result<(), Error>) -> ExitCode {
    #[cfg(feature = "cuda")]
    point_to_cuda();
    let width = terminal_width(stdout()).unwrap_or(HELP_WIDTH).min(HELP_WIDTH);
    let matches = with_help_of(P::command(), width).get_matches();
    let program = P::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let work = AssertUnwindSafe(|| fatal::install().and_then(|()| work(&program)));
    match catch_unwind(work).unwrap_or_else(|panic| Err(fatal::error_of(&*panic))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let label = if error.is_fault() { "error: " } else { "" };
            let error_line = format!("{label}{error}");
            let lines = error.details().into_iter().chain([error_line]);
            for line in lines.chain(error.caret().map(str::to_owned)) {
                // Where stderr cannot be written, the exit code says it.
                let _ = writeln!(io::stderr(), "{line}");
            }
            ExitCode::from(error.exit_code())
        }
    }
}

/// Sets `CUDA_PATH`, the only folder in which CubeCL then looks for the CUDA headers.
#[cfg(feature = "cuda")]
#[expect(unsafe_code, reason = "CubeCL takes the headers' place from the environment alone")]
fn point_to_cuda() {
    // Missing libraries become an error when a GPU is requested.
    if let Ok(libraries) = crate::device::cuda_libraries::found() {
        // SAFETY: at the start of main no other thread can read the environment.
        unsafe { std::env::set_var("CUDA_PATH", &libraries.root) };
    }
}

/// `program` with help of `width` columns. What follows the options is broken here: clap would
/// break the lines of examples and tables as prose.
fn with_help_of(program: Program, width: usize) -> Program {
    let after = program.get_after_help().map(|text| broken(&text.to_string(), width));
    let program = program.term_width(width).mut_subcommands(|inner| with_help_of(inner, width));
    match after {
        Some(text) => program.after_help(text),
        None => program,
    }
}

/// `text` in lines of `width` columns: the lines of a paragraph are joined and broken anew, and so
/// are an indented line, an example or the row of a table, and what continues it below its last
/// column.
fn broken(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        // Headings, such as `Examples:`, stay alone.
        let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
        let text = line.trim_start();
        let goes_on = |last: &String| match line.len() - text.len() {
            0 => is_prose(line) && is_prose(last) && !last.ends_with(':'),
            indent => last_column(last) == Some(indent),
        };
        match lines.last_mut().filter(|last| goes_on(last)) {
            Some(last) => *last = format!("{last} {text}"),
            None => lines.push(line.to_owned()),
        }
    }
    lines.iter().flat_map(|line| broken_line(line, width)).collect::<Vec<_>>().join("\n")
}

/// Where the last column of the row `line` begins, if it has several.
fn last_column(line: &str) -> Option<usize> {
    let text = line.trim_start();
    text.rfind("  ").map(|gap| line.len() - text.len() + gap + 2)
}

/// One line as several of `width` columns.
fn broken_line(line: &str, width: usize) -> Vec<String> {
    /// A column narrower than this goes below the others, indented by as much more than they.
    const NARROWEST: usize = 24;
    const INDENT: usize = 4;
    if line.chars().count() <= width {
        return vec![line.to_owned()];
    }
    let text = line.trim_start();
    let start = line.len() - text.len();
    let last = last_column(line);
    let below = if start == 0 { 0 } else { start + INDENT };
    let (first, rest, hang) = match last {
        Some(last) if last + NARROWEST <= width => (&line[..last], &line[last..], last),
        Some(last) => {
            let mut lines = broken_line(line[..last].trim_end(), width);
            lines.extend(filled(" ".repeat(below), &line[last..], below, width));
            return lines;
        }
        None => (&line[..start], text, below),
    };
    filled(first.to_owned(), rest, hang, width)
}

/// The words of `text` behind `first`, in lines of `width` columns, all but the first indented by
/// `hang`.
fn filled(first: String, text: &str, hang: usize, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut is_empty) = (first, true);
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, " ".repeat(hang)));
            is_empty = true;
        }
        line = if is_empty { format!("{line}{word}") } else { format!("{line} {word}") };
        is_empty = false;
    }
    lines.push(line);
    lines
}

const EXIT_CODES: &str = "\
Exit codes:
    0  done
    1  the run failed, or a check of verify or doctor did; config diff found a difference
    2  bad command line
   65  data, a checkpoint or a script missing, damaged or unfit
   69  device or node not available, or lost; SLURM not available, or a job refused
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

    #[test]
    fn prose_is_filled_and_rows_hang() {
        let text = "Examples:\n  run a      first one of them all\n\nThis was broken\nby hand.";
        for (width, expected) in [
            (40, "Examples:\n  run a      first one of them all\n\nThis was broken by hand."),
            (
                20,
                "Examples:\n  run a\n      first one of\n      them all\n\nThis was broken by\nhand.",
            ),
        ] {
            assert_eq!(broken(text, width), expected, "{width}");
        }
        assert_eq!(
            broken("  65  damaged or unfit, and so on and on", 34),
            "  65  damaged or unfit, and so on\n      and on"
        );
        let row = "  roof    the time that it\n          takes\n  vs zoh  above 1 is faster";
        let wide = "  roof    the time that it takes\n  vs zoh  above 1 is faster";
        assert_eq!(broken(row, 40), wide);
    }

    #[test]
    fn no_line_of_help_is_broken_twice() {
        fn check(program: &mut Program, width: usize) {
            let after = program.get_after_help().map(ToString::to_string).unwrap_or_default();
            for help in [program.render_help(), program.render_long_help()] {
                assert!(help.to_string().contains(&after), "{width}: {help}");
            }
            for line in after.lines().filter(|line| line.chars().count() > width) {
                assert_eq!(line.split_whitespace().count(), 1, "{width}: {line}");
            }
            program.get_subcommands_mut().for_each(|inner| check(inner, width));
        }
        for width in [60, 80, 100] {
            let mut program = with_help_of(Cli::command(), width);
            program.build();
            check(&mut program, width);
        }
    }
}
