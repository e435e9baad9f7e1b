//! `run.name`: a template filled in with the configuration's values.

use std::path::{Component, Path, PathBuf};

use super::error::nearest;
use super::load::dotted_values;
use super::{Config, ConfigError, Problem};

impl Config {
    /// The run's name: `run.name` with every `{key}` replaced by that key's value.
    ///
    /// # Errors
    ///
    /// If a placeholder is no key, or the result cannot be a folder's name.
    pub fn run_name(&self) -> Result<String, ConfigError> {
        let wrong = |problem| ConfigError::new("run.name", problem);
        let values = dotted_values(&self.effective());
        let mut name = String::new();
        let mut rest = self.run.name.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            name.push_str(before);
            let Some((key, after)) = after.split_once('}') else {
                return Err(wrong(Problem::FolderName { name: self.run.name.clone() }));
            };
            let Some(value) = values.get(key) else {
                let known: Vec<String> = values.keys().cloned().collect();
                let nearest = nearest(key, &known);
                return Err(wrong(Problem::Placeholder { name: key.to_owned(), nearest }));
            };
            match value.as_str() {
                Some(text) => name.push_str(text),
                None => name.push_str(&value.to_string()),
            }
            rest = after;
        }
        name.push_str(rest);
        if is_inside(&name) { Ok(name) } else { Err(wrong(Problem::FolderName { name })) }
    }

    /// The run's folder: `run.root`/`run.name`.
    pub fn run_folder(&self) -> Result<PathBuf, ConfigError> {
        Ok(self.run.root.join(self.run_name()?))
    }
}

/// Whether `name` stays strictly below the folder that it is joined to.
fn is_inside(name: &str) -> bool {
    let plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    plain && !name.trim().is_empty() && !name.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(template: &str) -> Result<String, ConfigError> {
        let mut config = Config::default();
        config.run.name = template.into();
        config.run_name()
    }

    #[test]
    fn placeholders_take_any_key() {
        assert_eq!(Config::default().run_name().unwrap(), "zoh-s0");
        assert_eq!(name("{model.d_model}x{model.depth}-{optim.lr}").unwrap(), "192x24-0.001");
        assert_eq!(name("sweep/{checkpoint.every}").unwrap(), "sweep/1ep");
    }

    #[test]
    fn unknown_placeholders_are_named() {
        let error = name("{run.sed}").unwrap_err().to_string();
        assert!(error.contains("`run.sed`") && error.contains("`run.seed`"), "{error}");
        assert!(name("{train.clip_grad}").is_err(), "a key that is not set has no value");
    }

    #[test]
    fn a_run_stays_inside_its_root() {
        for template in ["", " ", "..", "../x", "/x", "x/../../y", "x{", "a\nb", "."] {
            assert!(name(template).is_err(), "{template:?}");
        }
    }
}
