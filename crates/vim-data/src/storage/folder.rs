//! Listing of folders of images.
//!
//! `readdir` tells files from folders on every file system that matters, so no file is `stat`ed: on
//! a cluster's file system that would take minutes for ImageNet.

use std::fs::{self, DirEntry, FileType};
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::index::{FileStamp, FoundImage, Index, Skipped, is_hidden, is_image};
use super::labels::{Labelled, List};
use crate::error::{DataError, Location, SourceError};

/// The deepest nesting of folders; a link to a parent folder would have no end.
const DEPTH: usize = 16;

/// The content of one folder without hidden files, each list sorted by name.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) folders: Vec<String>,
    pub(super) images: Vec<String>,
    pub(super) archives: Vec<String>,
    others: Vec<String>,
}

impl Listing {
    pub(super) fn of(folder: &Path) -> Result<Self, DataError> {
        let io = DataError::io(folder);
        let mut listing = Self::default();
        for entry in fs::read_dir(folder).map_err(&io)? {
            let entry = entry.map_err(&io)?;
            let name = entry
                .file_name()
                .into_string()
                .map_err(|name| SourceError::Encoding(folder.join(name)))?;
            if is_hidden(&name) {
                continue;
            }
            let kind = kind(&entry)?;
            let list = if kind.is_dir() {
                &mut listing.folders
            } else if is_image(&name) {
                &mut listing.images
            } else if name.ends_with(".tar") {
                &mut listing.archives
            } else {
                &mut listing.others
            };
            list.push(name);
        }
        let Self { folders, images, archives, others } = &mut listing;
        for list in [folders, images, archives, others] {
            list.sort_unstable();
        }
        Ok(listing)
    }
}

/// What an entry is, or what it links to.
fn kind(entry: &DirEntry) -> Result<FileType, DataError> {
    let path = entry.path();
    let kind = entry.file_type().map_err(DataError::io(&path))?;
    match kind.is_symlink() {
        true => Ok(fs::metadata(&path).map_err(DataError::io(&path))?.file_type()),
        false => Ok(kind),
    }
}

/// The images of a folder and of the folders in it.
#[derive(Default)]
struct Tree {
    folders: Vec<(PathBuf, Vec<String>)>,
    stamps: Vec<FileStamp>,
    skipped: Skipped,
}

impl Tree {
    fn add(&mut self, folder: PathBuf, depth: usize) -> Result<(), DataError> {
        if depth == DEPTH {
            return Err(SourceError::Depth(folder).into());
        }
        // Taken before the listing: a file that arrives later makes the index stale, not wrong.
        self.stamps.push(FileStamp::of(&folder).map_err(DataError::io(&folder))?);
        let listing = Listing::of(&folder)?;
        for name in listing.archives.iter().chain(&listing.others) {
            self.skipped.add(name, || Location { path: folder.join(name), member: None });
        }
        for name in listing.folders {
            self.add(folder.join(name), depth + 1)?;
        }
        if !listing.images.is_empty() {
            self.folders.push((folder, listing.images));
        }
        Ok(())
    }
}

/// What is in the folder of a class that has no images: files that are not read, if anything.
pub(crate) fn instead_of_images(folder: &Path) -> Option<String> {
    let mut tree = Tree::default();
    tree.add(folder.to_owned(), 0).ok()?;
    tree.skipped.describe()
}

/// The images of `root`, whose folders `classes` are the classes. A class may have none.
pub(super) fn by_class(
    root: &Path,
    classes: &[String],
) -> Result<(Index, Vec<FileStamp>), DataError> {
    let trees: Result<Vec<Tree>, DataError> = classes
        .par_iter()
        .map(|class| {
            let mut tree = Tree::default();
            tree.add(root.join(class), 0)?;
            Ok(tree)
        })
        .collect();
    let (mut containers, mut found, mut stamps) = (Vec::new(), Vec::new(), Vec::new());
    let (mut skipped, mut notes) = (Skipped::default(), Vec::new());
    if let [first, more @ ..] = Listing::of(root)?.images.as_slice() {
        let (root, count) = (root.display(), more.len() + 1);
        notes.push(format!(
            "in `{root}` images in no folder of a class are not read: {count}, first `{first}`"
        ));
    }
    for (label, tree) in (0..).zip(trees?) {
        for (folder, names) in tree.folders {
            let container = containers.len() as u32;
            containers.push(folder);
            let image = |name| FoundImage { container, label, extent: None, name };
            found.extend(names.into_iter().map(image));
        }
        stamps.extend(tree.stamps);
        skipped.extend(tree.skipped);
    }
    notes.extend(skipped.note(root));
    Ok((Index::new(classes.to_vec(), containers, found, notes)?, stamps))
}

/// The images of one folder, whose classes are in a list.
pub(super) fn flat(root: &Path, list: &List) -> Result<(Index, Vec<FileStamp>), DataError> {
    let stamp = FileStamp::of(root).map_err(DataError::io(root))?;
    let names = Listing::of(root)?.images;
    let Labelled { classes, labels } =
        list.apply(root, names.iter().map(String::as_str).collect())?;
    let found = |(name, label)| FoundImage { container: 0, label, extent: None, name };
    let found = names.into_iter().zip(labels).map(found).collect();
    Ok((Index::new(classes, vec![root.to_owned()], found, vec![])?, vec![stamp]))
}

/// All images below `root`, without classes.
pub(super) fn below(root: &Path) -> Result<(Index, Vec<FileStamp>), DataError> {
    let mut tree = Tree::default();
    tree.add(root.to_owned(), 0)?;
    let (mut containers, mut found) = (Vec::new(), Vec::new());
    for (folder, names) in tree.folders {
        let container = containers.len() as u32;
        containers.push(folder);
        let image = |name| FoundImage { container, label: 0, extent: None, name };
        found.extend(names.into_iter().map(image));
    }
    let notes = tree.skipped.note(root);
    Ok((Index::new(vec![String::new()], containers, found, notes)?, tree.stamps))
}
