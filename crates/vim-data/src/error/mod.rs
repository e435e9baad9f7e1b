//! Errors between a configuration and a batch.

mod classes;
mod source;

use std::path::{Path, PathBuf};
use std::{fmt, io};

use crate::decode::DecodeError;

pub(crate) use classes::listed;
pub use classes::{ClassError, ClassSide};
pub use source::{SourceError, StagingError};

/// A file, or a member of an archive, that an error is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// The file or folder on disk.
    pub path: PathBuf,
    /// The member, when `path` is an archive.
    pub member: Option<String>,
}

/// Where a relative path is looked for.
fn seen_from(path: &Path) -> String {
    let here = std::env::current_dir().ok().filter(|_| path.is_relative());
    here.map(|here| format!(" as seen from `{}`", here.display())).unwrap_or_default()
}

impl DataError {
    /// For `map_err`: an operation on `path` failed.
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { path: path.clone(), source }
    }

    /// Whether the operating system failed to read what is there: the data may be good, and reading
    /// again may help.
    ///
    /// It did not with files that are missing, damaged, too large or something else, nor with a
    /// wrong configuration.
    pub fn is_io(&self) -> bool {
        use io::ErrorKind as Kind;
        let of_data = |source: &io::Error| {
            matches!(
                source.kind(),
                Kind::FileTooLarge
                    | Kind::InvalidData
                    | Kind::InvalidInput
                    | Kind::IsADirectory
                    | Kind::NotADirectory
                    | Kind::NotFound
                    | Kind::UnexpectedEof
            )
        };
        if let Self::KnownBad { is_io, .. } = self {
            return *is_io;
        }
        if let Self::Io { source, .. } | Self::Source(SourceError::Read { source, .. }) = self {
            return !of_data(source);
        }
        if let Self::Archive { source, .. } | Self::Source(SourceError::Tar { source, .. }) = self {
            // What the reader of archives finds is of no other kind.
            return !of_data(source) && source.kind() != Kind::Other;
        }
        false
    }

    /// For `map_err`: `path` could not be made.
    pub(crate) fn write(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Write { path: path.clone(), source }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}`", self.path.display())?;
        match &self.member {
            Some(member) => write!(formatter, " (member `{member}`)"),
            None => Ok(()),
        }
    }
}

/// Why data could not be opened or loaded. Each text follows "failed to" and says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A value of the configuration is outside its range.
    #[error("accept `{key} = {value}`: expected {expected}")]
    InvalidConfig {
        /// Key path, as in the configuration file.
        key: &'static str,
        /// The value given.
        value: String,
        /// What is accepted.
        expected: &'static str,
    },

    /// The dataset is read from files and no path is set.
    #[error(
        "open dataset `{dataset}`: `data.path` is not set; point it at the archive as downloaded, \
         or at the folder holding it"
    )]
    MissingPath {
        /// The dataset asked for.
        dataset: &'static str,
    },

    /// Nothing is at `data.path`.
    #[error(
        "read `{}`: there is no such file or folder{}; set `data.path` to where the images are \
         (docs/data.md)",
        .0.display(), seen_from(.0)
    )]
    NoImages(PathBuf),

    /// Nothing is where a key of further files says.
    #[error(
        "read `{key}: {}`: there is no such file or folder{}",
        path.display(), seen_from(path)
    )]
    NothingAt {
        /// Key path, as in the configuration file.
        key: &'static str,
        /// Its value.
        path: PathBuf,
    },

    /// A file or folder could not be read.
    #[error("read `{}`: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },

    /// A file or folder could not be written.
    #[error("write `{}`: {source}", path.display())]
    Write {
        /// What was to be there in the end.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },

    /// Neither the dataset's files nor its archives are at the path.
    #[error(
        "find dataset `{dataset}` in `{}`: expected {expected}; set `data.path` to one of them or \
         to the folder holding it",
        path.display()
    )]
    NotFound {
        /// The dataset asked for.
        dataset: &'static str,
        /// Where it was looked for.
        path: PathBuf,
        /// Names of the archives and folders that would do.
        expected: String,
    },

    /// The path is a file, but not an archive.
    #[error(
        "open `{}` as an archive: it is neither gzip nor tar; set `data.path` to the .tar.gz or \
         .tar as downloaded, or to the unpacked folder",
        .0.display()
    )]
    NotAnArchive(PathBuf),

    /// The files are those of the other CIFAR dataset.
    #[error(
        "open dataset `{expected}`: `{}` holds `{found}`; set `data.dataset = \"{found}\"` or \
         point `data.path` elsewhere",
        path.display()
    )]
    WrongDataset {
        /// The dataset asked for.
        expected: &'static str,
        /// The dataset found.
        found: &'static str,
        /// Where.
        path: PathBuf,
    },

    /// An archive ends early, or its checksum does not match.
    #[error(
        "read archive `{}`: cut short or damaged; download it again and compare its MD5 with \
         docs/data.md",
        path.display()
    )]
    Archive {
        /// The archive.
        path: PathBuf,
        /// Where decoding stopped.
        source: io::Error,
    },

    /// Some of the dataset's files are there, one is not.
    #[error("find `{member}` in `{}`: unpack or download the archive again", path.display())]
    MissingMember {
        /// The archive or folder.
        path: PathBuf,
        /// The name of the missing file.
        member: String,
    },

    /// A binary file is not a whole, positive number of records.
    #[error(
        "split {file} into records of {record} bytes: {bytes} bytes is not a whole, positive \
         number of them; the file is cut short or of another dataset, download it again"
    )]
    RecordSize {
        /// The file.
        file: Location,
        /// Its length in bytes.
        bytes: usize,
        /// Length of one record in bytes.
        record: usize,
    },

    /// A python-version file is not a pickle that can be read without executing anything.
    #[error(
        "decode pickle {file}: cut short, damaged or written with a protocol above 4 ({source})"
    )]
    Pickle {
        /// The file.
        file: Location,
        /// Where decoding stopped.
        source: serde_pickle::Error,
    },

    /// A python-version file is a pickle of something else.
    #[error("find `{key}` in pickle {file}: expected {expected}; is it a CIFAR file as published?")]
    PickleContent {
        /// The file.
        file: Location,
        /// The dictionary key.
        key: &'static str,
        /// What it should hold.
        expected: String,
    },

    /// A label is not a class.
    #[error(
        "accept label {label} of image {index} in {file}: there are {classes} classes; the file is \
         damaged or of another dataset"
    )]
    LabelOutOfRange {
        /// The file.
        file: Location,
        /// Image within the file.
        index: usize,
        /// The label read.
        label: i64,
        /// Number of classes.
        classes: usize,
    },

    /// Images in files could not be found or read.
    #[error(transparent)]
    Source(#[from] SourceError),

    /// Classes could not be matched by their names.
    #[error(transparent)]
    Classes(#[from] ClassError),

    /// A decoder could not be set up.
    #[error("decode: it {0}")]
    Decoder(#[from] DecodeError),

    /// Archives could not be copied to the node's disk.
    #[error(transparent)]
    Staging(#[from] StagingError),

    /// An epoch would hold no batch at all.
    #[error(
        "cut {images} training images into batches of {batch_size} without a partial one: an epoch \
         would hold none; lower the batch size"
    )]
    NoBatches {
        /// Images in the split.
        images: usize,
        /// Images per batch.
        batch_size: usize,
    },

    /// An image cannot be used, and the caller wants none left out.
    #[error("use {name}: it {reason}")]
    BadImage {
        /// The file, or `archive:member`.
        name: String,
        /// What is wrong with it.
        reason: String,
    },

    /// Images are known to be bad before the first of them is used.
    #[error(
        "use {count} of {images} {what}: {name}, the first, {reason}. List them all by `vim-train \
         data verify`, and {}; {advice}",
        if *is_io { "see to the disk or the network" } else { "replace or remove them" }
    )]
    KnownBad {
        /// Bad images.
        count: usize,
        /// All of them.
        images: usize,
        /// What they are: `test images` and the like.
        what: String,
        /// The file of the first, or `archive:member`.
        name: String,
        /// What is wrong with it.
        reason: String,
        /// Whether the operating system failed to read one of them.
        is_io: bool,
        /// What else can be done.
        advice: &'static str,
    },

    /// Too many images could not be used.
    #[error(
        "find enough good images: {count} were bad in {draws} draws, lately {last}; list them all \
         by `vim-train data verify`"
    )]
    TooManyBad {
        /// Bad images so far.
        count: u64,
        /// Draws so far.
        draws: u64,
        /// The last of them, and what is wrong with it.
        last: String,
    },

    /// A loader thread could not be started.
    #[error("start loader thread {worker}: {source}; lower `data.workers`")]
    Spawn {
        /// Number of the thread.
        worker: usize,
        /// The operating system's reason.
        source: io::Error,
    },

    /// A loader thread panicked: a defect of this program, reported instead of a short epoch.
    #[error("assemble batch {batch}: a loader thread panicked with `{message}`; please report it")]
    WorkerPanicked {
        /// Number of the batch, counted over all epochs.
        batch: u64,
        /// The panic's message.
        message: String,
    },
}
