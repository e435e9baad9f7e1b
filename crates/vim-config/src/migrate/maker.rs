//! Options into entries of a configuration, whatever their keys.

use super::error::{MigrateError, Trouble};
use super::launch::{Given, Launch, shown};
use super::scope::Value;

/// A key with its value, and why it has that.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: &'static str,
    /// In TOML.
    pub(super) value: String,
    pub(super) comment: String,
}

/// The comment on a value that the script leaves to `main.py`.
pub(super) const DEFAULT: &str = "main.py's default";

/// The options, and the entries that have been made of them.
pub(super) struct Maker {
    pub(super) launch: Launch,
    pub(super) entries: Vec<Entry>,
}

impl Maker {
    pub(super) fn get(&self, option: &str) -> Option<Given> {
        self.launch.given.iter().find(|given| given.option.name == option).cloned()
    }

    /// Of options that take each other back, the last.
    pub(super) fn last_of(&self, options: &[&str]) -> Option<Given> {
        let given = self.launch.given.iter().rev();
        given.clone().find(|given| options.contains(&given.option.name)).cloned()
    }

    pub(super) fn drop(&mut self, given: &Given, why: &str) {
        self.launch.drop(shown(&given.written, &given.values), given.line, why);
    }

    pub(super) fn add(
        &mut self,
        key: &'static str,
        value: impl Into<String>,
        comment: impl Into<String>,
    ) {
        self.entries.push(Entry { key, value: value.into(), comment: comment.into() });
    }

    pub(super) fn text(&mut self, key: &'static str, text: &str, comment: &str) {
        self.add(key, toml_edit::Value::from(text).to_string(), comment);
    }

    /// An option that is a number; without a default it is left out where it is not given.
    pub(super) fn number(
        &mut self,
        option: &str,
        key: &'static str,
        default: Option<f64>,
    ) -> Result<(), MigrateError> {
        match (self.get(option), default) {
            (Some(given), _) => {
                self.add(key, float(number(&given, &given.values[0])?), said(&given));
            }
            (None, Some(default)) => self.add(key, float(default), DEFAULT),
            (None, None) => {}
        }
        Ok(())
    }

    /// An option that is a whole number, 1 or more.
    pub(super) fn whole(
        &mut self,
        option: &str,
        key: &'static str,
        default: u64,
    ) -> Result<(), MigrateError> {
        let (number, comment) = match self.get(option) {
            Some(given) => (integer(&given, 1)?, said(&given)),
            None => (default, DEFAULT.to_owned()),
        };
        self.add(key, number.to_string(), comment);
        Ok(())
    }

    /// An option that is two numbers.
    pub(super) fn pair(&mut self, option: &str, key: &'static str) -> Result<(), MigrateError> {
        let Some(given) = self.get(option) else { return Ok(()) };
        let [first, second] = given.values.as_slice() else {
            return Err(wrong(&given, &given.values[0], "two numbers"));
        };
        let pair =
            format!("[{}, {}]", float(number(&given, first)?), float(number(&given, second)?));
        self.add(key, pair, said(&given));
        Ok(())
    }
}

/// The option as it was written.
pub(super) fn said(given: &Given) -> String {
    shown(&given.written, &given.values)
}

pub(super) fn known(given: &Given) -> Result<String, MigrateError> {
    let unset = || Trouble::Unset {
        option: given.written.clone(),
        value: given.values[0].shown(),
        advice: "give it behind --, as the script is called with, or write it into the script",
    };
    given.values[0].known().ok_or_else(|| MigrateError::at(given.line, unset()))
}

fn wrong(given: &Given, value: &Value, expected: &'static str) -> MigrateError {
    let (option, value) = (given.written.clone(), value.shown());
    MigrateError::at(given.line, Trouble::Value { option, value, expected })
}

pub(super) fn number(given: &Given, value: &Value) -> Result<f64, MigrateError> {
    let text = known(&Given { values: vec![value.clone()], ..given.clone() })?;
    text.parse().ok().filter(|x: &f64| x.is_finite()).ok_or_else(|| wrong(given, value, "a number"))
}

pub(super) fn integer(given: &Given, least: u64) -> Result<u64, MigrateError> {
    let text = known(given)?;
    let expected = if least == 0 { "a whole number" } else { "a whole number, 1 or more" };
    let number = text.parse().ok().filter(|&number: &u64| number >= least);
    number.ok_or_else(|| wrong(given, &given.values[0], expected))
}

/// A number as people write it.
pub(super) fn float(number: f64) -> String {
    if number != 0.0 && number.abs() < 1e-3 { format!("{number:e}") } else { format!("{number:?}") }
}
