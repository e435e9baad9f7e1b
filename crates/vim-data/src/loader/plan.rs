//! Which images make up a batch: a function of its number.

use std::sync::Arc;

use super::order::Order;
use super::{LoaderConfig, Purpose};
use crate::dataset::Stored;
use crate::error::DataError;
use crate::split::Split;
use crate::transforms::recipe::{MixKey, MixPlan};

/// Draws of images in memory that a thread makes at once: one is too little work to ask for.
const TOGETHER: usize = 32;

/// Draws of one image that follow each other in a batch: it is decoded once for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// In the split.
    pub(super) position: usize,
    /// Which of the image's draws in the epoch, one for each place in the batch.
    pub(super) repeats: Vec<u32>,
}

/// What a batch is made of.
#[derive(Debug)]
pub(super) struct BatchPlan {
    pub(super) epoch: u64,
    /// What threads take, in the order of their places.
    pub(super) tasks: Vec<Vec<Group>>,
    /// Places with an image; the others fill the batch up.
    pub(super) count: usize,
    pub(super) mixed: Vec<MixPlan>,
}

/// Batches in an epoch.
pub(super) fn batches(split: &Split, config: &LoaderConfig) -> Result<usize, DataError> {
    let LoaderConfig { batch_size, share, .. } = *config;
    Ok(match &config.purpose {
        Purpose::Training(recipe) => {
            Order::new(split.len(), recipe.order_key(config.seed, 0, share.world))?
                .steps(batch_size)
        }
        Purpose::Evaluation { .. } => split.len().div_ceil(batch_size * share.world),
    })
}

/// Plans of all batches, with the order of the epoch at hand.
#[derive(Debug)]
pub(super) struct EpochPlans {
    pub(super) split: Split,
    pub(super) config: Arc<LoaderConfig>,
    per_epoch: u64,
    /// An epoch and its order.
    order: Option<(u64, Order)>,
}

impl EpochPlans {
    pub(super) fn new(split: Split, config: Arc<LoaderConfig>, per_epoch: usize) -> Self {
        Self { split, config, per_epoch: per_epoch as u64, order: None }
    }

    /// The plan of batch `number`.
    pub(super) fn plan(&mut self, number: u64) -> Result<BatchPlan, DataError> {
        let (epoch, step) = (number / self.per_epoch, (number % self.per_epoch) as usize);
        let config = Arc::clone(&self.config);
        let LoaderConfig { batch_size, size, seed, share, .. } = *config;
        let (groups, mixed) = match &config.purpose {
            Purpose::Training(recipe) => {
                if self.order.as_ref().is_none_or(|(of, _)| *of != epoch) {
                    let key = recipe.order_key(seed, epoch, share.world);
                    self.order = Some((epoch, Order::new(self.split.len(), key)?));
                }
                let (_, order) = self.order.as_ref().expect("invariant: made above");
                let draws = (0..batch_size).map(|slot| {
                    let place = order.position(step, batch_size, share.rank, slot);
                    let draw = order.draw(place);
                    (draw.position, draw.repeat)
                });
                let rank = share.rank as u64;
                let key = MixKey { seed, epoch, step: step as u64, rank };
                let mixed = match recipe.mix.is_on() {
                    true => recipe.draw_mix(key, batch_size, size),
                    false => Vec::new(),
                };
                (group(draws), mixed)
            }
            Purpose::Evaluation { .. } => {
                let places = (0..batch_size)
                    .map(|slot| (step * batch_size + slot) * share.world + share.rank);
                let within = places.take_while(|&place| place < self.split.len());
                (group(within.map(|place| (place, 0))), Vec::new())
            }
        };
        let together = match self.split.stored() {
            Stored::Pixels { .. } => TOGETHER,
            Stored::Files => 1,
        };
        let count = groups.iter().map(|group| group.repeats.len()).sum();
        let tasks = groups.chunks(together).map(<[Group]>::to_vec).collect();
        Ok(BatchPlan { epoch, tasks, count, mixed })
    }
}

/// Draws, as (position, repeat), with those of one image that follow each other put together.
fn group(draws: impl Iterator<Item = (usize, u32)>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (position, repeat) in draws {
        match groups.last_mut() {
            Some(last) if last.position == position => last.repeats.push(repeat),
            Some(_) | None => groups.push(Group { position, repeats: vec![repeat] }),
        }
    }
    groups
}
