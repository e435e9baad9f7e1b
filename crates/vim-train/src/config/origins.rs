//! Where values were written: for errors, and for `vim-train config show --origin`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::{Table, Value};
use toml_edit::{Document, Item, TableLike};
use vim_config::{Layer, Location};
use vim_kernels::KERNEL_VARIABLE;

use super::load::{dotted, dotted_values};
use super::{Config, ConfigError, Origin};

/// What decided a key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOrigin {
    /// Nothing: it is the key's default.
    Default,
    /// A preset of the key's section, by its name.
    Preset(String),
    /// A line of a file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// The environment variable for `ssm.scan`.
    Environment,
    /// An assignment on the command line.
    Set,
}

impl fmt::Display for KeyOrigin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => formatter.write_str("default"),
            Self::Preset(name) => write!(formatter, "preset {name}"),
            Self::File { path, line } => write!(formatter, "{}:{line}", path.display()),
            Self::Environment => formatter.write_str(KERNEL_VARIABLE),
            Self::Set => formatter.write_str("--set"),
        }
    }
}

/// Who wrote a key's value.
#[derive(Clone, Debug)]
pub(super) enum Written {
    /// A file.
    File(Location),
    /// The environment.
    Environment,
    /// An assignment, as written.
    Set(String),
}

/// Who wrote each key's value last.
#[derive(Clone, Debug, Default)]
pub(super) struct Origins {
    /// The file that was asked for, if it was one.
    file: Option<PathBuf>,
    written: BTreeMap<String, Written>,
}

impl Origins {
    /// Of a configuration read from the file `path`; an empty path means no file.
    pub(super) fn of_file(path: &Path) -> Self {
        let file = (!path.as_os_str().is_empty()).then(|| path.to_owned());
        Self { file, written: BTreeMap::new() }
    }

    /// Adds every key that a file sets.
    pub(super) fn add_layer(&mut self, layer: &Layer) {
        let document = Document::parse(layer.text.as_str())
            .expect("invariant: a text that was decoded is TOML");
        self.add_table(document.as_table(), "", layer);
    }

    fn add_table(&mut self, table: &dyn TableLike, prefix: &str, layer: &Layer) {
        for (key, item) in table.iter() {
            let path = if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
            if let Some(section) = item.as_table_like() {
                self.add_table(section, &path, layer);
            } else if let Some(span) = Item::span(item) {
                self.add(&path, Written::File(Location::new(&layer.path, &layer.text, &span)));
            }
        }
    }

    /// Adds an assignment; one to a section replaces the whole section.
    pub(super) fn add_set(&mut self, path: &[String], value: &Value, set: &str) {
        let key = path.join(".");
        let inside = format!("{key}.");
        self.written.retain(|other, _| *other != key && !other.starts_with(&inside));
        for name in dotted(value.clone()).into_keys() {
            let key = if name.is_empty() { key.clone() } else { format!("{inside}{name}") };
            self.add(&key, Written::Set(set.to_owned()));
        }
    }

    /// Adds one key.
    pub(super) fn add(&mut self, key: &str, written: Written) {
        self.written.insert(key.to_owned(), written);
    }

    /// Whether any source wrote `key`.
    pub(super) fn sets(&self, key: &str) -> bool {
        self.written.contains_key(key)
    }

    /// Adds to `error` the place where its key was written last.
    pub(super) fn place(&self, error: ConfigError) -> ConfigError {
        let inside = format!("{}.", error.key);
        // An error about a whole section is placed at the section's first key.
        let first_inside = || {
            let mut keys = self.written.range(inside.clone()..);
            keys.next().filter(|(key, _)| key.starts_with(&inside)).map(|(_, written)| written)
        };
        let written = self.written.get(&error.key).or_else(first_inside);
        match (written, &self.file) {
            (Some(Written::File(place)), _) => error.placed(place.clone()),
            (Some(Written::Environment), _) => error.at(Origin::Environment),
            (Some(Written::Set(set)), _) => error.at(Origin::Set(set.clone())),
            (None, Some(path)) => error.at(Origin::File { path: path.clone(), position: None }),
            (None, None) => error,
        }
    }

    /// The origin of each key of `effective`, which was resolved from `written`.
    pub(super) fn of_keys(
        &self,
        written: &Table,
        effective: &Config,
    ) -> BTreeMap<String, KeyOrigin> {
        let values = dotted_values(effective);
        let preset = |section: &str| {
            let name = written.get(section).and_then(|section| section.get("preset"));
            let name = name.or_else(|| values.get(&format!("{section}.preset")));
            name.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let origin = |key: &str| match self.written.get(key) {
            Some(Written::File(place)) => {
                KeyOrigin::File { path: place.path.clone(), line: place.position.0 }
            }
            Some(Written::Environment) => KeyOrigin::Environment,
            Some(Written::Set(_)) => KeyOrigin::Set,
            None => match preset_of(key) {
                Some(section) => KeyOrigin::Preset(preset(section)),
                None => KeyOrigin::Default,
            },
        };
        values.keys().map(|key| (key.clone(), origin(key))).collect()
    }
}

/// The section whose preset decides an unwritten `key`.
pub(super) fn preset_of(key: &str) -> Option<&str> {
    let (section, key) = key.split_once('.')?;
    (["model", "augment"].contains(&section) && key != "preset").then_some(section)
}
