//! The order of an epoch.

use crate::rng;

/// The positions `0..len` in the order in which `epoch` visits them: a pure function of its arguments.
pub(crate) fn shuffled(len: usize, seed: u64, epoch: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    rng::shuffle(&mut rng::keyed("vim-data order v1", &[seed, epoch]), &mut order);
    order
}
