//! Checks for mistakes that a shell does not report.

use crate::error::{MigrateError, MigrateProblem};
use crate::launch::is_launch;
use crate::scope::Scope;
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
            Err(MigrateError::at(index + 1, MigrateProblem::Conflict { marker }))
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
            let words = next.words.iter().map(shown).collect::<Vec<_>>();
            return Err(MigrateError::at(
                command.last_line,
                MigrateProblem::LostOptions {
                    lost: format!("`{}`", words.join(" ")),
                    next: next.words[0].line,
                    space: line.trim_end().ends_with('\\'),
                },
            ));
        }
    }
    Ok(())
}

fn shown(word: &Word) -> String {
    Scope::default().fill_in_whole(word).shown()
}
