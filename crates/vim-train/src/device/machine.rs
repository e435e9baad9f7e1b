//! What a search sees of the machine: its variables and its files. A test makes its own.

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
    /// What paths such as `/usr` are below: `/`.
    pub root: PathBuf,
    /// The folder for what can be made again.
    pub cache: Option<PathBuf>,
}

impl Machine {
    /// This one, as this process sees it.
    #[must_use]
    pub fn this() -> Self {
        let variables = env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .collect();
        Self { variables, root: "/".into(), cache: EnvPaths::from_env().cache }
    }

    /// A variable's text; an empty one counts as absent.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        let value = self.variables.get(name)?.to_string_lossy();
        (!value.is_empty()).then(|| value.into_owned())
    }

    /// The folder that a variable names; an empty one counts as absent.
    #[must_use]
    pub fn folder(&self, name: &str) -> Option<PathBuf> {
        self.variables.get(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// The folders of a variable such as `PATH`.
    #[must_use]
    pub fn folders(&self, name: &str) -> Vec<PathBuf> {
        let value = self.variables.get(name).map(OsString::as_os_str).unwrap_or_default();
        env::split_paths(value).filter(|path| !path.as_os_str().is_empty()).collect()
    }

    /// The content of a file such as `proc/meminfo`, below the root.
    #[must_use]
    pub fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }
}
