//! Errors of the migration.

/// Why a script cannot be migrated, and in which line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct MigrateError {
    /// The line, from 1, if one is at fault.
    pub line: Option<usize>,
    /// The reason.
    pub problem: MigrateProblem,
}

/// What is wrong with a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MigrateProblem {
    /// The file contains an unfinished merge.
    #[error(
        "`{marker}` marks a merge that was never finished, and no shell can run this file: keep \
         one of its two sides, remove the markers, and run this again"
    )]
    Conflict {
        /// The marker.
        marker: String,
    },
    /// Options are cut off and form a command of their own.
    #[error(
        "{} and the options {lost} (line {next}) are lost: the shell takes them for a command of \
         their own, after training. Mend the line if they are wanted, or remove them for what \
         really ran; then run this again",
        if *space {
            "a space follows the backslash at the end of this line,"
        } else {
            "this line ends without a backslash,"
        }
    )]
    LostOptions {
        /// The options.
        lost: String,
        /// Their line.
        next: usize,
        /// Whether a space follows the backslash.
        space: bool,
    },
    /// A quote or bracket is not closed.
    #[error("a {what} is opened here and never closed")]
    Unclosed {
        /// Which.
        what: &'static str,
    },
    /// No command starts a training.
    #[error("no command starts main.py: this is no launch script of the original's classification")]
    NoLaunch,
    /// The script trains another task.
    #[error("`{program}` trains segmentation or detection: vim-train trains classification")]
    OtherTask {
        /// The program.
        program: String,
    },
    /// Several commands start a training.
    #[error("main.py is started in the lines {}: name one by --line", list(lines))]
    Several {
        /// Their lines.
        lines: Vec<usize>,
    },
    /// No command in the line starts a training.
    #[error("no command in this line starts main.py; the lines {} do", list(lines))]
    NotThere {
        /// The lines with such commands.
        lines: Vec<usize>,
    },
    /// The script does not set the value of an option.
    #[error("{option} is {value}, which the script does not set: {advice}")]
    Unset {
        /// The option.
        option: String,
        /// The value as written.
        value: String,
        /// Advice.
        advice: &'static str,
    },
    /// The value of an option is invalid.
    #[error("{option} is `{value}`, expected {expected}")]
    Value {
        /// The option.
        option: String,
        /// The value as written.
        value: String,
        /// The accepted values.
        expected: &'static str,
    },
    /// An option has no value.
    #[error("{option} has no value")]
    NoValue {
        /// The option.
        option: String,
    },
    /// The model is unknown.
    #[error("--model: {why}")]
    Model {
        /// The reason.
        why: String,
    },
}

fn list(lines: &[usize]) -> String {
    lines.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

impl MigrateError {
    pub(crate) fn at(line: usize, problem: MigrateProblem) -> Self {
        Self { line: Some(line), problem }
    }
}
