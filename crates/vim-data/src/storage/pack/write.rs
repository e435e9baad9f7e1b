//! Writing a pack.

use std::path::{Path, PathBuf};
use std::{fs, sync::mpsc, thread};

use rayon::prelude::*;
use serde::Serialize;

use super::{INDEX, SUMMARY, Sidecar, shards::Shards};
use crate::dataset::{Dataset, Fingerprint};
use crate::error::{DataError, SourceError};
use crate::progress::{OnProgress, Progress};
use crate::storage::index::{Index, cache};
use crate::{rng, storage::images::Images};

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
/// It is written under another name and renamed at the end: a pack is complete or absent.
///
/// # Errors
/// If `folder` exists, an image cannot be read, or the disk is full.
pub fn pack(
    source: &Images,
    folder: &Path,
    options: PackOptions,
    watch: OnProgress<'_>,
) -> Result<PackReport, DataError> {
    if folder.exists() {
        return Err(SourceError::Exists(folder.to_owned()).into());
    }
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let parent =
        folder.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(DataError::io(parent))?;
    let temporary = tempfile::Builder::new()
        .prefix(&format!(".{name}.partial-"))
        .tempdir_in(parent)
        .map_err(DataError::io(parent))?;

    let (index, shards) = write_shards(source, temporary.path(), options, watch)?;
    let lengths = shards.iter().map(|shard| shard.bytes).collect();
    let report = PackReport {
        version: 1,
        images: source.len(),
        fingerprint: source.fingerprint(),
        options,
        shards,
        classes: source.class_names().to_vec(),
    };
    let io = DataError::io(temporary.path());
    let summary = serde_json::to_vec_pretty(&report).map_err(|error| io(error.into()))?;
    fs::write(temporary.path().join(SUMMARY), summary).map_err(&io)?;
    cache::write(&temporary.path().join(INDEX), &Sidecar { index, lengths }).map_err(&io)?;
    share(temporary.path()).map_err(&io)?;
    fs::rename(temporary.path(), folder).map_err(DataError::io(folder))?;
    // The folder was renamed: nothing is left to delete.
    let _ = temporary.keep();
    Ok(report)
}

/// Lets others read the folder: temporary folders are private.
fn share(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
}

/// An image read, with its number in the source.
type Image = (usize, Vec<u8>);

fn write_shards(
    source: &Images,
    folder: &Path,
    options: PackOptions,
    watch: OnProgress<'_>,
) -> Result<(Index, Vec<ShardReport>), DataError> {
    let mut order: Vec<usize> = (0..source.len()).collect();
    if let Some(seed) = options.shuffle {
        rng::shuffle(&mut rng::keyed("vim-data pack order v1", &[seed]), &mut order);
    }
    // The images and their order are the source's; only the locations change.
    let mut index = source.index();
    let mut shards = Shards::new(folder, options.shard_bytes);
    let io = DataError::io(folder);
    let mut progress = Progress { images: 0, total: order.len(), bytes: 0 };
    thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel::<Result<Vec<Image>, DataError>>(1);
        scope.spawn(|| {
            let send = send; // dropped with the thread, which ends the loop below
            for chunk in order.chunks(CHUNK) {
                let images = chunk.par_iter().map(|&index| read(source, index)).collect();
                if send.send(images).is_err() {
                    return; // the writer has failed
                }
            }
        });
        for images in receive {
            for (number, image) in images? {
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
    shards.close().map_err(&io)?;
    let reports = shards.begun.into_iter();
    let reports: Vec<ShardReport> =
        reports.map(|(name, bytes, images)| ShardReport { name, bytes, images }).collect();
    index.containers = reports.iter().map(|shard| shard.name.clone()).collect();
    index.notes.clear();
    Ok((index, reports))
}

fn read(source: &Images, index: usize) -> Result<Image, DataError> {
    let mut image = Vec::new();
    source.read(index, &mut image)?;
    Ok((index, image))
}
