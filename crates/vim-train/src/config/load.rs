//! Reading a configuration: the file, the environment variable over it, `--set` over both.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use toml_edit::{Document, DocumentMut, Item, Key, Table, TableLike, Value};
use vim_kernels::ScanChoice;

use super::document::{caret, decode, position};
use super::{Config, ConfigError, Origin, Problem};

impl Config {
    /// Reads and checks the configuration in `path`, with the assignments `sets` (`key=value`) over it.
    ///
    /// The result is [effective](Self::effective). `VIM_USE_CUDA_KERNEL`, where it is set, stands
    /// over the file's `ssm.scan` and under an assignment to it.
    ///
    /// # Errors
    ///
    /// The first mistake, with the place where it was made; also a file that describes several runs.
    pub fn load(path: &Path, sets: &[String]) -> Result<Self, ConfigError> {
        let config = Self::load_sweep(path, sets)?;
        if config.sweep.is_none() {
            return Ok(config);
        }
        let file = path.display();
        let message = format!(
            "the file describes several runs: `vim-train sweep run {file}` trains them, and a file without this section is one run"
        );
        let origin = Origin::File { path: path.to_owned(), position: None };
        Err(ConfigError::new("sweep", Problem::Type { message }).at(origin))
    }

    /// As [`Config::load`], for a file that may describe several runs.
    ///
    /// # Errors
    ///
    /// The first mistake, with the place where it was made.
    pub fn load_sweep(path: &Path, sets: &[String]) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path).map_err(|error| {
            let origin = Origin::File { path: path.to_owned(), position: None };
            ConfigError::new("", Problem::Read(error)).at(origin)
        })?;
        Source { path: Some(path), text: &text, environment: ScanChoice::from_env(), sets }.read()
    }

    /// The defaults, checked as [`Config::load`] does, with the assignments `sets` over them.
    ///
    /// # Errors
    ///
    /// The first mistake in `sets`.
    pub fn from_defaults(sets: &[String]) -> Result<Self, ConfigError> {
        Source { path: None, text: "", environment: ScanChoice::from_env(), sets }.read()
    }

    /// Reads and checks a configuration in a text, whatever the environment says.
    ///
    /// # Errors
    ///
    /// The first mistake.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        Source { path: None, text, environment: None, sets: &[] }.read()
    }
}

/// All that a configuration is made from.
struct Source<'a> {
    path: Option<&'a Path>,
    text: &'a str,
    environment: Option<ScanChoice>,
    sets: &'a [String],
}

impl Source<'_> {
    fn read(&self) -> Result<Config, ConfigError> {
        let mut config = decode(self.text).map_err(|(error, span)| {
            let mut error = error.at(self.in_file(span.as_ref().map(|span| span.start)));
            error.caret = span.map(|span| caret(self.text, &span));
            error
        })?;
        let mut document: DocumentMut =
            self.text.parse().expect("invariant: a text that was decoded is TOML");
        if let Some(choice) = self.environment {
            let path = Key::parse("ssm.scan").expect("invariant: this is a key");
            assign(&mut document, &path, Value::from(choice.to_string()))
                .map_err(|error| error.at(Origin::Environment))?;
            config.ssm.scan = choice;
        }
        // One at a time, so that a mistake is known to be this one's.
        for set in self.sets {
            let placed = |error: ConfigError| error.at(Origin::Set(set.clone()));
            let (path, value) = parse_assignment(set).map_err(placed)?;
            assign(&mut document, &path, value).map_err(placed)?;
            config = decode(&document.to_string()).map_err(|(error, _)| placed(*error))?;
        }
        let checked = config.validate().and_then(|()| config.effective());
        checked.map_err(|error| {
            let origin = self.locate(&error.key);
            error.at(origin)
        })
    }

    fn in_file(&self, offset: Option<usize>) -> Origin {
        let position = offset.map(|offset| position(self.text, offset));
        match self.path {
            Some(path) => Origin::File { path: path.to_owned(), position },
            None => Origin::Unknown,
        }
    }

    /// Where the value of `key` was written last.
    fn locate(&self, key: &str) -> Origin {
        let written_by = |set: &&String| {
            let name = set.split('=').next().unwrap_or_default().trim();
            key == name || key.starts_with(&format!("{name}."))
        };
        if let Some(set) = self.sets.iter().rev().find(written_by) {
            return Origin::Set(set.clone());
        }
        if self.environment.is_some() && key == "ssm.scan" {
            return Origin::Environment;
        }
        let document = Document::parse(self.text).ok();
        let span = document.as_ref().and_then(|document| {
            let item = key.split('.').try_fold(document.as_item(), |item, name| item.get(name));
            item.and_then(Item::span)
        });
        self.in_file(span.map(|span| span.start))
    }
}

/// Splits `key=value`; a value that is not TOML is a string, so that `--set data.path=/x` needs no quotes.
fn parse_assignment(set: &str) -> Result<(Vec<Key>, Value), ConfigError> {
    let malformed = || ConfigError::new("", Problem::Assignment);
    let (key, value) = set.split_once('=').ok_or_else(malformed)?;
    let path = Key::parse(key.trim()).map_err(|_| malformed())?;
    let value = value.trim();
    Ok((path, value.parse().unwrap_or_else(|_| Value::from(value))))
}

fn assign(document: &mut DocumentMut, path: &[Key], value: Value) -> Result<(), ConfigError> {
    let (last, sections) = path.split_last().expect("invariant: a key has at least one part");
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for (depth, name) in sections.iter().enumerate() {
        let item = table.entry_format(name).or_insert_with(|| Item::Table(Table::new()));
        table = item.as_table_like_mut().ok_or_else(|| {
            let key = path[..=depth].iter().map(Key::get).collect::<Vec<_>>().join(".");
            let message = "this is a value, not a section".to_owned();
            ConfigError::new(key, Problem::Type { message })
        })?;
    }
    table.insert(last.get(), Item::Value(value));
    Ok(())
}

/// Every key that is set in `config`, by its path.
pub(crate) fn dotted_values(config: &Config) -> BTreeMap<String, toml::Value> {
    dotted(toml::Table::try_from(config).expect("invariant: a configuration has a TOML form"))
}

/// Every key that is set in a file's `table`, by its path.
pub(crate) fn dotted(table: toml::Table) -> BTreeMap<String, toml::Value> {
    fn collect(prefix: &str, value: toml::Value, into: &mut BTreeMap<String, toml::Value>) {
        if let toml::Value::Table(table) = value {
            for (key, value) in table {
                let path = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
                collect(&path, value, into);
            }
        } else {
            into.insert(prefix.to_owned(), value);
        }
    }
    let mut values = BTreeMap::new();
    collect("", toml::Value::Table(table), &mut values);
    values
}
