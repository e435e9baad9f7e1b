//! Reading a configuration: files, then the environment variable, then `--set`.

use std::collections::BTreeMap;
use std::path::Path;

use toml::{Table, Value};
use toml_edit::Key;
use vim_config::{
    EXTENDS, Layer, LayerError, LayerProblem, Location, caret, expand, layers, merge,
};
use vim_data::Recipe;
use vim_kernels::KernelChoice;
use vim_model::VimConfig;

use super::document::{decode, print_with_origins, syntax};
use super::origins::{Origins, Written};
use super::schema::path_keys;
use super::{Config, ConfigError, KeyOrigin, Origin, Problem};

/// A configuration, and where each of its values comes from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration, [effective](Config::effective).
    pub config: Config,
    /// Where the value of every key that has one was decided.
    pub origins: BTreeMap<String, KeyOrigin>,
    written: Origins,
}

impl Config {
    /// Reads and checks the configuration in `path`; the assignments `sets` (`key=value`) override
    /// it. A file that describes several runs is an error.
    ///
    /// The result is [effective](Self::effective): extended files are merged, and variables in
    /// paths are filled in. `VIM_USE_CUDA_KERNEL` overrides the file's `ssm.scan`, `sets` override
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
        let table = text.parse::<Table>().map_err(|error| *syntax(&error).0)?;
        Self::resolve(table)
    }

    /// The [effective](Self::effective) configuration of the `written` keys over the presets of
    /// their sections, checked.
    fn resolve(mut written: Table) -> Result<Self, ConfigError> {
        if let Some(Value::Table(section)) = written.get_mut("model") {
            VimConfig::fill_from_preset(section);
        }
        if let Some(Value::Table(section)) = written.get_mut("augment") {
            Recipe::fill_from_preset(section);
        }
        let mut config = decode_table(&written)?;
        config.model.ssm = config.ssm;
        config.validate()?;
        Ok(config.effective())
    }
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
        Err(ConfigError::new("sweep", Problem::Type { message }).at(origin))
    }

    /// Whether a file, `--set` or the environment sets `key`.
    pub(crate) fn sets(&self, key: &str) -> bool {
        self.written.sets(key)
    }

    /// Adds to `error` the place where its key was written.
    pub(crate) fn place(&self, error: ConfigError) -> ConfigError {
        self.written.place(error)
    }

    /// As [`Config::load_sweep`].
    pub fn read(path: &Path, sets: &[String]) -> Result<Self, ConfigError> {
        let layers = layers(path).map_err(ConfigError::of_layer)?;
        Self::of(&layers, path, KernelChoice::from_env(), sets)
    }

    /// As [`Config::from_defaults`].
    pub fn defaults(sets: &[String]) -> Result<Self, ConfigError> {
        Self::of(&[], Path::new(""), KernelChoice::from_env(), sets)
    }

    /// As [`Config::to_toml`], with the origin of each value as a comment.
    pub fn to_toml_with_origins(&self) -> String {
        print_with_origins(&self.config, &self.origins)
    }

    fn of(
        layers: &[Layer],
        path: &Path,
        environment: Option<KernelChoice>,
        sets: &[String],
    ) -> Result<Self, ConfigError> {
        let mut origins = Origins::of_file(path);
        let mut table = Table::new();
        for layer in layers {
            // Each layer is decoded by itself, so that an error names its file.
            decode(&layer.text).map_err(|(error, span)| match span {
                Some(span) => error.placed(Location::new(&layer.path, &layer.text, &span)),
                None => error.at(Origin::File { path: layer.path.clone(), position: None }),
            })?;
            merge(&mut table, &layer.table);
            origins.add_layer(layer);
        }
        if let Some(choice) = environment {
            assign(&mut table, &["ssm".into(), "scan".into()], choice.to_string().into())
                .map_err(|error| error.at(Origin::Environment))?;
            origins.add("ssm.scan", Written::Environment);
        }
        for set in sets {
            let placed = |error: ConfigError| error.at(Origin::Set(set.clone()));
            let (path, value) = parse_assignment(set).map_err(placed)?;
            origins.add_set(&path, &value, set);
            assign(&mut table, &path, value).map_err(placed)?;
            decode_table(&table).map_err(placed)?;
        }
        fill_in_paths(&mut table, &origins)?;
        let config = Config::resolve(table.clone()).map_err(|error| origins.place(error))?;
        Ok(Self { origins: origins.of_keys(&table, &config), config, written: origins })
    }
}

fn decode_table(table: &Table) -> Result<Config, ConfigError> {
    let text = toml::to_string(table).expect("invariant: a table has a TOML form");
    decode(&text).map_err(|(error, _)| *error)
}

/// Expands environment variables in path keys.
fn fill_in_paths(table: &mut Table, origins: &Origins) -> Result<(), ConfigError> {
    for key in path_keys() {
        let mut names = key.split('.');
        let section = names.next().and_then(|name| table.get_mut(name));
        let item = section.and_then(|item| names.try_fold(item, |item, name| item.get_mut(name)));
        let Some(Value::String(text)) = item else { continue };
        *text = expand(text, |name| std::env::var(name).ok())
            .map_err(|error| origins.place(ConfigError::new(key, Problem::Variable(error))))?;
    }
    Ok(())
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
            ConfigError::new(path[..=depth].join("."), Problem::Type { message })
        })?;
    }
    table.insert(last.clone(), value);
    Ok(())
}

impl ConfigError {
    /// The same problem, at a place in a file.
    pub(super) fn placed(self, place: Location) -> Self {
        let caret = Some(place.caret);
        let origin = Origin::File { path: place.path, position: Some(place.position) };
        Self { origin, caret, ..self }
    }

    /// The configuration error of a file, or of the files that it extends.
    fn of_layer(error: LayerError) -> Self {
        let LayerError { path, location, problem } = error;
        let (key, problem) = match problem {
            LayerProblem::Read(error) => ("", Problem::Read(error)),
            LayerProblem::Syntax { message } => ("", Problem::Syntax { message }),
            LayerProblem::Variable(error) => (EXTENDS, Problem::Variable(*error)),
            LayerProblem::Base { .. } | LayerProblem::Names | LayerProblem::Cycle { .. } => {
                (EXTENDS, Problem::Extends(problem))
            }
        };
        let error = Self::new(key, problem);
        match location {
            Some(location) => error.placed(location),
            None => error.at(Origin::File { path, position: None }),
        }
    }
}

/// Every key that is set in `config`, by its path.
pub(crate) fn dotted_values(config: &Config) -> BTreeMap<String, Value> {
    dotted(Table::try_from(config).expect("invariant: a configuration has a TOML form"))
}

/// Every key that is set in `value`, by its path; the path is empty if `value` is no table.
pub(crate) fn dotted(value: impl Into<Value>) -> BTreeMap<String, Value> {
    fn collect(prefix: &str, value: Value, into: &mut BTreeMap<String, Value>) {
        if let Value::Table(table) = value {
            for (key, value) in table {
                let path = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
                collect(&path, value, into);
            }
        } else {
            into.insert(prefix.to_owned(), value);
        }
    }
    let mut values = BTreeMap::new();
    collect("", value.into(), &mut values);
    values
}
