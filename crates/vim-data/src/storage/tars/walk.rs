//! The files of an archive, and of the archives inside it, without reading their contents.

use std::io::{self, Read, Seek, SeekFrom};
use std::{fs::File, os::unix::fs::FileExt, path::Path};

use tar::{Archive, Entry};

use crate::error::{DataError, Location, SourceError};
use crate::storage::index::{is_hidden, shared};

/// Bytes in a header, and the multiple that contents are padded to.
const BLOCK: u64 = 512;

/// A regular file in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// Its path; in an inner archive, that archive's path comes first: `n01440764.tar/x.JPEG`.
    pub(super) name: String,
    /// First byte of its content, from the start of the outer archive.
    pub(super) offset: u64,
    /// Bytes in its content.
    pub(super) length: u64,
}

/// Every regular file of an archive, and the files inside inner `.tar` files in their place, but
/// for hidden ones.
pub(super) fn walk(path: &Path, file: &File) -> Result<Vec<Member>, DataError> {
    let length = file.metadata().map_err(DataError::io(path))?.len();
    refuse_compressed(file, 0, Location { path: path.to_owned(), member: None })?;
    let level = Level { path, file, start: 0, length, inside: None };
    let mut found = Vec::new();
    for member in level.members()? {
        if !is_tar(&member.name) {
            found.push(member);
            continue;
        }
        let Member { name, offset, length } = member;
        refuse_compressed(file, offset, level.location(&name))?;
        let inner = Level { path, file, start: offset, length, inside: Some(&name) };
        for member in inner.members()? {
            if is_tar(&member.name) {
                return Err(level.wrong(&member.name, "is an archive in an archive in an archive"));
            }
            found.push(Member { name: format!("{name}/{}", member.name), ..member });
        }
    }
    Ok(found)
}

/// The archive itself, or one inside it.
struct Level<'a> {
    path: &'a Path,
    file: &'a File,
    start: u64,
    length: u64,
    /// Name of the inner archive.
    inside: Option<&'a str>,
}

impl Level<'_> {
    /// The regular files of this level.
    fn members(&self) -> Result<Vec<Member>, DataError> {
        let mut members: Vec<Member> = Vec::new();
        // What is no plain file, and no matter if it is hidden.
        let mut odd: Vec<(String, &'static str)> = Vec::new();
        let mut archive = Archive::new(Section {
            file: self.file,
            start: self.start,
            length: self.length,
            position: 0,
        });
        // Where the last member's content ends, padding included.
        let mut end = 0;
        for entry in archive.entries_with_seek().map_err(|e| self.broken(end, e))? {
            let mut entry = entry.map_err(|e| self.broken(end, e))?;
            let content = entry.raw_file_position();
            let length = entry.size();
            end = content
                .checked_add(length)
                .and_then(|end| end.checked_next_multiple_of(BLOCK))
                .ok_or_else(|| self.broken(content, io::ErrorKind::InvalidData.into()))?;
            let name = self.name_of(&entry, content)?;
            let kind = entry.header().entry_type();
            if kind.is_dir() || kind.is_pax_global_extensions() {
                continue;
            }
            if kind.is_symlink() || kind.is_hard_link() {
                odd.push((name, "is a link to another file"));
                continue;
            }
            if !kind.is_file() && !kind.is_contiguous() {
                odd.push((name, "is neither a file nor a folder"));
                continue;
            }
            // What a pax archive calls sparse has a map in front of its content.
            let is_sparse = |key: &[u8]| key.starts_with(b"GNU.sparse");
            let extensions = entry.pax_extensions().map_err(|e| self.broken(content, e))?;
            if extensions.is_some_and(|mut all| {
                all.any(|one| one.is_ok_and(|one| is_sparse(one.key_bytes())))
            }) {
                odd.push((name, "is stored as a sparse file"));
                continue;
            }
            if content + length > self.length {
                return Err(self.broken(content, io::ErrorKind::UnexpectedEof.into()));
            }
            members.push(Member { name, offset: self.start + content, length });
        }
        // A block of zeros marks the end. Without it the archive was cut between two members.
        if archive.into_inner().position < end + BLOCK {
            return Err(self.broken(end, io::ErrorKind::UnexpectedEof.into()));
        }
        let all = members.iter().map(|member| &member.name).chain(odd.iter().map(|(name, _)| name));
        let shared = shared(all.map(String::as_str));
        // Such as the `._x.JPEG` that macOS puts beside every file.
        let is_seen = |name: &str| !is_hidden(&name[shared..]);
        if let Some((name, what)) = odd.iter().find(|(name, _)| is_seen(name)) {
            return Err(self.wrong(name, what));
        }
        members.retain(|member| is_seen(&member.name));
        Ok(members)
    }

    fn name_of(&self, entry: &Entry<'_, impl Read>, at: u64) -> Result<String, DataError> {
        let name = String::from_utf8(entry.path_bytes().into_owned()).map_err(|_| {
            let why = io::Error::new(io::ErrorKind::InvalidData, "a name is not UTF-8");
            self.broken(at, why)
        })?;
        Ok(name.trim_start_matches("./").to_owned())
    }

    fn location(&self, name: &str) -> Location {
        let member = match self.inside {
            Some(outer) => format!("{outer}/{name}"),
            None => name.to_owned(),
        };
        Location { path: self.path.to_owned(), member: Some(member) }
    }

    fn wrong(&self, name: &str, what: &'static str) -> DataError {
        SourceError::Member { file: self.location(name), what }.into()
    }

    /// The archive ends early or is damaged `at` bytes into this level.
    fn broken(&self, at: u64, source: io::Error) -> DataError {
        let member = self.inside.map(str::to_owned);
        let file = Location { path: self.path.to_owned(), member };
        SourceError::Tar { file, at: self.start + at, source }.into()
    }
}

/// Inside a compressed file no image is a range of bytes.
fn refuse_compressed(file: &File, at: u64, location: Location) -> Result<(), DataError> {
    let mut start = [0; 6];
    // A shorter file is reported as too short for a tar.
    if file.read_exact_at(&mut start, at).is_err() {
        return Ok(());
    }
    let formats: [(&[u8], &str); 5] = [
        (b"\x1f\x8b", "gzip"),
        (b"BZh", "bzip2"),
        (b"\xfd7zXZ\0", "xz"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"PK\x03\x04", "zip"),
    ];
    match formats.iter().find(|(magic, _)| start.starts_with(magic)) {
        Some(&(_, format)) => Err(SourceError::Compressed { file: location, format }.into()),
        None => Ok(()),
    }
}

/// Compressed ones count too: they are looked into only to be refused by name.
fn is_tar(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let ends = [".tar", ".tgz", ".tbz2", ".txz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst"];
    ends.iter().any(|end| name.ends_with(end))
}

/// Bytes `start..start + length` of a file.
///
/// It does not buffer, since only headers are read, and refuses to seek past its end, so that a
/// member which extends beyond it is an error.
struct Section<'a> {
    file: &'a File,
    start: u64,
    length: u64,
    /// Of the next read, in bytes from `start`.
    position: u64,
}

impl Read for Section<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.length - self.position;
        let wanted = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut into[..wanted], self.start + self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl Seek for Section<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.length.checked_add_signed(by),
        };
        match position {
            Some(position) if position <= self.length => {
                self.position = position;
                Ok(position)
            }
            Some(_) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends inside a member")),
            None => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}
