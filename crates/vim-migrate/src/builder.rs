//! Conversion of options to keys of a configuration.

use vim_config::is_variable_name;

use crate::error::{MigrateError, MigrateProblem};
use crate::launch::{self, Launch, PassedOption, shown};
use crate::scope::{Part, Value};

/// A key with its value and the reason for it.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) key: &'static str,
    /// As TOML.
    pub(crate) value: String,
    pub(crate) comment: String,
    /// To be filled in by the user: the script has a placeholder.
    pub(crate) is_open: bool,
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

    /// Drops `option` unless it has the only value that there is here.
    pub(crate) fn only(&mut self, option: &str, value: &str, why: &str) {
        if let Some(passed) = self.get(option).filter(|passed| passed.values[0].shown() != value) {
            self.drop(&passed, why);
        }
    }

    pub(crate) fn add(
        &mut self,
        key: &'static str,
        value: impl Into<String>,
        comment: impl Into<String>,
    ) {
        let (value, comment) = (value.into(), comment.into());
        self.entries.push(Setting { key, value, comment, is_open: false });
    }

    /// Adds `key` for the user to fill in, if the first value of `passed` is a placeholder.
    pub(crate) fn open(&mut self, key: &'static str, passed: &PassedOption) -> bool {
        let is_open = passed.values[0].is_placeholder();
        if is_open {
            let comment = as_written(passed);
            self.launch.notes.push(format!("{key} is to be filled in: the script has {comment}"));
            self.entries.push(Setting { key, value: "\"…\"".into(), comment, is_open });
        }
        is_open
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
        if self.get(option).is_some() || default.is_some() {
            let (number, comment) = self.number_or(option, default.unwrap_or_default())?;
            self.add(key, float(number), comment);
        }
        Ok(())
    }

    /// The number of `option`, or its default, and the reason.
    pub(crate) fn number_or(
        &self,
        option: &str,
        default: f64,
    ) -> Result<(f64, String), MigrateError> {
        Ok(match self.get(option) {
            Some(passed) => (number(&passed, &passed.values[0])?, as_written(&passed)),
            None => (default, DEFAULT.to_owned()),
        })
    }

    /// The whole number of `option`, `least` or more, or its default, and the reason.
    pub(crate) fn integer_or(
        &self,
        option: &str,
        least: u64,
        default: u64,
    ) -> Result<(u64, String), MigrateError> {
        Ok(match self.get(option) {
            Some(passed) => (integer(&passed, least)?, as_written(&passed)),
            None => (default, DEFAULT.to_owned()),
        })
    }

    /// Adds the whole number, 1 or more, of `option`.
    pub(crate) fn whole(
        &mut self,
        option: &str,
        key: &'static str,
        default: u64,
    ) -> Result<(), MigrateError> {
        let (number, comment) = self.integer_or(option, 1, default)?;
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

/// The text of the option's first value.
pub(crate) fn known(passed: &PassedOption) -> Result<String, MigrateError> {
    known_value(passed, &passed.values[0])
}

fn known_value(passed: &PassedOption, value: &Value) -> Result<String, MigrateError> {
    let advice = "give it behind --, as the script is called with, or write it into the script";
    launch::known(&passed.written, value, passed.line, advice)
}

fn wrong(passed: &PassedOption, value: &Value, expected: &'static str) -> MigrateError {
    let (option, value) = (passed.written.clone(), value.shown());
    MigrateError::at(passed.line, MigrateProblem::Value { option, value, expected })
}

pub(crate) fn number(passed: &PassedOption, value: &Value) -> Result<f64, MigrateError> {
    let number = known_value(passed, value)?.parse().ok().filter(|x: &f64| x.is_finite());
    number.ok_or_else(|| wrong(passed, value, "a number"))
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

/// A path for a configuration; environment variables remain variables.
///
/// `None` if only a shell can evaluate it, or an argument of the script is missing.
pub(crate) fn config_path(value: &Value) -> Option<String> {
    if value.is_computed()
        || value.is_placeholder()
        || !value.unset_names().into_iter().all(is_variable_name)
    {
        return None;
    }
    let text = value.render(|name, default| match default {
        Some(default) => format!("${{{name}:-{default}}}"),
        None => format!("${{{name}}}"),
    });
    // `~` is the shell's notation for the home folder.
    Some(match text.strip_prefix("~/") {
        Some(inside) => format!("${{HOME}}/{inside}"),
        None => text,
    })
}

/// A run's folder as `run.root`, if it has a parent, and `run.name`. The variable `seed` becomes
/// `{run.seed}`.
pub(crate) fn run_name(output: &Value, seed: Option<&str>) -> Option<(Option<String>, String)> {
    const SEED: &str = "{run.seed}";
    let mut output = output.clone();
    for part in &mut output.parts {
        if let Part::Unset { name, .. } = part
            && Some(name.as_str()) == seed
        {
            *part = Part::Text(SEED.to_owned());
        }
    }
    let text = config_path(&output)?;
    let text = text.trim_end_matches('/');
    let (root, name) = match text.rsplit_once('/') {
        Some((root, name)) => (Some(root.to_owned()).filter(|root| !root.is_empty()), name),
        None => (None, text),
    };
    // A name may not contain environment variables, a root no keys.
    let is_good = !name.is_empty()
        && !name.contains("${")
        && root.as_ref().is_none_or(|root| !root.contains(SEED));
    is_good.then(|| (root, name.to_owned()))
}
