//! Archives read in place: no image is ever unpacked.
//!
//! A tar holds its files uncompressed and contiguous, and so does a tar inside a tar. One pass over
//! the headers finds the extent of every image; each image is then one positioned read.

mod walk;

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use walk::{Member, walk};

use super::index::{Extent, FoundImage, Index, Skipped, is_image};
use super::labels::{Labelled, List, labelled};
use crate::error::{DataError, Location, SourceError};
use crate::input::without_mark;

/// More classes than any dataset has; a larger number is no class.
const CLASSES: u32 = 1 << 20;

/// What was found in archives.
#[derive(Default)]
struct Members {
    /// Each with the number of its archive.
    images: Vec<(u32, Member)>,
    /// WebDataset's `.cls` files: the archive, the name, and the class unless it is none.
    classes: Vec<(u32, String, Option<u32>)>,
    skipped: Skipped,
}

/// Finds the images of archives that belong together, by their headers.
pub(crate) fn index(archives: &[PathBuf], list: Option<&List>) -> Result<Index, DataError> {
    // Each archive on its own, in parallel.
    let numbered = archives.par_iter().enumerate();
    let each: Result<Vec<Members>, DataError> =
        numbered.map(|(number, path)| members(number as u32, path)).collect();
    let mut all = Members::default();
    for one in each? {
        all.images.extend(one.images);
        all.classes.extend(one.classes);
        all.skipped.extend(one.skipped);
    }
    let Members { images, classes, skipped } = all;
    if images.is_empty() {
        return Err(SourceError::Empty(archives[0].clone()).into());
    }
    let (labels, notes) = if list.is_none() && !classes.is_empty() {
        (by_number(archives, &images, &classes)?, vec![])
    } else {
        let labels = match list {
            Some(list) => {
                list.apply(&archives[0], images.iter().map(|(_, one)| one.name.as_str()).collect())
            }
            None => by_folder(archives, &images),
        };
        (labels?, skipped.note(&archives[0]))
    };
    let mut found = Vec::with_capacity(images.len());
    for ((container, member), label) in images.into_iter().zip(labels.labels) {
        let Member { name, offset, length } = member;
        found.push(FoundImage { container, label, extent: Some(Extent { offset, length }), name });
    }
    Index::new(labels.classes, archives.to_vec(), found, notes)
}

/// Every file of an archive and its place, but for hidden ones.
pub(crate) fn files(path: &Path, file: &File) -> Result<Vec<(String, Extent)>, DataError> {
    let place = |Member { name, offset, length }| (name, Extent { offset, length });
    Ok(walk(path, file)?.into_iter().map(place).collect())
}

fn members(number: u32, path: &Path) -> Result<Members, DataError> {
    let io = DataError::io(path);
    let file = File::open(path).map_err(&io)?;
    let mut found = Members::default();
    for member in walk(path, &file)? {
        if is_image(&member.name) {
            found.images.push((number, member));
        } else if member.name.ends_with(".cls") {
            let mut text = [0; 16];
            let length = text.len().min(member.length as usize);
            let text = &mut text[..length];
            file.read_exact_at(text, member.offset).map_err(&io)?;
            let class =
                str::from_utf8(without_mark(text)).ok().and_then(|text| text.trim().parse().ok());
            found.classes.push((number, member.name, class.filter(|&class| class < CLASSES)));
        } else {
            found.skipped.add(|| location(path, &member.name));
        }
    }
    Ok(found)
}

fn location(path: &Path, member: &str) -> Location {
    Location { path: path.to_owned(), member: Some(member.to_owned()) }
}

/// Gives every image the class that the innermost folder or archive around it is named after.
///
/// The folders must have one parent: an archive of both parts would otherwise mix them.
fn by_folder(archives: &[PathBuf], images: &[(u32, Member)]) -> Result<Labelled, DataError> {
    let mut classes = Vec::with_capacity(images.len());
    let mut place: Option<(u32, &str)> = None;
    for (container, member) in images {
        let path = &archives[*container as usize];
        let (parent, class) = match split(&member.name) {
            Some(split) => split,
            // An archive per class, whose images are in no folder.
            None if archives.len() > 1 => {
                ("", path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default())
            }
            None => return Err(SourceError::Unlabelled(path.clone()).into()),
        };
        match place {
            Some((archive, first)) if archive == *container && first != parent => {
                return Err(SourceError::Parents {
                    path: path.clone(),
                    first: format!("{first}/"),
                    second: format!("{parent}/"),
                }
                .into());
            }
            _ => place = Some((*container, parent)),
        }
        classes.push(class);
    }
    Ok(labelled(&classes))
}

/// The folder that the folder of the class is in, and the class: `a/n01.tar/n01/x.JPEG` has `n01`
/// in `a`.
fn split(name: &str) -> Option<(&str, &str)> {
    let (folder, _) = name.rsplit_once('/')?;
    let (parent, class) = folder.rsplit_once('/').unwrap_or(("", folder));
    let class = without_tar(class);
    // The archive of a class may hold a folder of it.
    let (above, last) = parent.rsplit_once('/').unwrap_or(("", parent));
    Some((if without_tar(last) == class { above } else { parent }, class))
}

fn without_tar(name: &str) -> &str {
    name.strip_suffix(".tar").unwrap_or(name)
}

/// Gives every image the class of its key, by WebDataset's convention: `KEY.jpg` has its number in
/// `KEY.cls`.
fn by_number(
    archives: &[PathBuf],
    images: &[(u32, Member)],
    classes: &[(u32, String, Option<u32>)],
) -> Result<Labelled, DataError> {
    let none = |container: u32, name: &str| {
        SourceError::NoClass(location(&archives[container as usize], name))
    };
    let mut by_key = HashMap::new();
    for (container, name, class) in classes {
        let class = class.ok_or_else(|| none(*container, name))?;
        by_key.insert((*container, key(name)), class);
    }
    let of = |(container, Member { name, .. }): &(u32, Member)| {
        by_key.get(&(*container, key(name))).copied().ok_or_else(|| none(*container, name))
    };
    let labels = images.iter().map(of).collect::<Result<_, _>>()?;
    let count = by_key.values().max().map_or(0, |largest| largest + 1);
    Ok(Labelled { classes: (0..count).map(|class| class.to_string()).collect(), labels })
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
    fn the_innermost_folder_is_the_class() {
        for (name, expected) in [
            ("n01/x.JPEG", Some(("", "n01"))),
            ("n01.tar/x.JPEG", Some(("", "n01"))),
            ("n01.tar/n01/x.JPEG", Some(("", "n01"))),
            ("a/b/n01/x.JPEG", Some(("a/b", "n01"))),
            ("train.tar/n01/x.JPEG", Some(("train.tar", "n01"))),
            ("x.JPEG", None),
        ] {
            assert_eq!(split(name), expected, "{name}");
        }
    }

    #[test]
    fn a_key_ends_at_the_first_dot_of_the_file_name() {
        for (name, expected) in [("00.jpg", "00"), ("a.b/00.input.jpg", "a.b/00"), ("none", "none")]
        {
            assert_eq!(key(name), expected);
        }
    }
}
