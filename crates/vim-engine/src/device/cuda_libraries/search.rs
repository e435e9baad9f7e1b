//! Chooses NVRTC and headers among the places.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::places::{
    Nvrtc, OWN, Place, VARIABLES, WHEELS, absent, complete, entries, header_roots, headers_version,
    library_folders, major_of, nvrtc_in, sites, toolkits, wheel_header_folders,
    wheel_library_folder, wheel_toolkits,
};
use super::version::{CudaVersion, newest_cuda, remedy};
use super::{CudaError, Libraries};
use crate::device::machine::Machine;

/// The contents of a place.
struct Candidate {
    place: Place,
    nvrtc: Option<Nvrtc>,
    headers: Headers,
}

impl Candidate {
    /// Whether a driver that runs CUDA `newest` loads nothing that this NVRTC compiles.
    fn is_too_new(&self, newest: Option<CudaVersion>) -> bool {
        let nvrtc = self.nvrtc.as_ref().and_then(|nvrtc| CudaVersion::of(&nvrtc.version));
        matches!((newest, nvrtc), (Some(newest), Some(nvrtc)) if !newest.loads(nvrtc))
    }
}

/// Headers found, or missing.
enum Headers {
    /// All in the `include` of this folder.
    In(PathBuf),
    /// All, in several folders.
    Spread(Vec<PathBuf>),
    Absent(Vec<&'static str>),
}

impl Headers {
    /// Version of the first folder's headers.
    fn version(&self) -> Option<String> {
        match self {
            Self::In(root) => headers_version(&root.join("include")),
            Self::Spread(folders) => folders.iter().find_map(|folder| headers_version(folder)),
            Self::Absent(_) => None,
        }
    }

    fn are_there(&self) -> bool {
        !matches!(self, Self::Absent(_))
    }
}

/// Finds NVRTC and its headers in `VIM_CUDA_WHEELS`, in the wheels beside the program, in toolkits
/// (named by variables, or in the usual folders), and in the wheels of visible Pythons. The first
/// place with both wins, else a library and headers of the same major version, else any. Places
/// whose NVRTC is newer than the driver come after all others: nothing runs with them.
pub fn search(machine: &Machine) -> Result<Libraries, CudaError> {
    let mut candidates = candidates(machine);
    let newest = newest_by_version(machine);
    // Otherwise in their order: the sort is stable.
    candidates.sort_by_key(|one| one.is_too_new(newest));
    let both = candidates.iter().find(|one| one.nvrtc.is_some() && one.headers.are_there());
    let (library, headers) = match both {
        Some(candidate) => (candidate, candidate),
        None => pair(&candidates).ok_or_else(|| missing(machine, &candidates))?,
    };
    let Some(nvrtc) = &library.nvrtc else { return Err(missing(machine, &candidates)) };
    let headers_version = headers.headers.version();
    let root = match &headers.headers {
        Headers::In(root) => root.clone(),
        Headers::Spread(folders) => {
            let cache = machine.cache.clone().unwrap_or_else(std::env::temp_dir);
            let version = headers_version.as_deref().unwrap_or("unknown");
            merge(folders, &cache, version).map_err(|source| CudaError::Merge {
                wheels: headers.place.folder.clone(),
                path: cache,
                source,
            })?
        }
        Headers::Absent(_) => return Err(missing(machine, &candidates)),
    };
    let origin = if library.place == headers.place {
        library.place.origin.clone()
    } else {
        format!("{}, headers: {}", library.place.origin, headers.place.origin)
    };
    Ok(Libraries {
        nvrtc: nvrtc.path.clone(),
        nvrtc_version: nvrtc.version.clone(),
        root,
        headers_version,
        origin,
    })
}

/// A library and headers from different places: of one major version, else the first of each.
fn pair(candidates: &[Candidate]) -> Option<(&Candidate, &Candidate)> {
    let libraries = || candidates.iter().filter(|one| one.nvrtc.is_some());
    let headers = || candidates.iter().filter(|one| one.headers.are_there());
    let matching = libraries().find_map(|library| {
        let major = major_of(&library.nvrtc.as_ref()?.version);
        let fits = |one: &&Candidate| one.headers.version().as_deref().and_then(major_of) == major;
        Some((library, headers().find(fits)?))
    });
    matching.or_else(|| Some((libraries().next()?, headers().next()?)))
}

/// The contents of each place, in order of priority.
fn candidates(machine: &Machine) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    let (named, others): (Vec<_>, Vec<_>) =
        sites(machine).into_iter().partition(|site| site.origin == WHEELS || site.origin == OWN);
    for site in named {
        of_wheels(&mut candidates, site);
    }
    for place in toolkits(machine) {
        of_toolkit(&mut candidates, place);
    }
    for site in others {
        of_wheels(&mut candidates, site);
    }
    candidates
}

fn of_toolkit(candidates: &mut Vec<Candidate>, place: Place) {
    let nvrtc = library_folders(&place.folder).iter().find_map(|folder| nvrtc_in(folder));
    let roots = header_roots(&place.folder);
    let headers = match roots.iter().find(|root| complete(root)) {
        Some(root) => Headers::In(root.clone()),
        None => Headers::Absent(absent(&[place.folder.join("include")])),
    };
    candidates.push(Candidate { place, nvrtc, headers });
}

fn of_wheels(candidates: &mut Vec<Candidate>, site: Place) {
    for folder in wheel_toolkits(&site.folder) {
        of_toolkit(candidates, Place { folder, origin: site.origin.clone() });
    }
    let folders = wheel_header_folders(&site.folder);
    let absent = absent(&folders);
    let headers =
        if absent.is_empty() { Headers::Spread(folders) } else { Headers::Absent(absent) };
    let nvrtc = nvrtc_in(&wheel_library_folder(&site.folder));
    candidates.push(Candidate { place: site, nvrtc, headers });
}

fn missing(machine: &Machine, candidates: &[Candidate]) -> CudaError {
    let looked = looked(machine, candidates);
    let newest = newest_by_version(machine);
    let Some(nvrtc) = candidates.iter().find_map(|one| one.nvrtc.as_ref()) else {
        return CudaError::NoNvrtc { looked, remedy: remedy(newest) };
    };
    let fewest = candidates
        .iter()
        .filter_map(|one| match &one.headers {
            Headers::Absent(absent) => Some(absent),
            Headers::In(_) | Headers::Spread(_) => None,
        })
        .min_by_key(|absent| absent.len());
    let absent = fewest.map(|absent| absent.join(", ")).unwrap_or_default();
    // The advice names headers that match the library found.
    let remedy = remedy(newest.or_else(|| CudaVersion::of(&nvrtc.version)));
    CudaError::NoHeaders { absent, looked, remedy }
}

/// The places searched, and the variables that would add more.
fn looked(machine: &Machine, candidates: &[Candidate]) -> String {
    let mut places: Vec<String> = Vec::new();
    for Candidate { place: Place { folder, origin }, .. } in candidates {
        let folder = folder.display().to_string();
        let text = if *origin == folder { folder } else { format!("{folder} ({origin})") };
        if !places.contains(&text) {
            places.push(text);
        }
    }
    let unset: Vec<&str> = [WHEELS, VARIABLES[0], VARIABLES[1], "VIRTUAL_ENV"]
        .into_iter()
        .filter(|name| machine.folder(name).is_none())
        .collect();
    let unset =
        if unset.is_empty() { String::new() } else { format!(" ({} not set)", unset.join(", ")) };
    format!("{}{unset}", places.join(", "))
}

/// The driver's library in its known places; the linker may know others.
pub fn driver(machine: &Machine) -> Option<PathBuf> {
    let usual = [
        format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH),
        "usr/lib64".into(),
        "usr/lib".into(),
        // Kubernetes, Windows' Linux, Apptainer's --nv, NixOS.
        "usr/local/nvidia/lib64".into(),
        "usr/lib/wsl/lib".into(),
        ".singularity.d/libs".into(),
        "run/opengl-driver/lib".into(),
    ];
    let named = machine.folders("LD_LIBRARY_PATH");
    let folders = named.into_iter().chain(usual.map(|folder| machine.root.join(folder)));
    folders.map(|folder| folder.join("libcuda.so.1")).find(|path| path.exists())
}

/// The version of the driver's kernel module, such as `580.65.06`.
pub fn driver_version(machine: &Machine) -> Option<String> {
    let text = machine.read("proc/driver/nvidia/version")?;
    let version = |word: &&str| {
        word.contains('.') && word.chars().all(|letter| letter.is_ascii_digit() || letter == '.')
    };
    text.lines().next()?.split_whitespace().find(version).map(str::to_owned)
}

/// The newest CUDA that the driver runs, by the version of its kernel module.
pub(super) fn newest_by_version(machine: &Machine) -> Option<CudaVersion> {
    newest_cuda(&driver_version(machine)?)
}

/// Makes `cache/cuda-VERSION-HASH/include` with links to all entries of `folders`; returns its
/// parent. The name hashes every link: a folder never changes, and concurrent processes make the
/// same one.
fn merge(folders: &[PathBuf], cache: &Path, version: &str) -> io::Result<PathBuf> {
    let mut links: BTreeMap<String, PathBuf> = BTreeMap::new();
    for folder in folders {
        for (name, path) in entries(folder) {
            links.entry(name).or_insert(path);
        }
    }
    let text: String =
        links.iter().map(|(name, path)| format!("{name}\0{}\0", path.display())).collect();
    let hash = blake3::hash(text.as_bytes()).to_hex();
    let root = cache.join(format!("cuda-{version}-{}", &hash[..12]));
    if complete(&root) {
        return Ok(root);
    }
    fs::create_dir_all(cache)?;
    let temporary = cache.join(format!(".tmp-cuda-{}-{}", std::process::id(), &hash[..12]));
    // Remove remains of an earlier process with this id.
    let _ = fs::remove_dir_all(&temporary);
    let made = fill(&temporary, &links).and_then(|()| match fs::rename(&temporary, &root) {
        // Another process was first, or the folder is damaged.
        Err(_) if complete(&root) => Ok(()),
        Err(_) if root.is_dir() => {
            fs::remove_dir_all(&root).and_then(|()| fs::rename(&temporary, &root))
        }
        result => result,
    });
    // After success it exists only if another process was first.
    let _ = fs::remove_dir_all(&temporary);
    made.map(|()| root)
}

fn fill(root: &Path, links: &BTreeMap<String, PathBuf>) -> io::Result<()> {
    let include = root.join("include");
    fs::create_dir_all(&include)?;
    links.iter().try_for_each(|(name, path)| symlink(path, include.join(name)))
}
