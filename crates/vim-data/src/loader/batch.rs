//! A batch as the device receives it, and the reused memory of its pixels.

use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, ops::Deref};

use bytes::{Bytes, BytesMut};

use crate::transforms::recipe::{EraseBox, MixPlan};

/// Images and labels that are trained or evaluated on together.
#[derive(Debug, PartialEq)]
pub struct Batch {
    /// Pixels, `[B, H, W, 3]`, 0..=255: cropped and augmented, not yet erased or mixed.
    pub images: BatchBuffer,
    /// Classes, `[B]`.
    pub labels: Vec<u32>,
    /// Indices in the dataset, `[B]`.
    pub indices: Vec<usize>,
    /// `H` in pixels.
    pub height: usize,
    /// `W` in pixels.
    pub width: usize,
    /// Boxes to erase once the pixels are normalised, each with its image's slot in the batch.
    pub erased: Vec<(usize, EraseBox)>,
    /// How each image is mixed with its partner, after erasing; empty if none is.
    pub mixed: Vec<MixPlan>,
    /// Number of images that count, which come first. The others fill the batch up to its size.
    pub count: usize,
    /// Slots of images that could not be read: they are black and count as wrong.
    pub unread: Vec<usize>,
}

impl Batch {
    /// A batch of unchanged images, all of which count.
    pub fn plain(images: Vec<u8>, labels: Vec<u32>, [height, width]: [usize; 2]) -> Self {
        let count = labels.len();
        Self {
            images: BatchBuffer::from(images),
            indices: (0..count).collect(),
            labels,
            height,
            width,
            erased: Vec::new(),
            mixed: Vec::new(),
            count,
            unread: Vec::new(),
        }
    }

    /// Images of the batch, fillers included: `B`.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no images; a loader never yields such a batch.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }
}

/// The pixels of a batch. Once all clones are dropped, the memory returns to the loader.
#[derive(Clone)]
pub struct BatchBuffer(Arc<Memory>);

struct Memory {
    bytes: BytesMut,
    pool: Option<Arc<BufferPool>>,
}

impl BatchBuffer {
    pub(crate) fn new(bytes: BytesMut, pool: Arc<BufferPool>) -> Self {
        Self(Arc::new(Memory { bytes, pool: Some(pool) }))
    }

    /// The same memory, not a copy of it.
    pub fn shared(&self) -> Bytes {
        Bytes::from_owner(self.clone())
    }
}

impl AsRef<[u8]> for BatchBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl From<Vec<u8>> for BatchBuffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Memory { bytes: BytesMut::from(Bytes::from(bytes)), pool: None }))
    }
}

impl Deref for BatchBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_ref()
    }
}

impl PartialEq for BatchBuffer {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for BatchBuffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "BatchBuffer({} bytes)", self.len())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.put(std::mem::take(&mut self.bytes));
        }
    }
}

/// Buffers that no batch holds.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    free: Mutex<Vec<BytesMut>>,
}

impl BufferPool {
    /// `len` bytes of arbitrary content.
    pub(crate) fn take(&self, len: usize) -> BytesMut {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut bytes = free.unwrap_or_default();
        bytes.resize(len, 0);
        bytes
    }

    fn put(&self, bytes: BytesMut) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_when_the_last_that_shares_it_is_dropped() {
        let pool = Arc::new(BufferPool::default());
        let free = || pool.free.lock().unwrap().len();
        let buffer = BatchBuffer::new(pool.take(8), Arc::clone(&pool));
        let (at, shared) = (buffer.as_ptr(), buffer.shared());
        drop(buffer);
        assert_eq!((free(), shared.as_ptr(), shared.len()), (0, at, 8));
        drop(shared);
        assert_eq!(free(), 1);
        assert_eq!(pool.take(8).as_ptr(), at);
    }
}
