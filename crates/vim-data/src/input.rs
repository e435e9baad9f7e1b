//! Reading whole files that somebody hands in: none is larger than its kind is.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// What a file that is read whole is to be; each kind has a most number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// An encoded image or label map.
    Image,
    /// Annotations or detections in JSON.
    Annotations,
    /// Names or labels of classes, a line each.
    Classes,
    /// A script or settings that people write.
    Script,
    /// What the program wrote itself: predictions, measurements.
    Record,
}

impl InputKind {
    /// The most bytes of such a file: several times the largest that is known.
    pub const fn most_bytes(self) -> u64 {
        match self {
            Self::Image => 256 << 20,
            // COCO's largest has 448 MB.
            Self::Annotations => 2 << 30,
            // ImageNet's 50 000 labels have 250 kB.
            Self::Classes => 64 << 20,
            Self::Script => 4 << 20,
            // Predictions of 1.28 million images of 1000 classes have 40 MB.
            Self::Record => 1 << 30,
        }
    }

    /// The error of a file that is larger.
    ///
    /// Its kind is [`io::ErrorKind::FileTooLarge`], which no read of a file has.
    pub(crate) fn too_large(self) -> io::Error {
        let (mib, what) = (self.most_bytes() >> 20, self.noun());
        let text = format!("it is larger than {mib} MiB, the most that {what} may have");
        io::Error::new(io::ErrorKind::FileTooLarge, text)
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Image => "an image",
            Self::Annotations => "a file of annotations or detections",
            Self::Classes => "a file of classes",
            Self::Script => "a script or a configuration",
            Self::Record => "such a file",
        }
    }
}

/// The content of the file `path`.
///
/// # Errors
/// If it cannot be read, or is larger than its kind may be, which its length tells before more than
/// a MiB of it is read; a device without end is read as far as that.
pub fn read_input(path: &Path, kind: InputKind) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    read_open(&File::open(path)?, kind, &mut bytes)?;
    Ok(bytes)
}

/// As [`read_input`], of an open file, in place of the content of `into`.
pub(crate) fn read_open(file: &File, kind: InputKind, into: &mut Vec<u8>) -> io::Result<()> {
    into.clear();
    let mut file = file.take(UNASKED);
    if (file.read_to_end(into)? as u64) < UNASKED {
        return Ok(());
    }
    let (most, stated) = (kind.most_bytes(), file.get_ref().metadata()?.len());
    if stated > most {
        return Err(kind.too_large());
    }
    into.try_reserve_exact(stated.saturating_sub(UNASKED) as usize)?;
    file.set_limit(most + 1 - UNASKED);
    file.read_to_end(into)?;
    if into.len() as u64 > most { Err(kind.too_large()) } else { Ok(()) }
}

/// Bytes that are read before a file system is asked for a file's length: most images are shorter,
/// and of a million files on a cluster's file system each question takes its time.
const UNASKED: u64 = 1 << 20;

/// The text of the file `path`, without a byte order mark.
///
/// # Errors
/// As for [`read_input`], or if it is not UTF-8.
pub fn read_text(path: &Path, kind: InputKind) -> io::Result<String> {
    text_of(read_input(path, kind)?)
}

/// The text that a file holds, without a byte order mark.
pub(crate) fn text_of(bytes: Vec<u8>) -> io::Result<String> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let text = format!("it is not UTF-8 from byte {} on", error.utf8_error().valid_up_to());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })?;
    Ok(match without_mark(text.as_bytes()).len() == text.len() {
        true => text,
        false => text[MARK.len()..].to_owned(),
    })
}

/// `text` without the byte order mark that some editors and exports begin a file with.
pub fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(MARK).unwrap_or(text)
}

const MARK: &[u8] = "\u{feff}".as_bytes();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_far_as_its_kind_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("classes.txt");
        std::fs::write(&path, "\u{feff}a\nb\n").unwrap();
        assert_eq!(read_text(&path, InputKind::Classes).unwrap(), "a\nb\n");

        std::fs::write(&path, b"a\xff").unwrap();
        let error = read_text(&path, InputKind::Classes).unwrap_err();
        assert_eq!(error.to_string(), "it is not UTF-8 from byte 1 on");

        // Sparse: it has no bytes on the disk, and none is read.
        File::create(&path).unwrap().set_len((4 << 20) + 1).unwrap();
        let error = read_input(&path, InputKind::Script).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(
            error.to_string(),
            "it is larger than 4 MiB, the most that a script or a configuration may have"
        );
        assert_eq!(read_input(&path, InputKind::Image).unwrap().len(), (4 << 20) + 1);
        let mut buffer = vec![7; 5];
        for length in [0, UNASKED - 1, UNASKED, UNASKED + 1, 4 << 20] {
            File::create(&path).unwrap().set_len(length).unwrap();
            read_open(&File::open(&path).unwrap(), InputKind::Script, &mut buffer).unwrap();
            assert_eq!(buffer.len() as u64, length);
            assert!(buffer.iter().all(|&byte| byte == 0));
        }

        let endless = read_input(Path::new("/dev/zero"), InputKind::Script).unwrap_err();
        assert_eq!(endless.kind(), io::ErrorKind::FileTooLarge);
    }
}
