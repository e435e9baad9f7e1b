//! Options into entries of a configuration, whatever their keys.

use crate::error::{MigrateError, Trouble};
use crate::launch::{Given, Launch, shown};
use crate::scope::Value;

/// A key with its value, and why it has that.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: &'static str,
    /// In TOML.
    pub(crate) value: String,
    pub(crate) comment: String,
}

/// The comment on a value that the script leaves to `main.py`.
pub(crate) const DEFAULT: &str = "main.py's default";

/// The options, and the entries that have been made of them.
pub(crate) struct Maker {
    pub(crate) launch: Launch,
    pub(crate) entries: Vec<Entry>,
}

impl Maker {
    pub(crate) fn get(&self, option: &str) -> Option<Given> {
        self.launch.given.iter().find(|given| given.option.name == option).cloned()
    }

    /// Of options that take each other back, the last.
    pub(crate) fn last_of(&self, options: &[&str]) -> Option<Given> {
        let given = self.launch.given.iter().rev();
        given.clone().find(|given| options.contains(&given.option.name)).cloned()
    }

    pub(crate) fn drop(&mut self, given: &Given, why: &str) {
        self.launch.drop(shown(&given.written, &given.values), given.line, why);
    }

    pub(crate) fn add(
        &mut self,
        key: &'static str,
        value: impl Into<String>,
        comment: impl Into<String>,
    ) {
        self.entries.push(Entry { key, value: value.into(), comment: comment.into() });
    }

    pub(crate) fn text(&mut self, key: &'static str, text: &str, comment: &str) {
        self.add(key, toml_edit::Value::from(text).to_string(), comment);
    }

    /// An option that is a number; without a default it is left out where it is not given.
    pub(crate) fn number(
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
    pub(crate) fn whole(
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
    pub(crate) fn pair(&mut self, option: &str, key: &'static str) -> Result<(), MigrateError> {
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
pub(crate) fn said(given: &Given) -> String {
    shown(&given.written, &given.values)
}

pub(crate) fn known(given: &Given) -> Result<String, MigrateError> {
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

pub(crate) fn number(given: &Given, value: &Value) -> Result<f64, MigrateError> {
    let text = known(&Given { values: vec![value.clone()], ..given.clone() })?;
    text.parse().ok().filter(|x: &f64| x.is_finite()).ok_or_else(|| wrong(given, value, "a number"))
}

pub(crate) fn integer(given: &Given, least: u64) -> Result<u64, MigrateError> {
    let text = known(given)?;
    let expected = if least == 0 { "a whole number" } else { "a whole number, 1 or more" };
    let number = text.parse().ok().filter(|&number: &u64| number >= least);
    number.ok_or_else(|| wrong(given, &given.values[0], expected))
}

/// A number as people write it.
pub(crate) fn float(number: f64) -> String {
    if number != 0.0 && number.abs() < 1e-3 { format!("{number:e}") } else { format!("{number:?}") }
}
