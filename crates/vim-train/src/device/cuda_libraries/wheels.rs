//! NVIDIA's wheels from PyPI, found without running Python.
//!
//! CUDA 13: one tree, `nvidia/cu13/{lib,include}`, like a toolkit. CUDA 12: one folder per wheel,
//! `nvidia/cuda_nvrtc/lib`, `nvidia/{cuda_runtime,cuda_nvcc,cuda_cccl}/include`.

use std::path::{Path, PathBuf};

use super::places::{Place, WHEELS, entries, newest_first};
use crate::device::machine::Machine;

/// The folders of `site-packages` of the Pythons in sight, [`WHEELS`] first.
pub(super) fn sites(machine: &Machine) -> Vec<Place> {
    let mut sites = Vec::new();
    for name in [WHEELS, "VIRTUAL_ENV", "CONDA_PREFIX"] {
        if let Some(folder) = machine.folder(name) {
            add_sites(&mut sites, &folder, name);
        }
    }
    for folder in machine.folders("PYTHONPATH") {
        add_sites(&mut sites, &folder, "PYTHONPATH");
    }
    for folder in machine.folders("PATH") {
        if let (true, Some(prefix)) = (folder.join("python3").exists(), folder.parent()) {
            add_sites(&mut sites, prefix, "python3 on PATH");
        }
    }
    if let Some(home) = machine.folder("HOME") {
        add_sites(&mut sites, &home.join(".local"), "~/.local");
    }
    sites
}

/// Folders with wheels: `folder` itself, or those of its Pythons.
fn add_sites(sites: &mut Vec<Place>, folder: &Path, origin: &str) {
    let mut add = |site: PathBuf| {
        if site.join("nvidia").is_dir() && !sites.iter().any(|known| known.folder == site) {
            sites.push(Place { folder: site, origin: origin.to_owned() });
        }
    };
    add(folder.to_owned());
    let lib = folder.join("lib");
    for python in newest_first(&lib, "python") {
        add(python.join("site-packages"));
        // Debian's name of `site-packages`.
        add(python.join("dist-packages"));
    }
}

/// The wheels of CUDA 13 and later in a site: toolkits, the newest first.
pub(super) fn toolkits(site: &Path) -> Vec<PathBuf> {
    newest_first(&site.join("nvidia"), "cu")
}

/// Library folder of the NVRTC wheel of CUDA 12.
pub(super) fn library_folder(site: &Path) -> PathBuf {
    site.join("nvidia/cuda_nvrtc/lib")
}

/// Header folders of the CUDA 12 wheels, the C++ core libraries last.
pub(super) fn header_folders(site: &Path) -> Vec<PathBuf> {
    let mut wheels: Vec<PathBuf> = entries(&site.join("nvidia"))
        .into_iter()
        .filter(|(name, _)| {
            ["cuda_runtime", "cuda_nvcc", "cuda_crt", "cuda_cccl"].contains(&name.as_str())
        })
        .map(|(_, path)| path.join("include"))
        .filter(|include| include.is_dir())
        .collect();
    wheels.sort_by_key(|path| path.to_string_lossy().contains("cuda_cccl"));
    wheels
}
