//! Where to look, in order.

use std::fs;
use std::path::{Path, PathBuf};

use crate::device::machine::Machine;

/// Variable that points to wheels: a virtual environment, `site-packages` or a `pip install
/// --target` folder.
pub const WHEELS: &str = "VIM_CUDA_WHEELS";

/// Variables that name a toolkit, by convention or set by environment modules (Lmod, EasyBuild,
/// Spack, NVIDIA's HPC SDK, Cray).
pub const VARIABLES: [&str; 13] = [
    "CUDA_PATH",
    "CUDA_HOME",
    "CUDA_ROOT",
    "CUDA_DIR",
    "CUDA_TOOLKIT_ROOT_DIR",
    "CUDATOOLKIT_HOME",
    "CUDATOOLKIT_ROOT",
    "CRAY_CUDATOOLKIT_DIR",
    "EBROOTCUDA",
    "EBROOTCUDACORE",
    "NVHPC_CUDA_HOME",
    "NVHPC_ROOT",
    "CONDA_PREFIX",
];

/// Where distributions and NVIDIA's installers put a toolkit.
const FOLDERS: [&str; 4] = ["usr/local/cuda", "opt/cuda", "usr/lib/cuda", "usr"];

/// A folder to search and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) folder: PathBuf,
    pub(super) origin: String,
}

/// Toolkits from variables, from the linker's search path, and from the usual folders.
pub(super) fn toolkits(machine: &Machine) -> Vec<Place> {
    let mut places = Vec::new();
    let mut add = |folder: PathBuf, origin: String| places.push(Place { folder, origin });
    for name in VARIABLES {
        let Some(folder) = machine.folder(name) else { continue };
        if name == "NVHPC_ROOT" {
            // The HPC SDK has its toolkits below it, one for each version.
            for below in newest_first(&folder.join("cuda"), "") {
                add(below, name.into());
            }
            add(folder.join("cuda"), name.into());
        } else {
            add(folder, name.into());
        }
    }
    for folder in machine.folders("LD_LIBRARY_PATH") {
        // TOOLKIT/lib64, or TOOLKIT/targets/x86_64-linux/lib.
        if let Some(toolkit) = folder.parent() {
            add(toolkit.to_owned(), "LD_LIBRARY_PATH".into());
        }
    }
    for usual in FOLDERS {
        let folder = machine.root.join(usual);
        add(folder.clone(), folder.display().to_string());
        if usual == "usr/local/cuda" {
            for versioned in newest_first(&machine.root.join("usr/local"), "cuda-") {
                add(versioned.clone(), versioned.display().to_string());
            }
        }
    }
    places
}

/// The folders in `folder` named `prefix` and a version, such as `cuda-12.6`, the newest first.
pub(super) fn newest_first(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found: Vec<(Vec<u32>, PathBuf)> = entries(folder)
        .into_iter()
        .filter_map(|(name, path)| {
            let version = name.strip_prefix(prefix)?.split('.').map(str::parse);
            Some((version.collect::<Result<_, _>>().ok()?, path))
        })
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, path)| path).collect()
}

/// Sorted names and paths in `folder`; empty if it cannot be read.
pub(super) fn entries(folder: &Path) -> Vec<(String, PathBuf)> {
    let mut found: Vec<_> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.file_name().into_string().ok()?, entry.path()))
        })
        .collect();
    found.sort();
    found
}
