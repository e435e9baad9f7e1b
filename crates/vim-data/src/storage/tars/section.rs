//! A part of a file, read as if it were a file.

use std::io::{self, Read, Seek, SeekFrom};
use std::{fs::File, os::unix::fs::FileExt};

/// Bytes `start..start + length` of a file.
///
/// It does not buffer, since only headers are read, and refuses to seek past its end, so that a
/// member which extends beyond it is an error.
pub(super) struct Section<'a> {
    file: &'a File,
    start: u64,
    length: u64,
    position: u64,
}

impl<'a> Section<'a> {
    pub(super) fn new(file: &'a File, start: u64, length: u64) -> Self {
        Self { file, start, length, position: 0 }
    }

    /// The position of the next read, in bytes from the start.
    pub(super) fn position(&self) -> u64 {
        self.position
    }
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
