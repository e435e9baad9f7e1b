//! The bytes of a pickle, one operand after the other.

use std::str;

/// The rest of a pickle.
pub(super) struct Operands<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Operands<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Offset of the next byte.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn take(&mut self, length: u64) -> Result<&'a [u8], String> {
        let rest = &self.bytes[self.at..];
        let length = usize::try_from(length).ok().filter(|&length| length <= rest.len());
        let length = length.ok_or("it ends within an operand")?;
        self.at += length;
        Ok(&rest[..length])
    }

    /// A number of `width` bytes, at most 8.
    pub(super) fn unsigned(&mut self, width: u64) -> Result<u64, String> {
        let bytes = self.take(width)?;
        Ok(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    pub(super) fn text(&mut self, length: u64) -> Result<String, String> {
        let bytes = self.take(length)?;
        str::from_utf8(bytes).map(str::to_owned).map_err(|_| "a text is not UTF-8".to_owned())
    }

    /// A text up to the end of its line.
    pub(super) fn line(&mut self) -> Result<String, String> {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|&byte| byte == b'\n');
        let text = self.text(length.ok_or("it ends within a name")? as u64)?;
        self.at += 1;
        Ok(text)
    }

    /// An integer in two's complement, if it has 64 bits at most.
    pub(super) fn integer(&mut self, length: u64) -> Result<Option<i64>, String> {
        let bytes = self.take(length)?;
        if bytes.len() > 8 {
            return Ok(None);
        }
        let sign = if bytes.last().is_some_and(|&byte| byte & 0x80 != 0) { 0xff } else { 0 };
        let mut whole = [sign; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        Ok(Some(i64::from_le_bytes(whole)))
    }
}
