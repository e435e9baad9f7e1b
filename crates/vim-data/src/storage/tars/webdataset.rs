//! Classes by WebDataset's convention: `KEY.jpg` has its number in `KEY.cls`.

use std::{collections::HashMap, fs::File, os::unix::fs::FileExt, path::PathBuf};

use super::{Member, Members, found, location};
use crate::error::{DataError, SourceError};
use crate::storage::index::Builder;

/// More classes than any dataset has; a larger number is no class.
const CLASSES: u32 = 1 << 20;

/// Gives every image the class of its key.
pub(super) fn by_number(members: Members) -> Result<Builder, DataError> {
    let archives = &members.archives;
    let files: Result<Vec<File>, DataError> =
        archives.iter().map(|path| File::open(path).map_err(DataError::io(path))).collect();
    let files = files?;
    let mut labels = HashMap::new();
    for (container, member) in &members.classes {
        let label = number(archives, &files, *container, member)?;
        labels.insert((*container, key(&member.name).to_owned()), label);
    }

    let count = labels.values().max().map_or(0, |largest| largest + 1);
    let classes = (0..count).map(|label| label.to_string()).collect();
    let mut builder = Builder { classes, ..Builder::default() };
    for (container, member) in members.images {
        let Some(&label) = labels.get(&(container, key(&member.name).to_owned())) else {
            let file = location(&archives[container as usize], &member.name);
            return Err(SourceError::NoClass(file).into());
        };
        builder.found.push(found(archives, container, member, label)?);
    }
    Ok(builder)
}

/// The number in a `.cls` file.
fn number(
    archives: &[PathBuf],
    files: &[File],
    container: u32,
    member: &Member,
) -> Result<u32, DataError> {
    let path = &archives[container as usize];
    let mut text = [0; 16];
    let length = text.len().min(member.length as usize);
    let text = &mut text[..length];
    files[container as usize].read_exact_at(text, member.offset).map_err(DataError::io(path))?;
    str::from_utf8(text)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .filter(|&label| label < CLASSES)
        .ok_or_else(|| SourceError::NoClass(location(path, &member.name)).into())
}

/// A sample's key: the path up to the first dot of the file's name.
fn key(name: &str) -> &str {
    let base = name.rfind('/').map_or(0, |slash| slash + 1);
    name[base..].find('.').map_or(name, |dot| &name[..base + dot])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_ends_at_the_first_dot_of_the_file_name() {
        for (name, expected) in [("00.jpg", "00"), ("a.b/00.input.jpg", "a.b/00"), ("none", "none")]
        {
            assert_eq!(key(name), expected);
        }
    }
}
