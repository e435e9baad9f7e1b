//! Checks of a script for mistakes that a shell does not report, and the choice among its launches.

use crate::error::{MigrateError, MigrateProblem};
use crate::launch::{Launch, is_launch};
use crate::scope::Scope;
use crate::shell::{Command, Word};
use crate::walk::{Found, shown};

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

/// The launches of the script, or those in `line`; at least one.
pub(crate) fn choose(found: Found, line: Option<usize>) -> Result<Vec<Launch>, MigrateError> {
    let Found { mut launches, other, missing } = found;
    if let Some((first, _)) = launches.first_mut() {
        for (line, path) in &missing {
            first.drop(
                path.clone(),
                *line,
                "it is called here and not found: what it trains is missing",
            );
        }
    }
    if let Some(line) = line {
        let mut lines: Vec<usize> = launches.iter().map(|(launch, _)| launch.line).collect();
        lines.dedup();
        let holds = |(launch, last): &(Launch, usize)| (launch.line..=*last).contains(&line);
        let there: Vec<_> = launches.into_iter().filter(holds).map(|(launch, _)| launch).collect();
        if there.is_empty() {
            return Err(MigrateError::at(line, MigrateProblem::NotThere(lines)));
        }
        return Ok(there);
    }
    if let (true, Some((line, path))) = (launches.is_empty(), missing.into_iter().next()) {
        return Err(MigrateError::at(line, MigrateProblem::Called(path)));
    }
    match (launches.is_empty(), other) {
        (false, _) => Ok(launches.into_iter().map(|(launch, _)| launch).collect()),
        (true, Some((line, program))) => {
            Err(MigrateError::at(line, MigrateProblem::OtherTask(program)))
        }
        (true, None) => Err(MigrateError { line: None, problem: MigrateProblem::NoLaunch }),
    }
}
