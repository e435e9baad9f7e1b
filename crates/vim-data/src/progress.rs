//! Progress of a long task.

/// Counts of a task over the images of a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Images done.
    pub images: usize,
    /// Images to be done.
    pub total: usize,
    /// Bytes read so far.
    pub bytes: u64,
}

/// Called now and then, from any thread.
pub type OnProgress<'a> = &'a (dyn Fn(Progress) + Sync);
