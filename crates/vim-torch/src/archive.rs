//! PyTorch's archive: a zip of a pickle and one file per storage.

use std::io::{self, Read, Seek};

use zip::ZipArchive;
use zip::result::ZipError;

use crate::error::ReadError;
use crate::limits::{Budget, MAX_PICKLE};

/// An open archive.
pub(crate) struct Archive<R> {
    zip: ZipArchive<R>,
    /// The folder of all entries, with its slash.
    folder: String,
}

/// The size that a file must have.
enum Size {
    AtMost(u64),
    Exactly(u64),
}

impl<R: Read + Seek> Archive<R> {
    /// Opens the archive and checks that it is one of `torch.save`'s.
    pub(crate) fn open(reader: R) -> Result<Self, ReadError> {
        let zip = ZipArchive::new(reader).map_err(damaged)?;
        let folder = zip.file_names().flatten().find_map(|name| {
            let folder = name.strip_suffix("data.pkl")?;
            folder.ends_with('/').then(|| folder.to_owned())
        });
        let Some(folder) = folder else {
            let numpy = zip.file_names().flatten().any(|name| name.ends_with(".npy"));
            let found = if numpy {
                "it holds NumPy arrays (.npz)"
            } else {
                "it is a zip archive without data.pkl"
            };
            return Err(ReadError::Unknown { found: found.to_owned() });
        };
        let mut archive = Self { zip, folder };
        if archive.has("constants.pkl") {
            return Err(ReadError::TorchScript);
        }
        let mut budget = Budget::of_file(0);
        if archive.has("byteorder")
            && archive.read("byteorder", Size::AtMost(16), &mut budget)? == b"big"
        {
            return Err(ReadError::BigEndian);
        }
        Ok(archive)
    }

    /// The pickle.
    pub(crate) fn pickle(&mut self, budget: &mut Budget) -> Result<Vec<u8>, ReadError> {
        self.read("data.pkl", Size::AtMost(MAX_PICKLE), budget)
    }

    /// The storage `key`, which must have `length` bytes.
    pub(crate) fn storage(
        &mut self,
        key: &str,
        length: u64,
        budget: &mut Budget,
    ) -> Result<Vec<u8>, ReadError> {
        self.read(&format!("data/{key}"), Size::Exactly(length), budget)
    }

    fn has(&self, name: &str) -> bool {
        self.zip.index_for_name(&format!("{}{name}", self.folder)).is_some()
    }

    /// The file `name`.
    fn read(&mut self, name: &str, may: Size, budget: &mut Budget) -> Result<Vec<u8>, ReadError> {
        let file = self.zip.by_name(&format!("{}{name}", self.folder)).map_err(|e| {
            if matches!(e, ZipError::FileNotFound) {
                ReadError::damaged(format!("{name} is missing"))
            } else {
                damaged(e)
            }
        })?;
        let size = file.size();
        match may {
            Size::AtMost(limit) if size > limit => {
                return Err(ReadError::TooLarge { what: name.to_owned(), bytes: size, limit });
            }
            Size::Exactly(length) if size != length => {
                let what = format!("{name} has {size} bytes where the pickle says {length}");
                return Err(ReadError::damaged(what));
            }
            Size::AtMost(_) | Size::Exactly(_) => {}
        }
        budget.take(size, name)?;
        // Memory grows with the bytes read, not with the size that the header claims.
        let mut bytes = Vec::new();
        let read = file.take(size + 1).read_to_end(&mut bytes).map_err(in_archive)?;
        if read as u64 != size {
            return Err(ReadError::damaged(format!("{name} is not as long as its header says")));
        }
        Ok(bytes)
    }
}

fn damaged(error: ZipError) -> ReadError {
    if let ZipError::Io(error) = error {
        in_archive(error)
    } else {
        ReadError::damaged(error.to_string())
    }
}

/// Keeps errors of the operating system; others mean that the content is wrong.
fn in_archive(error: io::Error) -> ReadError {
    if error.raw_os_error().is_some() {
        ReadError::Io(error)
    } else {
        ReadError::damaged(error.to_string().to_lowercase())
    }
}
