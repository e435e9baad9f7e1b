//! A part of a dataset of files, and how the bytes of its images are read.

use std::collections::VecDeque;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::{fs::File, os::unix::fs::FileExt};

use super::halves;
use super::index::{Extent, Facts, FileStamp, Index, IndexEntry, Known, Verdict, base_name};
use super::staging::{Staged, Staging};
use super::zips::Zipped;
use super::{cache::CachedIndex, layout::Part};
use crate::dataset::{Class, Dataset, Encoding, Fingerprint, OnProgress, Sample, Suspects};
use crate::decode::Exif;
use crate::error::{DataError, Location, SourceError};
use crate::input::{InputKind, read_open};
use crate::statistics::Statistics;

/// The most archives open at a time: there may be more shards than files that a process may have
/// open, often 1024.
const OPEN: usize = 256;

/// Encoded images in files or archives, ordered by class and then by file name.
#[derive(Debug)]
pub struct Images {
    cached: CachedIndex,
    /// Names of the classes, by label; the index may have fewer.
    classes: Vec<String>,
    /// The label of each label of the index.
    labels: Vec<Class>,
    exif: Exif,
    fingerprint: OnceLock<Fingerprint>,
    /// The open archives by container, in the order of opening.
    open: Mutex<VecDeque<(usize, Arc<File>)>>,
    /// Copies of the containers on the node's disk.
    copies: Vec<Option<Arc<Staged>>>,
    /// What makes the copies, kept alive while they may be read.
    staging: Option<Arc<Staging>>,
}

impl Images {
    /// The images of an index, with its classes.
    pub(crate) fn new(cached: CachedIndex, exif: Exif) -> Result<Self, DataError> {
        let classes = cached.index.classes.clone();
        let labels = (0..).take(classes.len()).collect();
        Self::labelled(cached, classes, labels, exif)
    }

    /// The images of an index, each of whose classes has one of `labels` among `classes`.
    pub(crate) fn labelled(
        cached: CachedIndex,
        classes: Vec<String>,
        labels: Vec<Class>,
        exif: Exif,
    ) -> Result<Self, DataError> {
        if cached.index.entries.is_empty() {
            let (path, found) = (cached.part.root().to_owned(), cached.index.notes.join("; "));
            return Err(SourceError::Empty { path, found }.into());
        }
        let (open, copies) = (Mutex::default(), vec![None; cached.index.containers.len()]);
        let fingerprint = OnceLock::new();
        Ok(Self { cached, classes, labels, exif, fingerprint, open, copies, staging: None })
    }

    /// The archives that the images are read from; none if they are in folders.
    pub(crate) fn archives(&self) -> &[PathBuf] {
        match self.cached.part {
            Part::Archives { .. } | Part::Pack { .. } => &self.cached.index.containers,
            Part::Half { ref root, .. } | Part::Tree { ref root, .. } if !root.is_dir() => {
                &self.cached.index.containers
            }
            Part::Classes { .. } | Part::Flat { .. } | Part::Half { .. } | Part::Tree { .. } => &[],
        }
    }

    /// Reads from the copies of archives, as far as they are made.
    pub(crate) fn use_copies(&mut self, staging: &Arc<Staging>) {
        let containers = self.cached.index.containers.iter();
        self.copies = containers.map(|container| staging.copy_of(container)).collect();
        self.staging = Some(Arc::clone(staging));
    }

    /// The file or folder that it was found at.
    pub fn root(&self) -> &Path {
        self.cached.part.root()
    }

    /// The index with the labels of these classes, for images that are stored as they are.
    pub(crate) fn index(&self) -> Index {
        let mut index = self.cached.index.clone();
        index.zipped.clear();
        index.classes.clone_from(&self.classes);
        for entry in &mut index.entries {
            entry.label = self.labels[entry.label as usize];
        }
        index
    }

    /// The folders and archives that the images are in.
    pub(crate) fn containers(&self) -> &[PathBuf] {
        &self.cached.index.containers
    }

    /// Which of [`Self::containers`] has an image, and its name in there.
    pub(crate) fn stored(&self, index: usize) -> (usize, &str) {
        (self.entry(index).container as usize, self.cached.index.name(index))
    }

    fn entry(&self, index: usize) -> &IndexEntry {
        &self.cached.index.entries[index]
    }

    /// Where an image is.
    pub fn location(&self, index: usize) -> Location {
        let (container, name) = self.stored(index);
        let container = &self.containers()[container];
        match self.entry(index).extent {
            Some(_) => Location { path: container.clone(), member: Some(name.to_owned()) },
            None => Location { path: container.join(name), member: None },
        }
    }

    /// Name of the file alone, as the source has it.
    pub fn file_name(&self, index: usize) -> &str {
        base_name(self.cached.index.name(index))
    }

    /// Path of the file below the folder that is listed.
    pub(crate) fn inside(&self, index: usize) -> String {
        let Location { path, member } = self.location(index);
        match (member, &self.cached.part) {
            (Some(member), Part::Half { folders, .. }) => {
                halves::inside(&member, folders).unwrap_or(&member).to_owned()
            }
            (Some(member), _) => member,
            (None, _) => {
                path.strip_prefix(self.root()).unwrap_or(&path).to_string_lossy().into_owned()
            }
        }
    }

    /// The state of the file, which differs after it has been written to. What changes in an
    /// archive changes the archive, whose index is then made anew.
    pub(crate) fn state(&self, index: usize) -> String {
        let Location { path, member } = self.location(index);
        let of_file = || FileStamp::of(&path).map_or_else(|_| String::new(), |stamp| stamp.hash());
        member.map_or_else(of_file, |_| String::new())
    }

    /// Length of the file in bytes, if the index has it; the listing of a folder has none.
    pub fn bytes(&self, index: usize) -> Option<u64> {
        let stored = self.entry(index).extent.map(|extent| extent.length);
        self.zipped(index).map(|zipped| zipped.bytes).or(stored)
    }

    /// What [`verify`](crate::verify) or packing has recorded of an image.
    pub fn facts(&self, index: usize) -> Option<&Facts> {
        self.entry(index).facts.as_ref()
    }

    /// CRC-32C that an image's file must have, once that has been read whole. One that was found
    /// bad may be mended, but for those of a pack.
    pub(crate) fn checksum(&self, index: usize) -> Option<u32> {
        self.entry(index).crc32c.filter(|_| self.is_pack() || !self.is_bad(index))
    }

    /// Whether a verification found an image bad.
    pub(crate) fn is_bad(&self, index: usize) -> bool {
        self.facts(index).is_some_and(|facts| matches!(facts.verdict, Verdict::Bad(_)))
    }

    /// Whether it is a pack, whose checksums were made with it.
    pub(crate) fn is_pack(&self) -> bool {
        matches!(self.cached.part, Part::Pack { .. })
    }

    /// What the zip says of an image's file, if it is in one.
    fn zipped(&self, index: usize) -> Option<Zipped> {
        self.cached.index.zipped.get(index).copied()
    }

    /// Replaces the content of `into` by the file, and compares its checksum if that is known.
    pub(crate) fn read_file(&self, index: usize, into: &mut Vec<u8>) -> Result<(), DataError> {
        self.read_unchecked(index, into)?;
        if let Some(expected) = self.checksum(index) {
            let found = crc32c::crc32c(into);
            if found != expected {
                let file = self.location(index);
                return Err(SourceError::Checksum { file, expected, found }.into());
            }
        }
        Ok(())
    }

    /// Replaces the content of `into` by the file, without comparing its checksum.
    pub(crate) fn read_unchecked(&self, index: usize, into: &mut Vec<u8>) -> Result<(), DataError> {
        self.read_start(index, usize::MAX, into).map(|_| ())
    }

    /// Replaces the content of `into` by the first `most` bytes of the file; gives its whole
    /// length.
    ///
    /// Nothing of a file that is larger than any image is read but for such a start.
    pub(crate) fn read_start(
        &self,
        index: usize,
        most: usize,
        into: &mut Vec<u8>,
    ) -> Result<u64, DataError> {
        let most = most as u64;
        if into.capacity() as u64 > KEPT {
            *into = Vec::new(); // one huge file's memory is not kept for all that follow
        }
        let entry = self.entry(index);
        let read = match (entry.extent, self.bytes(index)) {
            (Some(extent), Some(length)) => {
                let container = entry.container as usize;
                let wanted = length.min(most);
                let read = match (wanted > InputKind::Image.most_bytes(), self.zipped(index)) {
                    (true, _) => Err(InputKind::Image.too_large()),
                    (false, Some(zipped)) => {
                        let stored = Stored { images: self, container, left: extent };
                        // Nearly always one read.
                        let size = extent.length.min(wanted).clamp(1, STORED);
                        let stored = BufReader::with_capacity(size as usize, stored);
                        zipped.read(stored, most, into)
                    }
                    (false, None) => {
                        into.resize(wanted as usize, 0);
                        self.read_part(container, Extent { length: wanted, ..extent }, into)
                    }
                };
                read.map(|()| length)
            }
            (None, _) | (_, None) => self.read_loose(index, most, into),
        };
        let error = |source| SourceError::Read { file: self.location(index), source }.into();
        read.map_err(error)
    }

    /// Fills `into` by a part of an archive, or of its copy.
    ///
    /// A positioned read: threads that share the file do not disturb each other.
    fn read_part(&self, container: usize, extent: Extent, into: &mut [u8]) -> io::Result<()> {
        if self.copies[container].as_ref().is_some_and(|copy| copy.read(extent, into)) {
            return Ok(());
        }
        self.archive(container)?.read_exact_at(into, extent.offset)
    }

    /// Replaces the content of `into` by the first `most` bytes of a file in a folder; gives its
    /// length.
    fn read_loose(&self, index: usize, most: u64, into: &mut Vec<u8>) -> io::Result<u64> {
        let file = File::open(self.location(index).path)?;
        if most > InputKind::Image.most_bytes() {
            read_open(&file, InputKind::Image, into)?;
            return Ok(into.len() as u64);
        }
        into.clear();
        let read = (&file).take(most).read_to_end(into)? as u64;
        match read == most {
            true => Ok(file.metadata()?.len()),
            false => Ok(read), // the end was reached
        }
    }

    /// An archive, opened when first read from.
    fn archive(&self, container: usize) -> io::Result<Arc<File>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, file)) = open.iter().find(|(number, _)| *number == container) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(File::open(&self.cached.index.containers[container])?);
        if open.len() == OPEN {
            open.pop_front(); // closed once nobody reads from it any more
        }
        open.push_back((container, Arc::clone(&file)));
        Ok(file)
    }

    /// What is known of the files beside the index.
    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.cached.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what is known of the files with the index.
    ///
    /// # Errors
    /// If it cannot be written: the file, and why.
    pub(crate) fn keep_known(&self) -> Result<(), (PathBuf, io::Error)> {
        self.cached.save()
    }

    /// Records findings in the index.
    pub(crate) fn record(&mut self, found: impl IntoIterator<Item = (usize, Facts, u32)>) {
        for (index, facts, crc32c) in found {
            let entry = &mut self.cached.index.entries[index];
            (entry.facts, entry.crc32c) = (Some(facts), Some(crc32c));
        }
    }
}

/// Most bytes of a buffer that is used again; nearly all images are shorter.
const KEPT: u64 = 16 << 20;
/// Most bytes of a zip's entry that are read at a time.
const STORED: u64 = 1 << 20;

/// A part of an archive, read on from its start.
struct Stored<'a> {
    images: &'a Images,
    container: usize,
    left: Extent,
}

impl Read for Stored<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.left.length.min(into.len() as u64);
        let part = Extent { length, ..self.left };
        self.images.read_part(self.container, part, &mut into[..length as usize])?;
        self.left = Extent { offset: part.offset + length, length: self.left.length - length };
        Ok(length as usize)
    }
}

impl Dataset for Images {
    fn len(&self) -> usize {
        self.cached.index.entries.len()
    }

    fn encoding(&self) -> Encoding {
        Encoding::Files
    }

    fn exif(&self) -> Exif {
        self.exif
    }

    fn class_names(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: usize) -> Class {
        self.labels[self.entry(index).label as usize]
    }

    /// Those that a verification found bad: of classes alone no header is read.
    fn suspects(&self, _workers: usize, _watch: OnProgress<'_>) -> Result<Suspects, DataError> {
        let bad = (0..self.len()).filter(|&index| self.is_bad(index)).collect();
        Ok(Suspects { bad, ..Suspects::default() })
    }

    fn roots(&self) -> Vec<PathBuf> {
        match self.archives() {
            [] => vec![self.root().to_owned()],
            archives => archives.to_vec(),
        }
    }

    fn name(&self, index: usize) -> String {
        let Location { path, member } = self.location(index);
        match member {
            Some(member) => format!("{}:{member}", path.display()),
            None => path.display().to_string(),
        }
    }

    fn read(&self, index: usize, into: &mut Sample) -> Result<(), DataError> {
        self.read_file(index, &mut into.image)
    }

    fn statistics(&self) -> Statistics {
        Statistics::IMAGENET
    }

    /// The hash of the classes, and of the label and file name of every image in order.
    ///
    /// Locations and lengths of the files do not count: the same images have one fingerprint as a
    /// folder (listed without lengths), as an archive and as a pack.
    fn fingerprint_by(&self, names: &[String], label: &dyn Fn(Class) -> Class) -> Fingerprint {
        Fingerprint::of(|hasher| {
            hasher.update(b"files");
            let mut text = |text: &str| {
                hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
            };
            names.iter().for_each(|class| text(class));
            for index in 0..self.len() {
                text(self.file_name(index));
                text(&label(self.label(index)).to_string());
            }
        })
    }

    fn fingerprint(&self) -> Fingerprint {
        *self.fingerprint.get_or_init(|| self.fingerprint_by(&self.classes, &|label| label))
    }
}
