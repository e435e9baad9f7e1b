//! Memory of batches, used again and again.

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::{Bytes, BytesMut};

/// The pixels of a batch. Once all that share them are dropped, their memory goes back to the loader it came from.
#[derive(Clone)]
pub struct Slab(Arc<Memory>);

struct Memory {
    bytes: BytesMut,
    shelf: Option<Arc<Shelf>>,
}

impl Slab {
    pub(crate) fn new(bytes: BytesMut, shelf: Arc<Shelf>) -> Self {
        Self(Arc::new(Memory { bytes, shelf: Some(shelf) }))
    }

    /// The same memory, not a copy of it.
    #[must_use]
    pub fn shared(&self) -> Bytes {
        Bytes::from_owner(self.clone())
    }
}

impl AsRef<[u8]> for Slab {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl From<Vec<u8>> for Slab {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Memory { bytes: BytesMut::from(Bytes::from(bytes)), shelf: None }))
    }
}

impl Deref for Slab {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_ref()
    }
}

impl PartialEq for Slab {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Slab {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Slab({} bytes)", self.len())
    }
}

impl Drop for Memory {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_when_the_last_that_shares_it_is_dropped() {
        let shelf = Arc::new(Shelf::default());
        let free = || shelf.free.lock().unwrap().len();
        let slab = Slab::new(shelf.take(8), Arc::clone(&shelf));
        let (at, shared) = (slab.as_ptr(), slab.shared());
        drop(slab);
        assert_eq!((free(), shared.as_ptr(), shared.len()), (0, at, 8));
        drop(shared);
        assert_eq!(free(), 1);
        assert_eq!(shelf.take(8).as_ptr(), at);
    }
}
