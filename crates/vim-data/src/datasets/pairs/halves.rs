//! Where the halves of a dataset of pairs are, images and label maps: in folders of the parts, or
//! in one folder each with lists of the parts' images, as PASCAL VOC has them.

use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::DataConfig;
use crate::error::{DataError, Location, SourceError};
use crate::storage::images::Images;
use crate::storage::layout::Part;
use crate::storage::texts::texts;
use crate::storage::{EnvPaths, cache};

/// The names that folders of images and of label maps may have, the usual ones first.
const HALVES: [&[&str]; 2] = [
    &["images", "img_dir", "img", "JPEGImages"],
    &["annotations", "labels", "masks", "ann_dir", "SegmentationClass"],
];

/// The names that parts may have, training and validation.
const PARTS: [&[&str]; 2] = [&["training", "train"], &["validation", "val", "valid"]];

/// The names of a part that is not read.
const TEST: &[&str] = &["test", "testing"];

/// Folders of the published archives that hold the halves.
const PUBLISHED: [&str; 5] =
    ["ADEChallengeData2016", "VOCdevkit/VOC2012", "VOC2012", "VOCdevkit/VOC2007", "VOC2007"];

/// The folder of lists, as VOC has it.
const LISTS: &str = "ImageSets/Segmentation";

/// What is in the name of a folder for that of the part.
const PART: char = '*';

/// The images and the label maps of both parts.
pub(super) enum Halves {
    /// Of each part in its own folders.
    Parts(Box<[[Images; 2]; 2]>),
    /// Of both parts in one folder each, and the images of each part in a list.
    Listed(Box<[Images; 2]>, [ImageList; 2]),
}

impl Halves {
    /// All of them.
    pub(super) fn all(&mut self) -> Vec<&mut Images> {
        match self {
            Self::Parts(parts) => parts.iter_mut().flatten().collect(),
            Self::Listed(both, _) => both.iter_mut().collect(),
        }
    }

    /// The images of a part, or of both.
    pub(super) fn images(&self, part: usize) -> &Images {
        match self {
            Self::Parts(parts) => &parts[part][0],
            Self::Listed(both, _) => &both[0],
        }
    }

    /// Those of each part.
    pub(super) fn of_parts(self) -> [[Arc<Images>; 2]; 2] {
        match self {
            Self::Parts(parts) => parts.map(|halves| halves.map(Arc::new)),
            Self::Listed(both, _) => {
                let both = both.map(Arc::new);
                [both.clone(), both]
            }
        }
    }
}

/// A list of the images of a part.
pub(super) struct ImageList {
    pub(super) file: Location,
    /// Their paths below the folder of images, most without an extension.
    pub(super) names: Vec<String>,
}

/// What halves are found by.
pub(super) struct Finder<'a> {
    pub(super) root: &'a Path,
    pub(super) config: &'a DataConfig,
    pub(super) env_paths: &'a EnvPaths,
}

impl Finder<'_> {
    /// The halves of both parts, and the folder or archive that they are in; what is odd about
    /// their listing goes to `notes`.
    pub(super) fn find(&self, notes: &mut Vec<String>) -> Result<(Halves, PathBuf), DataError> {
        let folders = |part: usize, half: usize| in_part(&self.names(half), PARTS[part]);
        let Some((train_images, base)) = self.open(&folders(0, 0), notes)? else {
            let halves = self.with_lists(notes)?;
            return halves.ok_or_else(|| self.missing(0, Some(0)));
        };
        let mut open = |part: usize, half: usize| -> Result<Images, DataError> {
            let opened = self.open(&folders(part, half), notes)?.map(|(images, _)| images);
            opened.ok_or_else(|| self.missing(half, Some(part)))
        };
        let train = [train_images, open(0, 1)?];
        let halves = Halves::Parts(Box::new([train, [open(1, 0)?, open(1, 1)?]]));
        let mut tests = in_part(&self.names(0), TEST).into_iter().map(|name| base.join(name));
        let test = tests.find(|path| path.is_dir());
        notes.extend(test.map(|path| not_read(&Location { path, member: None })));
        Ok((halves, base))
    }

    /// The halves that lists choose the parts from; `None` if there are no lists.
    fn with_lists(&self, notes: &mut Vec<String>) -> Result<Option<(Halves, PathBuf)>, DataError> {
        let mut found = Vec::new();
        for base in self.bases() {
            found = texts(&base, LISTS, &|name| name.ends_with(".txt"))?;
            if !found.is_empty() {
                break;
            }
        }
        if found.is_empty() {
            return Ok(None);
        }
        let lists = [self.list(&found, 0)?, self.list(&found, 1)?];
        let test = found.iter().find(|(file, _)| TEST.contains(&&*stem_of(file)));
        notes.extend(test.map(|(file, _)| not_read(file)));
        let mut half = |half: usize| {
            let opened = self.open(&self.names(half), notes)?;
            opened.ok_or_else(|| self.missing(half, None))
        };
        let ((images, base), (maps, _)) = (half(0)?, half(1)?);
        Ok(Some((Halves::Listed(Box::new([images, maps]), lists), base)))
    }

    /// The list of the images of a part, among those `found`.
    fn list(&self, found: &[(Location, String)], part: usize) -> Result<ImageList, DataError> {
        let mut of_part = found.iter().filter(|(file, _)| PARTS[part].contains(&&*stem_of(file)));
        let Some((file, text)) = of_part.next() else {
            let part = ["train", "val"][part];
            let file = found[0].0.clone();
            let why = format!(
                "`{part}.txt` is not beside it; give each part a list, an image a line \
                 (docs/segmentation.md)"
            );
            return Err(SourceError::ImageList { file, why }.into());
        };
        let wrong = |why| SourceError::ImageList { file: file.clone(), why }.into();
        if let Some((other, _)) = of_part.next() {
            return Err(wrong(format!("{other} is one of the same part; remove one of them")));
        }
        let names: Vec<String> = text.lines().filter_map(listed_name).collect();
        match names.is_empty() {
            true => Err(wrong("it names none; give a name a line".to_owned())),
            false => Ok(ImageList { file: file.clone(), names }),
        }
    }

    /// The names that the folder of a half may have.
    fn names(&self, half: usize) -> Vec<String> {
        let given = [&self.config.images, &self.config.label_maps][half];
        let usual = || HALVES[half].iter().map(|&name| name.to_owned()).collect();
        given.as_ref().map_or_else(usual, |name| vec![name.trim_end_matches('/').to_owned()])
    }

    /// The folders that may hold those of the halves, or the archive.
    fn bases(&self) -> Vec<PathBuf> {
        let published = PUBLISHED.iter().map(|name| self.root.join(name));
        let published = published.filter(|base| base.is_dir());
        iter::once(self.root.to_owned()).chain(published).collect()
    }

    /// The images in the first of `folders` that there is, and what holds that: a folder, or the
    /// archive. `None` if there is none, or no image in an archive.
    fn open(
        &self,
        folders: &[String],
        notes: &mut Vec<String>,
    ) -> Result<Option<(Images, PathBuf)>, DataError> {
        let bases = self.bases();
        let (part, base) = if self.root.is_dir() {
            let all = |base: &PathBuf| -> Vec<(PathBuf, PathBuf)> {
                folders.iter().map(|folder| (base.join(folder), base.clone())).collect()
            };
            let found = bases.iter().flat_map(all).find(|(folder, _)| folder.is_dir());
            let Some((root, base)) = found else { return Ok(None) };
            (Part::Half { root, folders: vec![] }, base)
        } else {
            let root = self.root.to_owned();
            (Part::Half { root: root.clone(), folders: folders.to_vec() }, root)
        };
        let cached = cache::open(part, self.config.index_cache.as_deref(), self.env_paths)?;
        if !self.root.is_dir() && cached.index.entries.is_empty() {
            return Ok(None);
        }
        notes.extend(cached.index.notes.iter().chain(&cached.notes).cloned());
        Ok(Some((Images::new(cached, self.config.exif())?, base)))
    }

    /// There is no folder of a half, of a part or of both.
    fn missing(&self, half: usize, part: Option<usize>) -> DataError {
        let of = ["training ", "validation "];
        let part_name = part.map_or("", |part| of[part]);
        let what = format!("{part_name}{}", ["images", "label maps"][half]);
        let names = self.names(half);
        let folders = part.map_or_else(|| names.clone(), |part| in_part(&names, PARTS[part]));
        let mut expected = folders.into_iter().take(2).collect::<Vec<_>>().join("` or `");
        if part == Some(0) && half == 0 {
            expected.push_str(&format!("`, or lists of the parts' images in `{LISTS}"));
        }
        SourceError::NoHalf { path: self.root.to_owned(), what, expected }.into()
    }
}

/// The folders that a half of the part may be in, by the names of both.
fn in_part(halves: &[String], part: &[&str]) -> Vec<String> {
    let mut folders = Vec::new();
    for half in halves {
        for of in part {
            match half.as_str() {
                "" | "." => folders.push((*of).to_owned()),
                name if name.contains(PART) => folders.push(name.replace(PART, of)),
                name => folders.extend([format!("{name}/{of}"), format!("{of}/{name}")]),
            }
        }
    }
    folders
}

/// The name of a list without its extension, in small letters: CVAT's are `Train.txt`.
fn stem_of(file: &Location) -> String {
    let path = file.member.as_ref().map_or(file.path.as_path(), Path::new);
    path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase()
}

/// A note on test images beside the two parts.
fn not_read(file: &Location) -> String {
    format!("{file} is not read: the validation images are the test images here")
}

/// The name in a line of a list, which is in quotation marks if it has spaces, as CVAT writes it.
fn listed_name(line: &str) -> Option<String> {
    let line = line.trim();
    let quoted = line.strip_prefix('"').and_then(|rest| rest.split_once('"'));
    let name = quoted.map_or(line, |(name, _)| name);
    (!name.is_empty()).then(|| name.to_owned())
}
