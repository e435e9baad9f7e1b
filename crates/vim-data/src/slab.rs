//! Memory of batches, used again and again.

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::BytesMut;

/// The pixels of a batch. Dropped, its memory goes back to the loader it came from.
pub struct Slab {
    bytes: BytesMut,
    shelf: Option<Arc<Shelf>>,
}

impl Slab {
    pub(crate) fn new(bytes: BytesMut, shelf: Arc<Shelf>) -> Self {
        Self { bytes, shelf: Some(shelf) }
    }
}

impl From<Vec<u8>> for Slab {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes: BytesMut::from(bytes.as_slice()), shelf: None }
    }
}

impl Deref for Slab {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl PartialEq for Slab {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl fmt::Debug for Slab {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Slab({} bytes)", self.bytes.len())
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        if let Some(shelf) = &self.shelf {
            shelf.put(std::mem::take(&mut self.bytes));
        }
    }
}

/// Slabs that no batch holds.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    free: Mutex<Vec<BytesMut>>,
}

impl Shelf {
    /// `len` bytes; what they hold is whatever the last batch left.
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
