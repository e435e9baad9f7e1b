//! A batch while its parts are being made.

use std::sync::Arc;

use bytes::BytesMut;

use super::bad::BadSample;
use super::batch::Batch;
use super::buffer::{Shelf, Slab};
use super::plan::{BatchPlan, Group};
use crate::transforms::recipe::{EraseBox, MixPlan};

/// A part of a batch that one thread makes.
#[derive(Debug)]
pub(super) struct Task {
    /// Of the batch, counted over all epochs.
    pub(super) batch: u64,
    pub(super) epoch: u64,
    /// Which part of its batch.
    part: usize,
    /// The place in the batch of its first image.
    pub(super) first: usize,
    pub(super) groups: Vec<Group>,
    /// The pixels to be written, `[places, H, W, 3]`: a piece of the batch's slab.
    pub(super) pixels: BytesMut,
    /// The first group's file, if a reader has it already.
    pub(super) file: Option<Vec<u8>>,
}

/// What a thread made of a [`Task`].
#[derive(Debug)]
pub(super) struct Made {
    pub(super) part: usize,
    pub(super) pixels: BytesMut,
    /// Class and index of each image.
    pub(super) images: Vec<(u32, usize)>,
    pub(super) erased: Vec<(usize, EraseBox)>,
    pub(super) unread: Vec<usize>,
    pub(super) bad: Vec<BadSample>,
}

impl Task {
    /// The beginning of its result.
    pub(super) fn made(&mut self) -> Made {
        Made {
            part: self.part,
            pixels: std::mem::take(&mut self.pixels),
            images: Vec::new(),
            erased: Vec::new(),
            unread: Vec::new(),
            bad: Vec::new(),
        }
    }
}

/// A batch, and what could not be read of it.
#[derive(Debug)]
pub(super) struct MadeBatch {
    pub(super) batch: Batch,
    pub(super) bad: Vec<BadSample>,
}

/// A batch with parts missing.
#[derive(Debug)]
pub(super) struct Assembly {
    size: [usize; 2],
    count: usize,
    mixed: Vec<MixPlan>,
    parts: Vec<Option<Made>>,
    missing: usize,
    /// Pixels of the places that only fill the batch up.
    rest: BytesMut,
    /// How many these are.
    filled: usize,
}

impl Assembly {
    /// Opens the batch `number` of `batch_size` images, and cuts its slab for the tasks.
    ///
    /// The pieces are of one allocation and are put together again without copying.
    pub(super) fn open(
        number: u64,
        plan: BatchPlan,
        batch_size: usize,
        size: [usize; 2],
        shelf: &Shelf,
    ) -> (Self, Vec<Task>) {
        let bytes = 3 * size[0] * size[1];
        let mut slab = shelf.take(batch_size * bytes);
        let BatchPlan { epoch, tasks, count, mixed } = plan;
        let mut first = 0;
        let cut = tasks.into_iter().enumerate().map(|(part, groups)| {
            let places: usize = groups.iter().map(|group| group.repeats.len()).sum();
            let pixels = slab.split_to(places * bytes);
            let task = Task { batch: number, epoch, part, first, groups, pixels, file: None };
            first += places;
            task
        });
        let tasks: Vec<Task> = cut.collect();
        let mut rest = slab;
        rest.fill(0);
        let parts: Vec<Option<Made>> = tasks.iter().map(|_| None).collect();
        let (missing, filled) = (parts.len(), batch_size - count);
        (Self { size, count, mixed, parts, missing, rest, filled }, tasks)
    }

    /// Puts a part in its place; whether it was the last one missing.
    pub(super) fn add(&mut self, made: Made) -> bool {
        let part = made.part;
        self.parts[part] = Some(made);
        self.missing -= 1;
        self.missing == 0
    }

    /// The batch, once nothing is missing.
    pub(super) fn finish(self, shelf: &Arc<Shelf>) -> MadeBatch {
        let mut pixels = BytesMut::new();
        let (mut labels, mut indices) = (Vec::new(), Vec::new());
        let (mut erased, mut unread, mut bad) = (Vec::new(), Vec::new(), Vec::new());
        for made in self.parts.into_iter().flatten() {
            pixels.unsplit(made.pixels);
            labels.extend(made.images.iter().map(|&(label, _)| label));
            indices.extend(made.images.iter().map(|&(_, index)| index));
            erased.extend(made.erased);
            unread.extend(made.unread);
            bad.extend(made.bad);
        }
        pixels.unsplit(self.rest);
        labels.resize(self.count + self.filled, 0);
        indices.resize(self.count + self.filled, 0);
        let [height, width] = self.size;
        let images = Slab::new(pixels, Arc::clone(shelf));
        let (mixed, count) = (self.mixed, self.count);
        let batch = Batch { images, labels, indices, height, width, erased, mixed, count, unread };
        MadeBatch { batch, bad }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A slab that grew at each use would be memory lost; one in pieces would be copied.
    #[test]
    fn a_slab_is_cut_joined_and_used_again_in_place() {
        let shelf = Arc::new(Shelf::default());
        let group = |position| Group { position, repeats: vec![0, 1] };
        let mut place = None;
        for round in 0..5 {
            let plan = BatchPlan {
                epoch: 0,
                tasks: vec![vec![group(0)], vec![group(1), group(2)]],
                count: 6,
                mixed: Vec::new(),
            };
            let (mut assembly, mut tasks) = Assembly::open(round, plan, 8, [2, 1], &shelf);
            assert_eq!(tasks.iter().map(|task| task.first).collect::<Vec<_>>(), [0, 2]);
            assert_eq!(tasks.iter().map(|task| task.pixels.len()).collect::<Vec<_>>(), [12, 24]);
            tasks.reverse();
            for mut task in tasks {
                let mut made = task.made();
                let value = 1 + made.part as u8;
                made.pixels.fill(value);
                assembly.add(made);
            }
            let MadeBatch { batch, .. } = assembly.finish(&shelf);
            assert_eq!(*batch.images, [&[1; 12][..], &[2; 24], &[0; 12]].concat());
            let now = batch.images.as_ptr();
            assert_eq!(*place.get_or_insert(now), now);
        }
    }
}
