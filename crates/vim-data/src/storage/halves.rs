//! Images in one folder of a tree: the two halves of a dataset of pairs, images in one and label
//! maps in another, and the images of a dataset of objects.
//!
//! The tree is a folder, or lies in a zip or a tar, which is read in place.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use super::index::{FileStamp, FoundImage, Index, Skipped, is_image};
use super::zips::{self, Zipped, is_zip};
use super::{folder, tars};
use crate::error::{DataError, Location};

/// What follows the last of `folders` that a path leads through.
pub(crate) fn inside<'a>(path: &'a str, folders: &[String]) -> Option<&'a str> {
    let after = |folder: &String| {
        let folder = format!("{folder}/");
        let is_whole = |at: usize| at == 0 || path.as_bytes()[at - 1] == b'/';
        let starts = path.match_indices(&folder).map(|(at, _)| at).filter(|&at| is_whole(at));
        starts.last().map(|at| at + folder.len())
    };
    folders.iter().filter_map(after).max().map(|at| &path[at..])
}

/// Lists all images below a folder, or those of an archive that are in one of `folders`.
pub(crate) fn list(root: &Path, folders: &[String]) -> Result<(Index, Vec<FileStamp>), DataError> {
    if root.is_dir() {
        return folder::below(root);
    }
    let stamp = FileStamp::of(root).map_err(DataError::io(root))?;
    let mut skipped = Skipped::default();
    let mut is_wanted = |name: &str| {
        if inside(name, folders).is_none() {
            return false;
        }
        if !is_image(name) {
            let member = || Some(name.to_owned());
            skipped.add(name, || Location { path: root.to_owned(), member: member() });
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
        let folders = ["images/training", "training/images", "img_dir/train"].map(str::to_owned);
        for (name, expected) in [
            ("ADEChallengeData2016/images/training/a.jpg", Some("a.jpg")),
            ("training/images/a.jpg", Some("a.jpg")),
            ("img_dir/train/city/a.jpg", Some("city/a.jpg")),
            ("training/images/x/images/training/images/a.jpg", Some("a.jpg")),
            ("images/validation/a.jpg", None),
            ("annotations/training/a.png", None),
            ("images/a.jpg", None),
            ("training_images/a.jpg", None),
            ("my_images/training/a.jpg", None),
        ] {
            assert_eq!(inside(name, &folders), expected, "{name}");
        }
    }
}
