//! The command line.

use std::ffi::OsString;
use std::io::stdout;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command as Program, CommandFactory, Parser};
use vim_engine::Error;
use vim_engine::config::key_named;
use vim_engine::device::cuda_libraries::point_to_cuda;
use vim_engine::fatal::exit_code_of;
use vim_engine::output::terminal_width;
use vim_engine::program::set_commit;
use vim_run::{broken_line, last_column};

use crate::args::check_homes;
use crate::commands::Command;

/// Columns of the help where they are not known, and the most.
const HELP_WIDTH: usize = 100;

/// Train Vision Mamba under ten discretizations, from a TOML file.
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
    if let Some(commit) = option_env!("VIM_TRAIN_COMMIT") {
        set_commit(commit);
    }
    point_to_cuda();
    let width = terminal_width(stdout()).unwrap_or(HELP_WIDTH).min(HELP_WIDTH);
    let program = with_help_of(P::command(), width);
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let matches = program.clone().try_get_matches_from(&arguments);
    let matches = matches.unwrap_or_else(|error| advised(error, &program, &arguments).exit());
    let program = P::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    exit_code_of(|| work(&program))
}

/// `error` with the key that was probably meant by a flag which `program` does not have, or with
/// what `--resume` takes.
fn advised(mut error: clap::Error, program: &Program, arguments: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    if error.kind() == ErrorKind::InvalidValue && flag.starts_with("--resume") {
        let advice = "`train CONFIG --resume auto` goes on with the run of that configuration";
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
        return error;
    }
    let (flag, mut command) = (flag.clone(), program);
    for argument in arguments.iter().skip(1) {
        let Some(inner) = command.find_subcommand(argument) else { break };
        command = inner;
    }
    let takes_keys = command.get_arguments().any(|argument| argument.get_long() == Some("set"));
    let name = flag.strip_prefix("--").filter(|_| takes_keys);
    let (ErrorKind::UnknownArgument, Some(key)) = (error.kind(), name.and_then(key_named)) else {
        return error;
    };
    let after = |argument: &OsString| {
        let rest = argument.to_str()?.strip_prefix(&flag)?;
        if rest.is_empty() {
            Some(None)
        } else {
            rest.strip_prefix('=').map(|v| Some(v.to_owned()))
        }
    };
    let given = arguments.iter().enumerate().find_map(|(at, one)| Some((at, after(one)?)));
    let next = |at: usize| arguments.get(at + 1)?.to_str().filter(|next| !next.starts_with('-'));
    let value = given.and_then(|(at, value)| value.or_else(|| next(at).map(str::to_owned)));
    let advice = format!("`--set {key}={}` sets that", value.as_deref().unwrap_or("VALUE"));
    // Another flag that looks alike would mean something else; the usage would name it, too.
    error.remove(ContextKind::SuggestedArg);
    error.remove(ContextKind::Usage);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
    error
}

/// Commands that measure and check the program itself, which its help lists apart.
const OF_DEVELOPERS: [&str; 3] = ["bench", "profile", "verify"];

/// `program` with its commands in its help in two parts, where it has some for developers.
fn grouped(program: Program, width: usize) -> Program {
    let rows = |of_developers: bool| {
        let row = |inner: &Program| {
            let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
            format!("  {:<13}{about}", inner.get_name())
        };
        let listed = program.get_subcommands().filter(|inner| {
            !inner.is_hide_set() && OF_DEVELOPERS.contains(&inner.get_name()) == of_developers
        });
        listed.map(row).collect::<Vec<_>>().join("\n")
    };
    let (own, others) = (rows(true), rows(false));
    if own.is_empty() || others.is_empty() {
        return program;
    }
    let commands =
        format!("Commands:\n{others}\n\nTo check and measure the program itself:\n{own}");
    program.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}\n\nOptions:\n{{options}}{{after-help}}",
        broken(&commands, width)
    ))
}

/// `program` with help of `width` columns. What follows the options is broken here: clap would
/// break the lines of examples and tables as prose.
fn with_help_of(program: Program, width: usize) -> Program {
    let after = program.get_after_help().map(|text| broken(&text.to_string(), width));
    let program = program.term_width(width).mut_subcommands(|inner| with_help_of(inner, width));
    let program = grouped(program, width);
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

    fn refused(arguments: &[&str]) -> String {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let program = Cli::command();
        let error = program.clone().try_get_matches_from(&arguments).unwrap_err();
        advised(error, &program, &arguments).to_string()
    }

    #[test]
    fn a_key_given_as_a_flag_is_found() {
        for (flags, expected) in [
            (&["--epochs", "5"][..], "tip: `--set train.epochs=5` sets that"),
            (&["--epochs=5"], "tip: `--set train.epochs=5` sets that"),
            (&["--lr", "0.1"], "tip: `--set optim.lr=0.1` sets that"),
            (&["--batch-size"], "tip: `--set train.batch_size=VALUE` sets that"),
            (&["--data", "photos"], "tip: `--set data.path=photos` sets that"),
            (&["--dry-rnu"], "'--dry-run'"),
        ] {
            let said = refused(&[&["vim-train", "train", "x.toml"], flags].concat());
            assert!(said.contains(expected), "{said}");
            let others = said.contains("--steps") || said.contains("-- --");
            assert!(!others, "{said}");
        }
        assert!(!refused(&["vim-train", "runs", "list", "--epochs", "5"]).contains("--set"));
        let resumed = refused(&["vim-train", "train", "--resume", "photos"]);
        assert!(resumed.contains("tip: `train CONFIG --resume auto` goes on"), "{resumed}");
    }

    #[test]
    fn commands_for_developers_are_apart() {
        let help = with_help_of(Cli::command(), 80).render_help().to_string();
        let at = |word: &str| help.find(word).unwrap_or_else(|| panic!("{word}: {help}"));
        let apart = at("To check and measure the program itself:");
        assert!(at("\n  train ") < apart && at("\n  runs ") < apart, "{help}");
        assert!(apart < at("\n  verify ") && at("\n  verify ") < at("Options:"), "{help}");
        assert!(help.contains("--version"), "{help}");
        assert!(!help.contains("\n  resume") && !help.contains("\n  infer"), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }

    #[test]
    fn what_strangers_type_is_understood() {
        for arguments in [
            &["resume", "x.toml"][..],
            &["init", "photos"],
            &["test", "x"],
            &["validate", "x"],
            &["infer", "cat.jpg", "--checkpoint", "x"],
            &["plot", "a", "b"],
            &["compare", "a", "b"],
            &["list"],
        ] {
            let all = [&["vim-train"], arguments].concat();
            assert!(Cli::try_parse_from(&all).is_ok(), "{all:?}");
        }
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
