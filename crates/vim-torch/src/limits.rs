//! Limits on the work and memory that a file may cause.

use crate::error::ReadError;

/// The largest pickle, in bytes. A pickle holds names and shapes, no numbers: even the state of an
/// optimizer over thousands of tensors takes a few megabytes.
pub(crate) const MAX_PICKLE: u64 = 64 << 20;
/// The most nodes that a pickle may make.
pub(crate) const MAX_NODES: usize = 8 << 20;
/// The largest header of a safetensors file, in bytes: the format's own limit.
pub(crate) const MAX_HEADER: u64 = 100_000_000;
/// The most dimensions of a tensor.
pub(crate) const MAX_RANK: usize = 16;

/// Bytes of arrays that may still be allocated. A small file could otherwise fill the memory by
/// compression, strides of zero, many tensors on one storage, or overlapping entries of an archive.
#[derive(Debug)]
pub(crate) struct Budget {
    left: u64,
    total: u64,
}

impl Budget {
    /// The budget of a file of `length` bytes. Reading f16 takes three times its size: the
    /// storages, and f32 of them.
    pub(crate) fn of_file(length: u64) -> Self {
        let total = length.saturating_mul(8).saturating_add(16 << 20);
        Self { left: total, total }
    }

    /// The budget before anything was taken.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Takes `bytes` for `what`.
    pub(crate) fn take(&mut self, bytes: u64, what: &str) -> Result<(), ReadError> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(ReadError::TooLarge { what: what.to_owned(), bytes, limit: self.total }),
        }
    }
}
