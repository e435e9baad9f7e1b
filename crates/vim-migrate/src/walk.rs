//! Interpretation of a script up to the launches of the training: loops, functions, and the scripts
//! that it calls.

use std::collections::BTreeMap;

use crate::error::{MigrateError, MigrateProblem};
use crate::launch::{
    self, ENVIRONMENT, Launch, Program, is_assignment, is_keyword, is_launch, program,
};
use crate::scope::{Part, Scope, Value};
use crate::shell::{Command, Word, commands};
use crate::{NotCarried, script};

/// The most trainings that are read of a script.
const MOST: usize = 1000;
/// The deepest nesting of scripts and functions.
const DEEPEST: usize = 8;

/// What a script starts.
#[derive(Default)]
pub(crate) struct Found {
    /// The trainings, each with its last line.
    pub(crate) launches: Vec<(Launch, usize)>,
    /// A trainer of another task: its line and program.
    pub(crate) other: Option<(usize, String)>,
    /// Scripts that are called and not found, and from which lines.
    pub(crate) missing: Vec<(usize, String)>,
}

/// Reads the launches of a script with these arguments; `called` finds the text of another script.
pub(crate) fn launches(
    text: &str,
    arguments: &[String],
    called: &dyn Fn(&str) -> Option<String>,
) -> Result<Found, MigrateError> {
    let values = arguments.iter().map(|text| Value::text(text, 0)).collect();
    read(text, values, called, 0)
}

fn read(
    text: &str,
    arguments: Vec<Value>,
    called: &dyn Fn(&str) -> Option<String>,
    depth: usize,
) -> Result<Found, MigrateError> {
    script::check_text(text)?;
    let commands = commands(text)?;
    script::check_commands(text, &commands)?;
    let mut scope = Scope::default();
    scope.replace_arguments(arguments);
    let (context, found, functions) = (Context::default(), Found::default(), BTreeMap::new());
    let mut walk = Walk { called, depth, conditions: 0, scope, context, found, functions };
    walk.block(&commands)?;
    Ok(walk.found)
}

/// The state of a script that is being read.
struct Walk<'a, 'b> {
    called: &'a dyn Fn(&str) -> Option<String>,
    /// Scripts and functions around this one.
    depth: usize,
    /// Conditions around the command.
    conditions: usize,
    scope: Scope,
    context: Context,
    found: Found,
    functions: BTreeMap<String, &'b [Command]>,
}

impl<'b> Walk<'_, 'b> {
    fn block(&mut self, mut block: &'b [Command]) -> Result<(), MigrateError> {
        while let Some((command, rest)) = block.split_first() {
            block = rest;
            let first = first_word(command);
            if command.bracket == Some('(') && rest.first().is_some_and(opens) {
                let inside = rest.get(1..).unwrap_or_default();
                let (body, after) = split(inside, opens, |next| first_word(next) == "}");
                self.functions.insert(first.to_owned(), body);
                block = after;
            } else if first == "for" {
                let is_loop = |next: &Command| LOOPS.contains(&first_word(next));
                let (body, after) = split(block, is_loop, |next| first_word(next) == "done");
                self.repeat(command, body)?;
                block = after;
            } else if first == "case" && self.takes_argument(command) {
                let is_case = |next: &Command| first_word(next) == "case";
                let (body, after) = split(block, is_case, |next| first_word(next) == "esac");
                return self.each_branch(command, body, after);
            } else {
                self.command(command)?;
            }
        }
        Ok(())
    }

    fn command(&mut self, command: &'b Command) -> Result<(), MigrateError> {
        match first_word(command) {
            "if" | "case" => self.conditions += 1,
            "fi" | "esac" => self.conditions = self.conditions.saturating_sub(1),
            "cd" | "pushd" => self.context.not_carried(NotCarried {
                what: shown(command, &self.scope),
                line: command.words[0].line,
                why: "relative paths are from the folder that vim-train is started in".into(),
            }),
            _ => {}
        }
        if !is_launch(command) {
            let words: Vec<&Word> = command.words.iter().filter(|word| !is_keyword(word)).collect();
            if let Some(function) = words.first().and_then(|word| word.plain())
                && let Some(body) = self.functions.get(function).copied()
            {
                return self.function(body, &words[1..]);
            }
            if let Some((line, path, arguments)) = self.called_script(&words) {
                return self.other_script(line, path, arguments);
            }
            self.read_array(&words);
            let is_conditional = self.conditions > 0;
            self.context.read_assignments(command, &mut self.scope, is_conditional);
            return Ok(());
        }
        let name = command.words.iter().find(|word| program(word).is_some());
        if name.and_then(program) == Some(Program::Other) {
            let shown = |name: &Word| (name.line, self.scope.fill_in_whole(name).shown());
            self.found.other = name.map(shown);
            return Ok(());
        }
        let mut launch = launch::read(command, &self.scope)?;
        launch.not_carried.splice(0..0, self.context.not_carried.iter().cloned());
        launch.notes.splice(0..0, self.context.notes.iter().cloned());
        self.add(launch, command.last_line)
    }

    fn add(&mut self, launch: Launch, last: usize) -> Result<(), MigrateError> {
        if self.found.launches.len() == MOST {
            return Err(MigrateError::at(launch.line, MigrateProblem::Endless(MOST)));
        }
        self.found.launches.push((launch, last));
        Ok(())
    }

    /// Reads the body of `for NAME in …` for each value.
    fn repeat(&mut self, command: &'b Command, body: &'b [Command]) -> Result<(), MigrateError> {
        let from = command.words.iter().position(|word| word.plain() == Some("for"));
        let [_, name, _, words @ ..] = &command.words[from.unwrap_or_default()..] else {
            return self.block(body);
        };
        let Some(name) = name.plain() else { return self.block(body) };
        let values: Vec<Value> = words.iter().flat_map(|word| self.scope.fill_in(word)).collect();
        if values.is_empty() {
            return self.block(body);
        }
        for value in values {
            self.scope.set(name, value);
            self.block(body)?;
        }
        Ok(())
    }

    /// Whether an argument that is not given decides which branch of a `case` is taken.
    fn takes_argument(&self, command: &Command) -> bool {
        let Some(word) = command.words.get(1) else { return false };
        let subject = self.scope.fill_in_whole(word);
        subject.known().is_none()
            && subject.unset_names().iter().any(|name| name.parse::<usize>().is_ok())
    }

    /// Reads the rest of a script once for each named branch of a `case` of an argument.
    fn each_branch(
        &mut self,
        command: &'b Command,
        body: &'b [Command],
        after: &'b [Command],
    ) -> Result<(), MigrateError> {
        let is_pattern = |command: &Command| command.bracket == Some(')');
        let starts: Vec<usize> = (0..body.len()).filter(|&at| is_pattern(&body[at])).collect();
        let mut names = Vec::new();
        let scope = self.scope.clone();
        for (number, &start) in starts.iter().enumerate() {
            let name = first_word(&body[start]);
            if name.is_empty() || name.contains('*') {
                continue;
            }
            names.push(name.to_owned());
            self.scope = scope.clone();
            let end = starts.get(number + 1).copied().unwrap_or(body.len());
            self.block(&body[start + 1..end])?;
            self.block(after)?;
        }
        if names.is_empty() {
            return self.block(after);
        }
        let note = format!(
            "line {}: an argument of the script chooses one of {}; here are all of them",
            command.words[0].line,
            names.join(", ")
        );
        for (launch, _) in &mut self.found.launches {
            launch.notes.push(note.clone());
        }
        Ok(())
    }

    fn function(&mut self, body: &'b [Command], words: &[&Word]) -> Result<(), MigrateError> {
        if self.depth == DEEPEST {
            return Ok(());
        }
        let arguments = words.iter().flat_map(|word| self.scope.fill_in(word)).collect();
        let before = self.scope.replace_arguments(arguments);
        self.depth += 1;
        self.block(body)?;
        self.depth -= 1;
        self.scope.replace_arguments(Vec::new());
        for (name, value) in before {
            self.scope.set(name, value);
        }
        Ok(())
    }

    /// The line, path and arguments of the script that a command calls.
    fn called_script(&self, words: &[&Word]) -> Option<(usize, String, Vec<Value>)> {
        let words: Vec<&Word> =
            words.iter().copied().skip_while(|word| is_assignment(word)).collect();
        let first = words.first()?.plain().unwrap_or_default();
        let is_shell = ["bash", "sh", "exec", "sbatch"].contains(&first);
        let mut values = words.iter().flat_map(|word| self.scope.fill_in(word));
        let is_script = |value: &Value| matches!(value.parts.last(), Some(Part::Text(text)) if text.ends_with(".sh"));
        let script = values.find(|value| is_script(value) || !is_shell)?;
        let Some(Part::Text(text)) = script.parts.last().filter(|_| is_script(&script)) else {
            return None;
        };
        // What only a shell knows before the name is the folder of this script.
        let is_whole = script.parts.len() == 1;
        let path = if is_whole { text.as_str() } else { text.trim_start_matches('/') };
        Some((script.line, path.to_owned(), values.collect()))
    }

    fn other_script(
        &mut self,
        line: usize,
        path: String,
        arguments: Vec<Value>,
    ) -> Result<(), MigrateError> {
        let Some(text) = (self.called)(&path).filter(|_| self.depth < DEEPEST) else {
            if !self.found.missing.iter().any(|(_, missing)| *missing == path) {
                self.found.missing.push((line, path));
            }
            return Ok(());
        };
        let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
        let found = read(&text, arguments, self.called, self.depth + 1)
            .map_err(|error| error.inside(name.clone(), line))?;
        if found.launches.is_empty() && found.other.is_some() {
            self.found.other = found.other;
        }
        let missing = found.missing.into_iter().map(|(_, path)| (line, path));
        self.found.missing.extend(missing);
        for (mut launch, _) in found.launches {
            launch.script.get_or_insert_with(|| name.clone());
            // A line of this script, for `--line`.
            launch.line = line;
            self.add(launch, line)?;
        }
        Ok(())
    }

    /// Reads `IFS=, read -ra NAME <<< TEXT`.
    fn read_array(&mut self, words: &[&Word]) {
        let plain = |word: &&Word| word.plain().unwrap_or_default().to_owned();
        let texts: Vec<String> = words.iter().map(plain).collect();
        let Some(at) = texts.iter().position(|text| text == "<<<") else { return };
        let (Some(name), Some(text)) = (texts[..at].last(), words.get(at + 1)) else { return };
        let Some(known) = self.scope.fill_in_whole(text).known() else { return };
        if texts[..at].iter().any(|text| text == "read") {
            let between = texts[0].strip_prefix("IFS=").unwrap_or_default();
            let text = known.replace(|letter| between.contains(letter), " ");
            self.scope.set(name.clone(), Value::text(text, words[0].line));
        }
    }
}

const LOOPS: [&str; 4] = ["for", "while", "until", "select"];

fn first_word(command: &Command) -> &str {
    let mut words = command.words.iter().filter_map(Word::plain);
    words.find(|word| !["do", "then", "else", "function"].contains(word)).unwrap_or_default()
}

fn opens(command: &Command) -> bool {
    first_word(command) == "{"
}

/// The commands up to the one that closes the block, and those after it.
fn split(
    block: &[Command],
    opens: impl Fn(&Command) -> bool,
    closes: impl Fn(&Command) -> bool,
) -> (&[Command], &[Command]) {
    let mut depth = 0_usize;
    for (at, command) in block.iter().enumerate() {
        if opens(command) {
            depth += 1;
        } else if closes(command) {
            if depth == 0 {
                return (&block[..at], &block[at + 1..]);
            }
            depth -= 1;
        }
    }
    (block, &[])
}

/// The commands around the launch.
#[derive(Default)]
struct Context {
    not_carried: Vec<NotCarried>,
    notes: Vec<String>,
}

impl Context {
    fn not_carried(&mut self, not: NotCarried) {
        if !self.not_carried.contains(&not) {
            self.not_carried.push(not);
        }
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Reads `NAME=value`, with or without `export`, unless it is for another program.
    fn read_assignments(&mut self, command: &Command, scope: &mut Scope, is_conditional: bool) {
        let is_export = command.words.iter().any(|word| word.plain() == Some("export"));
        let words: Vec<&Word> = command.words.iter().filter(|word| !is_keyword(word)).collect();
        if !words.iter().all(|word| is_assignment(word)) {
            return;
        }
        for word in words {
            let Some((name, value)) = scope.fill_in_whole(word).split_at_equals() else { continue };
            if is_export {
                self.not_carried(NotCarried {
                    what: format!("export {name}={}", value.shown()),
                    line: word.line,
                    why: ENVIRONMENT.into(),
                });
            }
            let is_other = scope.get(&name).is_some_and(|before| before.parts != value.parts);
            if is_conditional && (is_other || scope.get(&name).is_none()) {
                self.note(format!(
                    "line {}: {name} is set under a condition, and taken to be set: {}",
                    word.line,
                    value.shown()
                ));
            }
            scope.set(name, value);
        }
    }
}

pub(crate) fn shown(command: &Command, scope: &Scope) -> String {
    let words: Vec<String> =
        command.words.iter().map(|word| scope.fill_in_whole(word).shown()).collect();
    words.join(" ")
}
