//! The order that is a function of the run's seed.

use crate::error::DataError;
use crate::rng;

/// The places `0..images` in the order of an epoch.
pub(super) fn order(images: usize, seed: u64, epoch: u64) -> Result<Vec<u32>, DataError> {
    let mut order = super::places(images, u32::MAX)?;
    rng::shuffle(&mut rng::keyed("vim-data order v1", &[seed, epoch]), &mut order);
    Ok(order)
}
