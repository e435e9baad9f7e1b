//! Packs: images copied into a few large tar files, with an index beside them.
//!
//! A pack is a folder:
//!
//! - `shard-000000.tar`, …: WebDataset shards of `KEY.jpg` (or `.png` etc., by the content) and
//!   `KEY.cls`, the class as a number; `KEY` is the image's number in the source's order.
//! - `pack.index`: where every image is, its name in the source, its checksum, what is known of it,
//!   in the format of [`index::cache`](crate::storage::index::cache).
//! - `pack.json`: classes, shards and counts, for people and scripts.
//!
//! The bytes depend on the images, their order and the options, and on nothing else.

mod shards;
mod write;

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::index::Index;
use super::index::cache::{self, FileStamp};
use crate::error::{DataError, SourceError};

pub use write::{PackOptions, PackReport, ShardReport, pack};

/// The file that marks a folder as a pack.
const INDEX: &str = "pack.index";
/// A summary for people and scripts.
const SUMMARY: &str = "pack.json";

/// Content of [`INDEX`].
#[derive(Serialize, Deserialize)]
struct Sidecar {
    /// Containers are the shards' file names.
    index: Index,
    /// Length of each shard in bytes.
    lengths: Vec<u64>,
}

/// Whether a folder is a pack.
pub(crate) fn is_pack(folder: &Path) -> bool {
    folder.join(INDEX).is_file()
}

/// The index of a pack, wherever it has been copied to.
pub(crate) fn index(root: &Path) -> Result<(Index, Vec<FileStamp>), DataError> {
    let wrong = |why: String| SourceError::Pack { path: root.to_owned(), why };
    let file = root.join(INDEX);
    let Sidecar { mut index, lengths } =
        cache::read(&file).map_err(|why| wrong(format!("its `{INDEX}` cannot be used: {why}")))?;
    let mut stamps = vec![FileStamp::of(&file).map_err(DataError::io(&file))?];
    for (shard, length) in index.containers.iter_mut().zip(lengths) {
        *shard = root.join(&*shard);
        let stamp = FileStamp::of(shard).map_err(DataError::io(shard))?;
        if stamp.bytes() != length {
            let (name, bytes) = (shard.display(), stamp.bytes());
            return Err(wrong(format!("`{name}` has {bytes} bytes of {length}")).into());
        }
        stamps.push(stamp);
    }
    Ok((index, stamps))
}
