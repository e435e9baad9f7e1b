//! Whether the images of two parts are others.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::images::Images;
use crate::error::{DataError, SourceError};

/// Where an image is: its folder or archive, without links, and its name in there.
type Place<'a> = (Cow<'a, Path>, Cow<'a, str>);

/// Checks that none of the images of a part called `what` is a training image: scores on what was
/// learned say nothing. Of each part there are the files, and which of them are its images'.
///
/// With `links` a file that is a link counts as the file that it leads to, of training images where
/// others are links. Where there is one, that costs a look at each.
pub(crate) fn check_apart(
    [train, other]: [(&Images, Vec<usize>); 2],
    what: &'static str,
    links: bool,
) -> Result<(), DataError> {
    let [of_train, of_other] = [&train, &other].map(|(images, _)| -> Vec<PathBuf> {
        let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        images.containers().iter().map(real).collect()
    });
    let theirs: Vec<Place<'_>> =
        other.1.iter().map(|&index| place(other.0, &of_other, index, links)).collect();
    let has_links = theirs.iter().any(|(folder, _)| matches!(folder, Cow::Owned(_)));
    let folders: HashSet<&Path> = theirs.iter().map(|(folder, _)| &**folder).collect();
    let ours = train.1.iter().map(|&index| place(train.0, &of_train, index, has_links));
    let ours: HashSet<Place<'_>> = ours.filter(|(folder, _)| folders.contains(&**folder)).collect();
    let mut shared = other.1.iter().zip(&theirs).filter(|(_, place)| ours.contains(place));
    let Some((&first, _)) = shared.next() else { return Ok(()) };
    let (count, all, first) = (1 + shared.count(), theirs.len(), other.0.location(first));
    Err(SourceError::Trained { what, count, all, first }.into())
}

/// The place of an image whose folders or archives are `folders`.
fn place<'a>(images: &'a Images, folders: &'a [PathBuf], index: usize, links: bool) -> Place<'a> {
    let (folder, name) = images.stored(index);
    let path = || images.location(index).path;
    if links
        && let Some(real) = Some(path()).filter(|path| path.is_symlink())
        && let Ok(real) = real.canonicalize()
        && let (Some(folder), Some(name)) = (real.parent(), real.file_name())
    {
        let name = name.to_string_lossy().into_owned();
        return (Cow::Owned(folder.to_owned()), Cow::Owned(name));
    }
    (Cow::Borrowed(&folders[folder]), Cow::Borrowed(name))
}
