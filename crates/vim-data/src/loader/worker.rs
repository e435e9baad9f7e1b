//! One thread's work: from a file, or stored pixels, to the images of a batch.

use std::{mem, thread, time::Duration};

use super::assembly::{Group, Task, TaskResult};
use super::bad::{BadSample, OnBad};
use super::stats::{Counters, LoaderStage};
use super::{LoaderConfig, Purpose};
use crate::dataset::{Dataset, Encoding};
use crate::decode::{DecodeError, DecodeLimits, Decoder};
use crate::pixels::{Pixels, Region};
use crate::transforms::recipe::{CropPlan, SampleKey, SamplePlan};
use crate::{error::DataError, rng, split::Split, transforms::transform::Transform};

/// Pauses before a file is tried again.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(200), Duration::from_secs(2)];

/// The most replacements tried for an image that cannot be read.
const REPLACEMENTS: u32 = 20;

/// A thread's tools and buffers.
pub(super) struct Worker<'a> {
    split: &'a Split,
    config: &'a LoaderConfig,
    counters: &'a Counters,
    decoder: Decoder,
    applier: Transform,
    file: Vec<u8>,
    source: Pixels,
}

/// Reads an image as stored, and tries again if that fails.
pub(super) fn read(
    dataset: &dyn Dataset,
    index: usize,
    into: &mut Vec<u8>,
) -> Result<(), DataError> {
    for pause in PAUSES {
        match dataset.read(index, into) {
            Ok(()) => return Ok(()),
            Err(_) => thread::sleep(pause),
        }
    }
    dataset.read(index, into)
}

impl<'a> Worker<'a> {
    pub(super) fn new(
        split: &'a Split,
        config: &'a LoaderConfig,
        counters: &'a Counters,
    ) -> Result<Self, DataError> {
        let crop_ratio = match &config.purpose {
            Purpose::Training(recipe) => recipe.eval_crop_ratio,
            Purpose::Evaluation { crop_ratio } => *crop_ratio,
        };
        Ok(Self {
            split,
            config,
            counters,
            decoder: Decoder::new(DecodeLimits::default())?,
            applier: Transform::new(crop_ratio),
            file: Vec::new(),
            source: Pixels::default(),
        })
    }

    /// Makes the images of a task. `file` is that of its first group, if it is read already.
    pub(super) fn make(
        &mut self,
        mut task: Task,
        mut file: Option<&[u8]>,
    ) -> Result<TaskResult, DataError> {
        let [height, width] = self.config.size;
        let image_bytes = 3 * height * width;
        let mut pixels = mem::take(&mut task.pixels);
        let mut result = TaskResult { number: task.number, ..TaskResult::default() };
        let mut slot = task.first;
        for group in &task.groups {
            let from = (slot - task.first) * image_bytes;
            let into = &mut pixels[from..from + group.repeats.len() * image_bytes];
            self.group(&task, group, file.take(), slot, into, &mut result)?;
            slot += group.repeats.len();
        }
        result.pixels = pixels;
        self.counters.made(slot - task.first);
        Ok(result)
    }

    /// Makes the draws of one image; if it cannot be read, handles that as the configuration says.
    fn group(
        &mut self,
        task: &Task,
        group: &Group,
        file: Option<&[u8]>,
        slot: usize,
        into: &mut [u8],
        result: &mut TaskResult,
    ) -> Result<(), DataError> {
        let first = self.split.index(group.position);
        let key = SampleKey {
            seed: self.config.seed,
            epoch: task.epoch,
            index: first as u64,
            repeat: group.repeats[0],
            attempt: 0,
        };
        let mut index = first;
        for attempt in 0..=REPLACEMENTS {
            let key = SampleKey { index: index as u64, attempt, ..key };
            let images = match file {
                Some(file) if attempt == 0 => self.images(file, key, group, into),
                Some(_) | None => self.read_and_make(index, key, group, into),
            };
            let label = self.split.dataset().label(index);
            let drawn = group.repeats.iter().map(|_| (label, index));
            let error = match images {
                Ok(plans) => {
                    result.images.extend(drawn);
                    for (offset, plan) in plans.into_iter().enumerate() {
                        let boxes = plan.erase.into_iter();
                        result.erased.extend(boxes.map(|erased| (slot + offset, erased)));
                    }
                    return Ok(());
                }
                Err(error) => error,
            };
            let (name, reason) = (self.split.dataset().name(index), error.to_string());
            if self.config.on_bad == OnBad::Fail {
                return Err(DataError::BadImage { name, reason });
            }
            let Task { epoch, batch, .. } = *task;
            result.bad.push(BadSample { epoch, batch, index, name, reason });
            if self.config.on_bad == OnBad::CountAsWrong {
                result.images.extend(drawn);
                result.unread.extend(slot..slot + group.repeats.len());
                into.fill(0);
                return Ok(());
            }
            index = self.replacement(key);
        }
        let last = result.bad.last().map(|bad| format!("{}: {}", bad.name, bad.reason));
        let count = u64::from(REPLACEMENTS) + 1;
        Err(DataError::TooManyBad { count, draws: count, last: last.unwrap_or_default() })
    }

    /// The index of the image that replaces that of `key`.
    fn replacement(&self, key: SampleKey) -> usize {
        let SampleKey { seed, epoch, index, repeat, attempt } = key;
        let key = [seed, epoch, index, u64::from(repeat), u64::from(attempt)];
        let mut rng = rng::keyed("vim-data stand-in v1", &key);
        let count = u32::try_from(self.split.len()).unwrap_or(u32::MAX);
        self.split.index(rng::below(&mut rng, count) as usize)
    }

    fn read_and_make(
        &mut self,
        index: usize,
        key: SampleKey,
        group: &Group,
        into: &mut [u8],
    ) -> Result<Vec<SamplePlan>, Unusable> {
        let mut file = mem::take(&mut self.file);
        let dataset = self.split.dataset();
        let read = self.counters.timed(LoaderStage::Read, || read(dataset, index, &mut file));
        let images = match read {
            Ok(()) => self.images(&file, key, group, into),
            Err(error) => Err(Unusable::Read(error)),
        };
        self.file = file;
        images
    }

    /// Makes all draws of an image, `[draws, H, W, 3]`.
    fn images(
        &mut self,
        stored: &[u8],
        key: SampleKey,
        group: &Group,
        into: &mut [u8],
    ) -> Result<Vec<SamplePlan>, Unusable> {
        self.counters.read(stored.len());
        let size = self.config.size;
        let header = match self.split.encoding() {
            Encoding::Pixels { size } => size,
            Encoding::Files => {
                let header = self.decoder.header(stored)?;
                [header.height, header.width]
            }
        };
        let plans: Vec<SamplePlan> = match &self.config.purpose {
            Purpose::Training(recipe) => {
                let draw = |&repeat| recipe.draw(SampleKey { repeat, ..key }, header, size);
                group.repeats.iter().map(draw).collect()
            }
            Purpose::Evaluation { .. } => Vec::new(),
        };
        let part = self.decode(stored, header, &plans)?;
        let bytes = 3 * size[0] * size[1];
        for (image, plan) in into.chunks_exact_mut(bytes).zip(&plans) {
            let (source, applier) = (&self.source, &mut self.applier);
            self.counters
                .timed(LoaderStage::Resize, || applier.crop(plan, source, part, size, image));
            self.counters.timed(LoaderStage::Augment, || applier.alter(plan, size, image));
        }
        if let Purpose::Evaluation { .. } = self.config.purpose {
            let (source, applier) = (&self.source, &mut self.applier);
            self.counters.timed(LoaderStage::Resize, || applier.evaluate(source, size, into));
        }
        Ok(plans)
    }

    /// Decodes the part of the image that the plans need into `source`; returns the region of that
    /// part.
    fn decode(
        &mut self,
        stored: &[u8],
        [height, width]: [usize; 2],
        plans: &[SamplePlan],
    ) -> Result<Region, DecodeError> {
        let whole = Region { top: 0, left: 0, height, width };
        if let Encoding::Pixels { .. } = self.split.encoding() {
            self.source.data.clear();
            self.source.data.extend_from_slice(stored);
            (self.source.height, self.source.width) = (height, width);
            return Ok(whole);
        }
        let needed = plans.iter().map(|plan| match plan.crop {
            CropPlan::Resized { region } => region,
            CropPlan::Evaluation | CropPlan::Padded { .. } | CropPlan::Simple { .. } => whole,
        });
        let wanted = needed.reduce(Region::union).unwrap_or(whole);
        let (decoder, source) = (&mut self.decoder, &mut self.source);
        let (part, decoded) = self
            .counters
            .timed(LoaderStage::Decode, || decoder.decode_part(stored, wanted, source))?;
        self.counters.decoded(decoded.warning.is_some());
        Ok(part)
    }
}

/// Why an image cannot be used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("cannot be read: failed to {0}")]
    Read(DataError),
    #[error("{0}")]
    Decode(#[from] DecodeError),
}
