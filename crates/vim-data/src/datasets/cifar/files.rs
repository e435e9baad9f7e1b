//! Finding the dataset's files, in a folder or in an archive.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;

use super::layout::{Layout, Version};
use crate::error::{DataError, Location};

/// Larger than any CIFAR file. A larger `train` is another file, and is not read into memory.
const MEMBER_LIMIT: u64 = 1 << 30;

/// The files of one version, by name without `.bin`.
type Members = (Version, BTreeMap<&'static str, Vec<u8>>);

/// The files of one version, read but not decoded.
pub(super) struct Files {
    pub(super) version: Version,
    path: PathBuf,
    is_archive: bool,
    /// By name without `.bin`.
    contents: BTreeMap<&'static str, Vec<u8>>,
}

impl Files {
    /// Takes the content of one file, with its location for messages.
    pub(super) fn take(&mut self, stem: &str) -> Result<(Location, Vec<u8>), DataError> {
        let name = self.version.file_name(stem);
        let Some(content) = self.contents.remove(stem) else {
            return Err(DataError::MissingMember { path: self.path.clone(), member: name });
        };
        let location = match self.is_archive {
            true => Location { path: self.path.clone(), member: Some(name) },
            false => Location { path: self.path.join(name), member: None },
        };
        Ok((location, content))
    }
}

/// Reads the dataset's files from an archive, its unpacked folder, or a folder holding either.
pub(super) fn read(layout: &Layout, path: &Path) -> Result<Files, DataError> {
    if !fs::metadata(path).map_err(DataError::io(path))?.is_dir() {
        return from_archive(layout, path);
    }
    if let Some(files) = find(layout, path)? {
        return Ok(files);
    }
    if find(layout.other, path)?.is_some() {
        return Err(wrong_dataset(layout, path));
    }
    Err(not_found(layout, path))
}

/// Tries a folder itself, then the folders and the archives that it may hold.
fn find(layout: &Layout, folder: &Path) -> Result<Option<Files>, DataError> {
    let unpacked = layout.folders().map(|name| folder.join(name));
    for candidate in std::iter::once(folder.to_owned()).chain(unpacked) {
        if let Some(files) = from_folder(layout, &candidate)? {
            return Ok(Some(files));
        }
    }
    let archive = layout.archive_names().map(|name| folder.join(name)).find(|path| path.is_file());
    archive.map(|path| from_archive(layout, &path)).transpose()
}

/// Reads an unpacked folder; `None` if it holds none of the files.
fn from_folder(layout: &Layout, folder: &Path) -> Result<Option<Files>, DataError> {
    for version in [Version::Binary, Version::Python] {
        let mut contents = BTreeMap::new();
        for stem in layout.stems() {
            let path = folder.join(version.file_name(stem));
            if path.is_file() {
                contents.insert(stem, fs::read(&path).map_err(DataError::io(&path))?);
            }
        }
        if !contents.is_empty() {
            let path = folder.to_owned();
            return Ok(Some(Files { version, path, is_archive: false, contents }));
        }
    }
    Ok(None)
}

/// Reads an archive in place, compressed or not.
fn from_archive(layout: &Layout, path: &Path) -> Result<Files, DataError> {
    let mut start = Vec::new();
    let mut file = File::open(path).map_err(DataError::io(path))?;
    file.by_ref().take(512).read_to_end(&mut start).map_err(DataError::io(path))?;
    let is_gzip = start.starts_with(&[0x1f, 0x8b]);
    let is_tar = start.get(257..262) == Some(b"ustar".as_slice());
    let whole = BufReader::new(io::Cursor::new(start).chain(file));
    let members = match (is_gzip, is_tar) {
        (true, _) => members(layout, GzDecoder::new(whole)),
        (false, true) => members(layout, whole),
        (false, false) => return Err(DataError::NotAnArchive(path.to_owned())),
    };
    let members = members.map_err(|source| DataError::Archive { path: path.to_owned(), source })?;
    match members {
        (Some((version, contents)), _) => {
            Ok(Files { version, path: path.to_owned(), is_archive: true, contents })
        }
        (None, true) => Err(wrong_dataset(layout, path)),
        (None, false) => Err(not_found(layout, path)),
    }
}

/// Collects the members that belong to the dataset, by file name; and whether the archive has
/// members of the other dataset.
fn members(layout: &Layout, reader: impl Read) -> io::Result<(Option<Members>, bool)> {
    let mut archive = tar::Archive::new(reader);
    let mut found = None;
    let mut of_the_other = false;
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !entry.header().entry_type().is_file() {
            continue;
        }
        of_the_other |= layout.other.recognise(name).is_some();
        let Some((version, stem)) = layout.recognise(name) else { continue };
        let (of, contents) = found.get_or_insert_with(|| (version, BTreeMap::new()));
        if *of == version {
            contents.insert(stem, content(&mut entry)?);
        }
    }
    // gzip's checksum comes last, past the end of the tar.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok((found, of_the_other))
}

/// One member, whole; `tar` itself does not report a member that ends early.
fn content(entry: &mut tar::Entry<'_, impl Read>) -> io::Result<Vec<u8>> {
    let size = entry.size();
    if size > MEMBER_LIMIT {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a member is larger than 1 GiB"));
    }
    let mut content = Vec::new();
    entry.read_to_end(&mut content)?;
    match content.len() as u64 == size {
        true => Ok(content),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn wrong_dataset(layout: &Layout, path: &Path) -> DataError {
    let (expected, found) = (layout.kind.name(), layout.other.kind.name());
    DataError::WrongDataset { expected, found, path: path.to_owned() }
}

fn not_found(layout: &Layout, path: &Path) -> DataError {
    let (dataset, expected) = (layout.kind.name(), layout.expected());
    DataError::NotFound { dataset, path: path.to_owned(), expected }
}
