//! Finding the dataset's files, in a folder or in an archive.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;

use super::Layout;
use crate::error::{DataError, Location};

/// The two published forms that are read; MATLAB's is a third.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// Fixed-length records.
    Binary,
    /// Pickled dictionaries.
    Python,
}

impl Version {
    /// The name of a file in this version.
    fn file_name(self, stem: &str) -> String {
        match self {
            Self::Binary => format!("{stem}.bin"),
            Self::Python => stem.to_owned(),
        }
    }
}

/// More bytes than a dataset's files have together (185 MB); no more are read into memory.
const FILES_LIMIT: u64 = 256 << 20;
/// More bytes than an archive of them unpacks to, so that a gzip bomb ends within seconds.
const ARCHIVE_LIMIT: u64 = 1 << 30;

/// Contents of files by name without `.bin`.
type Contents = BTreeMap<&'static str, Vec<u8>>;

impl Layout {
    /// The training files, then the test file.
    fn stems(&self) -> impl Iterator<Item = &'static str> {
        self.train.iter().copied().chain([self.test])
    }

    /// Which file a name stands for.
    fn recognise(&self, name: &str) -> Option<(Version, &'static str)> {
        self.stems().find_map(|stem| match name.strip_prefix(stem)? {
            ".bin" => Some((Version::Binary, stem)),
            "" => Some((Version::Python, stem)),
            _ => None,
        })
    }
}

/// The files of one version, read but not decoded.
pub(super) struct Files {
    pub(super) version: Version,
    path: PathBuf,
    is_archive: bool,
    contents: Contents,
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
    let unpacked = layout.folders.map(|name| folder.join(name));
    for candidate in std::iter::once(folder.to_owned()).chain(unpacked) {
        if let Some(files) = from_folder(layout, &candidate)? {
            return Ok(Some(files));
        }
    }
    let packed = |stem| [".tar.gz", ".tar"].map(|end| folder.join(format!("{stem}{end}")));
    let archive = layout.archives.into_iter().flat_map(packed).find(|path| path.is_file());
    archive.map(|path| from_archive(layout, &path)).transpose()
}

/// Reads an unpacked folder; `None` if it holds none of the files.
fn from_folder(layout: &Layout, folder: &Path) -> Result<Option<Files>, DataError> {
    for version in [Version::Binary, Version::Python] {
        let (mut contents, mut left) = (Contents::new(), FILES_LIMIT);
        for stem in layout.stems() {
            let path = folder.join(version.file_name(stem));
            if path.is_file() {
                let mut read =
                    || content(File::open(&path)?, fs::metadata(&path)?.len(), &mut left);
                contents.insert(stem, read().map_err(DataError::io(&path))?);
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
    let path = path.to_owned();
    match members {
        Ok((Some(version), contents, _)) => Ok(Files { version, path, is_archive: true, contents }),
        Ok((None, _, true)) => Err(wrong_dataset(layout, &path)),
        Ok((None, _, false)) => Err(not_found(layout, &path)),
        Err(source) if source.kind() == io::ErrorKind::FileTooLarge => {
            Err(DataError::io(&path)(source))
        }
        Err(source) => Err(DataError::Archive { path, source }),
    }
}

/// Collects the members that belong to the dataset, of the version met first; and whether the
/// archive has members of the other dataset.
fn members(layout: &Layout, reader: impl Read) -> io::Result<(Option<Version>, Contents, bool)> {
    let mut archive = tar::Archive::new(Bounded { reader, left: ARCHIVE_LIMIT });
    let (mut found, mut contents, mut of_the_other) = (None, Contents::new(), false);
    let mut left = FILES_LIMIT;
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !entry.header().entry_type().is_file() {
            continue;
        }
        of_the_other |= layout.other.recognise(name).is_some();
        let Some((version, stem)) = layout.recognise(name) else { continue };
        if *found.get_or_insert(version) == version {
            let size = entry.size();
            contents.insert(stem, content(&mut entry, size, &mut left)?);
        }
    }
    // gzip's checksum comes last, past the end of the tar.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok((found, contents, of_the_other))
}

/// The `size` bytes of one file, of which no more than `left` are read; `tar` itself does not
/// report a member that ends early.
fn content(file: impl Read, size: u64, left: &mut u64) -> io::Result<Vec<u8>> {
    let Some(rest) = left.checked_sub(size) else {
        return Err(too_large("the files hold", FILES_LIMIT));
    };
    *left = rest;
    let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or(usize::MAX));
    file.take(size).read_to_end(&mut content)?;
    match content.len() as u64 == size {
        true => Ok(content),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Reads no more than `left` bytes; more are an error, where [`Read::take`] would end.
struct Bounded<R> {
    reader: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(into)?;
        let rest = self.left.checked_sub(read as u64);
        self.left = rest.ok_or_else(|| too_large("it unpacks to", ARCHIVE_LIMIT))?;
        Ok(read)
    }
}

fn too_large(what: &str, limit: u64) -> io::Error {
    let text = format!("{what} more than {} MiB: this is not the dataset", limit >> 20);
    io::Error::new(io::ErrorKind::FileTooLarge, text)
}

fn wrong_dataset(layout: &Layout, path: &Path) -> DataError {
    let (expected, found) = (layout.kind.name(), layout.other.kind.name());
    DataError::WrongDataset { expected, found, path: path.to_owned() }
}

fn not_found(layout: &Layout, path: &Path) -> DataError {
    let ([binary, python], [binary_folder, python_folder]) = (layout.archives, layout.folders);
    let expected = format!(
        "one of `{binary}.tar.gz`, `{python}.tar.gz`, `{binary_folder}/`, `{python_folder}/`"
    );
    DataError::NotFound { dataset: layout.kind.name(), path: path.to_owned(), expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_reader_gives_all_or_an_error() {
        let read = |left| {
            let mut content = Vec::new();
            Bounded { reader: &[7; 100][..], left }.read_to_end(&mut content).map(|_| content)
        };
        assert_eq!(read(100).unwrap(), [7; 100]);
        assert_eq!(read(99).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn files_share_what_may_be_read() {
        let mut left = 150;
        assert_eq!(content(&[7; 200][..], 100, &mut left).unwrap(), [7; 100]);
        let error = content(&[7; 200][..], 51, &mut left).unwrap_err();
        assert_eq!(error.to_string(), "the files hold more than 256 MiB: this is not the dataset");
        let short = content(&[7; 10][..], 50, &mut left).unwrap_err();
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
    }
}
