//! The script's variables, and their substitution in words.

use std::collections::BTreeMap;

use crate::shell::{Piece, Word};

/// A part of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Known text.
    Text(String),
    /// An environment variable or an argument that the script does not set.
    Unset {
        /// The variable's name, or the argument's number.
        name: String,
        /// Its default.
        default: Option<String>,
    },
    /// An expression that only a shell can evaluate, as written.
    Computed(String),
}

/// A word after the substitution of all variables that the script sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) parts: Vec<Part>,
    pub(crate) line: usize,
}

impl Value {
    /// A literal text.
    pub(crate) fn text(text: impl Into<String>, line: usize) -> Self {
        Self { parts: vec![Part::Text(text.into())], line }
    }

    /// The text, if it is fully known; unset variables take their defaults.
    pub(crate) fn known(&self) -> Option<String> {
        let part = |part: &Part| match part {
            Part::Text(text) => Some(text.clone()),
            Part::Unset { default, .. } => default.clone(),
            Part::Computed(_) => None,
        };
        self.parts.iter().map(part).collect()
    }

    /// The value in shell notation.
    pub(crate) fn shown(&self) -> String {
        self.render(|name, default| match default {
            Some(default) => format!("${{{name}:-{default}}}"),
            None if name.len() == 1 => format!("${name}"),
            None => format!("${{{name}}}"),
        })
    }

    /// The text; `unset` renders unset variables from name and default.
    pub(crate) fn render(&self, unset: impl Fn(&str, Option<&str>) -> String) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) | Part::Computed(text) => text.clone(),
            Part::Unset { name, default } => unset(name, default.as_deref()),
        };
        self.parts.iter().map(part).collect()
    }

    /// The names of its unset variables.
    pub(crate) fn unset_names(&self) -> Vec<&str> {
        self.parts
            .iter()
            .filter_map(|part| match part {
                Part::Unset { name, .. } => Some(name.as_str()),
                Part::Text(_) | Part::Computed(_) => None,
            })
            .collect()
    }

    /// Whether a part of it is to be replaced by the user, such as `<path_to_dataset>`.
    pub(crate) fn is_placeholder(&self) -> bool {
        let shown = self.shown();
        shown.split_once('<').is_some_and(|(_, rest)| rest.contains('>')) && !self.is_computed()
    }

    /// Whether only a shell can evaluate a part of it.
    pub(crate) fn is_computed(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Computed(_)))
    }

    fn push(&mut self, part: Part) {
        match (self.parts.last_mut(), part) {
            (Some(Part::Text(text)), Part::Text(more)) => text.push_str(&more),
            (_, part) => self.parts.push(part),
        }
    }

    /// Splits at the first `=`, if the text before it is literal.
    pub(crate) fn split_at_equals(&self) -> Option<(String, Self)> {
        let (first, rest) = self.parts.split_first()?;
        let Part::Text(text) = first else { return None };
        let (name, value) = text.split_once('=')?;
        let mut split = Self { parts: Vec::new(), line: self.line };
        if !value.is_empty() {
            split.push(Part::Text(value.to_owned()));
        }
        split.parts.extend(rest.iter().cloned());
        Some((name.to_owned(), split))
    }
}

/// The variables that the script has set so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    variables: BTreeMap<String, Value>,
}

impl Scope {
    pub(crate) fn set(&mut self, name: impl Into<String>, value: Value) {
        self.variables.insert(name.into(), value);
    }

    /// Replaces the arguments; returns those before.
    pub(crate) fn replace_arguments(&mut self, arguments: Vec<Value>) -> Vec<(String, Value)> {
        let is_argument = |name: &String| name.parse::<usize>().is_ok();
        let names: Vec<String> =
            self.variables.keys().filter(|name| is_argument(name)).cloned().collect();
        let before = names.into_iter().filter_map(|name| self.variables.remove_entry(&name));
        let before = before.collect();
        for (index, value) in arguments.into_iter().enumerate() {
            self.variables.insert((index + 1).to_string(), value);
        }
        before
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.variables.get(name)
    }

    /// The words that `word` expands to: an unquoted variable may become several words, or none.
    pub(crate) fn fill_in(&self, word: &Word) -> Vec<Value> {
        let mut words = Vec::new();
        let mut current: Option<Value> = None;
        let empty = || Value { parts: Vec::new(), line: word.line };
        if word.pieces.is_empty() {
            return vec![empty()];
        }
        for piece in &word.pieces {
            let (parts, quoted) = self.piece(piece);
            for part in parts {
                match &part {
                    Part::Text(text) if !quoted => {
                        if text.starts_with([' ', '\t', '\n']) {
                            words.extend(current.take());
                        }
                        let mut fields = text.split_whitespace().peekable();
                        while let Some(field) = fields.next() {
                            let value = current.get_or_insert_with(empty);
                            value.push(Part::Text(field.to_owned()));
                            if fields.peek().is_some() || text.ends_with([' ', '\t', '\n']) {
                                words.extend(current.take());
                            }
                        }
                    }
                    Part::Text(_) | Part::Unset { .. } | Part::Computed(_) => {
                        current.get_or_insert_with(empty).push(part);
                    }
                }
            }
            if quoted {
                current.get_or_insert_with(empty);
            }
        }
        words.extend(current);
        words
    }

    /// `word` expanded without splitting, as in an assignment.
    pub(crate) fn fill_in_whole(&self, word: &Word) -> Value {
        let mut whole = Value { parts: Vec::new(), line: word.line };
        for piece in &word.pieces {
            for part in self.piece(piece).0 {
                whole.push(part);
            }
        }
        whole
    }

    /// The parts of a piece's value, and whether it is quoted, that is, not split.
    fn piece(&self, piece: &Piece) -> (Vec<Part>, bool) {
        match piece {
            Piece::Text(text) => (vec![Part::Text(text.clone())], true),
            Piece::Computed(raw) => (vec![Part::Computed(raw.clone())], true),
            Piece::Variable { name, default, quoted } => {
                let current = self.get(name);
                let is_empty = |value: &Value| value.known().is_some_and(|text| text.is_empty());
                let set = current.filter(|value| default.is_none() || !is_empty(value));
                let parts = set.map(|value| value.parts.clone()).unwrap_or_else(|| {
                    vec![match default {
                        // The environment can set neither arguments nor variables that the script
                        // sets.
                        Some(default) if current.is_some() || name.parse::<usize>().is_ok() => {
                            Part::Text(default.clone())
                        }
                        Some(_) | None => {
                            Part::Unset { name: name.clone(), default: default.clone() }
                        }
                    }]
                });
                (parts, *quoted)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::commands;

    fn filled(text: &str) -> Vec<String> {
        let mut scope = Scope::default();
        scope.replace_arguments(vec![Value::text("7", 0)]);
        scope.set("OUT", Value::text("./out", 1));
        scope.set("MORE", Value::text("--resume ./a b", 1));
        scope.set("NONE", Value::text("", 1));
        let commands = commands(text).unwrap();
        let words = commands[0].words.iter();
        words.flat_map(|word| scope.fill_in(word)).map(|value| value.shown()).collect()
    }

    #[test]
    fn variables_are_filled_in() {
        for (text, expected) in [
            ("x$OUT/y ${OUT}z", &["x./out/y", "./outz"][..]),
            ("a $MORE \"$MORE\"", &["a", "--resume", "./a", "b", "--resume ./a b"]),
            ("a $NONE \"$NONE\" b", &["a", "", "b"]),
            ("$1 $2 ${2:-5} ${1:-5}", &["7", "$2", "5", "7"]),
            ("${HOME}/x ${X:-/y}/z ${NONE:-q}", &["${HOME}/x", "${X:-/y}/z", "q"]),
            ("p$(id -u) 'a b'", &["p$(id -u)", "a b"]),
            ("x=$MORE.y", &["x=--resume", "./a", "b.y"]),
        ] {
            assert_eq!(filled(text), expected, "{text}");
        }
    }
}
