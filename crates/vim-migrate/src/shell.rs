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
    /// The bracket that ends it, if one does: of a `case`'s pattern or a function's name.
    pub(crate) bracket: Option<char>,
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
                '(' if self.is_array() => self.array()?,
                ';' | '&' | '|' | '(' | ')' => {
                    self.next();
                    self.end_command_by(Some(letter).filter(|letter| "()".contains(*letter)));
                }
                '<' if self.placeholder() => {}
                '<' if [1, 2].map(|ahead| self.peek(ahead)) == [Some('<'); 2] => {
                    self.end_word();
                    self.at += 3;
                    "<<<".chars().for_each(|letter| self.push(letter));
                    self.end_word();
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

    /// Whether the bracket here opens the values of an array: `NAME=(`.
    fn is_array(&self) -> bool {
        let name = self.word.as_ref().and_then(Word::plain);
        name.and_then(|text| text.strip_suffix('=')).is_some_and(is_variable_name)
    }

    /// Reads the values of an array as one text with spaces between them.
    fn array(&mut self) -> Result<(), MigrateError> {
        let inside = self.enclosed(')', "bracket")?;
        let lines = inside.lines().map(|line| line.split(" #").next().unwrap_or_default());
        let values: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
        let bare = |text: &&str| text.trim_matches(['"', '\'']).to_owned();
        let text = values.iter().map(bare).collect::<Vec<_>>().join(" ");
        text.chars().for_each(|letter| self.push(letter));
        Ok(())
    }

    /// Takes a placeholder, `<words to be replaced>`, for text: a redirection has no `>` after it.
    fn placeholder(&mut self) -> bool {
        let inside: String = self.letters[self.at + 1..]
            .iter()
            .take_while(|letter| !"<>\n".contains(**letter))
            .collect();
        let is_word = |letter: char| letter.is_alphanumeric() || "_-./ ".contains(letter);
        let end = self.at + 1 + inside.chars().count();
        let is_placeholder = inside.starts_with(char::is_alphabetic)
            && inside.ends_with(char::is_alphanumeric)
            && inside.chars().all(is_word)
            && self.letters.get(end) == Some(&'>')
            && self
                .letters
                .get(end + 1)
                .is_none_or(|next| next.is_whitespace() || "/;.\"'".contains(*next));
        if is_placeholder {
            for letter in format!("<{inside}>").chars() {
                self.push(letter);
            }
            self.at = end + 1;
        }
        is_placeholder
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
                    Some((name, default)) => {
                        (name.to_owned(), Some(default.trim_matches(['"', '\'']).to_owned()))
                    }
                    None => (inside.clone(), None),
                };
                // All values of an array, which are words of their own even in quotes.
                let array = ["[@]", "[*]"].into_iter().find_map(|all| name.strip_suffix(all));
                let (name, quoted) = match array {
                    Some(array) => (array.to_owned(), false),
                    None => (name, quoted),
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
        self.end_command_by(None);
    }

    fn end_command_by(&mut self, bracket: Option<char>) {
        self.end_word();
        self.skip_word = false;
        if self.words.is_empty() {
            return;
        }
        self.commands.push(Command {
            words: std::mem::take(&mut self.words),
            last_line: self.line,
            starts_line: std::mem::take(&mut self.starts_line),
            bracket,
        });
    }
}

#[cfg(test)]
mod tests;
