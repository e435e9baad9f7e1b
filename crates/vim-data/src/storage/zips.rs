//! Zips, whose entries are read in place.
//!
//! Where an entry is, how long its content is and which CRC-32 it has stands in the zip's central
//! directory, is kept with the index, and is compared when the entry is read.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use flate2::Crc;
use flate2::bufread::DeflateDecoder;
use serde::{Deserialize, Serialize};
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use super::index::{Extent, is_hidden, shared};
use crate::error::{DataError, Location, SourceError};
use crate::input::InputKind;

/// Whether an archive is a zip by its name.
pub(crate) fn is_zip(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("zip"))
}

/// What a zip says of an entry's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Zipped {
    /// Whether it is compressed, by deflate, and not stored as it is.
    deflated: bool,
    crc32: u32,
    /// Its length.
    pub(crate) bytes: u64,
}

/// An entry that can be read in place.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    /// What is stored, without the header.
    pub(super) extent: Extent,
    pub(super) zipped: Zipped,
}

impl Zipped {
    /// Replaces the content of `into` by the first `most` bytes of the content, which `stored` has
    /// as it is in the zip. Of the whole content, length and CRC-32 are compared.
    pub(super) fn read(
        self,
        mut stored: impl BufRead,
        most: u64,
        into: &mut Vec<u8>,
    ) -> io::Result<()> {
        into.clear();
        // One byte more than there are tells a content that goes on.
        let wanted = most.min(self.bytes.saturating_add(1));
        into.try_reserve_exact(usize::try_from(wanted).unwrap_or(usize::MAX))?;
        let read = match self.deflated {
            true => DeflateDecoder::new(stored).take(wanted).read_to_end(into),
            false => stored.by_ref().take(wanted).read_to_end(into),
        };
        read.map_err(|error| match error.raw_os_error() {
            Some(_) => error,
            None => damaged(&error.to_string()),
        })?;
        let found = into.len() as u64;
        if most <= self.bytes && found == most {
            return Ok(()); // the start alone was wanted
        }
        let stated = self.bytes;
        if found > stated {
            return Err(damaged(&format!(
                "it has more than the {stated} bytes that the zip states"
            )));
        }
        if found < stated {
            return Err(damaged(&format!(
                "it has {found} of the {stated} bytes that it should have"
            )));
        }
        let mut crc = Crc::new();
        crc.update(into);
        if crc.sum() != self.crc32 {
            let (found, expected) = (crc.sum(), self.crc32);
            return Err(damaged(&format!("its CRC-32 is {found:08x}, and not {expected:08x}")));
        }
        Ok(())
    }
}

fn damaged(why: &str) -> io::Error {
    let text = format!("a damaged zip entry: {why}; copy or download the zip again");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// The entries of a zip whose names are `wanted`, but for hidden ones. One that the zip has twice
/// comes twice.
///
/// A `\` in a name is read as `/`: some programs on Windows write that.
pub(super) fn entries(
    path: &Path,
    file: &File,
    mut wanted: impl FnMut(&str) -> bool,
) -> Result<Vec<Entry>, DataError> {
    let wrong = |why: String| {
        let file = Location { path: path.to_owned(), member: None };
        DataError::from(SourceError::Zip { file, why })
    };
    let wrong_zip = |error: ZipError| {
        let text = error.to_string();
        let source = if let ZipError::Io(source) = error { Some(source) } else { None };
        match source.filter(|source| source.raw_os_error().is_some()) {
            Some(source) => DataError::io(path)(source),
            None => wrong(text),
        }
    };
    let length = file.metadata().map_err(DataError::io(path))?.len();
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(wrong_zip)?;
    let twice = match archive.has_duplicate_names() {
        true => {
            names_twice(file, archive.central_directory_start()).map_err(DataError::io(path))?
        }
        false => HashSet::new(),
    };
    let names = archive.file_names().map(|name| name.map(|name| name.replace('\\', "/")));
    let names: Vec<String> = names.collect::<Result<_, _>>().map_err(wrong_zip)?;
    let shared = shared(names.iter().map(String::as_str).filter(|name| !name.ends_with('/')));
    let mut entries = Vec::new();
    for number in 0..archive.len() {
        let entry = archive.by_index_data(number).map_err(wrong_zip)?;
        let name = entry.name().map_err(wrong_zip)?.replace('\\', "/");
        if entry.is_dir() || name.ends_with('/') {
            continue;
        }
        if is_hidden(&name[shared..]) || !wanted(&name) {
            continue;
        }
        if entry.is_symlink() {
            let file = Location { path: path.to_owned(), member: Some(name) };
            return Err(SourceError::Member { file, what: "is a link to another file" }.into());
        }
        let method = entry.compression();
        let deflated = method == CompressionMethod::Deflated;
        if entry.encrypted() || !(deflated || method == CompressionMethod::Stored) {
            return Err(wrong(format!(
                "`{name}` is encrypted, or compressed otherwise than by deflate"
            )));
        }
        let zipped = Zipped { deflated, crc32: entry.crc32(), bytes: entry.size() };
        let (stored, is_twice) = (entry.compressed_size(), twice.contains(entry.name_raw()));
        // Its header is looked at, which says where the content begins.
        let offset = archive.by_index_raw(number).map_err(wrong_zip)?.data_start();
        let offset = offset.ok_or_else(|| wrong(format!("`{name}` has no content")))?;
        if offset.checked_add(stored).is_none_or(|end| end > length) {
            return Err(wrong(format!(
                "it ends inside `{name}`, or states a wrong length of that"
            )));
        }
        let extent = Extent { offset, length: stored };
        let entry = Entry { name, extent, zipped };
        entries.extend(is_twice.then(|| entry.clone()));
        entries.push(entry);
    }
    Ok(entries)
}

/// Bytes of an entry in the central directory before its name.
const HEADER: usize = 46;

/// The names that are more than once in the central directory, which begins at `start`: the library
/// gives the last entry of a name alone.
fn names_twice(file: &File, start: u64) -> io::Result<HashSet<Vec<u8>>> {
    let mut directory = BufReader::new(file);
    directory.seek(SeekFrom::Start(start))?;
    let (mut seen, mut twice) = (HashSet::new(), HashSet::new());
    loop {
        let mut header = Vec::with_capacity(HEADER);
        directory.by_ref().take(HEADER as u64).read_to_end(&mut header)?;
        if header.len() < HEADER || !header.starts_with(b"PK\x01\x02") {
            return Ok(twice); // the end of the directory
        }
        let [name, extra, comment] =
            [28, 30, 32].map(|at| u16::from_le_bytes([header[at], header[at + 1]]));
        let mut text = vec![0; usize::from(name)];
        directory.read_exact(&mut text)?;
        directory.seek_relative(i64::from(extra) + i64::from(comment))?;
        if !seen.insert(text.clone()) {
            twice.insert(text);
        }
    }
}

/// The content of the entry `name` of the zip at `path`, which is to be of this kind.
///
/// # Errors
/// If there is none or are two of that name, its stated length is more than its kind may have, or
/// it is damaged.
pub(crate) fn read_entry(path: &Path, name: &str, kind: InputKind) -> Result<Vec<u8>, DataError> {
    let location = || Location { path: path.to_owned(), member: Some(name.to_owned()) };
    let mut file = File::open(path).map_err(DataError::io(path))?;
    let entries = entries(path, &file, |other| other == name)?;
    let Entry { extent, zipped, .. } = match entries.as_slice() {
        [one] => one,
        [] => {
            let why = "there is no such member".to_owned();
            return Err(SourceError::Zip { file: location(), why }.into());
        }
        [_, ..] => return Err(SourceError::Twice(location()).into()),
    };
    let mut content = Vec::new();
    let read = match zipped.bytes > kind.most_bytes() {
        true => Err(kind.too_large()),
        false => file.seek(SeekFrom::Start(extent.offset)).and_then(|_| {
            zipped.read(BufReader::new(file.take(extent.length)), u64::MAX, &mut content)
        }),
    };
    read.map_err(|source| SourceError::Read { file: location(), source })?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use zip::write::{SimpleFileOptions, ZipWriter};

    use super::*;

    /// A zip with these entries, and its path.
    fn zip_of(entries: &[(&str, &[u8])], method: CompressionMethod) -> tempfile::NamedTempFile {
        let mut writer = ZipWriter::new(tempfile::NamedTempFile::new().unwrap());
        for &(name, content) in entries {
            let options = SimpleFileOptions::default().compression_method(method);
            writer.start_file(name, options).unwrap();
            writer.write_all(content).unwrap();
        }
        writer.finish().unwrap()
    }

    /// The zip with `to` in place of `from`, as often as that is there.
    fn altered(zip: &tempfile::NamedTempFile, from: &[u8], to: &[u8]) -> tempfile::NamedTempFile {
        let mut bytes = std::fs::read(zip.path()).unwrap();
        let places: Vec<usize> = memchr::memmem::find_iter(&bytes, from).collect();
        assert!(!places.is_empty());
        places.into_iter().for_each(|at| bytes[at..at + to.len()].copy_from_slice(to));
        let altered = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(altered.path(), bytes).unwrap();
        altered
    }

    fn read(zip: &tempfile::NamedTempFile, kind: InputKind) -> Result<Vec<u8>, String> {
        read_entry(zip.path(), "a/b.json", kind).map_err(|error| error.to_string())
    }

    const BOTH: [CompressionMethod; 2] = [CompressionMethod::Stored, CompressionMethod::Deflated];

    #[test]
    fn an_entry_is_compared_with_what_the_zip_says() {
        let content: Vec<u8> = (0..20_000_u32).flat_map(|word| word.to_le_bytes()).collect();
        for method in BOTH {
            let zip = zip_of(&[("a/b.json", &content), ("c", b"c")], method);
            assert!(read(&zip, InputKind::Annotations).unwrap() == content);
            let mut crc = Crc::new();
            crc.update(&content);
            let other = altered(&zip, &crc.sum().to_le_bytes(), &[1; 4]);
            let error = read(&other, InputKind::Annotations).unwrap_err();
            assert!(error.contains("its CRC-32 is") && error.contains("01010101"), "{error}");
            for stated in [content.len() as u32 - 1, content.len() as u32 + 1] {
                // The last place is the central directory's, behind the CRC-32 and the length.
                let mut bytes = std::fs::read(zip.path()).unwrap();
                let at = memchr::memmem::find(&bytes, b"PK\x01\x02").unwrap() + 24;
                bytes[at..at + 4].copy_from_slice(&stated.to_le_bytes());
                std::fs::write(other.path(), bytes).unwrap();
                let error = read(&other, InputKind::Annotations).unwrap_err();
                assert!(error.contains("bytes that"), "{error}");
            }
        }
        let error = read(&zip_of(&[("c", b"c")], BOTH[0]), InputKind::Annotations).unwrap_err();
        assert!(error.contains("there is no such member"), "{error}");
    }

    #[test]
    fn what_is_damaged_inside_is_an_error_and_the_start_can_be_read() {
        let content = b"0123456789".repeat(10_000);
        let zip = zip_of(&[("a/b.json", &content)], BOTH[1]);
        let [Entry { extent, zipped, .. }] =
            &entries(zip.path(), zip.as_file(), |_| true).unwrap()[..]
        else {
            panic!("one entry")
        };
        let bytes = std::fs::read(zip.path()).unwrap();
        let stored = &bytes[extent.offset as usize..][..extent.length as usize];
        let mut into = b"before".to_vec();
        for most in [0, 1, 99_999, 100_000, 100_001, u64::MAX] {
            zipped.read(stored, most, &mut into).unwrap();
            assert!(into == content[..content.len().min(usize::try_from(most).unwrap())]);
        }
        let cut = zipped.read(&stored[..stored.len() / 2], u64::MAX, &mut into).unwrap_err();
        let none = zipped.read(&[0xff; 40][..], u64::MAX, &mut into).unwrap_err();
        for error in [cut, none] {
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert!(error.to_string().starts_with("a damaged zip entry: "), "{error}");
        }
    }

    #[test]
    fn a_stated_length_beyond_the_kind_is_not_unpacked() {
        let zeros = vec![b' '; 5 << 20];
        let zip = zip_of(&[("a/b.json", &zeros)], BOTH[1]);
        assert_eq!(read(&zip, InputKind::Annotations).unwrap().len(), 5 << 20);
        let error = read(&zip, InputKind::Script).unwrap_err();
        assert!(error.contains("larger than 4 MiB"), "{error}");
    }

    #[test]
    fn two_entries_of_a_name_are_found() {
        let third = |name| zip_of(&[("a/b.json", b"one"), ("c", b"c"), (name, b"two")], BOTH[0]);
        for zip in [altered(&third("a/x.json"), b"a/x.json", b"a/b.json"), third("a\\b.json")] {
            let error = read(&zip, InputKind::Annotations).unwrap_err();
            assert!(error.contains("the archive holds it twice"), "{error}");
        }
        assert_eq!(read(&third("a/x.json"), InputKind::Annotations).unwrap(), b"one");
    }

    #[test]
    fn an_entry_that_ends_behind_the_file_is_refused() {
        let zip = zip_of(&[("a/b.json", b"text")], BOTH[1]);
        let mut bytes = std::fs::read(zip.path()).unwrap();
        let at = memchr::memmem::find(&bytes, b"PK\x01\x02").unwrap() + 20;
        bytes[at..at + 4].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
        std::fs::write(zip.path(), bytes).unwrap();
        let error = read(&zip, InputKind::Annotations).unwrap_err();
        assert!(error.contains("it ends inside `a/b.json`"), "{error}");
    }
}
