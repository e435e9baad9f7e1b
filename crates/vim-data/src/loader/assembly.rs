//! The plan of a batch, a function of its number; the tasks that it is cut into; and the batch
//! assembled from their results.

use std::sync::Arc;

use bytes::BytesMut;

use super::batch::{Batch, BatchBuffer, BufferPool};
use super::{LoaderConfig, Purpose, bad::BadSample, order::Order};
use crate::transforms::recipe::{EraseBox, MixKey, MixPlan};
use crate::{dataset::Encoding, error::DataError, split::Split};

/// Images in memory per task: making a single one is too little work for a task of its own.
const GROUPS_IN_MEMORY: usize = 32;

/// Consecutive draws of one image in a batch: it is decoded once for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// Position of the image in the split.
    pub(super) position: usize,
    /// Which of the image's draws in the epoch, one for each slot in the batch.
    pub(super) repeats: Vec<u32>,
}

/// What a batch is made of.
#[derive(Debug)]
pub(super) struct BatchPlan {
    pub(super) epoch: u64,
    /// The groups of each task, in the order of their slots in the batch.
    pub(super) tasks: Vec<Vec<Group>>,
    /// Slots with an image; the others only fill the batch up.
    pub(super) count: usize,
    pub(super) mixed: Vec<MixPlan>,
}

/// Batches in an epoch.
pub(super) fn batches_per_epoch(split: &Split, config: &LoaderConfig) -> Result<usize, DataError> {
    let LoaderConfig { batch_size, replica, .. } = *config;
    Ok(match &config.purpose {
        Purpose::Training(recipe) => {
            Order::new(split.len(), recipe.order_key(config.seed, 0, replica.world))?
                .steps(batch_size)
        }
        Purpose::Evaluation { .. } => split.len().div_ceil(batch_size * replica.world),
    })
}

/// Plans of all batches. Keeps the order of the epoch that was asked for last.
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
        let LoaderConfig { batch_size, size, seed, replica, .. } = *config;
        let (groups, mixed) = match &config.purpose {
            Purpose::Training(recipe) => {
                if self.order.as_ref().is_none_or(|(of, _)| *of != epoch) {
                    let key = recipe.order_key(seed, epoch, replica.world);
                    self.order = Some((epoch, Order::new(self.split.len(), key)?));
                }
                let (_, order) = self.order.as_ref().expect("invariant: made above");
                let draws = (0..batch_size).map(|slot| {
                    let place = order.position(step, batch_size, replica.rank, slot);
                    let draw = order.draw(place);
                    (draw.position, draw.repeat)
                });
                let rank = replica.rank as u64;
                let key = MixKey { seed, epoch, step: step as u64, rank };
                let mixed = match recipe.mixes() {
                    true => recipe.draw_mix(key, batch_size, size),
                    false => Vec::new(),
                };
                (group(draws), mixed)
            }
            Purpose::Evaluation { .. } => {
                let places = (0..batch_size)
                    .map(|slot| (step * batch_size + slot) * replica.world + replica.rank);
                let within = places.take_while(|&place| place < self.split.len());
                (group(within.map(|place| (place, 0))), Vec::new())
            }
        };
        let groups_per_task = match self.split.encoding() {
            Encoding::Pixels { .. } => GROUPS_IN_MEMORY,
            Encoding::Files => 1,
        };
        let count = groups.iter().map(|group| group.repeats.len()).sum();
        let tasks = groups.chunks(groups_per_task).map(<[Group]>::to_vec).collect();
        Ok(BatchPlan { epoch, tasks, count, mixed })
    }
}

/// Joins consecutive draws, (position, repeat), of one image.
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

/// A part of a batch that one thread makes.
#[derive(Debug)]
pub(super) struct Task {
    /// Number of the batch, counted over all epochs.
    pub(super) batch: u64,
    pub(super) epoch: u64,
    /// Number of the task within its batch.
    pub(super) number: usize,
    /// Slot in the batch of its first image.
    pub(super) first: usize,
    pub(super) groups: Vec<Group>,
    /// The pixels to be written, `[slots, H, W, 3]`: a piece of the batch's buffer.
    pub(super) pixels: BytesMut,
    /// The first group's file, if a reader has read it already.
    pub(super) file: Option<Vec<u8>>,
}

/// What a thread made of a [`Task`].
#[derive(Debug, Default)]
pub(super) struct TaskResult {
    /// Number of the task within its batch.
    pub(super) number: usize,
    pub(super) pixels: BytesMut,
    /// Class and index of each image.
    pub(super) images: Vec<(u32, usize)>,
    pub(super) erased: Vec<(usize, EraseBox)>,
    pub(super) unread: Vec<usize>,
    pub(super) bad: Vec<BadSample>,
}

/// A batch, and its images that could not be read.
#[derive(Debug)]
pub(super) struct FinishedBatch {
    pub(super) batch: Batch,
    pub(super) bad: Vec<BadSample>,
}

/// A batch some of whose tasks are not done.
#[derive(Debug)]
pub(super) struct Assembly {
    size: [usize; 2],
    /// Slots with an image.
    count: usize,
    mixed: Vec<MixPlan>,
    results: Vec<Option<TaskResult>>,
    missing: usize,
    /// Pixels of the slots that only fill the batch up.
    filler: BytesMut,
    /// Number of these slots.
    filled: usize,
}

impl Assembly {
    /// Opens batch `number` of `batch_size` images, and cuts its buffer for the tasks.
    ///
    /// The pieces are of one allocation and are joined again without copying.
    pub(super) fn open(
        number: u64,
        plan: BatchPlan,
        batch_size: usize,
        size: [usize; 2],
        pool: &BufferPool,
    ) -> (Self, Vec<Task>) {
        let image_bytes = 3 * size[0] * size[1];
        let mut buffer = pool.take(batch_size * image_bytes);
        let BatchPlan { epoch, tasks, count, mixed } = plan;
        let mut first = 0;
        let cut = tasks.into_iter().enumerate().map(|(task, groups)| {
            let slots: usize = groups.iter().map(|group| group.repeats.len()).sum();
            let pixels = buffer.split_to(slots * image_bytes);
            let task =
                Task { batch: number, epoch, number: task, first, groups, pixels, file: None };
            first += slots;
            task
        });
        let tasks: Vec<Task> = cut.collect();
        let mut filler = buffer;
        filler.fill(0);
        let results: Vec<Option<TaskResult>> = tasks.iter().map(|_| None).collect();
        let (missing, filled) = (results.len(), batch_size - count);
        (Self { size, count, mixed, results, missing, filler, filled }, tasks)
    }

    /// Adds the result of a task; returns whether it was the last one missing.
    pub(super) fn add(&mut self, result: TaskResult) -> bool {
        let task = result.number;
        self.results[task] = Some(result);
        self.missing -= 1;
        self.missing == 0
    }

    /// The batch, once no result is missing.
    pub(super) fn finish(self, pool: &Arc<BufferPool>) -> FinishedBatch {
        let mut pixels = BytesMut::new();
        let (mut labels, mut indices) = (Vec::new(), Vec::new());
        let (mut erased, mut unread, mut bad) = (Vec::new(), Vec::new(), Vec::new());
        for result in self.results.into_iter().flatten() {
            pixels.unsplit(result.pixels);
            labels.extend(result.images.iter().map(|&(label, _)| label));
            indices.extend(result.images.iter().map(|&(_, index)| index));
            erased.extend(result.erased);
            unread.extend(result.unread);
            bad.extend(result.bad);
        }
        pixels.unsplit(self.filler);
        labels.resize(self.count + self.filled, 0);
        indices.resize(self.count + self.filled, 0);
        let [height, width] = self.size;
        let images = BatchBuffer::new(pixels, Arc::clone(pool));
        let (mixed, count) = (self.mixed, self.count);
        let batch = Batch { images, labels, indices, height, width, erased, mixed, count, unread };
        FinishedBatch { batch, bad }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A buffer that grew at each use would be memory lost; one in pieces would be copied.
    #[test]
    fn a_buffer_is_cut_joined_and_used_again_in_place() {
        let pool = Arc::new(BufferPool::default());
        let group = |position| Group { position, repeats: vec![0, 1] };
        let mut place = None;
        for round in 0..5 {
            let plan = BatchPlan {
                epoch: 0,
                tasks: vec![vec![group(0)], vec![group(1), group(2)]],
                count: 6,
                mixed: Vec::new(),
            };
            let (mut assembly, mut tasks) = Assembly::open(round, plan, 8, [2, 1], &pool);
            assert_eq!(tasks.iter().map(|task| task.first).collect::<Vec<_>>(), [0, 2]);
            assert_eq!(tasks.iter().map(|task| task.pixels.len()).collect::<Vec<_>>(), [12, 24]);
            tasks.reverse();
            for Task { number, mut pixels, .. } in tasks {
                pixels.fill(1 + number as u8);
                assembly.add(TaskResult { number, pixels, ..TaskResult::default() });
            }
            let FinishedBatch { batch, .. } = assembly.finish(&pool);
            assert_eq!(*batch.images, [&[1; 12][..], &[2; 24], &[0; 12]].concat());
            let now = batch.images.as_ptr();
            assert_eq!(*place.get_or_insert(now), now);
        }
    }
}
