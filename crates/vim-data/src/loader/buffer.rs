//! The memory of a batch's pixels, used again once nobody holds it.

use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, ops::Deref};

use bytes::{Bytes, BytesMut};

/// The pixels of a batch. Once all clones are dropped, the memory returns to the loader.
#[derive(Clone)]
pub struct BatchBuffer(Arc<Memory>);

struct Memory {
    bytes: BytesMut,
    pool: Arc<BufferPool>,
}

impl BatchBuffer {
    pub(super) fn new(bytes: BytesMut, pool: Arc<BufferPool>) -> Self {
        Self(Arc::new(Memory { bytes, pool }))
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
        Self::new(BytesMut::from(Bytes::from(bytes)), Arc::default())
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
        self.pool.put(std::mem::take(&mut self.bytes));
    }
}

/// Buffers that no batch holds.
#[derive(Debug, Default)]
pub(super) struct BufferPool {
    free: Mutex<Vec<BytesMut>>,
}

impl BufferPool {
    /// `len` bytes of arbitrary content.
    pub(super) fn take(&self, len: usize) -> BytesMut {
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
