//! Conversion of options to keys of a configuration.

use crate::error::{MigrateError, MigrateProblem};
use crate::launch::{Launch, PassedOption, shown};
use crate::scope::Value;

/// A key with its value and the reason for it.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) key: &'static str,
    /// As TOML.
    pub(crate) value: String,
    pub(crate) comment: String,
}

/// The comment on defaults of `main.py`.
pub(crate) const DEFAULT: &str = "main.py's default";

/// The options of a launch and the keys made of them.
pub(crate) struct ConfigBuilder {
    pub(crate) launch: Launch,
    pub(crate) entries: Vec<Setting>,
}

impl ConfigBuilder {
    pub(crate) fn get(&self, option: &str) -> Option<PassedOption> {
        self.launch.options.iter().find(|passed| passed.spec.name == option).cloned()
    }

    /// The last of options that override each other.
    pub(crate) fn last_of(&self, options: &[&str]) -> Option<PassedOption> {
        let passed = self.launch.options.iter().rev();
        passed.clone().find(|passed| options.contains(&passed.spec.name)).cloned()
    }

    pub(crate) fn drop(&mut self, passed: &PassedOption, why: &str) {
        self.launch.drop(shown(&passed.written, &passed.values), passed.line, why);
    }

    pub(crate) fn add(
        &mut self,
        key: &'static str,
        value: impl Into<String>,
        comment: impl Into<String>,
    ) {
        self.entries.push(Setting { key, value: value.into(), comment: comment.into() });
    }

    pub(crate) fn text(&mut self, key: &'static str, text: &str, comment: &str) {
        self.add(key, toml_edit::Value::from(text).to_string(), comment);
    }

    /// Adds the number of `option`; without the option its default, if there is one.
    pub(crate) fn number(
        &mut self,
        option: &str,
        key: &'static str,
        default: Option<f64>,
    ) -> Result<(), MigrateError> {
        match (self.get(option), default) {
            (Some(passed), _) => {
                self.add(key, float(number(&passed, &passed.values[0])?), as_written(&passed));
            }
            (None, Some(default)) => self.add(key, float(default), DEFAULT),
            (None, None) => {}
        }
        Ok(())
    }

    /// Adds the whole number, 1 or more, of `option`.
    pub(crate) fn whole(
        &mut self,
        option: &str,
        key: &'static str,
        default: u64,
    ) -> Result<(), MigrateError> {
        let (number, comment) = match self.get(option) {
            Some(passed) => (integer(&passed, 1)?, as_written(&passed)),
            None => (default, DEFAULT.to_owned()),
        };
        self.add(key, number.to_string(), comment);
        Ok(())
    }

    /// Adds the two numbers of `option`.
    pub(crate) fn pair(&mut self, option: &str, key: &'static str) -> Result<(), MigrateError> {
        let Some(passed) = self.get(option) else { return Ok(()) };
        let [first, second] = passed.values.as_slice() else {
            return Err(wrong(&passed, &passed.values[0], "two numbers"));
        };
        let pair =
            format!("[{}, {}]", float(number(&passed, first)?), float(number(&passed, second)?));
        self.add(key, pair, as_written(&passed));
        Ok(())
    }
}

/// The option as it was written.
pub(crate) fn as_written(passed: &PassedOption) -> String {
    shown(&passed.written, &passed.values)
}

pub(crate) fn known(passed: &PassedOption) -> Result<String, MigrateError> {
    let unset = || MigrateProblem::Unset {
        option: passed.written.clone(),
        value: passed.values[0].shown(),
        advice: "give it behind --, as the script is called with, or write it into the script",
    };
    passed.values[0].known().ok_or_else(|| MigrateError::at(passed.line, unset()))
}

fn wrong(passed: &PassedOption, value: &Value, expected: &'static str) -> MigrateError {
    let (option, value) = (passed.written.clone(), value.shown());
    MigrateError::at(passed.line, MigrateProblem::Value { option, value, expected })
}

pub(crate) fn number(passed: &PassedOption, value: &Value) -> Result<f64, MigrateError> {
    let text = known(&PassedOption { values: vec![value.clone()], ..passed.clone() })?;
    text.parse()
        .ok()
        .filter(|x: &f64| x.is_finite())
        .ok_or_else(|| wrong(passed, value, "a number"))
}

pub(crate) fn integer(passed: &PassedOption, least: u64) -> Result<u64, MigrateError> {
    let text = known(passed)?;
    let expected = if least == 0 { "a whole number" } else { "a whole number, 1 or more" };
    let number = text.parse().ok().filter(|&number: &u64| number >= least);
    number.ok_or_else(|| wrong(passed, &passed.values[0], expected))
}

/// A number in its usual notation.
pub(crate) fn float(number: f64) -> String {
    if number != 0.0 && number.abs() < 1e-3 { format!("{number:e}") } else { format!("{number:?}") }
}
