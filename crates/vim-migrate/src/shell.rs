//! A shell script as commands of words: the subset of the language that launch scripts use.

use vim_config::is_variable_name;

use crate::error::{MigrateError, MigrateProblem};

/// A part of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Plain text.
    Text(String),
    /// `$NAME`, `${NAME}`, `${NAME:-default}`, `$1`.
    Variable {
        /// The name, or the number of an argument.
        name: String,
        /// Its default.
        default: Option<String>,
        /// In double quotes: its value is not split into words.
        quoted: bool,
    },
    /// An expression that only a shell can evaluate: `$(…)`, `$((…))`, `` `…` ``.
    Computed(String),
}

/// A word before the substitution of variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) pieces: Vec<Piece>,
    /// Its line, from 1.
    pub(crate) line: usize,
}

impl Word {
    /// Its text, if it is a literal.
    pub(crate) fn plain(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether it starts like an option.
    pub(crate) fn is_option(&self) -> bool {
        matches!(self.pieces.first(), Some(Piece::Text(text)) if text.starts_with('-'))
    }
}

/// The words between two ends of lines or `;`, with continued lines joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) words: Vec<Word>,
    /// The line of its last word.
    pub(crate) last_line: usize,
    /// Whether it is the first on its line.
    pub(crate) starts_line: bool,
}

/// The commands of a script.
pub(crate) fn commands(text: &str) -> Result<Vec<Command>, MigrateError> {
    let mut scanner = Scanner::new(text);
    scanner.run()?;
    Ok(scanner.commands)
}

struct Scanner {
    letters: Vec<char>,
    at: usize,
    line: usize,
    commands: Vec<Command>,
    words: Vec<Word>,
    word: Option<Word>,
    starts_line: bool,
    /// The next word is the file of a redirection.
    skip_word: bool,
}

impl Scanner {
    fn new(text: &str) -> Self {
        Self {
            letters: text.chars().collect(),
            at: 0,
            line: 1,
            commands: Vec::new(),
            words: Vec::new(),
            word: None,
            starts_line: true,
            skip_word: false,
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.letters.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.peek(0)?;
        self.at += 1;
        if letter == '\n' {
            self.line += 1;
        }
        Some(letter)
    }

    fn run(&mut self) -> Result<(), MigrateError> {
        while let Some(letter) = self.peek(0) {
            match letter {
                '\n' => {
                    self.end_command();
                    self.starts_line = true;
                    self.next();
                }
                ' ' | '\t' | '\r' => {
                    self.end_word();
                    self.next();
                }
                '#' if self.word.is_none() => {
                    while self.peek(0).is_some_and(|letter| letter != '\n') {
                        self.next();
                    }
                }
                ';' | '&' | '|' | '(' | ')' => {
                    self.next();
                    self.end_command();
                }
                '<' | '>' => {
                    // Neither the `2` of `2>` nor the file after it is a word of the command.
                    let number =
                        |word: &Word| word.plain().is_some_and(|t| t.parse::<u8>().is_ok());
                    self.word = self.word.take().filter(|word| !number(word));
                    self.end_word();
                    while matches!(self.peek(0), Some('<' | '>' | '&')) {
                        self.next();
                    }
                    self.skip_word = true;
                }
                '\\' => {
                    self.next();
                    match self.next() {
                        // A continued line.
                        Some('\n') | None => {}
                        Some(letter) => self.push(letter),
                    }
                }
                '\'' => {
                    self.touch();
                    self.enclosed('\'', "quote")?.chars().for_each(|letter| self.push(letter));
                }
                '"' => self.double_quotes()?,
                '$' => self.variable(false)?,
                '`' => self.back_quotes()?,
                _ => {
                    self.next();
                    self.push(letter);
                }
            }
        }
        self.end_command();
        Ok(())
    }

    fn unclosed(line: usize, what: &'static str) -> MigrateError {
        MigrateError::at(line, MigrateProblem::Unclosed(what))
    }

    /// The letters from the opening one to `end`, without either.
    fn enclosed(&mut self, end: char, what: &'static str) -> Result<String, MigrateError> {
        let line = self.line;
        self.next();
        let mut inside = String::new();
        loop {
            match self.next() {
                Some(letter) if letter == end => return Ok(inside),
                Some(letter) => inside.push(letter),
                None => return Err(Self::unclosed(line, what)),
            }
        }
    }

    fn double_quotes(&mut self) -> Result<(), MigrateError> {
        let line = self.line;
        self.next();
        self.touch();
        loop {
            match self.peek(0) {
                Some('"') => {
                    self.next();
                    return Ok(());
                }
                Some('\\') => {
                    self.next();
                    match self.next() {
                        Some('\n') | None => {}
                        Some(letter @ ('"' | '\\' | '$' | '`')) => self.push(letter),
                        Some(letter) => {
                            self.push('\\');
                            self.push(letter);
                        }
                    }
                }
                Some('$') => self.variable(true)?,
                Some('`') => self.back_quotes()?,
                Some(letter) => {
                    self.next();
                    self.push(letter);
                }
                None => return Err(Self::unclosed(line, "quote")),
            }
        }
    }

    fn back_quotes(&mut self) -> Result<(), MigrateError> {
        let inside = self.enclosed('`', "back quote")?;
        self.piece(Piece::Computed(format!("`{inside}`")));
        Ok(())
    }

    fn variable(&mut self, quoted: bool) -> Result<(), MigrateError> {
        let line = self.line;
        self.next();
        match self.peek(0) {
            Some('(') => {
                let mut raw = String::from("$");
                let mut depth = 0;
                loop {
                    let letter = self.next().ok_or_else(|| Self::unclosed(line, "bracket"))?;
                    raw.push(letter);
                    depth += match letter {
                        '(' => 1,
                        ')' => -1,
                        _ => 0,
                    };
                    if depth == 0 {
                        self.piece(Piece::Computed(raw));
                        return Ok(());
                    }
                }
            }
            Some('{') => {
                let inside = self.enclosed('}', "brace")?;
                let (name, default) = match inside.split_once(":-").or(inside.split_once('-')) {
                    Some((name, default)) => (name.to_owned(), Some(default.to_owned())),
                    None => (inside.clone(), None),
                };
                let is_known = is_variable_name(&name) || name.parse::<usize>().is_ok();
                self.piece(if is_known {
                    Piece::Variable { name, default, quoted }
                } else {
                    Piece::Computed(format!("${{{inside}}}"))
                });
            }
            Some(letter) if letter.is_ascii_digit() || "@*#?$!".contains(letter) => {
                self.next();
                self.piece(Piece::Variable { name: letter.to_string(), default: None, quoted });
            }
            Some(letter) if letter.is_ascii_alphabetic() || letter == '_' => {
                let mut name = String::new();
                while let Some(letter) =
                    self.peek(0).filter(|letter| letter.is_ascii_alphanumeric() || *letter == '_')
                {
                    name.push(letter);
                    self.next();
                }
                self.piece(Piece::Variable { name, default: None, quoted });
            }
            Some(_) | None => self.push('$'),
        }
        Ok(())
    }

    /// The current word, created if necessary.
    fn touch(&mut self) -> &mut Word {
        let line = self.line;
        self.word.get_or_insert_with(|| Word { pieces: Vec::new(), line })
    }

    fn push(&mut self, letter: char) {
        let word = self.touch();
        if let Some(Piece::Text(text)) = word.pieces.last_mut() {
            text.push(letter);
        } else {
            word.pieces.push(Piece::Text(letter.to_string()));
        }
    }

    fn piece(&mut self, piece: Piece) {
        self.touch().pieces.push(piece);
    }

    fn end_word(&mut self) {
        if let Some(word) = self.word.take()
            && !std::mem::take(&mut self.skip_word)
        {
            self.words.push(word);
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        self.skip_word = false;
        if self.words.is_empty() {
            return;
        }
        self.commands.push(Command {
            words: std::mem::take(&mut self.words),
            last_line: self.line,
            starts_line: std::mem::take(&mut self.starts_line),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Vec<Vec<String>> {
        let show = |word: &Word| {
            word.pieces
                .iter()
                .map(|piece| match piece {
                    Piece::Text(text) => text.clone(),
                    Piece::Variable { name, default: None, .. } => format!("<{name}>"),
                    Piece::Variable { name, default: Some(value), .. } => {
                        format!("<{name}|{value}>")
                    }
                    Piece::Computed(raw) => format!("[{raw}]"),
                })
                .collect()
        };
        let commands = commands(text).unwrap();
        commands.iter().map(|command| command.words.iter().map(show).collect()).collect()
    }

    #[test]
    fn words_and_commands() {
        for (text, expected) in [
            ("a b\\\n  c # d\ne", vec![vec!["a", "b", "c"], vec!["e"]]),
            ("a 'b c' \"d $E f\" ''", vec![vec!["a", "b c", "d <E> f", ""]]),
            ("a;b && c | d &", vec![vec!["a"], vec!["b"], vec!["c"], vec!["d"]]),
            ("a > log 2>&1 b", vec![vec!["a", "b"]]),
            ("X=${1:-0}y$2 Z=${HOME}", vec![vec!["X=<1|0>y<2>", "Z=<HOME>"]]),
            ("P=$((1 + $(id))) Q=`ls x`", vec![vec!["P=[$((1 + $(id)))]", "Q=[`ls x`]"]]),
            ("a#b \\# c", vec![vec!["a#b", "#", "c"]]),
            ("a \\\r\nb", vec![vec!["a", "\r"], vec!["b"]]),
        ] {
            assert_eq!(plain(text), expected, "{text}");
        }
    }

    #[test]
    fn lines_are_counted() {
        let commands = commands("#!/bin/bash\n\na \\\n  b \\\n  c\nd; e").unwrap();
        let lines: Vec<_> = commands[0].words.iter().map(|word| word.line).collect();
        assert_eq!((lines, commands[0].last_line), (vec![3, 4, 5], 5));
        assert_eq!((commands[1].last_line, commands[1].starts_line), (6, true));
        assert!(!commands[2].starts_line);
    }

    #[test]
    fn what_is_not_closed_is_placed() {
        for (text, line) in [("a\nb 'c\nd", 2), ("\"", 1), ("x\n${A", 2), ("$(a", 1), ("`a", 1)] {
            assert_eq!(super::commands(text).unwrap_err().line, Some(line), "{text}");
        }
    }
}
