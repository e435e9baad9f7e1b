//! Images in one folder of a tree: the two halves of a dataset of pairs, images in one and label
//! maps in another, and the images of a dataset of objects.
//!
//! The tree is a folder, or lies in a zip or a tar, which is read in place.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zip::{CompressionMethod, ZipArchive};

use super::index::{Extent, FileStamp, FoundImage, Index, Skipped, is_hidden, is_image};
use super::{folder, tars};
use crate::error::{DataError, Location, SourceError};

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
    let members = if is_zip(root) { of_zip(root)? } else { tars::files(root)? };
    let (mut found, mut skipped) = (Vec::new(), Skipped::default());
    for (name, offset, bytes) in members {
        if is_hidden(&name) || !fits(&name) {
            continue;
        }
        let file = || Location { path: root.to_owned(), member: Some(name.clone()) };
        if !is_image(&name) {
            skipped.add(file);
            continue;
        }
        let Ok(length) = u32::try_from(bytes) else {
            return Err(SourceError::TooLong { file: file(), bytes }.into());
        };
        let extent = Some(Extent { offset, length });
        found.push(FoundImage { container: 0, label: 0, extent, name });
    }
    let index = Index::new(vec![String::new()], vec![root.to_owned()], found, skipped.note(root))?;
    Ok((index, vec![stamp]))
}

/// Whether an archive is a zip by its name.
pub(crate) fn is_zip(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("zip"))
}

/// The files of a zip: name, and where the entry is from its header on to the end of its content.
fn of_zip(path: &Path) -> Result<Vec<(String, u64, u64)>, DataError> {
    let wrong = |why: String| {
        let file = Location { path: path.to_owned(), member: None };
        DataError::from(SourceError::Zip { file, why })
    };
    let file = File::open(path).map_err(DataError::io(path))?;
    let mut archive =
        ZipArchive::new(std::io::BufReader::new(file)).map_err(|error| wrong(error.to_string()))?;
    let mut members = Vec::with_capacity(archive.len());
    for number in 0..archive.len() {
        let entry = archive.by_index_raw(number).map_err(|error| wrong(error.to_string()))?;
        let name = entry.name().map_err(|error| wrong(error.to_string()))?.into_owned();
        if !entry.is_file() || !is_image(&name) {
            continue;
        }
        let is_known =
            matches!(entry.compression(), CompressionMethod::Stored | CompressionMethod::Deflated);
        if entry.encrypted() || !is_known {
            return Err(wrong(format!(
                "`{name}` is encrypted, or compressed otherwise than by deflate"
            )));
        }
        let start = entry.header_start();
        let content =
            entry.data_start().ok_or_else(|| wrong(format!("`{name}` has no content")))?;
        let end = content.checked_add(entry.compressed_size());
        let length = end.and_then(|end| end.checked_sub(start));
        members.push((name, start, length.ok_or_else(|| wrong("an entry ends nowhere".into()))?));
    }
    Ok(members)
}

/// Bytes of a zip entry's header before its name.
const HEADER: usize = 30;
/// Most bytes that an entry may have, as much as an image file.
const MOST: u64 = 256 << 20;

/// Turns a zip entry, from its header to the end of its content, into the content.
pub(crate) fn unzip(entry: &mut Vec<u8>) -> std::io::Result<()> {
    use std::io::{Error, ErrorKind, Read};
    let damaged =
        |why: &str| Error::new(ErrorKind::InvalidData, format!("a damaged zip entry: {why}"));
    let word = |at: usize| {
        let bytes = entry.get(at..at + 2).and_then(|bytes| bytes.first_chunk::<2>());
        bytes.map(|bytes| u16::from_le_bytes(*bytes)).ok_or_else(|| damaged("it is cut short"))
    };
    if !entry.starts_with(b"PK\x03\x04") {
        return Err(damaged("it does not begin with a header"));
    }
    let start = HEADER + usize::from(word(26)?) + usize::from(word(28)?);
    let content = entry.get(start..).ok_or_else(|| damaged("it is cut short"))?;
    match word(8)? {
        0 => {
            entry.drain(..start);
        }
        8 => {
            let mut plain = Vec::new();
            let inflated = flate2::read::DeflateDecoder::new(content).take(MOST + 1);
            let length = { inflated }.read_to_end(&mut plain)?;
            if length as u64 > MOST {
                return Err(damaged("it is larger than any image"));
            }
            *entry = plain;
        }
        _ => return Err(damaged("it is compressed otherwise than by deflate")),
    }
    Ok(())
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

    #[test]
    fn entries_that_are_none_are_errors() {
        for bytes in [&b""[..], b"PK\x03\x04", b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", &[0; 64]] {
            assert!(unzip(&mut bytes.to_vec()).is_err());
        }
    }
}
