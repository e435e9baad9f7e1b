//! Classes by the folders, or the inner archives, that images are in.

use std::{collections::BTreeSet, path::Path};

use super::{Members, found};
use crate::error::{DataError, SourceError};
use crate::storage::index::Builder;

/// Gives every image the class that the innermost folder or archive around it is named after.
///
/// The folders must have one parent: an archive of both parts would otherwise mix them.
pub(super) fn by_folder(members: Members) -> Result<Builder, DataError> {
    let Members { archives, images, .. } = &members;
    let mut classes = BTreeSet::new();
    let mut place: Option<(u32, &str)> = None;
    for (container, member) in images {
        let path = &archives[*container as usize];
        let (parent, class) = match split(&member.name) {
            Some(split) => split,
            // An archive per class, whose images are in no folder.
            None if archives.len() > 1 => ("", stem(path)),
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
        classes.insert(class.to_owned());
    }

    let classes: Vec<String> = classes.into_iter().collect();
    let mut builder = Builder { notes: members.notes(), ..Builder::default() };
    for (container, member) in members.images {
        let path = &members.archives[container as usize];
        let class = split(&member.name).map_or(stem(path), |(_, class)| class);
        let label = classes.partition_point(|other| other.as_str() < class);
        builder.found.push(found(&members.archives, container, member, label as u32)?);
    }
    Ok(Builder { classes, ..builder })
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

fn stem(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
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
}
