//! The script's variables, and words with these filled in.

use std::collections::BTreeMap;

use crate::words::{Piece, Word};

/// A part of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Known text.
    Text(String),
    /// A variable of the environment, or an argument of the script, that the script does not set.
    Hole {
        /// Its name, or the argument's number.
        name: String,
        /// What stands for it where it is not set.
        default: Option<String>,
    },
    /// What only a shell can know, as written.
    Computed(String),
}

/// A word with its variables filled in as far as the script knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) parts: Vec<Part>,
    pub(crate) line: usize,
}

impl Value {
    /// A known text.
    pub(crate) fn text(text: impl Into<String>, line: usize) -> Self {
        Self { parts: vec![Part::Text(text.into())], line }
    }

    /// The text, if all of it is known; what is not set counts as its default.
    pub(crate) fn known(&self) -> Option<String> {
        let part = |part: &Part| match part {
            Part::Text(text) => Some(text.clone()),
            Part::Hole { default, .. } => default.clone(),
            Part::Computed(_) => None,
        };
        self.parts.iter().map(part).collect()
    }

    /// As the script would write it.
    pub(crate) fn shown(&self) -> String {
        self.with_holes(|name, default| match default {
            Some(default) => format!("${{{name}:-{default}}}"),
            None if name.len() == 1 => format!("${name}"),
            None => format!("${{{name}}}"),
        })
    }

    /// The text, with each hole as `hole` has it.
    pub(crate) fn with_holes(&self, hole: impl Fn(&str, Option<&str>) -> String) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) | Part::Computed(text) => text.clone(),
            Part::Hole { name, default } => hole(name, default.as_deref()),
        };
        self.parts.iter().map(part).collect()
    }

    /// The names of its holes.
    pub(crate) fn holes(&self) -> Vec<&str> {
        self.parts
            .iter()
            .filter_map(|part| match part {
                Part::Hole { name, .. } => Some(name.as_str()),
                Part::Text(_) | Part::Computed(_) => None,
            })
            .collect()
    }

    /// Whether a part of it is for a shell to compute.
    pub(crate) fn is_computed(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Computed(_)))
    }

    fn push(&mut self, part: Part) {
        match (self.parts.last_mut(), part) {
            (Some(Part::Text(text)), Part::Text(more)) => text.push_str(&more),
            (_, part) => self.parts.push(part),
        }
    }

    /// Splits at the first `=`, if what is before it is known.
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

/// What the script has set so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    variables: BTreeMap<String, Value>,
}

impl Scope {
    /// With the script's arguments.
    pub(crate) fn with_arguments(arguments: &[String]) -> Self {
        let variable =
            |(index, text): (usize, &String)| ((index + 1).to_string(), Value::text(text, 0));
        Self { variables: arguments.iter().enumerate().map(variable).collect() }
    }

    pub(crate) fn set(&mut self, name: impl Into<String>, value: Value) {
        self.variables.insert(name.into(), value);
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.variables.get(name)
    }

    /// The words that `word` becomes: a variable outside of quotes may be several, or none.
    pub(crate) fn fill_in(&self, word: &Word) -> Vec<Value> {
        let mut words = Vec::new();
        let mut current: Option<Value> = None;
        let empty = || Value { parts: Vec::new(), line: word.line };
        if word.pieces.is_empty() {
            return vec![empty()];
        }
        for piece in &word.pieces {
            let (value, quoted) = self.piece(piece);
            for part in value.parts {
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
                    Part::Text(_) | Part::Hole { .. } | Part::Computed(_) => {
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

    /// A whole word, as an assignment takes it: nothing is split.
    pub(crate) fn fill_in_whole(&self, word: &Word) -> Value {
        let mut whole = Value { parts: Vec::new(), line: word.line };
        for piece in &word.pieces {
            for part in self.piece(piece).0.parts {
                whole.push(part);
            }
        }
        whole
    }

    /// What a piece stands for, and whether that is kept in one.
    fn piece(&self, piece: &Piece) -> (Value, bool) {
        match piece {
            Piece::Text(text) => (Value::text(text, 0), true),
            Piece::Computed(raw) => {
                (Value { parts: vec![Part::Computed(raw.clone())], line: 0 }, true)
            }
            Piece::Variable { name, default, quoted } => {
                let given = self.get(name);
                let set = given.filter(|value| default.is_none() || !is_empty(value));
                let value = set.cloned().unwrap_or_else(|| {
                    let part = match default {
                        // The environment cannot set an argument, or what the script has set to nothing.
                        Some(default) if given.is_some() || name.parse::<usize>().is_ok() => {
                            Part::Text(default.clone())
                        }
                        Some(_) | None => {
                            Part::Hole { name: name.clone(), default: default.clone() }
                        }
                    };
                    Value { parts: vec![part], line: 0 }
                });
                (value, *quoted)
            }
        }
    }
}

fn is_empty(value: &Value) -> bool {
    value.known().is_some_and(|text| text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::commands;

    fn filled(text: &str) -> Vec<String> {
        let mut scope = Scope::with_arguments(&["7".to_owned()]);
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
