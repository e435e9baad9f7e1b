//! Where to look, in order, and how the libraries and headers are laid out there.
//!
//! NVIDIA's wheels from PyPI are found without running Python. CUDA 13: one tree,
//! `nvidia/cu13/{lib,include}`, like a toolkit. CUDA 12: one folder per wheel,
//! `nvidia/cuda_nvrtc/lib`, `nvidia/{cuda_runtime,cuda_nvcc,cuda_cccl}/include`.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::version::CudaVersion;
use crate::device::machine::Machine;

/// Variable that points to wheels: a virtual environment, `site-packages` or a `pip install
/// --target` folder.
pub const WHEELS: &str = "VIM_CUDA_WHEELS";

/// Origin of the wheels in the environment that the program itself is installed in.
pub(super) const OWN: &str = "vim-train's own environment";

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

/// The folders of `site-packages` of the Pythons in sight, [`WHEELS`] first, then [`OWN`].
pub(super) fn sites(machine: &Machine) -> Vec<Place> {
    let mut sites = Vec::new();
    if let Some(folder) = machine.folder(WHEELS) {
        add_sites(&mut sites, &folder, WHEELS);
    }
    // pip, pipx and uv install the program as ENVIRONMENT/bin/vim-train; a job script may call it
    // by its path, in no environment.
    let own = machine.executable.as_deref().and_then(|file| file.parent()?.parent());
    if let Some(environment) = own {
        add_sites(&mut sites, environment, OWN);
    }
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
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
pub(super) fn wheel_toolkits(site: &Path) -> Vec<PathBuf> {
    newest_first(&site.join("nvidia"), "cu")
}

/// Library folder of the NVRTC wheel of CUDA 12.
pub(super) fn wheel_library_folder(site: &Path) -> PathBuf {
    site.join("nvidia/cuda_nvrtc/lib")
}

/// Header folders of the CUDA 12 wheels, the C++ core libraries last.
pub(super) fn wheel_header_folders(site: &Path) -> Vec<PathBuf> {
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

/// NVRTC versions whose library names the bindings try.
const MAJORS: [u32; 3] = [13, 12, 11];

/// A library of NVRTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nvrtc {
    pub(super) path: PathBuf,
    pub(super) version: String,
}

/// The libraries of NCCL in sight: named by variables, in search paths, toolkits and wheels.
pub(super) fn nccl(machine: &Machine) -> Vec<PathBuf> {
    let variables = ["NCCL_HOME", "EBROOTNCCL", "NCCL_ROOT"].into_iter();
    let named = variables.filter_map(|name| machine.folder(name)).map(|root| root.join("lib"));
    let wheels = sites(machine).into_iter().map(|site| site.folder.join("nvidia/nccl/lib"));
    let toolkits = toolkits(machine).into_iter().flat_map(|place| library_folders(&place.folder));
    let folders = named.chain(machine.folders("LD_LIBRARY_PATH")).chain(wheels).chain(toolkits);
    let mut files: Vec<PathBuf> = Vec::new();
    for file in folders.map(|folder| folder.join("libnccl.so.2")).filter(|file| file.exists()) {
        if !files.contains(&file) {
            files.push(file);
        }
    }
    files
}

/// Library subfolders of a toolkit: NVIDIA's installer, distributions, conda.
pub(super) fn library_folders(toolkit: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = ["lib64", "lib"].map(|name| toolkit.join(name)).into();
    folders.push(toolkit.join(format!("lib/{}-linux-gnu", std::env::consts::ARCH)));
    folders.extend(targets(toolkit).into_iter().map(|target| target.join("lib")));
    folders
}

/// The folders of a toolkit that may have an `include`.
pub(super) fn header_roots(toolkit: &Path) -> Vec<PathBuf> {
    let mut roots = vec![toolkit.to_owned()];
    roots.extend(targets(toolkit));
    roots
}

/// A toolkit's folder for this processor, such as `targets/x86_64-linux`.
fn targets(toolkit: &Path) -> Vec<PathBuf> {
    let names: &[&str] = match std::env::consts::ARCH {
        "aarch64" => &["sbsa-linux", "aarch64-linux"],
        _ => &["x86_64-linux"],
    };
    names.iter().map(|name| toolkit.join("targets").join(name)).collect()
}

/// The newest library of NVRTC in `folder`.
pub(super) fn nvrtc_in(folder: &Path) -> Option<Nvrtc> {
    let entries = entries(folder);
    // The companion library's name has the full version, the library's only the major one.
    let companion = |major: u32| {
        entries.iter().find_map(|(name, _)| {
            let version = name.strip_prefix("libnvrtc-builtins.so.")?;
            (major_of(version) == Some(major)).then(|| version.to_owned())
        })
    };
    MAJORS.into_iter().find_map(|major| {
        let path = folder.join(format!("libnvrtc.so.{major}"));
        let real = fs::canonicalize(&path).ok()?;
        let name = real.file_name()?.to_str()?;
        let version = name.strip_prefix("libnvrtc.so.").filter(|version| version.contains('.'));
        let version = version.map(str::to_owned).or_else(|| companion(major));
        Some(Nvrtc { path, version: version.unwrap_or_else(|| major.to_string()) })
    })
}

/// The number before a version's first dot.
pub(super) fn major_of(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

/// The version of the headers in `include`, as `cuda.h` defines it.
pub(super) fn headers_version(include: &Path) -> Option<String> {
    let mut start = String::new();
    // `cuda.h` is a megabyte; the definition is near its start.
    let file = File::open(include.join("cuda.h")).ok()?;
    file.take(100_000).read_to_string(&mut start).ok()?;
    let line = start.lines().find_map(|line| line.trim().strip_prefix("#define CUDA_VERSION "))?;
    let number: u32 = line.trim().parse().ok()?;
    Some(CudaVersion::of_number(number).to_string())
}

/// Headers that the kernels of this program and of Burn include, directly or indirectly.
const NEEDED: [&str; 6] =
    ["cuda_fp16.h", "cuda_bf16.h", "mma.h", "crt/mma.h", "cooperative_groups.h", "cuda_runtime.h"];

/// A header of the C++ core libraries; from CUDA 13 on these are in a folder `cccl`.
const CCCL: &str = "nv/target";

/// Headers missing from all folders; their `cccl` subfolders are searched too.
pub(super) fn absent(folders: &[PathBuf]) -> Vec<&'static str> {
    let has = |header: &str| folders.iter().any(|folder| folder.join(header).is_file());
    let mut absent: Vec<&str> = NEEDED.into_iter().filter(|header| !has(header)).collect();
    if !has(CCCL) && !has(&format!("cccl/{CCCL}")) {
        absent.push(CCCL);
    }
    absent
}

/// Whether `root/include` has them all.
pub(super) fn complete(root: &Path) -> bool {
    absent(&[root.join("include")]).is_empty()
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
