//! Interpretation of a script up to the launch of the training, and checks for mistakes that a
//! shell does not report.

use crate::NotCarried;
use crate::error::{MigrateError, MigrateProblem};
use crate::launch::{
    self, ENVIRONMENT, Launch, Program, is_assignment, is_keyword, is_launch, program,
};
use crate::scope::{Scope, Value};
use crate::shell::{Command, Word};

/// Checks for an unfinished merge.
pub(crate) fn check_text(text: &str) -> Result<(), MigrateError> {
    let is_marker = |line: &str| {
        ["<<<<<<< ", ">>>>>>> ", "||||||| "].iter().any(|marker| line.starts_with(marker))
            || line.trim_end() == "======="
    };
    match text.lines().enumerate().find(|(_, line)| is_marker(line)) {
        Some((index, line)) => {
            let marker = line.split_whitespace().next().unwrap_or_default().to_owned();
            Err(MigrateError::at(index + 1, MigrateProblem::Conflict(marker)))
        }
        None => Ok(()),
    }
}

/// Checks for options that have become a command because the line before them is not continued.
pub(crate) fn check_commands(text: &str, commands: &[Command]) -> Result<(), MigrateError> {
    for (index, command) in commands.iter().enumerate().filter(|(_, command)| is_launch(command)) {
        let stray =
            |next: &&Command| next.starts_line && next.words.first().is_some_and(Word::is_option);
        if let Some(next) = commands.get(index + 1).filter(stray) {
            let line = text.lines().nth(command.last_line - 1).unwrap_or_default();
            return Err(MigrateError::at(
                command.last_line,
                MigrateProblem::LostOptions {
                    lost: format!("`{}`", shown(next, &Scope::default())),
                    next: next.words[0].line,
                    space: line.trim_end().ends_with('\\'),
                },
            ));
        }
    }
    Ok(())
}

/// The only launch of the script, or the one in `line`.
pub(crate) fn launch(
    commands: &[Command],
    arguments: &[String],
    line: Option<usize>,
) -> Result<Launch, MigrateError> {
    let mut scope = Scope::with_arguments(arguments);
    let (mut found, mut other): (Vec<(Launch, usize)>, _) = (Vec::new(), None);
    let (mut context, mut depth) = (Context::default(), 0_usize);
    for command in commands {
        let first = command.words[0].plain().unwrap_or_default();
        match first {
            "if" | "case" => depth += 1,
            "fi" | "esac" => depth = depth.saturating_sub(1),
            "for" => context.read_loop(command, &mut scope),
            "cd" | "pushd" => context.not_carried.push(NotCarried {
                what: shown(command, &scope),
                line: command.words[0].line,
                why: "relative paths are from the folder that vim-train is started in".into(),
            }),
            _ => {}
        }
        if !is_launch(command) {
            context.read_assignments(command, &mut scope, depth > 0);
            continue;
        }
        let name = command.words.iter().find(|word| program(word).is_some());
        if name.and_then(program) == Some(Program::Other) {
            other = name.map(|name| (name.line, scope.fill_in_whole(name).shown()));
            continue;
        }
        let mut launch = launch::read(command, &scope)?;
        launch.not_carried.splice(0..0, context.not_carried.iter().cloned());
        launch.notes.splice(0..0, context.notes.iter().cloned());
        found.push((launch, command.last_line));
    }
    choose(found, other, line)
}

fn choose(
    mut found: Vec<(Launch, usize)>,
    other: Option<(usize, String)>,
    line: Option<usize>,
) -> Result<Launch, MigrateError> {
    let lines: Vec<usize> = found.iter().map(|(launch, _)| launch.line).collect();
    if let Some(line) = line {
        let holds = |(launch, last): &(Launch, usize)| (launch.line..=*last).contains(&line);
        return match found.iter().position(holds) {
            Some(index) => Ok(found.swap_remove(index).0),
            None => Err(MigrateError::at(line, MigrateProblem::NotThere(lines))),
        };
    }
    match (found.pop(), found.is_empty(), other) {
        (Some((launch, _)), true, _) => Ok(launch),
        (Some(_), false, _) => {
            Err(MigrateError { line: None, problem: MigrateProblem::Several(lines) })
        }
        (None, _, Some((line, program))) => {
            Err(MigrateError::at(line, MigrateProblem::OtherTask(program)))
        }
        (None, _, None) => Err(MigrateError { line: None, problem: MigrateProblem::NoLaunch }),
    }
}

/// The commands around the launch.
#[derive(Default)]
struct Context {
    not_carried: Vec<NotCarried>,
    notes: Vec<String>,
}

impl Context {
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
                self.not_carried.push(NotCarried {
                    what: format!("export {name}={}", value.shown()),
                    line: word.line,
                    why: ENVIRONMENT.into(),
                });
            }
            let is_other = scope.get(&name).is_some_and(|before| before.parts != value.parts);
            if is_conditional && (is_other || scope.get(&name).is_none()) {
                self.notes.push(format!(
                    "line {}: {name} is set under a condition, and taken to be set: {}",
                    word.line,
                    value.shown()
                ));
            }
            scope.set(name, value);
        }
    }

    /// Reads `for NAME in …`: of its launches, the first is taken.
    fn read_loop(&mut self, command: &Command, scope: &mut Scope) {
        let [_, name, _, words @ ..] = command.words.as_slice() else { return };
        let Some(name) = name.plain() else { return };
        let values: Vec<Value> = words.iter().flat_map(|word| scope.fill_in(word)).collect();
        let Some(first) = values.first() else { return };
        let all: Vec<String> = values.iter().map(Value::shown).collect();
        self.notes.push(format!(
            "line {}: a loop runs the script for {name} = {}; this is the configuration of the \
             first: a [sweep] runs them all",
            command.words[0].line,
            all.join(", ")
        ));
        scope.set(name, first.clone());
    }
}

fn shown(command: &Command, scope: &Scope) -> String {
    let words: Vec<String> =
        command.words.iter().map(|word| scope.fill_in_whole(word).shown()).collect();
    words.join(" ")
}
