//! Small text files that lie with the images of a dataset, in its folder or its archive.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::index::{base_name, is_hidden};
use super::zips::{self, is_zip};
use super::{halves, tars};
use crate::error::{DataError, Location, SourceError};
use crate::input::{InputKind, read_input, text_of};

/// The texts whose file names fit and that are in the folder `folder` of the folder or archive
/// `root`; of an archive, `""` is any. In the order of their names.
pub(crate) fn texts(
    root: &Path,
    folder: &str,
    fits: &dyn Fn(&str) -> bool,
) -> Result<Vec<(Location, String)>, DataError> {
    let kind = InputKind::Classes;
    let mut found = Vec::new();
    if root.is_dir() {
        let folder = root.join(folder);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries.flatten(),
            Err(_) => return Ok(vec![]), // whoever needs one says that there is none
        };
        for path in entries.map(|entry| entry.path()) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if !is_hidden(name) && fits(name) && path.is_file() {
                let bytes = read_input(&path, kind).map_err(DataError::io(&path))?;
                found.push((Location { path, member: None }, bytes));
            }
        }
    } else {
        let folders = [folder.to_owned()];
        let is_there = |name: &str| {
            let below = match folder {
                "" => Some(base_name(name)),
                _ => halves::inside(name, &folders),
            };
            below.is_some_and(fits)
        };
        let file = File::open(root).map_err(DataError::io(root))?;
        let location = |name| Location { path: root.to_owned(), member: Some(name) };
        if is_zip(root) {
            for entry in zips::entries(root, &file, is_there)? {
                let bytes = zips::read_entry(root, &entry.name, kind)?;
                found.push((location(entry.name), bytes));
            }
        } else {
            for (name, extent) in tars::files(root, &file)? {
                if is_there(&name) {
                    let bytes = match extent.length > kind.most_bytes() {
                        true => Err(kind.too_large()),
                        false => {
                            let mut bytes = vec![0; extent.length as usize];
                            file.read_exact_at(&mut bytes, extent.offset).map(|()| bytes)
                        }
                    };
                    let file = location(name);
                    let read = |source| SourceError::Read { file: file.clone(), source };
                    found.push((file.clone(), bytes.map_err(read)?));
                }
            }
        }
    }
    found.sort_by(|(a, _), (b, _)| (&a.path, &a.member).cmp(&(&b.path, &b.member)));
    let text = |(file, bytes): (Location, Vec<u8>)| match text_of(bytes) {
        Ok(text) => Ok((file, text)),
        Err(source) => Err(SourceError::Read { file, source }.into()),
    };
    found.into_iter().map(text).collect()
}
