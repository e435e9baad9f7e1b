//! Reading a configuration: files, then the environment variable, then `--set`; and where each
//! value was written, for errors and for `vim-train config show --origin`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::{Table, Value};
use toml_edit::{Document, Item, Key, TableLike};
use vim_config::{EXTENDS, Layer, Lines, Location, caret, layers, merge};
use vim_data::{DatasetKind, Recipe};
use vim_kernels::{KERNEL_VARIABLE, KernelChoice};
use vim_model::VimConfig;

use super::embedded::{self, is_embedded};
use super::error::Located;
use super::paths::{self, RecordedPaths};
use super::print::{dotted, dotted_values, preset_of};
use super::schema::{Node, check_names};
use super::versions::{self, OLDEST, VERSION, version_of};
use super::{Config, ConfigError, Origin, Problem, TaskKind};

/// A configuration, and where each of its values comes from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration, [effective](Config::effective).
    pub config: Config,
    /// What decided the value of every key that has one, in words: `x.toml:3`, `--set`, `default`.
    pub origins: BTreeMap<String, String>,
    written: Written,
}

impl Config {
    /// Reads and checks the configuration in `path`, a file's path or the name of an
    /// [embedded](super::embedded()) one; the assignments `sets` (`key=value`) override
    /// it. A file that describes several runs is an error.
    ///
    /// The result is [effective](Self::effective): extended files are merged, and variables in
    /// paths are filled in; those of a run's record are found where they were then, else as they
    /// were given. `VIM_USE_CUDA_KERNEL` overrides the file's `ssm.scan`, `sets` override
    /// both.
    pub fn load(path: &Path, sets: &[String]) -> Result<Self, ConfigError> {
        Ok(Loaded::run(path, sets)?.config)
    }

    /// As [`Config::load`]; of a file that describes several runs, the configuration without the
    /// grid.
    pub fn load_base(path: &Path, sets: &[String]) -> Result<Self, ConfigError> {
        Ok(Self { sweep: None, ..Self::load_sweep(path, sets)? })
    }

    /// As [`Config::load`], for a file that may describe several runs.
    pub fn load_sweep(path: &Path, sets: &[String]) -> Result<Self, ConfigError> {
        Ok(Loaded::read(path, sets)?.config)
    }

    /// The defaults with the assignments `sets`, checked as by [`Config::load`].
    pub fn from_defaults(sets: &[String]) -> Result<Self, ConfigError> {
        Ok(Loaded::defaults(sets)?.config)
    }

    /// Reads and checks a configuration in a text, which must extend nothing; the environment is
    /// ignored.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let config = decode(text).map_err(|(error, span)| {
            let caret = span.map(|span| caret(text, &span));
            ConfigError { caret, ..*error }
        })?;
        if !config.extends.is_empty() {
            return Err(ConfigError::new(EXTENDS, Problem::NoFolder));
        }
        Self::from_record(text, &RecordedPaths::default())
    }

    /// As [`Self::from_toml`], of what a run recorded: its paths are found as `recorded` says.
    pub(crate) fn from_record(text: &str, recorded: &RecordedPaths) -> Result<Self, ConfigError> {
        let mut table = text.parse::<Table>().map_err(|error| *syntax(&error).0)?;
        paths::take(&mut table);
        let given = recorded.find(&mut table, |_| false);
        Ok(Self { given, ..Self::resolve(table)? })
    }

    /// The [effective](Self::effective) configuration of the `written` keys, of any version, over
    /// the presets of their sections, checked.
    fn resolve(mut written: Table) -> Result<Self, ConfigError> {
        // First: what it fills in is as if it were written.
        versions::upgrade(&mut written);
        if let Some(Value::Table(section)) = written.get_mut("model") {
            VimConfig::fill_from_preset(section);
        }
        let dataset = written.get("data").and_then(|section| section.get("dataset"));
        let kind = dataset.and_then(|name| name.clone().try_into::<DatasetKind>().ok());
        let of_all_sizes = kind.unwrap_or_default().has_image_files();
        let task = written.get("task").and_then(|name| name.clone().try_into::<TaskKind>().ok());
        // The other tasks have augmentations of their own.
        let is_dense = task.is_some_and(|task| task != TaskKind::Classification);
        let augment = written.entry("augment").or_insert_with(|| Table::new().into());
        if let Value::Table(section) = augment {
            if is_dense {
                section.entry("preset").or_insert_with(|| "none".into());
            }
            Recipe::fill_from_preset(section, of_all_sizes);
        }
        let mut config = decode_table(&written)?;
        config.model.ssm = config.ssm;
        config.validate()?;
        Ok(config.effective())
    }
}

/// The configurations in `paths` and all files that they extend, none of which an output may
/// replace. What is wrong with them is told by whoever reads them.
pub(crate) fn config_inputs<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Vec<PathBuf> {
    let of_layers = |layers: Vec<Layer>| layers.into_iter().map(|layer| layer.path).collect();
    let files = |path: &PathBuf| layers(path).map_or_else(|_| vec![path.clone()], of_layers);
    paths.into_iter().flat_map(files).collect()
}

impl Loaded {
    /// As [`Config::load`].
    pub fn run(path: &Path, sets: &[String]) -> Result<Self, ConfigError> {
        let loaded = Self::read(path, sets)?;
        if loaded.config.sweep.is_none() {
            return Ok(loaded);
        }
        let file = path.display();
        let message = format!(
            "the file describes several runs: `vim-train sweep run {file}` trains them, and a file without this section is one run"
        );
        let origin = Origin::File { path: path.to_owned(), position: None };
        Err(ConfigError::new("sweep", Problem::Type(message)).at(origin))
    }

    /// Whether a file, `--set` or the environment sets `key`.
    pub(crate) fn sets(&self, key: &str) -> bool {
        self.written.places.contains_key(key)
    }

    /// Adds to `error` the place where its key was written.
    pub(crate) fn place(&self, error: ConfigError) -> ConfigError {
        self.written.place(error)
    }

    /// As [`Config::load_sweep`].
    pub fn read(path: &Path, sets: &[String]) -> Result<Self, ConfigError> {
        let layers = if is_embedded(path) { embedded::layers(path) } else { layers(path) };
        let layers = layers.map_err(|error| ConfigError::of_layer(error).with_meant(path))?;
        Self::of(&layers, path, KernelChoice::from_env(), sets)
    }

    /// As [`Config::from_defaults`].
    pub fn defaults(sets: &[String]) -> Result<Self, ConfigError> {
        Self::of(&[], Path::new(""), KernelChoice::from_env(), sets)
    }

    fn of(
        layers: &[Layer],
        path: &Path,
        environment: Option<KernelChoice>,
        sets: &[String],
    ) -> Result<Self, ConfigError> {
        let file = (!path.as_os_str().is_empty()).then(|| path.to_owned());
        let mut written = Written { file, places: BTreeMap::new() };
        let mut table = Table::new();
        for layer in layers {
            // Each layer is decoded by itself, so that an error names its file.
            decode_document(&layer.document).map_err(|(error, span)| match span {
                Some(span) => error.placed(Location::new(&layer.path, layer.text(), &span)),
                None => error.at(Origin::File { path: layer.path.clone(), position: None }),
            })?;
            let below = written.version(&table);
            merge(&mut table, &layer.table);
            let lines = Lines::new(layer.text());
            written.add_table(layer.document.as_table(), "", &layer.path, &lines);
            written.check_versions(below, &table)?;
        }
        if let Some(choice) = environment {
            assign(&mut table, &["ssm".into(), "scan".into()], choice.to_string().into())
                .map_err(|error| error.at(Origin::Environment))?;
            written.places.insert("ssm.scan".into(), (Origin::Environment, None));
        }
        for set in sets {
            let placed = |error: ConfigError| error.at(Origin::Set(set.clone()));
            let (path, value) = parse_assignment(set).map_err(placed)?;
            let below = written.version(&table);
            written.add_set(&path, &value, set);
            assign(&mut table, &path, value).map_err(placed)?;
            decode_table(&table).map_err(placed)?;
            written.check_versions(below, &table)?;
        }
        let mut given = paths::fill_in(&mut table, |error| written.place(error))?;
        // A run's record, whose keys `--set` may override.
        let is_set = |key: &str| matches!(written.places.get(key), Some((Origin::Set(_), _)));
        given.extend(RecordedPaths::beside(path)?.find(&mut table, is_set));
        let config = Config::resolve(table.clone()).map_err(|error| written.place(error))?;
        let config = Config { given, ..config };
        Ok(Self { origins: written.of_keys(&table, &config), config, written })
    }
}

/// Decodes a configuration; names are checked first, because the schema can suggest similar ones.
fn decode(text: &str) -> Result<Config, Located> {
    let document = Document::parse(text).map_err(|error| {
        let message = error.message().trim().replace('\n', ", ");
        (Box::new(ConfigError::new("", Problem::Syntax(message))), error.span())
    })?;
    decode_document(&document)
}

/// [`decode`] of a parsed text.
fn decode_document<S: AsRef<str>>(document: &Document<S>) -> Result<Config, Located> {
    check_version(document.as_table())?;
    check_names(document.as_table(), Node::root(), "")?;
    let decoder = toml::Deserializer::parse(document.raw()).map_err(|error| syntax(&error))?;
    serde_path_to_error::deserialize(decoder).map_err(|error| {
        let key = error.path().to_string();
        let error = error.into_inner();
        let message = in_plain_words(error.message());
        (Box::new(ConfigError::new(key, Problem::Type(message))), error.span())
    })
}

fn syntax(error: &toml::de::Error) -> Located {
    let message = error.message().replace('\n', ", ");
    (Box::new(ConfigError::new("", Problem::Syntax(message))), error.span())
}

/// Checks the version before the keys, because another version may have other keys.
fn check_version(table: &dyn TableLike) -> Result<(), Located> {
    let Some(item) = table.get("version") else { return Ok(()) };
    match item.as_integer() {
        Some(found) if !(OLDEST..=VERSION).any(|known| i64::try_from(known) == Ok(found)) => {
            Err((Box::new(ConfigError::new("version", Problem::Version(found))), item.span()))
        }
        // The decoder reports anything but an integer.
        Some(_) | None => Ok(()),
    }
}

/// A decoder's message without the names of Rust's types.
fn in_plain_words(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    let expected = match expected {
        "usize" | "u64" | "u32" => "an integer, 0 or more",
        "f64" => "a number",
        other if other.starts_with("struct ") => "a section",
        other => other,
    };
    format!("{found}, expected {expected}")
}

fn decode_table(table: &Table) -> Result<Config, ConfigError> {
    let text = toml::to_string(table).expect("invariant: a table has a TOML form");
    decode(&text).map_err(|(error, _)| *error)
}

/// Splits `key=value`; a value that is not TOML is a string: `--set data.path=/x` needs no quotes.
fn parse_assignment(set: &str) -> Result<(Vec<String>, Value), ConfigError> {
    let malformed = || ConfigError::new("", Problem::Assignment);
    let (key, value) = set.split_once('=').ok_or_else(malformed)?;
    let path = Key::parse(key.trim()).map_err(|_| malformed())?;
    let value = value.trim();
    let path = path.iter().map(|name| name.get().to_owned()).collect();
    Ok((path, value.parse().unwrap_or_else(|_| value.into())))
}

fn assign(mut table: &mut Table, path: &[String], value: Value) -> Result<(), ConfigError> {
    let (last, sections) = path.split_last().expect("invariant: a key has at least one part");
    if path.len() == 1 && last == EXTENDS {
        return Err(ConfigError::new(EXTENDS, Problem::NoFolder));
    }
    for (depth, name) in sections.iter().enumerate() {
        let item = table.entry(name).or_insert_with(|| Table::new().into());
        table = item.as_table_mut().ok_or_else(|| {
            let message = "this is a value, not a section".to_owned();
            ConfigError::new(path[..=depth].join("."), Problem::Type(message))
        })?;
    }
    table.insert(last.clone(), value);
    Ok(())
}

/// Where each key's value was written last, and that line of the file with the place marked.
#[derive(Clone, Debug)]
struct Written {
    /// The file that was asked for, if it was one.
    file: Option<PathBuf>,
    places: BTreeMap<String, (Origin, Option<String>)>,
}

impl Written {
    /// Adds every key that a file sets.
    fn add_table(&mut self, table: &dyn TableLike, prefix: &str, file: &Path, lines: &Lines<'_>) {
        for (key, item) in table.iter() {
            let path = if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
            if let Some(section) = item.as_table_like() {
                self.add_table(section, &path, file, lines);
            } else if let Some(span) = Item::span(item) {
                let Location { path: file, position, caret } = lines.location(file, &span);
                let origin = Origin::File { path: file, position: Some(position) };
                self.places.insert(path, (origin, Some(caret)));
            }
        }
    }

    /// Adds an assignment; one to a section replaces the whole section.
    fn add_set(&mut self, path: &[String], value: &Value, set: &str) {
        let key = path.join(".");
        let inside = format!("{key}.");
        self.places.retain(|other, _| *other != key && !other.starts_with(&inside));
        for name in dotted(value.clone()).into_keys() {
            let key = if name.is_empty() { key.clone() } else { format!("{inside}{name}") };
            self.places.insert(key, (Origin::Set(set.to_owned()), None));
        }
    }

    /// The version that is written in `table`, and where.
    fn version(&self, table: &Table) -> Option<(i64, Origin)> {
        let (origin, _) = self.places.get("version")?;
        Some((table.get("version")?.as_integer()?, origin.clone()))
    }

    /// Checks that `table` has the version that it had `below` what was written last.
    fn check_versions(
        &self,
        below: Option<(i64, Origin)>,
        table: &Table,
    ) -> Result<(), ConfigError> {
        let (Some((other, origin)), Some((version, _))) = (below, self.version(table)) else {
            return Ok(());
        };
        if other == version {
            return Ok(());
        }
        let place = match origin {
            Origin::File { .. } => format!("in {origin}"),
            Origin::Set(_) | Origin::Environment | Origin::Unknown => origin.to_string(),
        };
        Err(self.place(ConfigError::new("version", Problem::Versions { version, other, place })))
    }

    /// Adds to `error` the place where its key was written last.
    fn place(&self, error: ConfigError) -> ConfigError {
        let inside = format!("{}.", error.key);
        // An error about a whole section is placed at the section's first key.
        let first_inside = || {
            let mut keys = self.places.range(inside.clone()..);
            keys.next().filter(|(key, _)| key.starts_with(&inside)).map(|(_, place)| place)
        };
        match (self.places.get(&error.key).or_else(first_inside), &self.file) {
            (Some((origin, caret)), _) => {
                ConfigError { origin: origin.clone(), caret: caret.clone(), ..error }
            }
            (None, Some(path)) => error.at(Origin::File { path: path.clone(), position: None }),
            (None, None) => error,
        }
    }

    /// The origin of each key of `effective`, which was resolved from `table`.
    fn of_keys(&self, table: &Table, effective: &Config) -> BTreeMap<String, String> {
        let values = dotted_values(effective);
        // What an older version's file meant without writing it.
        let mut upgraded = table.clone();
        versions::upgrade(&mut upgraded);
        let (before, after) = (dotted(table.clone()), dotted(upgraded));
        let is_upgraded = |key: &str| after.get(key) != before.get(key);
        let preset = |section: &str| {
            let name = table.get(section).and_then(|section| section.get("preset"));
            let name = name.or_else(|| values.get(&format!("{section}.preset")));
            name.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let origin = |key: &str| match self.places.get(key) {
            _ if is_upgraded(key) => format!("version {}", version_of(table)),
            Some((Origin::File { path, position }, _)) => {
                format!("{}:{}", path.display(), position.unwrap_or_default().0)
            }
            Some((Origin::Environment, _)) => KERNEL_VARIABLE.to_owned(),
            Some((Origin::Set(_), _)) => "--set".to_owned(),
            Some((Origin::Unknown, _)) | None => match preset_of(key) {
                Some(section) => format!("preset {}", preset(section)),
                None => "default".to_owned(),
            },
        };
        values.keys().map(|key| (key.clone(), origin(key))).collect()
    }
}
