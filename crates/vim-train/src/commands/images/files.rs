//! The images that arguments name.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use vim_data::ImageKind;

use crate::error::Error;

/// The files among `paths` as they are, and the images below each folder, sorted.
pub(in crate::commands) fn images(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut images = Vec::new();
    for path in paths {
        if !path.is_dir() {
            images.push(path.clone());
            continue;
        }
        let mut below = Vec::new();
        collect(path, &mut BTreeSet::new(), &mut below)?;
        if below.is_empty() {
            let known: Vec<&str> = ImageKind::all_extensions().collect();
            let (path, known) = (path.display(), known.join(", ."));
            return Err(Error::data(format!("{path} holds no images: no file ends in .{known}")));
        }
        below.sort();
        images.append(&mut below);
    }
    Ok(images)
}

/// Adds the images below `folder`; hidden ones are not meant. Links are followed, and a folder
/// counts once.
fn collect(
    folder: &Path,
    seen: &mut BTreeSet<PathBuf>,
    images: &mut Vec<PathBuf>,
) -> Result<(), Error> {
    if !seen.insert(folder.canonicalize().map_err(Error::io("open", folder))?) {
        return Ok(());
    }
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let path = entry.map_err(Error::io("list", folder))?.path();
        let name = path.file_name().unwrap_or_default();
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if path.is_dir() {
            collect(&path, seen, images)?;
        } else if path.extension().is_some_and(is_known) {
            images.push(path);
        }
    }
    Ok(())
}

fn is_known(extension: &OsStr) -> bool {
    ImageKind::all_extensions().any(|known| extension.eq_ignore_ascii_case(known))
}
