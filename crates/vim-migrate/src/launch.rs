//! The command that starts `main.py`, and its options.

use vim_config::is_variable_name;

use crate::NotCarried;
use crate::error::{MigrateError, MigrateProblem};
use crate::options::{Opt, find, nearest};
use crate::scope::{Part, Scope, Value};
use crate::shell::{Command, Piece, Word};

/// An option on the command line that has a key.
#[derive(Clone, Debug)]
pub(crate) struct PassedOption {
    pub(crate) spec: &'static Opt,
    pub(crate) written: String,
    pub(crate) values: Vec<Value>,
    pub(crate) line: usize,
}

/// A training as a script starts it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Launch {
    /// Its first line.
    pub(crate) line: usize,
    /// The script with that line, if another one calls it.
    pub(crate) script: Option<String>,
    /// Its options in order; the last occurrence of an option counts.
    pub(crate) options: Vec<PassedOption>,
    /// The number of processes, one per GPU.
    pub(crate) processes: u64,
    /// Whether the launcher is distributed, which repeated augmentation requires.
    pub(crate) is_distributed: bool,
    pub(crate) not_carried: Vec<NotCarried>,
    pub(crate) notes: Vec<String>,
}

/// The program that a word names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// `main.py`.
    Main,
    /// A misspelt `main.py`.
    Misspelt,
    /// A trainer of another task of the original.
    Other,
}

/// The program of the original that `word` names.
pub(crate) fn program(word: &Word) -> Option<Program> {
    let Some(Piece::Text(text)) = word.pieces.last() else { return None };
    let name = text.rsplit('/').next().unwrap_or(text);
    match name {
        "main.py" => Some(Program::Main),
        "lazyconfig_train_net.py" | "train.py" | "train_net.py" => Some(Program::Other),
        _ if name.contains(".py") && strsim::levenshtein(name, "main.py") <= 1 => {
            Some(Program::Misspelt)
        }
        _ => None,
    }
}

/// Whether `command` starts a program of the original, possibly misspelt.
pub(crate) fn is_launch(command: &Command) -> bool {
    let mut words = command.words.iter().skip_while(|word| is_assignment(word) || is_keyword(word));
    let first = words.next().and_then(Word::plain).unwrap_or_default();
    let first = first.rsplit('/').next().unwrap_or(first);
    let launches = ["torchrun", "srun", "accelerate", "nohup", "time", "exec", "main.py"];
    (first.starts_with("python") || launches.contains(&first))
        && command.words.iter().any(|word| program(word).is_some())
}

pub(crate) fn is_assignment(word: &Word) -> bool {
    let Some(Piece::Text(text)) = word.pieces.first() else { return false };
    text.split_once('=').is_some_and(|(name, _)| is_variable_name(name))
}

pub(crate) fn is_keyword(word: &Word) -> bool {
    const KEYWORDS: [&str; 13] = [
        "if", "then", "elif", "else", "do", "while", "until", "{", "!", "export", "local",
        "readonly", "declare",
    ];
    word.plain().is_some_and(|text| KEYWORDS.contains(&text))
}

/// Reads the launch in `command`, with the variables in `scope`.
pub(crate) fn read(command: &Command, scope: &Scope) -> Result<Launch, MigrateError> {
    let line = command.words.first().map_or(0, |word| word.line);
    let mut launch = Launch { line, processes: 1, ..Launch::default() };
    let at = command.words.iter().position(|word| program(word).is_some());
    let (before, after) = command.words.split_at(at.unwrap_or_default());
    if let Some((name, rest)) = after.split_first() {
        if program(name) == Some(Program::Misspelt) {
            let shown = scope.fill_in_whole(name).shown();
            launch.notes.push(format!(
                "line {}: `{shown}` is taken for main.py; as written the script starts nothing",
                name.line
            ));
        }
        let before: Vec<Value> = before.iter().flat_map(|word| scope.fill_in(word)).collect();
        let after: Vec<Value> = rest.iter().flat_map(|word| scope.fill_in(word)).collect();
        launch.read_launcher(&before)?;
        launch.read_options(&after)?;
    }
    Ok(launch)
}

impl Launch {
    /// Reads the words before `main.py`: the launcher with its options, environment variables.
    fn read_launcher(&mut self, words: &[Value]) -> Result<(), MigrateError> {
        let mut at = 0;
        let mut nodes = 1;
        while let Some(word) = words.get(at) {
            at += 1;
            let text = word.shown();
            let name = text.rsplit('/').next().unwrap_or(&text);
            if !text.starts_with('-') {
                self.is_distributed |=
                    ["torchrun", "srun", "torch.distributed.launch", "torch.distributed.run"]
                        .contains(&name);
                if let Some((name, value)) = text.split_once('=') {
                    self.drop(format!("{name}={value}"), word.line, ENVIRONMENT);
                }
                continue;
            }
            let (option, value) = match word.split_at_equals() {
                Some((option, value)) => (option, Some(value)),
                None => (text.clone(), None),
            };
            let name = option.trim_start_matches('-').replace('_', "-");
            let takes = ["nproc-per-node", "nnodes", "node-rank", "master-addr", "master-port"];
            let takes = takes.contains(&name.as_str()) || name.starts_with("rdzv") || name == "n";
            let value = match value {
                None if takes => {
                    at += 1;
                    words.get(at - 1).cloned()
                }
                value => value,
            };
            let number = |value: Option<&Value>| {
                whole(&option, value.ok_or_else(|| no_value(&option, word.line))?)
            };
            match name.as_str() {
                "nproc-per-node" => self.processes = number(value.as_ref())?,
                "nnodes" => nodes = number(value.as_ref())?,
                "m" | "u" => {}
                _ => {
                    let shown =
                        value.map_or(option.clone(), |value| format!("{option} {}", value.shown()));
                    self.drop(shown, word.line, PORTS);
                }
            }
        }
        self.processes *= nodes;
        Ok(())
    }

    /// Reads the words after `main.py`.
    fn read_options(&mut self, words: &[Value]) -> Result<(), MigrateError> {
        let mut at = 0;
        while let Some(word) = words.get(at) {
            at += 1;
            let (written, joined) = match word.split_at_equals() {
                Some((name, value)) if name.starts_with('-') => (name, Some(value)),
                Some(_) | None => (word.shown(), None),
            };
            let is_option = |word: &Value| {
                let first = word.parts.first();
                matches!(first, Some(Part::Text(text))
                    if text.starts_with('-') && text.parse::<f64>().is_err())
            };
            if !is_option(word) {
                self.drop(written, word.line, "it belongs to no option");
                continue;
            }
            let option = find(&written);
            // An unknown option's values go where it goes.
            let most = option.map_or(usize::MAX, |option| option.most);
            let mut values: Vec<Value> = joined.into_iter().collect();
            while values.len() < most
                && let Some(value) = words.get(at).filter(|word| !is_option(word))
            {
                values.push(value.clone());
                at += 1;
            }
            let Some(option) = option else {
                let why = match nearest(&written) {
                    Some(name) => format!("main.py has no such option; is it --{name}?"),
                    None => "main.py has no such option".to_owned(),
                };
                self.drop(shown(&written, &values), word.line, why);
                continue;
            };
            if values.is_empty() && most > 0 {
                return Err(no_value(&written, word.line));
            }
            if let Some(why) = option.dropped {
                self.drop(shown(&written, &values), word.line, why);
                continue;
            }
            self.options.retain(|passed| passed.spec.name != option.name);
            self.options.push(PassedOption { spec: option, written, values, line: word.line });
        }
        Ok(())
    }

    pub(crate) fn drop(&mut self, what: String, line: usize, why: impl Into<String>) {
        self.not_carried.push(NotCarried { what, line, why: why.into() });
    }
}

pub(crate) const ENVIRONMENT: &str =
    "a variable of the environment: set it where vim-train is started, if it still matters";
const PORTS: &str = "one process on one machine: no ports, ranks or rendezvous";

fn no_value(option: &str, line: usize) -> MigrateError {
    MigrateError::at(line, MigrateProblem::NoValue(option.to_owned()))
}

/// An option with its values, as written.
pub(crate) fn shown(written: &str, values: &[Value]) -> String {
    let mut words = vec![written.to_owned()];
    words.extend(values.iter().map(Value::shown));
    words.join(" ")
}

/// The text of an option's value, which the script must set.
pub(crate) fn known(
    option: &str,
    value: &Value,
    line: usize,
    advice: &'static str,
) -> Result<String, MigrateError> {
    value.known().ok_or_else(|| {
        let (option, value) = (option.to_owned(), value.shown());
        MigrateError::at(line, MigrateProblem::Unset { option, value, advice })
    })
}

/// A number of GPUs or nodes.
fn whole(option: &str, value: &Value) -> Result<u64, MigrateError> {
    let text = known(option, value, value.line, "write the number of GPUs into the script")?;
    text.parse().ok().filter(|&number| number >= 1).ok_or_else(|| {
        let (option, expected) = (option.to_owned(), "a whole number, 1 or more");
        MigrateError::at(value.line, MigrateProblem::Value { option, value: text, expected })
    })
}
