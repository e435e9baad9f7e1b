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
    /// The file contains an unfinished merge, by this marker.
    #[error(
        "`{0}` marks a merge that was never finished, and no shell can run this file: keep \
         one of its two sides, remove the markers, and run this again"
    )]
    Conflict(String),
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
    /// This quote or bracket is not closed.
    #[error("a {0} is opened here and never closed")]
    Unclosed(&'static str),
    /// No command starts a training.
    #[error(
        "no command starts main.py, nor another script that does: this is no launch script of the \
         original's classification"
    )]
    NoLaunch,
    /// The script trains another task, by this program.
    #[error("`{0}` trains segmentation or detection: vim-train trains classification")]
    OtherTask(String),
    /// Several trainings, in these lines, differ in these keys, which are no grid.
    #[error(
        "main.py is started in the lines {}, which differ in {}; these are not all combinations of \
         some values, as the runs of a sweep are: name one by --line",
        list(lines),
        keys.join(", ")
    )]
    Several {
        /// The lines.
        lines: Vec<usize>,
        /// The keys.
        keys: Vec<&'static str>,
    },
    /// More trainings than a sweep has.
    #[error("its loops start more than {0} trainings: migrate a script that starts one of them")]
    Endless(usize),
    /// A script that this one calls is not found.
    #[error(
        "`{0}` is called here, and is neither beside this script nor where its path says: put it \
         there, or migrate that script alone"
    )]
    Called(String),
    /// A script that this one calls cannot be migrated.
    #[error("in `{script}`{}: {problem}", line.map_or_else(String::new, |line| format!(", line {line}")))]
    Inside {
        /// The script.
        script: String,
        /// Its line.
        line: Option<usize>,
        /// The reason.
        problem: Box<MigrateProblem>,
    },
    /// No command in the line starts a training; those in these lines do.
    #[error("no command in this line starts main.py; the lines {} do", list(.0))]
    NotThere(Vec<usize>),
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
    /// This option has no value.
    #[error("{0} has no value")]
    NoValue(String),
    /// The model is unknown, for this reason.
    #[error("--model: {0}")]
    Model(String),
}

fn list(lines: &[usize]) -> String {
    lines.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

impl MigrateError {
    /// The same, of a `script` that is called in `line`.
    pub(crate) fn inside(self, script: String, line: usize) -> Self {
        let problem = Box::new(self.problem);
        Self::at(line, MigrateProblem::Inside { script, line: self.line, problem })
    }

    pub(crate) fn at(line: usize, problem: MigrateProblem) -> Self {
        Self { line: Some(line), problem }
    }
}
