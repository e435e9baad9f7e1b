//! The index of a part: which images there are, where each one is, and what is known of it.
//!
//! An index is made once, by listing folders or walking archives, and then cached in a file
//! (`storage::cache`): listing ImageNet's 1.28 million images takes seconds to minutes, reading the
//! file about a second.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io, time::UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::zips::Zipped;
use crate::decode::{Head, Header, ImageKind};
use crate::dense::LabelTally;
use crate::error::{DataError, Location, SourceError};

/// The images of one part of a dataset, ordered by class and name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Index {
    /// Names of the classes, by label.
    pub(crate) classes: Vec<String>,
    /// The folders or archives that hold the images.
    pub(crate) containers: Vec<PathBuf>,
    pub(crate) entries: Vec<IndexEntry>,
    /// What was odd about the listing, a line each.
    pub(crate) notes: Vec<String>,
    /// All names in one string: separate strings would double the memory.
    names: String,
    /// What a zip says of each image; none of other archives and of folders. It is kept beside the
    /// index, whose encoding is that of packs, too.
    #[serde(skip)]
    pub(crate) zipped: Vec<Zipped>,
}

/// One image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct IndexEntry {
    /// Which of the containers.
    pub(crate) container: u32,
    pub(crate) label: u32,
    /// Where in an archive; `None` for a file of its own.
    pub(crate) extent: Option<Extent>,
    /// End of its name in `names`; it begins where the one before ends.
    name_end: u64,
    /// CRC-32C of the file, once it has been read whole.
    pub(crate) crc32c: Option<u32>,
    /// What decoding has shown, if the image was decoded.
    pub(crate) facts: Option<Facts>,
}

/// What is known of an image once its file has been decoded; see [`verify`](crate::verify).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Size and format; `None` if not even those can be told.
    pub header: Option<Header>,
    /// The result of decoding.
    pub verdict: Verdict,
}

/// Whether an image can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Decoded.
    Good,
    /// Decoded, with a warning.
    Warned(String),
    /// Not decoded.
    Bad(String),
}

/// What is known of the files of an index beside it, as far as somebody has looked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Known {
    /// What the head of each file says, and the state that it then was in; `None` where none was
    /// looked at or could be read. Empty if none was looked at.
    pub(crate) heads: Vec<Option<(String, Head)>>,
    /// What each file holds as a label map, and the state that it then was in; likewise.
    pub(crate) tallies: Vec<Option<(String, LabelTally)>>,
    /// The values that colours stood for in those.
    pub(crate) by_colour: BTreeMap<[u8; 3], u8>,
    /// Images that a verification found bad together with what belongs to them, ascending.
    pub(crate) bad: BTreeSet<u32>,
}

/// A contiguous part of an archive, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl Index {
    /// Sorts the images by class, file name and container: the order depends neither on how they
    /// were found nor on whether they are in folders or archives.
    ///
    /// # Errors
    /// If a container has two images of one name, which could not be told apart.
    pub(crate) fn new(
        classes: Vec<String>,
        containers: Vec<PathBuf>,
        mut found: Vec<FoundImage>,
        notes: Vec<String>,
    ) -> Result<Self, DataError> {
        found.sort_unstable_by(|a, b| a.key().cmp(&b.key()));
        let twice = found.windows(2).find(|pair| pair[0].key() == pair[1].key());
        if let Some([one, _]) = twice {
            let (path, member) = (&containers[one.container as usize], Some(one.name.clone()));
            let file = Location { path: path.clone(), member };
            return Err(SourceError::Twice(file).into());
        }
        let mut names = String::with_capacity(found.iter().map(|one| one.name.len()).sum());
        let entries = found
            .into_iter()
            .map(|FoundImage { container, label, extent, name }| {
                names.push_str(&name);
                let name_end = names.len() as u64;
                IndexEntry { container, label, extent, name_end, crc32c: None, facts: None }
            })
            .collect();
        Ok(Self { classes, containers, entries, notes, names, zipped: Vec::new() })
    }

    /// Path of an image inside its container.
    pub(crate) fn name(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.entries[before].name_end);
        &self.names[start as usize..self.entries[index].name_end as usize]
    }
}

/// One image, as found.
#[derive(Clone, Debug)]
pub(crate) struct FoundImage {
    pub(crate) container: u32,
    pub(crate) label: u32,
    pub(crate) extent: Option<Extent>,
    /// Path inside the container.
    pub(crate) name: String,
}

impl FoundImage {
    /// The sort key.
    fn key(&self) -> (u32, &str, u32, &str) {
        (self.label, base_name(&self.name), self.container, &self.name)
    }
}

/// Files that are not read: their number by ending, and the first.
#[derive(Default)]
pub(crate) struct Skipped {
    endings: BTreeMap<String, usize>,
    first: Option<Location>,
}

impl Skipped {
    /// One more, of this name.
    pub(crate) fn add(&mut self, name: &str, location: impl FnOnce() -> Location) {
        *self.endings.entry(ending(name)).or_default() += 1;
        self.first.get_or_insert_with(location);
    }

    pub(crate) fn extend(&mut self, more: Self) {
        for (ending, count) in more.endings {
            *self.endings.entry(ending).or_default() += count;
        }
        self.first = self.first.take().or(more.first);
    }

    /// `3 files are not read: 2 .heic, 1 .txt`, and what to do about images among them; `None` of
    /// no files.
    pub(crate) fn describe(&self) -> Option<String> {
        let count: usize = self.endings.values().sum();
        let kinds: Vec<String> = self
            .endings
            .iter()
            .map(|(ending, count)| match ending.as_str() {
                "" => format!("{count} without an ending"),
                ending => format!("{count} .{ending}"),
            })
            .collect();
        let shown = match kinds.get(..SHOWN) {
            Some(first) if kinds.len() > SHOWN => format!("{} and others", first.join(", ")),
            _ => kinds.join(", "),
        };
        let images: Vec<String> = self.images().map(|ending| format!(".{ending}")).collect();
        let advice = match images.as_slice() {
            [] => String::new(),
            images => format!("; convert {} to JPEG or PNG", images.join(" and ")),
        };
        let files = if count == 1 { "file is" } else { "files are" };
        (count > 0).then(|| format!("{count} {files} not read: {shown}{advice}"))
    }

    /// The endings that are those of images.
    fn images(&self) -> impl Iterator<Item = &String> {
        self.endings.keys().filter(|ending| NOT_DECODED.contains(&ending.as_str()))
    }

    /// A note about them, if there are any.
    pub(crate) fn note(self, root: &Path) -> Vec<String> {
        let Some(what) = self.describe() else { return vec![] };
        let first = self.first.map_or_else(String::new, |first| format!("; the first is {first}"));
        vec![format!("in `{}` {what}{first}", root.display())]
    }

    /// Those that are images, of kinds that are not decoded.
    pub(crate) fn images_alone(mut self) -> Self {
        self.endings.retain(|ending, _| NOT_DECODED.contains(&ending.as_str()));
        Self { first: None, ..self }
    }
}

/// The most endings that a message lists.
const SHOWN: usize = 6;

/// Endings of images that are not decoded.
const NOT_DECODED: [&str; 14] = [
    "arw", "avif", "cr2", "cr3", "dcm", "dng", "exr", "heic", "heif", "hif", "jp2", "jxl", "nef",
    "svg",
];

/// The ending of a file's name in lower case, without the point; empty if there is none.
fn ending(name: &str) -> String {
    let ending = base_name(name).rsplit_once('.').map_or("", |(_, ending)| ending);
    let is_one = ending.len() <= 8 && ending.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_one { ending.to_ascii_lowercase() } else { String::new() }
}

/// The state of a file or folder when an index was made from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileStamp {
    pub(crate) path: PathBuf,
    /// Length of a file, 0 of a folder.
    pub(crate) bytes: u64,
    /// Seconds and nanoseconds since 1970. A folder's changes when a file is added or removed.
    modified: (u64, u32),
}

impl FileStamp {
    /// The present state of `path`.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        // A folder's length means nothing, and differs between copies on two file systems.
        let bytes = if metadata.is_dir() { 0 } else { metadata.len() };
        let since = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let modified = (since.as_secs(), since.subsec_nanos());
        Ok(Self { path: path.to_owned(), bytes, modified })
    }

    /// Whether the file or folder is still in this state.
    pub(crate) fn is_current(&self) -> bool {
        Self::of(&self.path).is_ok_and(|now| now == *self)
    }

    /// Identifies this version of this file; 16 hexadecimal digits.
    pub(crate) fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.path.as_os_str().as_encoded_bytes());
        for word in [self.bytes, self.modified.0, u64::from(self.modified.1)] {
            hasher.update(&word.to_le_bytes());
        }
        hasher.finalize().to_hex()[..16].to_owned()
    }
}

/// What follows the last slash.
pub(crate) fn base_name(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, base)| base)
}

/// Whether a file name is that of an image that is decoded, its ending in either case.
pub(crate) fn is_image(name: &str) -> bool {
    let Some((_, ours)) = name.rsplit_once('.') else { return false };
    ImageKind::all_extensions().any(|known| ours.eq_ignore_ascii_case(known))
}

/// Names that file systems, file managers and network disks give to what is no data of anybody's,
/// such as thumbnails and deleted files.
const NO_DATA: [&str; 8] = [
    "#recycle",
    "#snapshot",
    "$RECYCLE.BIN",
    "@Recycle",
    "@eaDir",
    "System Volume Information",
    "__MACOSX",
    "lost+found",
];

/// Bytes of the folders that all files of an archive are in, which hide none of them.
pub(crate) fn shared<'a>(mut names: impl Iterator<Item = &'a str>) -> usize {
    let end = |path: &[u8]| path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let first = names.next().unwrap_or_default().as_bytes();
    names.fold(end(first), |length, name| {
        let same = first[..length].iter().zip(name.as_bytes()).take_while(|(a, b)| a == b).count();
        end(&first[..same])
    })
}

/// Whether a path is no data by its name: a part of it begins with a dot, or is one of [`NO_DATA`].
///
/// One rule for folders and archives, so that an image has the same number in both.
pub(crate) fn is_hidden(name: &str) -> bool {
    name.split('/').any(|part| {
        let is_way = matches!(part, "." | "..");
        (part.starts_with('.') && !is_way) || NO_DATA.contains(&part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_around_all_files_are_shared() {
        for (names, expected) in [
            ("", ""),
            ("x.png", ""),
            (".a/b/x.png", ".a/b/"),
            (".a/b/x.png .a/b/xy.png", ".a/b/"),
            (".a/bc/x.png .a/bd/x.png", ".a/"),
            (".a/b/x.png .a/b", ".a/"),
            (".ä/x.png .ö/x.png", ""),
            (".a/x.png x.png .a/x.png", ""),
        ] {
            assert_eq!(shared(names.split(' ')), expected.len(), "{names}");
        }
    }

    #[test]
    fn any_part_of_a_path_hides_it() {
        for (name, expected) in [
            ("n01/x.JPEG", false),
            ("./n01/x.JPEG", false),
            ("../n01/x.v2.JPEG", false),
            ("n01.tar/x.JPEG", false),
            ("n01/._x.JPEG", true),
            (".ipynb_checkpoints/x.JPEG", true),
            ("train/.Trashes/n01/x.JPEG", true),
            ("n01/@eaDir/x.JPEG/SYNOPHOTO_THUMB_M.jpg", true),
            ("__MACOSX/n01/x.JPEG", true),
            ("lost+found", true),
            ("lost+found.jpg", false),
        ] {
            assert_eq!(is_hidden(name), expected, "{name}");
        }
    }
}
