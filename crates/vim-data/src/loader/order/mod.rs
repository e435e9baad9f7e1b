//! The order of an epoch.

mod reference;

use crate::transforms::recipe::{OrderKind, Recipe};
use crate::{error::DataError, rng};

/// Which image an epoch draws at which position, over all devices: a pure function of the seed, the
/// epoch and the number of images.
///
/// The images are in random order and each comes `repeats` times in a row: position `p` is draw `p
/// mod repeats` of image number `p / repeats` in that order. An epoch has about as many draws as
/// there are images, so it sees one image in `repeats`.
///
/// Device `r` of `R` takes the positions `p = r mod R`, so that a global batch is the same whatever
/// the number of devices: see [`Order::position`].
///
/// # Source
/// Hoffer et al. 2019, "Augment your batch"; `RASampler` of the original's `samplers.py`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Positions in the split.
    images: Vec<u32>,
    repeats: usize,
    per_rank: usize,
    world: usize,
}

/// One draw of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Draw {
    /// Position of the image in the split.
    pub position: usize,
    /// Which of its draws in this epoch, `0..repeats`.
    pub repeat: u32,
}

/// What an epoch's order is a function of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderKey {
    /// How it is drawn.
    pub kind: OrderKind,
    /// Draws of an image, ≥ 1.
    pub repeats: u32,
    /// The run's seed, which [`OrderKind::Reference`] ignores.
    pub seed: u64,
    /// Pass over the images.
    pub epoch: u64,
    /// Devices, ≥ 1.
    pub world: usize,
}

impl Recipe {
    /// The key of an epoch's order.
    pub fn order_key(&self, seed: u64, epoch: u64, world: usize) -> OrderKey {
        OrderKey { kind: self.order, repeats: self.repeats, seed, epoch, world }
    }
}

impl Order {
    /// Computes the order of `images` images, in time proportional to their number.
    ///
    /// # Errors
    /// [`DataError::InvalidConfig`] if there are more images than the kind of order can count.
    ///
    /// # Panics
    /// If `repeats` or `world` is 0.
    pub fn new(images: usize, key: OrderKey) -> Result<Self, DataError> {
        let OrderKey { kind, repeats, seed, epoch, world } = key;
        assert!(repeats > 0 && world > 0, "{key:?} draws nothing");
        let (order, per_rank) = match kind {
            OrderKind::Keyed => (keyed(images, seed, epoch)?, images / world),
            OrderKind::Reference => (
                reference::order(images, epoch)?,
                reference::draws_per_rank(images, repeats as usize, world),
            ),
        };
        Ok(Self { images: order, repeats: repeats as usize, per_rank, world })
    }

    /// Draws of the epoch on each device, before batches are cut; a last, partial batch is left
    /// out.
    pub fn draws_per_rank(&self) -> usize {
        self.per_rank
    }

    /// Batches of the epoch, of `batch` draws on each device.
    pub fn steps(&self, batch: usize) -> usize {
        self.per_rank / batch
    }

    /// The position in the epoch of slot `slot` of the batch of `batch` images that device `rank`
    /// trains on in step `step`.
    pub fn position(&self, step: usize, batch: usize, rank: usize, slot: usize) -> usize {
        (step * batch + slot) * self.world + rank
    }

    /// The draw at a position of the epoch.
    ///
    /// # Panics
    /// If there is no image.
    pub fn draw(&self, position: usize) -> Draw {
        // Past the end the order starts again, as the original's samplers pad (see `reference`).
        let image = position / self.repeats % self.images.len();
        let repeat = (position % self.repeats) as u32;
        Draw { position: self.images[image] as usize, repeat }
    }
}

/// The places `0..images` in a random order, a function of the run's seed and the epoch.
fn keyed(images: usize, seed: u64, epoch: u64) -> Result<Vec<u32>, DataError> {
    let mut order = places(images, u32::MAX)?;
    rng::shuffle(&mut rng::keyed("vim-data order v1", &[seed, epoch]), &mut order);
    Ok(order)
}

/// The places `0..images`, if there are no more than `most`.
fn places(images: usize, most: u32) -> Result<Vec<u32>, DataError> {
    match u32::try_from(images) {
        Ok(count) if count <= most => Ok((0..count).collect()),
        _ => Err(DataError::InvalidConfig {
            key: "augment.order",
            value: format!("an order of {images} images"),
            expected: "at most 4294967295 images, or 214748364 with `\"reference\"`",
        }),
    }
}
