//! Tar files, filled one after the other.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tar::{Builder, Header};

use crate::{decode::ImageKind, storage::index::Extent};

/// Bytes in a header, and the multiple that contents are padded to.
const BLOCK: u64 = 512;

/// Writes images into shards of a size.
pub(super) struct Shards<'a> {
    folder: &'a Path,
    limit: u64,
    open: Option<Builder<BufWriter<File>>>,
    /// Bytes in the open shard so far.
    position: u64,
    /// The shards begun: name, bytes and images.
    pub(super) begun: Vec<(PathBuf, u64, u64)>,
}

impl<'a> Shards<'a> {
    pub(super) fn new(folder: &'a Path, limit: u64) -> Self {
        Self { folder, limit, open: None, position: 0, begun: vec![] }
    }

    /// Adds an image; gives the number of its shard and its place there.
    pub(super) fn add(
        &mut self,
        key: usize,
        label: u32,
        image: &[u8],
    ) -> io::Result<(u32, Extent)> {
        let class = label.to_string();
        let bytes = padded(image.len()) + padded(class.len());
        if self.position > 0 && self.position + bytes > self.limit {
            self.close()?;
        }
        let length = u32::try_from(image.len()).map_err(io::Error::other)?;
        let extension = match ImageKind::of(image) {
            // A file that is no image gets the commonest extension.
            Some(ImageKind::Jpeg) | None => "jpg",
            Some(ImageKind::Png) => "png",
            Some(ImageKind::Bmp) => "bmp",
            Some(ImageKind::Gif) => "gif",
            Some(ImageKind::WebP) => "webp",
        };
        let shard = self.shard()?;
        append(shard, &format!("{key:08}.{extension}"), image)?;
        append(shard, &format!("{key:08}.cls"), class.as_bytes())?;
        let extent = Extent { offset: self.position + BLOCK, length };
        self.position += bytes;
        if let Some((_, _, images)) = self.begun.last_mut() {
            *images += 1;
        }
        Ok(((self.begun.len() - 1) as u32, extent))
    }

    /// Ends the open shard, if any, and waits for the disk.
    pub(super) fn close(&mut self) -> io::Result<()> {
        let Some(shard) = self.open.take() else { return Ok(()) };
        let mut writer = shard.into_inner()?; // writes the end of the archive
        writer.flush()?;
        let file = writer.into_inner()?;
        file.sync_all()?;
        if let Some((_, bytes, _)) = self.begun.last_mut() {
            *bytes = file.metadata()?.len();
        }
        self.position = 0;
        Ok(())
    }

    /// The open shard; begins one if there is none.
    fn shard(&mut self) -> io::Result<&mut Builder<BufWriter<File>>> {
        if self.open.is_none() {
            let name = PathBuf::from(format!("shard-{:06}.tar", self.begun.len()));
            let file = File::create_new(self.folder.join(&name))?;
            self.begun.push((name, 0, 0));
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
