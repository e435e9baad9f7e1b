//! Access to image files in folders, archives and packs, and their copies on the node's disk.

pub(crate) mod apart;
pub(crate) mod cache;
pub(crate) mod each;
pub(crate) mod folder;
pub(crate) mod halves;
pub(crate) mod heads;
pub(crate) mod images;
pub(crate) mod index;
mod labels;
pub(crate) mod layout;
pub(crate) mod pack;
pub(crate) mod staging;
mod tars;
pub(crate) mod texts;
pub(crate) mod zips;

use std::{env, path::PathBuf};

/// Folders outside the configuration. [`EnvPaths::from_env`] reads those of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvPaths {
    /// A folder on the node's own disk for copies of archives: `$SLURM_TMPDIR`.
    pub node_disk: Option<PathBuf>,
    /// Where indexes are cached if the data's folder is not writable: `vim-train` in
    /// `$XDG_CACHE_HOME` or `~/.cache`.
    pub cache: Option<PathBuf>,
}

impl EnvPaths {
    /// Reads the environment variables; empty ones count as absent.
    pub fn from_env() -> Self {
        let folder = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
        Self {
            node_disk: folder("SLURM_TMPDIR"),
            cache: cache.map(|folder| folder.join("vim-train")),
        }
    }
}
