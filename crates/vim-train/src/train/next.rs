//! The batch that is next, on its way to the device while that is still at work on the one before.

use burn::tensor::{Device, Tensor};
use vim_data::{BadSample, Batch, Batches, Statistics};

use crate::error::Error;
use crate::train::batches::{Targets, to_tensors};

/// What a step needs.
pub(super) struct Next {
    /// `[B, 3, H, W]`, queued on the device.
    pub(super) images: Tensor<4>,
    pub(super) targets: Targets,
    /// Images that could not be read, and whose places others took.
    pub(super) bad: Vec<BadSample>,
}

impl Next {
    /// The next batch, if there is one; waits for the loader, not for the device.
    pub(super) fn of(
        batches: &mut Batches,
        by: Statistics,
        device: &Device,
    ) -> Option<Result<Self, Error>> {
        let batch = batches.next()?;
        let bad = batches.take_bad();
        let upload = |batch: Batch| {
            let (images, targets) = to_tensors(&batch, by, device)?;
            Ok(Self { images, targets, bad })
        };
        Some(batch.map_err(Error::from).and_then(upload))
    }
}
