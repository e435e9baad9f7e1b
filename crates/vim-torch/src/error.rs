//! Why a file cannot be read or written. Each text is one line: what, and what to do.

use std::io;

/// A file that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The operating system fails to read.
    #[error("cannot be read: {0}")]
    Io(#[source] io::Error),
    /// Neither format.
    #[error("is no checkpoint: {found}; expected a PyTorch archive (.pth) or safetensors")]
    Unknown {
        /// What it looks like.
        found: String,
    },
    /// A file of `torch.save` before PyTorch 1.6, or with `_use_new_zipfile_serialization=False`.
    #[error(
        "is in PyTorch's format from before 1.6; save it anew: python3 -c \"import torch; torch.save(torch.load('old.pth', map_location='cpu'), 'new.pth')\""
    )]
    Legacy,
    /// A compiled program, not a state dict.
    #[error(
        "is a TorchScript program, not a checkpoint; save its weights: torch.save(torch.jit.load('x.pt').state_dict(), 'x.pth')"
    )]
    TorchScript,
    /// The file ends early, or the archive is not what it says.
    #[error("is cut short or damaged: {}; copy or download it again", on_one_line(what))]
    Damaged {
        /// The symptom.
        what: String,
    },
    /// More than a file of this size may make the reader allocate.
    #[error(
        "is refused: {} would take {bytes} bytes, and a file of this size may make {limit}",
        on_one_line(what)
    )]
    TooLarge {
        /// What is large.
        what: String,
        /// The size that it claims.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// An archive made on a big-endian machine.
    #[error(
        "has big-endian numbers; load and save it again on the machine that made it, with torch.serialization.set_default_load_endianness"
    )]
    BigEndian,
    /// The pickle cannot be followed.
    #[error("has a pickle that cannot be followed: at byte {at}, {what}")]
    Pickle {
        /// Offset of the operation in the pickle.
        at: usize,
        /// What is wrong with it.
        what: String,
    },
    /// No such entry.
    #[error("has no entry {wanted}; it has {}", found.join(", "))]
    NoSection {
        /// The entries that would do.
        wanted: String,
        /// What there is.
        found: Vec<String>,
    },
    /// Several entries would do.
    #[error(
        "has weights in {}, and which are meant is not clear; keep one alone: python3 -c \"import torch; torch.save(torch.load('old.pth', map_location='cpu'){}, 'new.pth')\"",
        quoted(found),
        index(found)
    )]
    Ambiguous {
        /// The entries, those in others by the path to them, such as `model.student`.
        found: Vec<String>,
    },
    /// The entry is something else.
    #[error("holds {found} in {entry}, not a state dict; save model.state_dict()")]
    NotAStateDict {
        /// Where.
        entry: String,
        /// What is there.
        found: String,
    },
}

impl ReadError {
    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged { what: what.into() }
    }
}

/// Entries by name.
fn quoted(found: &[String]) -> String {
    found.iter().map(|entry| format!("`{entry}`")).collect::<Vec<_>>().join(" and ")
}

/// The first of some entries, as Python takes it out of a dictionary.
fn index(found: &[String]) -> String {
    let path = found.first().into_iter().flat_map(|path| path.split('.'));
    path.map(|name| format!("['{name}']")).collect()
}

/// Escapes control characters: the text may contain names from a file.
fn on_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            Self::damaged("it ends early")
        } else {
            Self::Io(error)
        }
    }
}

/// A file that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The operating system fails to write.
    #[error("cannot be written: {0}")]
    Io(#[from] io::Error),
    /// The archive refuses.
    #[error("cannot be written as an archive: {0}")]
    Zip(#[from] zip::result::ZipError),
    /// The format refuses.
    #[error("cannot be written as safetensors: {0}")]
    Safetensors(#[from] safetensors::SafeTensorError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_names_do_not_break_the_line() {
        let what = "data/\n\u{1b}é is missing";
        let damaged = ReadError::damaged(what).to_string();
        assert!(damaged.contains(r"data/\n\u{1b}é is missing"), "{damaged}");
        let large = ReadError::TooLarge { what: what.into(), bytes: 2, limit: 1 }.to_string();
        assert!(large.contains(r"data/\n\u{1b}é"), "{large}");
    }
}
