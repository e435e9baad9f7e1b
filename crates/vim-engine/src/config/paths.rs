//! Paths in a configuration: what stands for others in them, and how a run records them.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, absolute};

use serde::{Deserialize, Serialize};
use toml::{Table, Value};
use vim_config::{ExpandError, escape, expand};
use vim_data::{InputKind, read_input};
use vim_run::{CONFIG, LOCK, PATHS};

use super::print::dotted_values;
use super::schema::path_keys;
use super::versions::version_of;
use super::{Config, ConfigError, Origin, Problem};

/// The version from which `~` and `$NAME` stand for something.
const EXPANDS: u64 = 3;

/// Keys that say where a run goes: a copy of its record must not lead there.
const OUTPUTS: [&str; 2] = ["run.root", "slurm.output"];

/// `paths.json`: the paths of a run by their keys, which are no part of what identifies it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct RecordedPaths(BTreeMap<String, RecordedPath>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RecordedPath {
    /// From the root.
    resolved: String,
    /// As the file or `--set` has it.
    given: String,
}

impl RecordedPaths {
    /// The paths of `config`, which a process in this folder loaded.
    pub(crate) fn of(config: &Config) -> Self {
        let values = dotted_values(config);
        let path = |key: String| {
            let text = values.get(&key)?.as_str()?;
            let resolved = absolute(text).ok()?;
            // A site, and the weights to start from, may be called by a name.
            let is_path = key.starts_with("data.") || key == "run.root" || resolved.exists();
            let given = config.given.get(&key).map_or(text, String::as_str).to_owned();
            let resolved = resolved.to_str().filter(|_| is_path && key != "slurm.output")?.into();
            Some((key, RecordedPath { resolved, given }))
        };
        Self(path_keys().filter_map(path).collect())
    }

    /// Those that the run recorded whose configuration is `file`; none of earlier versions, and of
    /// files that no run recorded.
    pub(crate) fn beside(file: &Path) -> Result<Self, ConfigError> {
        let path = file.with_file_name(PATHS);
        let is_of_run = file.file_name().is_some_and(|name| name == CONFIG)
            && file.with_file_name(LOCK).exists();
        if !is_of_run || !path.exists() {
            return Ok(Self::default());
        }
        let parsed = read_input(&path, InputKind::Record)
            .map_err(|error| error.to_string())
            .and_then(|bytes| serde_json::from_slice(&bytes).map_err(|error| error.to_string()));
        parsed.map_err(|why| {
            let why = format!("is damaged: {why}; remove it to go on with the paths of {CONFIG}");
            ConfigError::new("", Problem::Type(why)).at(Origin::File { path, position: None })
        })
    }

    /// Finds the files and folders of `table`, as the run recorded it: where they were, else where
    /// their paths as given lead today. Keys that `is_written` elsewhere stay; returns the paths as
    /// given of those that were found.
    pub(super) fn find(
        &self,
        table: &mut Table,
        is_written: impl Fn(&str) -> bool,
    ) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for (key, RecordedPath { resolved, given }) in &self.0 {
            let Some(text) = text_at(table, key) else { continue };
            // Else somebody has changed it since.
            let is_recorded =
                text == resolved || text == given || all_of(given).is_ok_and(|now| now == *text);
            if !is_recorded || is_written(key) || OUTPUTS.contains(&key.as_str()) {
                continue;
            }
            let ways = [Some(resolved.clone()), all_of(given).ok()];
            if let Some(found) = ways.into_iter().flatten().find(|path| Path::new(path).exists()) {
                if found != *given {
                    all.insert(key.clone(), given.clone());
                }
                *text = found;
            }
        }
        all
    }

    /// What is not where the run recorded it of whose configuration, `config`, `file` is; a line
    /// for each key.
    pub(crate) fn moved(file: &Path, config: &Config) -> Result<Vec<String>, ConfigError> {
        let values = dotted_values(config);
        let line = |(key, RecordedPath { resolved, given }): (&String, &RecordedPath)| {
            let now = values.get(key)?.as_str()?;
            let is_read = key.starts_with("data.") && key != "data.index_cache";
            let is_given = now == given || all_of(given).is_ok_and(|given| given == now);
            let here = absolute(now).ok().filter(|here| here != Path::new(resolved));
            let here = here.filter(|_| is_read && is_given && !Path::new(resolved).exists())?;
            let read = if here.exists() { "is read" } else { "is not there, either" };
            let here = here.display();
            Some(format!("{key}: `{resolved}`, as recorded, is not there; `{here}` {read}"))
        };
        Ok(Self::beside(file)?.0.iter().filter_map(line).collect())
    }

    /// Whether the paths `recorded` and `now` of `key` lead to one place, which the run recorded or
    /// which they lead to from here.
    pub(crate) fn are_one(&self, key: &str, recorded: &Value, now: &Value) -> bool {
        let from_here = |value: &Value| absolute(value.as_str()?).ok();
        let Some(now) = from_here(now).filter(|_| path_keys().any(|path| path == key)) else {
            return false;
        };
        let resolved = self.0.get(key).map(|path| Path::new(&path.resolved).to_owned());
        from_here(recorded).as_ref() == Some(&now) || resolved == Some(now)
    }
}

fn all_of(text: &str) -> Result<String, ExpandError> {
    expand(text, |name| env::var(name).ok())
}

/// The text at `key`, if it is there.
fn text_at<'a>(table: &'a mut Table, key: &str) -> Option<&'a mut String> {
    let mut names = key.split('.');
    let section = table.get_mut(names.next()?)?;
    match names.try_fold(section, |item, name| item.get_mut(name))? {
        Value::String(text) => Some(text),
        Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Array(_)
        | Value::Table(_) => None,
    }
}

/// Expands variables and the home folder in path keys; returns what was given where that differs.
/// In files of versions before [`EXPANDS`] nothing but `${NAME}` stood for something.
pub(super) fn fill_in(
    table: &mut Table,
    place: impl Fn(ConfigError) -> ConfigError,
) -> Result<BTreeMap<String, String>, ConfigError> {
    let is_old = version_of(table) < EXPANDS;
    let mut given = BTreeMap::new();
    for key in path_keys() {
        let Some(text) = text_at(table, &key) else { continue };
        let expanded = match is_old {
            true => {
                // A `~` stood for itself in a default, too.
                let plain = |(at, piece): (usize, &str)| match piece.split_once('}') {
                    Some((name, rest)) if at > 0 => {
                        let name = escape(name).replacen(":-~", ":-./~", 1);
                        format!("{name}}}{}", rest.replace('$', "$$"))
                    }
                    _ => escape(piece),
                };
                all_of(&text.split("${").enumerate().map(plain).collect::<Vec<_>>().join("${"))
            }
            false => all_of(text),
        };
        let expanded =
            expanded.map_err(|error| place(ConfigError::new(&key, Problem::Variable(error))))?;
        if *text != expanded {
            given.insert(key, std::mem::replace(text, expanded));
        }
    }
    Ok(given)
}

/// Takes the paths of a printed configuration as they were printed, without the environment.
pub(super) fn take(table: &mut Table) {
    if version_of(table) >= EXPANDS {
        for key in path_keys() {
            if let Some(text) = text_at(table, &key) {
                *text = text.replace("$$", "$");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_printed_means_the_same() {
        let config = |path: &str| {
            let mut config = Config::default();
            config.run.root = path.into();
            config
        };
        for path in ["/data/$x/${y}/$$", "plain", "/a$"] {
            let text = config(path).to_toml();
            assert_eq!(Config::from_toml(&text).unwrap().run.root, Path::new(path), "{text}");
        }
        assert!(config("~/x").to_toml().contains("root = \"./~/x\""));
        // Of a version in which it was plain text.
        let old = Config::from_toml("version = 2\nrun.root = \"/a/$$x\"").unwrap();
        assert_eq!(old.run.root, Path::new("/a/$$x"));
    }

    #[test]
    fn a_record_is_found_where_it_was_then_as_given() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        fs::create_dir(at("photos")).unwrap();
        let recorded = |resolved: &str, given: &str| {
            let (resolved, given) = (resolved.to_owned(), given.to_owned());
            let path = RecordedPath { resolved, given };
            let keys = ["data.path", "run.root"];
            RecordedPaths(keys.map(|key| (key.to_owned(), path.clone())).into())
        };
        let found = |paths: &RecordedPaths, text: &str, set: bool| {
            let mut table = Table::new();
            for (section, key) in [("data", "path"), ("run", "root")] {
                let keys = Table::from_iter([(key.to_owned(), Value::from(text))]);
                table.insert(section.to_owned(), keys.into());
            }
            paths.find(&mut table, |_| set);
            assert_eq!(table["run"]["root"].as_str(), Some(text), "a run stays where it is");
            table["data"]["path"].as_str().unwrap().to_owned()
        };
        let whole = recorded(&at("photos"), "../photos");
        assert_eq!(found(&whole, "../photos", false), at("photos"));
        assert_eq!(found(&whole, "../photos", true), "../photos", "--set counts");
        assert_eq!(found(&whole, "../others", false), "../others", "edited since");
        let moved = recorded(&at("gone"), &at("photos"));
        assert_eq!(found(&moved, &at("gone"), false), at("photos"));
        let gone = recorded(&at("gone"), "../nowhere-at-all");
        assert_eq!(found(&gone, "../nowhere-at-all", false), "../nowhere-at-all");
        let one =
            |recorded: &str, now: &str| whole.are_one("data.path", &recorded.into(), &now.into());
        assert!(one("../photos", &at("photos")) && one("x", "./x") && !one("x", "y"));
        assert!(!whole.are_one("run.name", &"x".into(), &"./x".into()));
        // Said of a run's file alone, and where its data are gone.
        let said = |paths: &RecordedPaths, path: &str| {
            fs::write(at(PATHS), serde_json::to_string(paths).unwrap()).unwrap();
            let mut config = Config::default();
            config.data.path = Some(path.into());
            RecordedPaths::moved(Path::new(&at(CONFIG)), &config).unwrap()
        };
        assert!(said(&moved, &at("photos")).is_empty());
        fs::write(at(LOCK), "").unwrap();
        let [gone_to, here] = [at("gone"), at("photos")];
        let line = format!("data.path: `{gone_to}`, as recorded, is not there; `{here}` is read");
        assert_eq!(said(&moved, &at("photos")), [line]);
        assert!(said(&gone, "../nowhere-at-all")[0].ends_with("is not there, either"));
        assert!(said(&whole, &at("photos")).is_empty() && said(&moved, "/other").is_empty());
    }
}
