//! Merges headers of several folders into one folder of links.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::headers::complete;
use super::places::entries;

/// Makes `cache/cuda-VERSION-HASH/include` with links to all entries of `folders`; returns its
/// parent. The name hashes every link: a folder never changes, and concurrent processes make the
/// same one.
pub(super) fn merge(folders: &[PathBuf], cache: &Path, version: &str) -> io::Result<PathBuf> {
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
