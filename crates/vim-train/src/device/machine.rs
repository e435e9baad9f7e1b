//! The environment variables and files that a search sees; tests make their own.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use vim_data::EnvPaths;

/// Environment variables and a tree of files.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Environment variables.
    pub variables: BTreeMap<String, OsString>,
    /// Root of paths such as `/usr`: `/`.
    pub root: PathBuf,
    /// The cache folder.
    pub cache: Option<PathBuf>,
}

impl Machine {
    /// The real machine.
    pub fn this() -> Self {
        let variables = env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .collect();
        Self { variables, root: "/".into(), cache: EnvPaths::from_env().cache }
    }

    /// A variable's text; an empty one counts as absent.
    pub fn text(&self, name: &str) -> Option<String> {
        let value = self.variables.get(name)?.to_string_lossy();
        (!value.is_empty()).then(|| value.into_owned())
    }

    /// The folder that a variable names; an empty one counts as absent.
    pub fn folder(&self, name: &str) -> Option<PathBuf> {
        self.variables.get(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// The folders of a variable such as `PATH`.
    pub fn folders(&self, name: &str) -> Vec<PathBuf> {
        let value = self.variables.get(name).map(OsString::as_os_str).unwrap_or_default();
        env::split_paths(value).filter(|path| !path.as_os_str().is_empty()).collect()
    }

    /// The content of a file such as `proc/meminfo`, below the root.
    pub fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }
}
