//! Archives read in place: no image is ever unpacked.
//!
//! A tar holds its files uncompressed and contiguous, and so does a tar inside a tar. One pass over
//! the headers finds the extent of every image; each image is then one positioned read.

mod classes;
mod section;
mod walk;
mod webdataset;

use std::fs::File;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use walk::{Member, walk};

use super::index::{Builder, Extent, FoundImage, Index, is_hidden, is_image};
use super::labels::List;
use crate::error::{DataError, Location, SourceError};

/// What was found in all archives.
struct Members {
    archives: Vec<PathBuf>,
    /// Each with the number of its archive.
    images: Vec<(u32, Member)>,
    /// WebDataset's classes, likewise.
    classes: Vec<(u32, Member)>,
    /// Other files: their number, and the first.
    skipped: (usize, Option<Location>),
}

/// Finds the images of archives that belong together, by their headers.
pub(crate) fn index(archives: &[PathBuf], list: Option<&List>) -> Result<Index, DataError> {
    let members = collect(archives)?;
    if members.images.is_empty() {
        return Err(SourceError::Empty(archives[0].clone()).into());
    }
    let mut builder = if let Some(list) = list {
        listed(members, list)?
    } else if members.classes.is_empty() {
        classes::by_folder(members)?
    } else {
        webdataset::by_number(members)?
    };
    builder.containers = archives.to_vec();
    builder.finish()
}

/// Walks the archives, each on its own, in parallel.
fn collect(archives: &[PathBuf]) -> Result<Members, DataError> {
    let each: Result<Vec<Members>, DataError> = archives
        .par_iter()
        .enumerate()
        .map(|(number, path)| of_archive(number as u32, path))
        .collect();
    let mut all = Members {
        archives: archives.to_vec(),
        images: vec![],
        classes: vec![],
        skipped: (0, None),
    };
    for one in each? {
        all.images.extend(one.images);
        all.classes.extend(one.classes);
        all.skipped.0 += one.skipped.0;
        all.skipped.1 = all.skipped.1.or(one.skipped.1);
    }
    Ok(all)
}

fn of_archive(number: u32, path: &Path) -> Result<Members, DataError> {
    let file = File::open(path).map_err(DataError::io(path))?;
    let (mut images, mut classes, mut skipped) = (vec![], vec![], (0, None));
    walk(path, &file, &mut |member| {
        if is_hidden(&member.name) {
            // Such as the `._x.JPEG` that macOS puts beside every file.
        } else if is_image(&member.name) {
            images.push((number, member));
        } else if member.name.ends_with(".cls") {
            classes.push((number, member));
        } else {
            skipped.0 += 1;
            skipped.1.get_or_insert_with(|| location(path, &member.name));
        }
        Ok(())
    })?;
    Ok(Members { archives: vec![], images, classes, skipped })
}

/// Gives every image the class that a list has for it.
fn listed(members: Members, list: &List) -> Result<Builder, DataError> {
    let names = members.images.iter().map(|(_, member)| member.name.as_str()).collect();
    let (classes, labels) = list.apply(&members.archives[0], names)?;
    let mut builder = Builder { classes, notes: members.notes(), ..Builder::default() };
    for ((container, member), label) in members.images.into_iter().zip(labels) {
        builder.found.push(found(&members.archives, container, member, label)?);
    }
    Ok(builder)
}

impl Members {
    /// A note about skipped files.
    fn notes(&self) -> Vec<String> {
        let (count, Some(first)) = &self.skipped else { return vec![] };
        let path = self.archives[0].display();
        vec![format!(
            "{count} files that are no images were skipped in `{path}`, the first {first}"
        )]
    }
}

fn location(path: &Path, member: &str) -> Location {
    Location { path: path.to_owned(), member: Some(member.to_owned()) }
}

/// A member as an image of a class.
fn found(
    archives: &[PathBuf],
    container: u32,
    member: Member,
    label: u32,
) -> Result<FoundImage, DataError> {
    let Member { name, offset, length: bytes } = member;
    let Ok(length) = u32::try_from(bytes) else {
        let file = location(&archives[container as usize], &name);
        return Err(SourceError::TooLong { file, bytes }.into());
    };
    Ok(FoundImage { container, label, extent: Some(Extent { offset, length }), name })
}
