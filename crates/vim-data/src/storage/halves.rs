//! Images in one folder of a tree: the two halves of a dataset of pairs, images in one and label
//! maps in another, and the images of a dataset of objects.
//!
//! The tree is a folder, or lies in a zip or a tar, which is read in place.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::index::{FileStamp, FoundImage, Index, Skipped, is_image};
use super::zips::{self, Zipped, is_zip};
use super::{folder, tars};
use crate::error::{DataError, Location};

/// What the files of a half are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Half {
    Images,
    LabelMaps,
}

/// A part of the dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HalfOf {
    Train,
    Val,
}

impl Half {
    /// Names that its folder may have, the usual one first.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Images => &["images", "img_dir", "img"],
            Self::LabelMaps => &["annotations", "labels", "masks", "ann_dir"],
        }
    }
}

impl HalfOf {
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Train => &["training", "train"],
            Self::Val => &["validation", "val"],
        }
    }
}

/// The folder in the published archive that holds the halves.
const PUBLISHED: &str = "ADEChallengeData2016";

/// Finds a half below the folder `root`: `images/training` or `training/images`, or what else they
/// may be called.
pub(crate) fn find(root: &Path, half: Half, of: HalfOf) -> Option<PathBuf> {
    let bases = [root.to_owned(), root.join(PUBLISHED)];
    let inner = half.names().iter().flat_map(|half| {
        of.names().iter().flat_map(move |of| [Path::new(half).join(of), Path::new(of).join(half)])
    });
    let inner: Vec<PathBuf> = inner.collect();
    let mut all = bases.iter().flat_map(|base| inner.iter().map(move |inner| base.join(inner)));
    all.find(|path| path.is_dir())
}

/// Whether a member of an archive is in the folder of a half.
fn is_in(name: &str, half: Half, of: HalfOf) -> bool {
    let folders: Vec<&str> = name.rsplit('/').skip(1).collect();
    folders.windows(2).any(|pair| {
        let fits = |a: &str, b: &str| half.names().contains(&a) && of.names().contains(&b);
        fits(pair[0], pair[1]) || fits(pair[1], pair[0])
    })
}

/// Lists a half: all images below a folder, or those of an archive that are in its folder.
pub(crate) fn list(
    root: &Path,
    half: Half,
    of: HalfOf,
) -> Result<(Index, Vec<FileStamp>), DataError> {
    list_those(root, |name| is_in(name, half, of))
}

/// Lists all images below a folder, or those of an archive that are in a folder of the name
/// `folder`.
pub(crate) fn tree(root: &Path, folder: &str) -> Result<(Index, Vec<FileStamp>), DataError> {
    list_those(root, |name| name.split('/').rev().skip(1).any(|part| part == folder))
}

/// Lists all images below a folder, or those of an archive whose path fits.
fn list_those(
    root: &Path,
    fits: impl Fn(&str) -> bool,
) -> Result<(Index, Vec<FileStamp>), DataError> {
    if root.is_dir() {
        return folder::below(root);
    }
    let stamp = FileStamp::of(root).map_err(DataError::io(root))?;
    let mut skipped = Skipped::default();
    let mut is_wanted = |name: &str| {
        if !fits(name) {
            return false;
        }
        if !is_image(name) {
            skipped.add(|| Location { path: root.to_owned(), member: Some(name.to_owned()) });
        }
        is_image(name)
    };
    let file = File::open(root).map_err(DataError::io(root))?;
    let image = |name, extent| FoundImage { container: 0, label: 0, extent: Some(extent), name };
    // By name, which the index makes sure that one entry has.
    let mut zipped: HashMap<String, Zipped> = HashMap::new();
    let found = if is_zip(root) {
        let entries = zips::entries(root, &file, is_wanted)?.into_iter();
        let entry = |entry: zips::Entry| {
            zipped.insert(entry.name.clone(), entry.zipped);
            image(entry.name, entry.extent)
        };
        entries.map(entry).collect()
    } else {
        let members = tars::files(root, &file)?.into_iter();
        let wanted = members.filter(|(name, _)| is_wanted(name));
        wanted.map(|(name, extent)| image(name, extent)).collect()
    };
    let notes = skipped.note(root);
    let mut index = Index::new(vec![String::new()], vec![root.to_owned()], found, notes)?;
    let names = 0..index.entries.len();
    index.zipped = names.filter_map(|at| zipped.get(index.name(at)).copied()).collect();
    Ok((index, vec![stamp]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_belong_to_the_half_whose_folder_they_are_in() {
        for (name, expected) in [
            ("ADEChallengeData2016/images/training/a.jpg", true),
            ("training/images/a.jpg", true),
            ("img_dir/train/city/a.jpg", true),
            ("images/validation/a.jpg", false),
            ("annotations/training/a.png", false),
            ("images/a.jpg", false),
            ("training_images/a.jpg", false),
        ] {
            assert_eq!(is_in(name, Half::Images, HalfOf::Train), expected, "{name}");
        }
    }
}
