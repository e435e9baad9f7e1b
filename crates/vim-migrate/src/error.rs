//! Scripts that cannot be turned into a configuration.

/// Why a script has no configuration, and in which line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{trouble}")]
pub struct MigrateError {
    /// The line, from 1, if it is one.
    pub line: Option<usize>,
    /// What is wrong.
    pub trouble: Trouble,
}

/// What is wrong with a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// Two versions of it are in the file.
    #[error(
        "`{marker}` marks a merge that was never finished, and no shell can run this file: keep one of its two sides, remove the markers, and run this again"
    )]
    Conflict {
        /// The marker.
        marker: String,
    },
    /// Options that the shell takes for a command of their own.
    #[error(
        "{} and the options {lost} (line {next}) are lost: the shell takes them for a command of their own, after training. Mend the line if they are wanted, or remove them for what really ran; then run this again",
        if *space { "a space follows the backslash at the end of this line," } else { "this line ends without a backslash," }
    )]
    LostOptions {
        /// The options.
        lost: String,
        /// Their line.
        next: usize,
        /// Whether there is a backslash, and a space after it.
        space: bool,
    },
    /// A quote or bracket without its end.
    #[error("a {what} is opened here and never closed")]
    Unclosed {
        /// Which.
        what: &'static str,
    },
    /// No training is started.
    #[error("no command starts main.py: this is no launch script of the original's classification")]
    NoLaunch,
    /// A program is started that trains something else.
    #[error("`{program}` trains segmentation or detection: vim-train trains classification")]
    OtherTask {
        /// The program.
        program: String,
    },
    /// Several trainings are started.
    #[error("main.py is started in the lines {}: name one by --line", list(lines))]
    Several {
        /// Their lines.
        lines: Vec<usize>,
    },
    /// No training is started in that line.
    #[error("no command in this line starts main.py; the lines {} do", list(lines))]
    NotThere {
        /// The lines of those that do.
        lines: Vec<usize>,
    },
    /// An option whose value the script does not know itself.
    #[error("{option} is {value}, which the script does not set: {advice}")]
    Unset {
        /// The option.
        option: String,
        /// What was written.
        value: String,
        /// What to do.
        advice: &'static str,
    },
    /// An option whose value is of another kind.
    #[error("{option} is `{value}`, expected {expected}")]
    Value {
        /// The option.
        option: String,
        /// What was written.
        value: String,
        /// What would do.
        expected: &'static str,
    },
    /// An option that ends without its value.
    #[error("{option} has no value")]
    NoValue {
        /// The option.
        option: String,
    },
    /// A model that vim-train does not know.
    #[error("--model: {why}")]
    Model {
        /// What is known.
        why: String,
    },
}

fn list(lines: &[usize]) -> String {
    lines.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

impl MigrateError {
    pub(crate) fn at(line: usize, trouble: Trouble) -> Self {
        Self { line: Some(line), trouble }
    }
}
