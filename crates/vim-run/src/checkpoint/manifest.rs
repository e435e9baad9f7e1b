//! The list of a checkpoint's files, which reveals damage.
//!
//! One line per file, `<BLAKE3> <bytes> <name>`, then `<BLAKE3 of the lines above> end`; without
//! the last line a manifest cut at a line's end would look whole.

use std::collections::BTreeMap;

/// Name of the manifest's file.
pub(crate) const MANIFEST: &str = "MANIFEST";

/// Checksum and length of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    hash: String,
    bytes: usize,
}

impl Entry {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { hash: blake3::hash(bytes).to_hex().to_string(), bytes: bytes.len() }
    }

    /// How `bytes` differ from the file's, if they do.
    pub(crate) fn mismatch(&self, bytes: &[u8]) -> Option<String> {
        if bytes.len() != self.bytes {
            return Some(format!("has {} bytes instead of {}", bytes.len(), self.bytes));
        }
        (Self::of(bytes) != *self).then(|| "does not match its checksum".to_owned())
    }
}

/// The manifest's text.
pub(crate) fn write<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> String {
    let mut text = String::new();
    for (name, bytes) in files {
        let entry = Entry::of(bytes);
        text.push_str(&format!("{} {} {name}\n", entry.hash, entry.bytes));
    }
    let end = blake3::hash(text.as_bytes()).to_hex();
    text.push_str(&format!("{end} end\n"));
    text
}

/// The entries of a manifest, by name; `None` if it is damaged.
pub(crate) fn read(text: &str) -> Option<BTreeMap<String, Entry>> {
    let (end_at, _) = text.strip_suffix('\n')?.rmatch_indices('\n').next()?;
    let (lines, end) = text.split_at(end_at + 1);
    if end.trim_end().strip_suffix(" end")? != blake3::hash(lines.as_bytes()).to_hex().as_str() {
        return None;
    }
    lines
        .lines()
        .map(|line| {
            let mut words = line.splitn(3, ' ');
            let (hash, bytes, name) = (words.next()?, words.next()?, words.next()?);
            let entry = Entry { hash: hash.to_owned(), bytes: bytes.parse().ok()? };
            Some((name.to_owned(), entry))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes_and_nothing_less() {
        let text = write([("model", b"abc".as_slice()), ("optim", b"")]);
        let entries = read(&text).unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!(entries["model"].mismatch(b"abc"), None);
        assert!(entries["model"].mismatch(b"abd").unwrap().contains("checksum"));
        assert!(entries["optim"].mismatch(b"x").unwrap().contains("1 bytes instead of 0"));
        for cut in 0..text.len() {
            assert_eq!(read(&text[..cut]), None, "cut after {cut} bytes");
        }
        assert_eq!(read(&text.replacen("abc", "", 1).replacen("model", "modal", 1)), None);
    }
}
