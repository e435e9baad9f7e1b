//! Batches of a split: which images each has, as a function of its number. Threads make them.

pub(crate) mod config;
mod describe;
mod evaluation;
mod floors;
pub(crate) mod objects;
pub(crate) mod pairs;
mod pipeline;
mod reference;
mod stats;
pub(crate) mod worker;

use std::{ops::Range, sync::Arc};

use crate::objects::Targets;
use crate::transforms::EraseBox;
use crate::transforms::recipe::{MixKey, MixPlan, OrderKind, Recipe};
use crate::{dataset::Encoding, error::DataError, rng, split::Split};

pub use config::{
    BadTest, BadTrain, CpuAllocation, LOCAL_RANKS, LoaderConfig, MOST_THREADS, OnBad, Purpose,
    Shards, Workers,
};
pub use describe::Described;
pub use evaluation::{EvalItems, EvalPair, EvalPairs, EvalScene, EvalScenes, UnreadPair};
pub use floors::Floors;
pub use pipeline::{Batches, THREAD_PREFIX};
pub(crate) use stats::ends_training;
pub use stats::{BadSample, LoaderStage, LoaderStats};
pub use worker::BatchBuffer;

/// Turns a split into batches.
#[derive(Clone, Debug)]
pub struct Loader {
    split: Split,
    config: Arc<LoaderConfig>,
    per_epoch: usize,
}

impl Loader {
    /// Checks the configuration, and resolves the crop `auto` for these images; starts nothing.
    ///
    /// # Errors
    /// If a number is 0, an epoch would hold no batch, images are mixed in batches of an odd size,
    /// or are smaller than the padding at their edges.
    pub fn new(split: Split, mut config: LoaderConfig) -> Result<Self, DataError> {
        if let Purpose::Training(recipe) = &mut config.purpose {
            recipe.crop = recipe.crop_mode(config.size, split.image_size());
        }
        config.check()?;
        let dataset = split.dataset();
        for (is_wanted, is_there, expected) in [
            (
                matches!(config.purpose, Purpose::Dense(_)),
                dataset.label_maps().is_some(),
                "images with label maps for segmentation, and for nothing else",
            ),
            (
                matches!(config.purpose, Purpose::Objects(_)),
                dataset.object_classes().is_some(),
                "images with objects for detection, and for nothing else",
            ),
        ] {
            if is_wanted != is_there {
                let (key, value) = ("data.dataset", dataset.name(0));
                return Err(DataError::InvalidConfig { key, value, expected });
            }
        }
        let LoaderConfig { batch_size, shards: Shards { of, .. }, .. } = config;
        let (per_epoch, whole) = match config.order_key(0) {
            Some(key) => (Order::new(split.len(), key)?.steps(batch_size), batch_size * of),
            // The last of them may have no images for some loaders.
            None => (split.len().div_ceil(batch_size).div_ceil(of), batch_size),
        };
        if per_epoch == 0 {
            return Err(DataError::NoBatches { images: split.len(), batch_size: whole });
        }
        Ok(Self { split, config: Arc::new(config), per_epoch })
    }

    /// The split that is loaded.
    pub fn split(&self) -> &Split {
        &self.split
    }

    /// Steps of an epoch, ≥ 1: with [`Shards::WHOLE`], batches.
    pub fn batches_per_epoch(&self) -> usize {
        self.per_epoch
    }

    /// Bytes of all batches in the loader: those that wait, one in the making and one being handed
    /// over.
    pub fn memory(&self) -> usize {
        let [height, width] = self.config.size;
        let bytes = if matches!(self.config.purpose, Purpose::Dense(_)) { 4 } else { 3 };
        self.max_in_flight() * self.config.batch_size * bytes * height * width
    }

    /// The most batches that are in the making or waiting at a time.
    pub fn max_in_flight(&self) -> usize {
        self.config.prefetch * self.config.shards.count + 1
    }

    /// Starts the threads and yields the batches of `steps`, in order, through as many epochs as
    /// these are: of each step one batch for each [shard](Shards). Step `s` is step `s mod
    /// batches_per_epoch` of epoch `s / batches_per_epoch`.
    ///
    /// Images of earlier batches are not read.
    pub fn batches(&self, steps: Range<u64>) -> Batches {
        let LoaderConfig { batch_size, shards: Shards { first, count, of }, .. } = *self.config;
        let mut batches = steps.start * count as u64..steps.end * count as u64;
        if let Purpose::Evaluation { .. } = self.config.purpose
            && steps.end.is_multiple_of(self.per_epoch as u64)
        {
            let in_last = self.split.len().div_ceil(batch_size) - (self.per_epoch - 1) * of;
            let missing = count - in_last.saturating_sub(first).min(count);
            batches.end = (batches.end - missing as u64).max(batches.start);
        }
        Batches::start(self.clone(), batches)
    }

    /// The batches of `epoch`, from step `first_batch` on.
    pub fn epoch(&self, epoch: u64, first_batch: usize) -> Batches {
        let per_epoch = self.per_epoch as u64;
        let start = epoch * per_epoch;
        self.batches(start + (first_batch as u64).min(per_epoch)..start + per_epoch)
    }

    /// The plan of batch `number`. `kept` is the epoch that was planned last and its order.
    fn plan(&self, number: u64, kept: &mut Option<(u64, Order)>) -> Result<BatchPlan, DataError> {
        let LoaderConfig { batch_size, size, seed, shards, .. } = *self.config;
        let (per_epoch, count) = (self.per_epoch as u64, shards.count as u64);
        let (number, shard) = (number / count, shards.first + (number % count) as usize);
        let (epoch, step) = (number / per_epoch, (number % per_epoch) as usize);
        let groups = match self.config.order_key(epoch) {
            Some(key) => {
                let order = match kept.take() {
                    Some((of, order)) if of == epoch => order,
                    _ => Order::new(self.split.len(), key)?,
                };
                let place = |slot| order.position(step, batch_size, shard, slot);
                let groups = group((0..batch_size).map(|slot| order.draw(place(slot))));
                *kept = Some((epoch, order));
                groups
            }
            None => {
                let first = (step * shards.of + shard) * batch_size;
                let positions = first..first + batch_size;
                let within = positions.take_while(|&position| position < self.split.len());
                group(within.map(|position| Draw { position, repeat: 0 }))
            }
        };
        let mixed = match &self.config.purpose {
            Purpose::Training(recipe) if recipe.mixes() => {
                let key = MixKey { seed, epoch, step: step as u64, shard: shard as u64 };
                recipe.draw_mix(key, batch_size, size)
            }
            Purpose::Training(_)
            | Purpose::Dense(_)
            | Purpose::Objects(_)
            | Purpose::Evaluation { .. } => Vec::new(),
        };
        let groups_per_task = match self.split.encoding() {
            Encoding::Pixels { .. } => GROUPS_IN_MEMORY,
            Encoding::Files => 1,
        };
        let count = groups.iter().map(|group| group.repeats.len()).sum();
        let tasks = groups.chunks(groups_per_task).map(<[Group]>::to_vec).collect();
        Ok(BatchPlan { epoch, step: number, tasks, count, mixed })
    }
}

/// Images in memory per task: making a single one is too little work for a task of its own.
const GROUPS_IN_MEMORY: usize = 32;

/// What a batch is made of.
struct BatchPlan {
    epoch: u64,
    /// Counted over all epochs.
    step: u64,
    /// The groups of each task, in the order of their slots in the batch.
    tasks: Vec<Vec<Group>>,
    /// Slots with an image; the others only fill the batch up.
    count: usize,
    mixed: Vec<MixPlan>,
}

/// Consecutive draws of one image in a batch: it is decoded once for all of them.
#[derive(Clone, Debug)]
struct Group {
    /// Position of the image in the split.
    position: usize,
    /// Which of the image's draws in the epoch, one for each slot in the batch.
    repeats: Vec<u32>,
}

/// Joins consecutive draws of one image.
fn group(draws: impl Iterator<Item = Draw>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for Draw { position, repeat } in draws {
        match groups.last_mut() {
            Some(last) if last.position == position => last.repeats.push(repeat),
            _ => groups.push(Group { position, repeats: vec![repeat] }),
        }
    }
    groups
}

/// Which image an epoch draws at which position, over all shards: a pure function of the seed, the
/// epoch and the number of images.
///
/// The images are in random order and each comes `repeats` times in a row: position `p` is draw `p
/// mod repeats` of image number `p / repeats` in that order. An epoch has about as many draws as
/// there are images, so it sees one image in `repeats`.
///
/// Shard `r` of `R` takes the positions `p = r mod R`, so that a whole batch is the same whatever
/// the number of shards: see [`Order::position`].
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
    /// Shards of a batch, ≥ 1.
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
            OrderKind::Keyed => {
                let mut order = places(images, u32::MAX)?;
                rng::shuffle(&mut rng::keyed("vim-data order v1", &[seed, epoch]), &mut order);
                (order, images / world)
            }
            OrderKind::Reference => (
                reference::order(images, epoch)?,
                reference::draws_per_rank(images, repeats as usize, world),
            ),
        };
        Ok(Self { images: order, repeats: repeats as usize, per_rank, world })
    }

    /// Draws of the epoch in each shard, before batches are cut; a last, partial batch is left
    /// out.
    pub fn draws_per_rank(&self) -> usize {
        self.per_rank
    }

    /// Batches of the epoch, of `batch` draws in each shard.
    pub fn steps(&self, batch: usize) -> usize {
        self.per_rank / batch
    }

    /// The position in the epoch of slot `slot` of shard `shard`, of `batch` images, in step
    /// `step`.
    pub fn position(&self, step: usize, batch: usize, shard: usize, slot: usize) -> usize {
        (step * batch + slot) * self.world + shard
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

/// Images and labels that are trained or evaluated on together.
#[derive(Debug, PartialEq)]
pub struct Batch {
    /// Pixels, `[B, H, W, 3]`, 0..=255: cropped and augmented, not yet erased or mixed.
    pub images: BatchBuffer,
    /// Classes, `[B]`; zeros where there are label maps or objects.
    pub labels: Vec<u32>,
    /// A class for each pixel or [`IGNORED`](crate::IGNORED), `[B, H, W]`, if the images have label
    /// maps.
    pub label_maps: Option<BatchBuffer>,
    /// What is to be found in each image, `[B]`, if the images have objects; else empty.
    pub targets: Vec<Targets>,
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
            label_maps: None,
            targets: Vec::new(),
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
