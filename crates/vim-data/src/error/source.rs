//! What can be wrong with a folder or an archive of images, and with copying it.

use std::io;
use std::path::{Path, PathBuf};

use super::Location;

/// Why images could not be found or read. Each text follows "failed to" and says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// Nothing at the path is a known layout.
    #[error(
        "find images in `{}`: it is neither a folder of classes, nor holds `train`, \
         archives or packs; docs/data.md lists the layouts",
        .0.display()
    )]
    Layout(PathBuf),

    /// There are training images, and a further part that is needed is not there.
    #[error("find {what} images beside `{}`: {advice}", train.display())]
    NoPart {
        /// The training part.
        train: PathBuf,
        /// Validation or test.
        what: &'static str,
        /// What can be done.
        advice: &'static str,
    },

    /// Two parts that are the same images.
    #[error(
        "tell {second} from {first} images in `{}`: they are the same; name others, or hold some \
         out by `data.val_fraction` and `data.test_fraction` (docs/data.md)",
        path.display()
    )]
    SamePart {
        /// The folder or archive.
        path: PathBuf,
        /// What they are used as.
        first: &'static str,
        /// And what else.
        second: &'static str,
    },

    /// Folders that would be classes, and are called as parts are.
    #[error(
        "find the classes in `{}`: {names} may be parts; call them `train`, `val` and `test`, or \
         say that they are classes by `data.parts = \"train\"`",
        path.display()
    )]
    PartsOrClasses {
        /// The folder.
        path: PathBuf,
        /// The names.
        names: String,
    },

    /// A folder or archive without an image.
    #[error(
        "find images in `{}`: there is none of a kind that is read (docs/data.md){}",
        path.display(),
        after_colon(found)
    )]
    Empty {
        /// The folder or archive.
        path: PathBuf,
        /// What is there instead; empty if nothing is.
        found: String,
    },

    /// A class without an image, as an interrupted unpacking leaves.
    #[error(
        "find images of class `{class}` in `{}`: {}",
        path.display(),
        found.as_deref().unwrap_or("there are none; unpack it again, or remove the folder")
    )]
    EmptyClass {
        /// The folder of classes.
        path: PathBuf,
        /// The class.
        class: String,
        /// What is there instead.
        found: Option<String>,
    },

    /// Images of a part that are training images.
    #[error(
        "tell {what} from training images: {count} of {all} {what} images are training images too, \
         {first} the first of them: take them out of one; where there is no such part, \
         `data.val_fraction` holds training images out"
    )]
    Trained {
        /// What images of the part are called.
        what: &'static str,
        /// How many they are.
        count: usize,
        /// The images of the part.
        all: usize,
        /// The first of them.
        first: Location,
    },

    /// A name that cannot be recorded.
    #[error("list `{}`: its name is not UTF-8; rename it", .0.display())]
    Encoding(PathBuf),

    /// Folders without end.
    #[error(
        "list `{}`: too many folders inside each other; is a link to a folder above it in there?",
        .0.display()
    )]
    Depth(PathBuf),

    /// The two parts disagree about the classes.
    #[error(
        "match the classes of `{}` ({val_classes}) with those of `{}` ({train_classes}): \
         {difference}; {advice}",
        val.display(),
        train.display()
    )]
    Classes {
        /// The training part.
        train: PathBuf,
        /// Its number of classes.
        train_classes: usize,
        /// The validation part.
        val: PathBuf,
        /// Its number of classes.
        val_classes: usize,
        /// What only one of them has.
        difference: String,
        /// What is asked for.
        advice: &'static str,
    },

    /// Two classes of one name.
    #[error(
        "tell the classes in `{}` apart: two are called `{name}`, in two Unicode forms; merge them",
        path.display()
    )]
    ClassTwice {
        /// The folder, archive or list.
        path: PathBuf,
        /// The name.
        name: String,
    },

    /// Images in no folder of a class.
    #[error(
        "find the classes of the images in `{}`: they are in no folder of a class; set \
         `data.val_labels` to a list of their classes",
        .0.display()
    )]
    Unlabelled(PathBuf),

    /// A list of classes with another number of lines than there are images.
    #[error(
        "match the list of classes `{}` ({lines} lines) with `{}` ({images} images): give one line \
         for each image, in the order of the file names",
        list.display(),
        path.display()
    )]
    ListLength {
        /// The list.
        list: PathBuf,
        /// Lines in it.
        lines: usize,
        /// The folder or archive.
        path: PathBuf,
        /// Images in it.
        images: usize,
    },

    /// The devkit's own numbers, which are in another order than the classes.
    #[error(
        "read the list of classes `{}`: its numbers are the development kit's, whose order is \
         another than that of the classes' names; give a list of WordNet IDs (n01440764), one a \
         line in the order of the file names, such as `imagenet_2012_validation_synset_labels.txt` \
         of tensorflow/models, or Kaggle's `LOC_val_solution.csv`",
        .0.display()
    )]
    DevkitNumbers(PathBuf),

    /// A line of a list is not what it should be.
    #[error("read line {line} of the list of classes `{}`: {what}", list.display())]
    ListLine {
        /// The list.
        list: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong.
        what: String,
    },

    /// An archive ends early or is damaged.
    #[error(
        "read archive {file}: cut short or damaged {at} bytes from its start ({source}); copy or \
         download it again"
    )]
    Tar {
        /// The archive, or the one inside it.
        file: Location,
        /// Where, in bytes from the start of the outer archive.
        at: u64,
        /// What was found.
        source: io::Error,
    },

    /// A zip that cannot be read.
    #[error("read zip {file}: {why}; copy or download it again")]
    Zip {
        /// The archive.
        file: Location,
        /// What is wrong with it.
        why: String,
    },

    /// A dataset of pairs or of objects without one of its folders.
    #[error(
        "find the {what} in `{}`: expected `{expected}`; docs/data.md leads to the layouts",
        path.display()
    )]
    NoHalf {
        /// Where it was looked for.
        path: PathBuf,
        /// Images or label maps, and of which part.
        what: String,
        /// The usual name of the folder.
        expected: String,
    },

    /// An image without a label map, or the other way round.
    #[error("pair {file} with its {missing}: none has its name in `{}`; {advice}", path.display())]
    Unpaired {
        /// The file that is alone.
        file: Location,
        /// What it lacks.
        missing: &'static str,
        /// Where that was looked for.
        path: PathBuf,
        /// What to do.
        advice: String,
    },

    /// An image with several label maps, or the other way round.
    #[error(
        "pair {file} with its label map: several images or label maps have its name; give each \
         pair a name of its own"
    )]
    PairedTwice {
        /// One of them.
        file: Location,
    },

    /// A list of images that cannot be used.
    #[error("use the list of images {file}: {why}")]
    ImageList {
        /// The list.
        file: Location,
        /// What is wrong with it.
        why: String,
    },

    /// A list of classes that cannot be used.
    #[error("read the classes in `{}`: {why}", path.display())]
    ClassList {
        /// The list.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },

    /// A file of COCO's that cannot be used.
    #[error("use the {what} in {file}: {why} (docs/objects.md has the format)")]
    Coco {
        /// The file.
        file: Location,
        /// What it should hold.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },

    /// An archive that cannot be read in place.
    #[error(
        "read {file} in place: it is compressed by {format}; decompress it once, images hardly \
         shrink"
    )]
    Compressed {
        /// The archive.
        file: Location,
        /// By what.
        format: &'static str,
    },

    /// A member that cannot be read in place.
    #[error("read {file} in place: it {what}; pack the files again without it")]
    Member {
        /// The member.
        file: Location,
        /// What it is.
        what: &'static str,
    },

    /// An archive of several folders of classes.
    #[error(
        "find the classes in archive `{}`: both `{first}` and `{second}` hold images; make an \
         archive of each part",
        path.display()
    )]
    Parents {
        /// The archive.
        path: PathBuf,
        /// A folder of images.
        first: String,
        /// One that is elsewhere.
        second: String,
    },

    /// A WebDataset sample without its class.
    #[error("find the class of {0}: no `.cls` file of the same name is beside it")]
    NoClass(Location),

    /// A `.cls` file that tells no class.
    #[error(
        "read the class in {file}: `{text}` is neither a number below {most} nor a name, which \
         those of all images must be"
    )]
    Cls {
        /// The file.
        file: Location,
        /// Its start.
        text: String,
        /// What numbers must be below.
        most: u32,
    },

    /// Classes that are numbers in some `.cls` files and names in others.
    #[error(
        "read the classes of {number} and {name}: the one is a number, the other `{text}`; write \
         numbers or names in all `.cls` files"
    )]
    ClsMixed {
        /// A file with a number.
        number: Location,
        /// A file with a name.
        name: Location,
        /// The name.
        text: String,
    },

    /// Two files of one name.
    #[error("read {0}: the archive holds it twice")]
    Twice(Location),

    /// A pack whose files do not belong together.
    #[error(
        "open pack `{}`: {why}; copy it again, or remove `pack.index` to have its shards read as \
         WebDataset",
        path.display()
    )]
    Pack {
        /// The folder.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },

    /// Something is in the way of a new pack.
    #[error("write pack `{}`: it is there already; name another folder", .0.display())]
    Exists(PathBuf),

    /// The program was asked to end.
    #[error("write pack `{}`: interrupted; nothing is left of it", .0.display())]
    Stopped(PathBuf),

    /// An image could not be read.
    #[error("read {file}: {source}")]
    Read {
        /// The image.
        file: Location,
        /// The operating system's reason.
        source: io::Error,
    },

    /// A file is not what it was when it was verified.
    #[error(
        "read {file}: its checksum is {found:08x}, and was {expected:08x}; the file has changed or \
         the disk is failing, `vim-train data verify --again` takes it as it is now"
    )]
    Checksum {
        /// The image.
        file: Location,
        /// CRC-32C as recorded.
        expected: u32,
        /// CRC-32C as read.
        found: u32,
    },
}

/// Why archives could not be copied to the node's disk. Each text follows "failed to".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StagingError {
    /// `$SLURM_TMPDIR` is not set.
    #[error(
        "stage: `data.stage = \"require\"` and $SLURM_TMPDIR names no folder; start the program in \
         a SLURM job, set the variable, or stage otherwise"
    )]
    NoFolder,

    /// Files that are not staged.
    #[error(
        "stage `{}`: folders of files are read where they are; pack them by `vim-train data pack`, \
         or set `data.stage = \"auto\"`",
        .0.display()
    )]
    NotArchives(PathBuf),

    /// The disk is too small.
    #[error(
        "stage {} of archives in `{}`: {} are free; ask for a node with a larger disk, or set \
         `data.stage = \"off\"`",
        gigabytes(*needed),
        path.display(),
        gigabytes(*free)
    )]
    NoRoom {
        /// The folder.
        path: PathBuf,
        /// Bytes to be copied.
        needed: u64,
        /// Bytes free.
        free: u64,
    },

    /// A copy differs from what was read.
    #[error(
        "stage `{}`: its copy differs {at} bytes from the start; the node's disk or memory is \
         failing",
        path.display()
    )]
    Differs {
        /// The source.
        path: PathBuf,
        /// Start of the chunk that differs.
        at: u64,
    },

    /// The source was written to.
    #[error("stage `{}`: it changed while it was copied; start again", .0.display())]
    Changed(PathBuf),

    /// The program ends.
    #[error("stage `{}`: interrupted", .0.display())]
    Stopped(PathBuf),

    /// A file could not be read or written.
    #[error("stage: `{}`: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
}

impl StagingError {
    /// For `map_err`: an operation on `path` failed.
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { path: path.clone(), source }
    }
}

/// `: text`, or nothing.
fn after_colon(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// `148.3 GB`.
fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}
