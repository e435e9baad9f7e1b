//! What the process finds around it: folders that the environment names.

use std::{env, path::PathBuf};

/// Folders outside the configuration. [`Surroundings::from_env`] is the process's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// A folder on the node's own disk, which archives are copied to: `$SLURM_TMPDIR`.
    pub node_disk: Option<PathBuf>,
    /// Where indexes are kept that cannot lie beside their data: `vim-train` in `$XDG_CACHE_HOME` or
    /// `~/.cache`.
    pub cache: Option<PathBuf>,
}

impl Surroundings {
    /// What the environment variables say now. Empty ones count as absent.
    #[must_use]
    pub fn from_env() -> Self {
        let folder = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
        Self {
            node_disk: folder("SLURM_TMPDIR"),
            cache: cache.map(|folder| folder.join("vim-train")),
        }
    }
}
