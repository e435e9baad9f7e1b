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
    /// WebDataset's `.cls` files: the archive, the name, and the class.
    classes: Vec<(u32, String, Cls)>,
    skipped: Skipped,
}

/// The class in a `.cls` file.
enum Cls {
    Number(u32),
    Name(String),
}

impl Cls {
    /// The class that `text` says; `None` if it says none.
    fn of(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Ok(number) = text.parse() {
            return (number < CLASSES).then_some(Self::Number(number));
        }
        // What is another number, such as -1 or 1.0, is no name.
        let is_number = text.parse::<f64>().is_ok() && text.contains(|c: char| c.is_ascii_digit());
        let is_name = !is_number && !text.is_empty() && !text.contains(char::is_control);
        (is_name && text.len() < NAME).then(|| Self::Name(text.to_owned()))
    }

    fn number(&self) -> u32 {
        if let Self::Number(number) = self { *number } else { 0 }
    }

    fn name(&self) -> &str {
        if let Self::Name(name) = self { name } else { "" }
    }
}

/// Bytes of a `.cls` file that are read: longer than the name of any class.
const NAME: usize = 256;

/// Finds the images of archives that belong together, by their headers.
pub(crate) fn index(archives: &[PathBuf], list: Option<&List>) -> Result<Index, DataError> {
    // Each archive on its own, in parallel.
    let numbered = archives.par_iter().enumerate();
    let each: Result<Vec<Members>, DataError> =
        numbered.map(|(number, path)| members(number as u32, path, list.is_none())).collect();
    let mut all = Members::default();
    for one in each? {
        all.images.extend(one.images);
        all.classes.extend(one.classes);
        all.skipped.extend(one.skipped);
    }
    let Members { images, classes, skipped } = all;
    if images.is_empty() {
        let found = skipped.describe().unwrap_or_default();
        return Err(SourceError::Empty { path: archives[0].clone(), found }.into());
    }
    let (labels, notes) = if list.is_none() && !classes.is_empty() {
        // Texts and the like beside the images are usual.
        (by_key(archives, &images, &classes)?, skipped.images_alone().note(&archives[0]))
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

/// The images of an archive, and what is in its `.cls` files if `by_key`.
fn members(number: u32, path: &Path, by_key: bool) -> Result<Members, DataError> {
    let io = DataError::io(path);
    let file = File::open(path).map_err(&io)?;
    let mut found = Members::default();
    for member in walk(path, &file)? {
        if is_image(&member.name) {
            found.images.push((number, member));
        } else if by_key && member.name.ends_with(".cls") {
            let mut text = [0; NAME];
            let length = text.len().min(member.length as usize);
            let text = &mut text[..length];
            file.read_exact_at(text, member.offset).map_err(&io)?;
            let class = str::from_utf8(without_mark(text)).ok().and_then(Cls::of);
            let class = class.ok_or_else(|| {
                let shown = text.trim_ascii().escape_ascii().to_string();
                let text = shown.chars().take(40).collect();
                SourceError::Cls { file: location(path, &member.name), text, most: CLASSES }
            })?;
            found.classes.push((number, member.name, class));
        } else {
            found.skipped.add(&member.name, || location(path, &member.name));
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

/// Gives every image the class of its key, by WebDataset's convention: `KEY.jpg` has its number or
/// its name in `KEY.cls`.
fn by_key(
    archives: &[PathBuf],
    images: &[(u32, Member)],
    classes: &[(u32, String, Cls)],
) -> Result<Labelled, DataError> {
    let at = |container: u32, name: &str| location(&archives[container as usize], name);
    let by_key: HashMap<(u32, &str), &Cls> =
        classes.iter().map(|(container, name, class)| ((*container, key(name)), class)).collect();
    let of = |(container, Member { name, .. }): &(u32, Member)| {
        let class = by_key.get(&(*container, key(name))).copied();
        class.ok_or_else(|| SourceError::NoClass(at(*container, name)))
    };
    let of_images: Vec<&Cls> = images.iter().map(of).collect::<Result<_, _>>()?;
    let is_number = |(.., class): &&(u32, String, Cls)| matches!(class, Cls::Number(_));
    let (numbers, names): (Vec<_>, Vec<_>) = classes.iter().partition(is_number);
    if let (Some((container, number, _)), Some((other, name, class))) =
        (numbers.first(), names.first())
    {
        let (number, name) = (at(*container, number), at(*other, name));
        return Err(SourceError::ClsMixed { number, name, text: class.name().to_owned() }.into());
    }
    if numbers.is_empty() {
        return Ok(labelled(&of_images.iter().map(|class| class.name()).collect::<Vec<_>>()));
    }
    let count = numbers.iter().map(|(.., class)| class.number() + 1).max().unwrap_or(0);
    let classes = (0..count).map(|class| class.to_string()).collect();
    Ok(Labelled { classes, labels: of_images.iter().map(|class| class.number()).collect() })
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
