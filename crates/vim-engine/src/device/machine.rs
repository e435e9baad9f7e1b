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
    /// The file of this program, not a link to it.
    pub executable: Option<PathBuf>,
}

impl Machine {
    /// The real machine.
    pub fn this() -> Self {
        let variables = env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .collect();
        Self {
            variables,
            root: "/".into(),
            cache: EnvPaths::from_env().cache,
            executable: env::current_exe().and_then(fs::canonicalize).ok(),
        }
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

    /// The CUDA driver's cache of machine code by GPU, driver and kernel; `None` if disabled.
    ///
    /// # Source
    ///
    /// CUDA Programming Guide, "CUDA Environment Variables": `CUDA_CACHE_DISABLE`,
    /// `CUDA_CACHE_PATH`.
    pub fn code_cache(&self) -> Option<PathBuf> {
        if self.text("CUDA_CACHE_DISABLE").is_some_and(|value| value != "0") {
            return None;
        }
        let named = self.folder("CUDA_CACHE_PATH");
        named.or_else(|| Some(self.folder("HOME")?.join(".nv/ComputeCache")))
    }
}

/// Bytes of all files below `folder`.
pub fn size(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(data) if data.is_dir() => size(&entry.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(variables: &[(&str, &str)]) -> Option<PathBuf> {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Machine { variables: variables.collect(), ..Machine::default() }.code_cache()
    }

    #[test]
    fn the_driver_is_told_by_variables() {
        let home = ("HOME", "/home/a");
        assert_eq!(folder_with(&[home]), Some("/home/a/.nv/ComputeCache".into()));
        let elsewhere = [home, ("CUDA_CACHE_PATH", "/scratch/c"), ("CUDA_CACHE_DISABLE", "0")];
        assert_eq!(folder_with(&elsewhere), Some("/scratch/c".into()));
        assert_eq!(folder_with(&[home, ("CUDA_CACHE_DISABLE", "1")]), None);
        assert_eq!(folder_with(&[]), None);
    }

    #[test]
    fn sizes_are_those_of_files_at_any_depth() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("a/b/x"), [0; 100]).unwrap();
        fs::write(folder.path().join("y"), [0; 11]).unwrap();
        assert_eq!(size(folder.path()), 111);
        assert_eq!(size(&folder.path().join("none")), 0);
    }
}
