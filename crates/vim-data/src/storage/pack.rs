//! Packs: images copied into a few large tar files, with an index beside them.
//!
//! A pack is a folder:
//!
//! - `shard-000000.tar`, …: WebDataset shards of `KEY.jpg` (or `.png` etc., by the content) and
//!   `KEY.cls`, the class as a number; `KEY` is the image's number in the source's order.
//! - `pack.index`: where every image is, its name in the source, its checksum, what is known of it,
//!   in the format of [`cache`].
//! - `pack.json`: classes, shards and counts, for people and scripts.
//!
//! The bytes depend on the images, their order and the options, and on nothing else.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{sync::mpsc, thread};

use rayon::prelude::*;
use serde::Serialize;
use tar::{Builder, Header};
use tempfile::TempDir;

use crate::dataset::{Dataset, Fingerprint, OnProgress, Progress};
use crate::error::{DataError, SourceError};
use crate::storage::cache::{self, PackIndex};
use crate::storage::images::Images;
use crate::storage::index::{Extent, Index};
use crate::storage::layout::PACK_INDEX;
use crate::{decode::ImageKind, rng};

/// A summary for people and scripts.
const SUMMARY: &str = "pack.json";
/// Images read in parallel at a time, while the previous ones are written.
const CHUNK: usize = 128;

/// How a pack is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PackOptions {
    /// Largest size of a shard, in bytes.
    pub shard_bytes: u64,
    /// Seed of a random order of the images in the shards; `None` keeps the source's order. Images
    /// are found by the index either way: it matters only to readers that go through the shards
    /// from front to back.
    pub shuffle: Option<u64>,
}

impl Default for PackOptions {
    /// Shards of 1 GiB in the source's order.
    fn default() -> Self {
        Self { shard_bytes: 1 << 30, shuffle: None }
    }
}

/// What was written; also the content of `pack.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PackReport {
    /// Version of the format.
    pub version: u32,
    /// Number of images.
    pub images: usize,
    /// Identifies the images, as a folder or as this pack.
    pub fingerprint: Fingerprint,
    /// How it was written.
    pub options: PackOptions,
    /// The tar files.
    pub shards: Vec<ShardReport>,
    /// Names of the classes, by label.
    pub classes: Vec<String>,
}

/// One tar file of a pack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShardReport {
    /// File name.
    pub name: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Images in it.
    pub images: u64,
}

/// Copies all images of `source` into a new folder, as they are.
///
/// It is written under another name and renamed at the end: a pack is complete or absent. What a
/// process that was killed left is for [`remove_abandoned`]. Ends soon after `is_stopped` says so.
///
/// # Errors
/// If `folder` exists, an image cannot be read, the disk is full, or it was stopped.
pub fn pack(
    source: &Images,
    folder: &Path,
    options: PackOptions,
    watch: OnProgress<'_>,
    is_stopped: &(dyn Fn() -> bool + Sync),
) -> Result<PackReport, DataError> {
    if folder.exists() {
        return Err(SourceError::Exists(folder.to_owned()).into());
    }
    let io = DataError::write(folder);
    fs::create_dir_all(parent(folder)).map_err(&io)?;
    let (temporary, lock) = new_partial(folder).map_err(&io)?;

    let target = Target { folder, temporary: temporary.path(), is_stopped };
    let (index, shards) = write_shards(source, target, options, watch)?;
    let lengths = shards.iter().map(|shard| shard.bytes).collect();
    let report = PackReport {
        version: 1,
        images: source.len(),
        fingerprint: source.fingerprint(),
        options,
        shards,
        classes: source.class_names().to_vec(),
    };
    let summary = serde_json::to_vec_pretty(&report).map_err(|error| io(error.into()))?;
    fs::write(temporary.path().join(SUMMARY), summary).map_err(&io)?;
    let content = PackIndex { index, lengths };
    cache::write(&temporary.path().join(PACK_INDEX), cache::OF_PACKS, &content).map_err(&io)?;
    // Lets others read the folder: temporary folders are private.
    fs::set_permissions(temporary.path(), fs::Permissions::from_mode(0o755)).map_err(&io)?;
    fs::rename(temporary.path(), folder).map_err(&io)?;
    // The folder was renamed: nothing is left to delete, and nobody else looks at it.
    let _ = temporary.keep();
    drop(lock);
    let _ = fs::remove_file(folder.join(LOCK));
    Ok(report)
}

/// The folder that holds `folder`.
fn parent(folder: &Path) -> &Path {
    folder.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}

/// A file in a partial folder, locked by the process that writes there.
const LOCK: &str = ".lock";
/// How old a partial folder without such a file must be: it may have been made just now.
const OLD: Duration = Duration::from_secs(24 * 3600);

/// What the names of the folders begin with in which the pack `folder` is written.
fn partial_prefix(folder: &Path) -> OsString {
    let name = folder.file_name().unwrap_or_default();
    [OsStr::new("."), name, OsStr::new(".partial-")].into_iter().collect()
}

/// A new folder beside `folder` to write it in, and its lock.
fn new_partial(folder: &Path) -> io::Result<(TempDir, File)> {
    let prefix = partial_prefix(folder);
    loop {
        let temporary = tempfile::Builder::new().prefix(&prefix).tempdir_in(parent(folder))?;
        let path = temporary.path().join(LOCK);
        let lock = match File::create_new(&path) {
            // Another process took it for an abandoned one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            created => created?,
        };
        match lock.try_lock() {
            Ok(()) if path.exists() => return Ok((temporary, lock)),
            Ok(()) | Err(TryLockError::WouldBlock) => {}
            // A file system without locks: nobody can tell, so nobody removes it.
            Err(TryLockError::Error(_)) => return Ok((temporary, lock)),
        }
    }
}

/// The lock of the partial folder `path`, if no process writes there any more, as far as that can
/// be told.
fn abandoned(path: &Path) -> io::Result<Option<File>> {
    match File::options().append(true).open(path.join(LOCK)) {
        Ok(lock) => Ok(lock.try_lock().is_ok().then_some(lock)),
        // Of an earlier version.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = File::open(path)?;
            let age = folder.metadata()?.modified()?.elapsed().unwrap_or_default();
            Ok((age > OLD).then_some(folder))
        }
        Err(error) => Err(error),
    }
}

/// Removes what processes that were killed have left of the pack `folder`; gives their paths.
///
/// # Errors
/// If something cannot be removed.
pub fn remove_abandoned(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let prefix = partial_prefix(folder);
    let Ok(entries) = fs::read_dir(parent(folder)) else { return Ok(Vec::new()) };
    let mut removed = Vec::new();
    for entry in entries.flatten() {
        let is_partial = entry.file_name().as_bytes().starts_with(prefix.as_bytes());
        let path = entry.path();
        if !is_partial || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let Ok(Some(_lock)) = abandoned(&path) else { continue };
        match fs::remove_dir_all(&path) {
            Ok(()) => removed.push(path),
            // Another process was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(DataError::Write { path, source }),
        }
    }
    Ok(removed)
}

/// Where the shards of a pack go.
#[derive(Clone, Copy)]
struct Target<'a> {
    /// The pack.
    folder: &'a Path,
    /// What it is called until it is complete.
    temporary: &'a Path,
    is_stopped: &'a (dyn Fn() -> bool + Sync),
}

impl Target<'_> {
    fn check(&self) -> Result<(), DataError> {
        match (self.is_stopped)() {
            true => Err(SourceError::Stopped(self.folder.to_owned()).into()),
            false => Ok(()),
        }
    }
}

fn write_shards(
    source: &Images,
    target: Target<'_>,
    options: PackOptions,
    watch: OnProgress<'_>,
) -> Result<(Index, Vec<ShardReport>), DataError> {
    let mut order: Vec<usize> = (0..source.len()).collect();
    if let Some(seed) = options.shuffle {
        rng::shuffle(&mut rng::keyed("vim-data pack order v1", &[seed]), &mut order);
    }
    // The images and their order are the source's; only the locations change.
    let mut index = source.index();
    let (limit, begun) = (options.shard_bytes, vec![]);
    let folder = target.temporary;
    let mut shards = Shards { folder, limit, open: None, position: 0, begun };
    let io = DataError::write(target.folder);
    let mut progress = Progress { images: 0, total: order.len(), bytes: 0 };
    thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel(1);
        scope.spawn(|| {
            let send = send; // dropped with the thread, which ends the loop below
            for chunk in order.chunks(CHUNK) {
                let read = |&index: &usize| {
                    target.check()?;
                    let mut image = Vec::new();
                    source.read_file(index, &mut image).map(|()| (index, image))
                };
                let images: Result<Vec<(usize, Vec<u8>)>, DataError> =
                    chunk.par_iter().map(read).collect();
                if send.send(images).is_err() {
                    return; // the writer has failed
                }
            }
        });
        for images in receive {
            for (number, image) in images? {
                target.check()?;
                let (container, extent) =
                    shards.add(number, source.label(number), &image).map_err(&io)?;
                let entry = &mut index.entries[number];
                (entry.container, entry.extent) = (container, Some(extent));
                entry.crc32c = Some(crc32c::crc32c(&image));
                progress.images += 1;
                progress.bytes += image.len() as u64;
                watch(progress);
            }
        }
        Ok::<(), DataError>(())
    })?;
    target.check()?;
    shards.close().map_err(&io)?;
    index.containers = shards.begun.iter().map(|shard| shard.name.clone()).collect();
    index.notes.clear();
    Ok((index, shards.begun))
}

/// Bytes in a header, and the multiple that contents are padded to.
const BLOCK: u64 = 512;

/// Writes images into shards of a size.
struct Shards<'a> {
    folder: &'a Path,
    limit: u64,
    open: Option<Builder<BufWriter<File>>>,
    /// Bytes in the open shard so far.
    position: u64,
    begun: Vec<ShardReport>,
}

impl Shards<'_> {
    /// Adds an image; gives the number of its shard and its place there.
    fn add(&mut self, key: usize, label: u32, image: &[u8]) -> io::Result<(u32, Extent)> {
        let class = label.to_string();
        let bytes = padded(image.len()) + padded(class.len());
        if self.position > 0 && self.position + bytes > self.limit {
            self.close()?;
        }
        let length = image.len() as u64;
        // A file that is no image gets the commonest extension.
        let extension = ImageKind::of(image).unwrap_or(ImageKind::Jpeg).extensions()[0];
        let shard = self.shard()?;
        append(shard, &format!("{key:08}.{extension}"), image)?;
        append(shard, &format!("{key:08}.cls"), class.as_bytes())?;
        let extent = Extent { offset: self.position + BLOCK, length };
        self.position += bytes;
        if let Some(shard) = self.begun.last_mut() {
            shard.images += 1;
        }
        Ok(((self.begun.len() - 1) as u32, extent))
    }

    /// Ends the open shard, if any, and waits for the disk.
    fn close(&mut self) -> io::Result<()> {
        let Some(shard) = self.open.take() else { return Ok(()) };
        let mut writer = shard.into_inner()?; // writes the end of the archive
        writer.flush()?;
        let file = writer.into_inner()?;
        file.sync_all()?;
        if let Some(shard) = self.begun.last_mut() {
            shard.bytes = file.metadata()?.len();
        }
        self.position = 0;
        Ok(())
    }

    /// The open shard; begins one if there is none.
    fn shard(&mut self) -> io::Result<&mut Builder<BufWriter<File>>> {
        if self.open.is_none() {
            let name = PathBuf::from(format!("shard-{:06}.tar", self.begun.len()));
            let file = File::create_new(self.folder.join(&name))?;
            self.begun.push(ShardReport { name, bytes: 0, images: 0 });
            self.open = Some(Builder::new(BufWriter::with_capacity(1 << 20, file)));
        }
        Ok(self.open.as_mut().expect("invariant: opened above"))
    }
}

/// Appends a member without owner and time, so that equal images give equal bytes.
fn append(shard: &mut Builder<BufWriter<File>>, name: &str, content: &[u8]) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    shard.append_data(&mut header, name, content)
}

/// Bytes that a content takes with its header.
fn padded(length: usize) -> u64 {
    BLOCK + (length as u64).next_multiple_of(BLOCK)
}
