//! A toolkit's library and headers.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::places::entries;

/// NVRTC versions whose library names the bindings try.
const MAJORS: [u32; 3] = [13, 12, 11];

/// A library of NVRTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nvrtc {
    pub(super) path: PathBuf,
    pub(super) version: String,
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
    Some(format!("{}.{}", number / 1000, number % 1000 / 10))
}
