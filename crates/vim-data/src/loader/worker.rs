//! The tasks of a batch: cut from its plan, made by a thread from files or stored pixels, and
//! joined again. The memory of a batch is used for another once nobody holds it.

use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, mem, ops::Deref, thread, time::Duration};

use bytes::{Bytes, BytesMut};

use super::stats::{BadSample, LoaderStage, LoaderStats};
use super::{Batch, BatchPlan, Group, Loader, LoaderConfig, OnBad, Purpose};
use crate::dataset::{Dataset, Encoding, Sample};
use crate::decode::{DecodeError, DecodeLimits, Decoder, Exif, Stored};
use crate::dense::LabelMap;
use crate::objects::Targets;
use crate::pixels::{Pixels, Region};
use crate::transforms::filter::Filter;
use crate::transforms::recipe::{MixPlan, SampleKey};
use crate::transforms::resize::{EVAL_CROP, Resizer};
use crate::transforms::{CropPlan, EraseBox, SamplePlan, Transform};
use crate::{error::DataError, rng};

/// The pixels of a batch. Once all clones are dropped, the memory returns to the loader.
#[derive(Clone)]
pub struct BatchBuffer(Arc<Memory>);

struct Memory {
    bytes: BytesMut,
    pool: Arc<BufferPool>,
}

impl BatchBuffer {
    fn new(bytes: BytesMut, pool: Arc<BufferPool>) -> Self {
        Self(Arc::new(Memory { bytes, pool }))
    }

    /// The same memory, not a copy of it.
    pub fn shared(&self) -> Bytes {
        Bytes::from_owner(self.clone())
    }
}

impl AsRef<[u8]> for BatchBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl From<Vec<u8>> for BatchBuffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(BytesMut::from(Bytes::from(bytes)), Arc::default())
    }
}

impl Deref for BatchBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_ref()
    }
}

impl PartialEq for BatchBuffer {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for BatchBuffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "BatchBuffer({} bytes)", self.len())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.pool.put(std::mem::take(&mut self.bytes));
    }
}

/// Buffers that no batch holds.
#[derive(Debug, Default)]
pub(super) struct BufferPool {
    free: Mutex<Vec<BytesMut>>,
}

impl BufferPool {
    /// `len` bytes of arbitrary content.
    fn take(&self, len: usize) -> BytesMut {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut bytes = free.unwrap_or_default();
        bytes.resize(len, 0);
        bytes
    }

    fn put(&self, bytes: BytesMut) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    }
}

/// A part of a batch that one thread makes.
#[derive(Debug)]
pub(super) struct Task {
    /// Number of the batch, counted over all epochs.
    pub(super) batch: u64,
    /// Step of the batch, counted over all epochs.
    step: u64,
    epoch: u64,
    /// Number of the task within its batch.
    pub(super) number: usize,
    /// Slot in the batch of its first image.
    first: usize,
    pub(super) groups: Vec<Group>,
    /// The pixels to be written, `[slots, H, W, 3]`: a piece of the batch's buffer.
    pixels: BytesMut,
    /// The labels to be written, `[slots, H, W]`; empty without label maps.
    label_maps: BytesMut,
    /// The first group's image, if a reader has read it already.
    pub(super) sample: Option<Sample>,
    /// Why the first group's image cannot be read, if a reader has seen that it never can.
    pub(super) unreadable: Option<DataError>,
}

/// What a thread made of a [`Task`].
#[derive(Debug, Default)]
pub(super) struct TaskResult {
    pixels: BytesMut,
    label_maps: BytesMut,
    /// Class and index of each image.
    images: Vec<(u32, usize)>,
    /// What is to be found in each image, if that is asked for.
    targets: Vec<Targets>,
    erased: Vec<(usize, EraseBox)>,
    unread: Vec<usize>,
    bad: Vec<BadSample>,
    /// What the thread did since its last task.
    pub(super) stats: LoaderStats,
}

/// A batch some of whose tasks are not done.
#[derive(Debug)]
pub(super) struct Assembly {
    batch_size: usize,
    size: [usize; 2],
    /// Slots with an image.
    count: usize,
    mixed: Vec<MixPlan>,
    results: Vec<Option<TaskResult>>,
    missing: usize,
    /// Pixels of the slots that only fill the batch up.
    filler: BytesMut,
}

impl Assembly {
    /// Opens batch `number`, and cuts its buffer for the tasks.
    ///
    /// The pieces are of one allocation and are joined again without copying.
    pub(super) fn open(
        number: u64,
        plan: BatchPlan,
        config: &LoaderConfig,
        [pool, label_pool]: &[Arc<BufferPool>; 2],
    ) -> (Self, Vec<Task>) {
        let LoaderConfig { batch_size, size, .. } = *config;
        let image_bytes = 3 * size[0] * size[1];
        let map_bytes = config.label_map_bytes();
        let mut buffer = pool.take(batch_size * image_bytes);
        let mut maps = match map_bytes {
            0 => BytesMut::new(),
            bytes => label_pool.take(batch_size * bytes),
        };
        let BatchPlan { epoch, step, tasks, count, mixed } = plan;
        let mut first = 0;
        let cut = tasks.into_iter().enumerate().map(|(task, groups)| {
            let slots: usize = groups.iter().map(|group| group.repeats.len()).sum();
            let pixels = buffer.split_to(slots * image_bytes);
            let label_maps = maps.split_to(slots * map_bytes);
            let (batch, number) = (number, task);
            let task = Task {
                batch,
                step,
                epoch,
                number,
                first,
                groups,
                pixels,
                label_maps,
                sample: None,
                unreadable: None,
            };
            first += slots;
            task
        });
        let tasks: Vec<Task> = cut.collect();
        let mut filler = buffer;
        filler.fill(0);
        let results: Vec<Option<TaskResult>> = tasks.iter().map(|_| None).collect();
        let missing = results.len();
        (Self { batch_size, size, count, mixed, results, missing, filler }, tasks)
    }

    /// Adds the result of a task; returns whether it was the last one missing.
    pub(super) fn add(&mut self, task: usize, result: TaskResult) -> bool {
        self.results[task] = Some(result);
        self.missing -= 1;
        self.missing == 0
    }

    /// The batch and its images that could not be read, once no result is missing.
    pub(super) fn finish(
        self,
        [pool, label_pool]: &[Arc<BufferPool>; 2],
    ) -> (Batch, Vec<BadSample>) {
        let Self { batch_size, size: [height, width], count, mixed, .. } = self;
        let (mut pixels, mut maps) = (BytesMut::new(), BytesMut::new());
        let (mut labels, mut indices) = (Vec::new(), Vec::new());
        let (mut erased, mut unread, mut bad) = (Vec::new(), Vec::new(), Vec::new());
        let mut targets = Vec::new();
        for result in self.results.into_iter().flatten() {
            pixels.unsplit(result.pixels);
            maps.unsplit(result.label_maps);
            labels.extend(result.images.iter().map(|&(label, _)| label));
            indices.extend(result.images.iter().map(|&(_, index)| index));
            targets.extend(result.targets);
            erased.extend(result.erased);
            unread.extend(result.unread);
            bad.extend(result.bad);
        }
        pixels.unsplit(self.filler);
        labels.resize(batch_size, 0);
        indices.resize(batch_size, 0);
        let images = BatchBuffer::new(pixels, Arc::clone(pool));
        let label_maps = (!maps.is_empty()).then(|| BatchBuffer::new(maps, Arc::clone(label_pool)));
        let batch = Batch {
            images,
            labels,
            label_maps,
            targets,
            indices,
            height,
            width,
            erased,
            mixed,
            count,
            unread,
        };
        (batch, bad)
    }
}

/// Pauses before a file is tried again.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(200), Duration::from_secs(2)];

/// Reads an image as stored, and tries again if that fails and may get better.
pub(crate) fn read(
    dataset: &dyn Dataset,
    index: usize,
    into: &mut Sample,
) -> Result<(), DataError> {
    for pause in PAUSES {
        match dataset.read(index, into) {
            Err(error) if error.is_io() => thread::sleep(pause),
            read => return read,
        }
    }
    dataset.read(index, into)
}

/// The most replacements tried for an image that cannot be read.
const REPLACEMENTS: u32 = 20;

/// A thread's tools and buffers.
pub(super) struct Worker<'a> {
    pub(super) loader: &'a Loader,
    pub(super) decoder: Decoder,
    transform: Transform,
    /// For images with objects.
    pub(super) resizer: Resizer,
    /// An image as stored.
    pub(super) sample: Sample,
    /// The image decoded.
    pub(super) source: Pixels,
    pub(super) label_map: LabelMap,
    pub(super) stats: LoaderStats,
}

impl<'a> Worker<'a> {
    pub(super) fn new(loader: &'a Loader) -> Result<Self, DataError> {
        let crop_ratio = match &loader.config.purpose {
            Purpose::Training(recipe) => recipe.eval_crop_ratio,
            Purpose::Evaluation { crop_ratio } => *crop_ratio,
            Purpose::Dense(_) | Purpose::Objects(_) => EVAL_CROP,
        };
        Ok(Self {
            loader,
            decoder: Decoder::new(DecodeLimits::default())?,
            transform: Transform::new(crop_ratio, loader.config.fill),
            resizer: Resizer::with_filter(Filter::Bilinear),
            sample: Sample::default(),
            source: Pixels::default(),
            label_map: LabelMap::default(),
            stats: LoaderStats::default(),
        })
    }

    /// Makes the images of a task; leaves an unused buffer in place of its sample.
    pub(super) fn make(&mut self, task: &mut Task) -> Result<TaskResult, DataError> {
        let [height, width] = self.loader.config.size;
        let mut pixels = mem::take(&mut task.pixels);
        let mut label_maps = mem::take(&mut task.label_maps);
        let (mut rest, mut rest_maps) = (&mut pixels[..], &mut label_maps[..]);
        let map_bytes = self.loader.config.label_map_bytes();
        let mut result = TaskResult::default();
        let mut slot = task.first;
        let mut read = task.unreadable.take().map(Err);
        if let Some(sample) = &mut task.sample {
            mem::swap(&mut self.sample, sample);
            read = Some(Ok(()));
        }
        for group in &task.groups {
            let into = rest.split_off_mut(..3 * height * width * group.repeats.len());
            let maps = rest_maps.split_off_mut(..map_bytes * group.repeats.len());
            let into = into.zip(maps).expect("invariant: a task has pixels for all its slots");
            self.group(task, group, read.take(), slot, into, &mut result)?;
            slot += group.repeats.len();
        }
        self.stats.images += (slot - task.first) as u64;
        Ok(TaskResult { pixels, label_maps, stats: mem::take(&mut self.stats), ..result })
    }

    /// Makes the draws of one image, whose file may be read already; if it cannot be read, handles
    /// that as the configuration says.
    fn group(
        &mut self,
        task: &Task,
        group: &Group,
        mut read_before: Option<Result<(), DataError>>,
        slot: usize,
        (into, maps): (&mut [u8], &mut [u8]),
        result: &mut TaskResult,
    ) -> Result<(), DataError> {
        let Loader { split, config, .. } = self.loader;
        let dataset = split.dataset();
        let (seed, epoch, repeat) = (config.seed, task.epoch, group.repeats[0]);
        let mut index = split.index(group.position);
        for attempt in 0..=REPLACEMENTS {
            let key = SampleKey { seed, epoch, index: index as u64, repeat, attempt };
            let sample = &mut self.sample;
            let read = match read_before.take() {
                Some(read) => read,
                None => self.stats.timed(LoaderStage::Read, || read(dataset, index, sample)),
            };
            let images: Result<Vec<Vec<EraseBox>>, String> = match (read, &config.purpose) {
                (Ok(()), Purpose::Training(_) | Purpose::Evaluation { .. }) => {
                    let plans = self.images(key, group, into).map_err(|error| error.to_string());
                    plans.map(|plans| plans.into_iter().map(|plan| plan.erase).collect())
                }
                (Ok(()), Purpose::Dense(recipe)) => {
                    let boxes = self.pairs(recipe, key, group, into, maps);
                    boxes.map_err(|error| error.to_string())
                }
                (Ok(()), Purpose::Objects(recipe)) => {
                    let made = self.objects(recipe, index, key, group, into);
                    made.map_err(|error| error.to_string()).map(|made| {
                        let (boxes, targets): (Vec<_>, Vec<_>) = made.into_iter().unzip();
                        result.targets.extend(targets);
                        boxes
                    })
                }
                (Err(error), _) => Err(format!("cannot be read: failed to {error}")),
            };
            let drawn = group.repeats.iter().map(|_| (dataset.label(index), index));
            let reason = match images {
                Ok(boxes) => {
                    result.images.extend(drawn);
                    for (slot, boxes) in (slot..).zip(boxes) {
                        result.erased.extend(boxes.into_iter().map(|erased| (slot, erased)));
                    }
                    return Ok(());
                }
                Err(reason) => reason,
            };
            let name = dataset.name(index);
            if config.on_bad == OnBad::Fail {
                return Err(DataError::BadImage { name, reason });
            }
            result.bad.push(BadSample { epoch, batch: task.step, index, name, reason });
            if config.on_bad == OnBad::CountAsWrong {
                result.images.extend(drawn);
                result.unread.extend(slot..slot + group.repeats.len());
                if let Purpose::Objects(_) = config.purpose {
                    result.targets.extend(group.repeats.iter().map(|_| Targets::default()));
                }
                into.fill(0);
                return Ok(());
            }
            let count = u32::try_from(split.len()).unwrap_or(u32::MAX);
            let replacement = rng::below(&mut key.rng("vim-data stand-in v1"), count);
            index = split.index(replacement as usize);
        }
        let last = result.bad.last().map(|bad| format!("{}: {}", bad.name, bad.reason));
        let count = u64::from(REPLACEMENTS) + 1;
        Err(DataError::TooManyBad { count, draws: count, last: last.unwrap_or_default() })
    }

    /// Makes all draws of the image in `sample`, `[draws, H, W, 3]`; returns their plans.
    fn images(
        &mut self,
        key: SampleKey,
        group: &Group,
        into: &mut [u8],
    ) -> Result<Vec<SamplePlan>, DecodeError> {
        let Loader { split, config, .. } = self.loader;
        let Self { decoder, transform, sample, source, stats, .. } = self;
        let file = &sample.image;
        stats.bytes += sample.bytes();
        let stored: Stored = match split.encoding() {
            Encoding::Pixels { size } => size.into(),
            Encoding::Files => {
                let header = decoder.header(file)?;
                let size = [header.height, header.width];
                match split.dataset().exif() {
                    Exif::Apply => decoder.stored(file, size),
                    Exif::Ignore => size.into(),
                }
            }
        };
        let seen @ [height, width] = stored.seen();
        let size = config.size;
        let draw = |&repeat| match &config.purpose {
            Purpose::Training(recipe) => recipe.draw(SampleKey { repeat, ..key }, seen, size),
            Purpose::Dense(_) | Purpose::Objects(_) | Purpose::Evaluation { .. } => {
                SamplePlan::default()
            }
        };
        let plans: Vec<SamplePlan> = group.repeats.iter().map(draw).collect();
        let whole = Region { top: 0, left: 0, height, width };
        // The region of the image that `source` is: in files, what all the crops need.
        let part = match split.encoding() {
            Encoding::Pixels { .. } => {
                source.data.clone_from(file);
                (source.height, source.width) = (height, width);
                whole
            }
            Encoding::Files => {
                let needed = plans.iter().map(|plan| match plan.crop {
                    CropPlan::Resized { region } => region,
                    CropPlan::Evaluation | CropPlan::Padded { .. } | CropPlan::Simple { .. } => {
                        whole
                    }
                });
                let wanted = needed.reduce(Region::union).unwrap_or(whole);
                let decode = || match stored.orientation {
                    1 => decoder.decode_part(file, wanted, source),
                    orientation => {
                        let decoded = decoder.decode(file, source)?;
                        source.turn(orientation);
                        Ok((whole, decoded))
                    }
                };
                let (part, decoded) = stats.timed(LoaderStage::Decode, decode)?;
                stats.decoded += 1;
                stats.warned += u64::from(decoded.warning.is_some());
                part
            }
        };
        for (image, plan) in into.chunks_exact_mut(3 * size[0] * size[1]).zip(&plans) {
            let crop = || transform.crop(plan, source, part, size, image);
            stats.timed(LoaderStage::Resize, crop);
            stats.timed(LoaderStage::Augment, || transform.alter(plan, size, image));
        }
        Ok(plans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_when_the_last_that_shares_it_is_dropped() {
        let pool = Arc::new(BufferPool::default());
        let free = || pool.free.lock().unwrap().len();
        let buffer = BatchBuffer::new(pool.take(8), Arc::clone(&pool));
        let (at, shared) = (buffer.as_ptr(), buffer.shared());
        drop(buffer);
        assert_eq!((free(), shared.as_ptr(), shared.len()), (0, at, 8));
        drop(shared);
        assert_eq!(free(), 1);
        assert_eq!(pool.take(8).as_ptr(), at);
    }

    // A buffer that grew at each use would be memory lost; one in pieces would be copied.
    #[test]
    fn a_buffer_is_cut_joined_and_used_again_in_place() {
        let pools = [(); 2].map(|()| Arc::new(BufferPool::default()));
        let config = LoaderConfig::evaluation(8, [2, 1], 1, 1.0);
        let group = |position| Group { position, repeats: vec![0, 1] };
        let mut place = None;
        for round in 0..5 {
            let tasks = vec![vec![group(0)], vec![group(1), group(2)]];
            let plan = BatchPlan { epoch: 0, step: round, tasks, count: 6, mixed: Vec::new() };
            let (mut assembly, mut tasks) = Assembly::open(round, plan, &config, &pools);
            assert_eq!(tasks.iter().map(|task| task.first).collect::<Vec<_>>(), [0, 2]);
            assert_eq!(tasks.iter().map(|task| task.pixels.len()).collect::<Vec<_>>(), [12, 24]);
            tasks.reverse();
            for Task { number, mut pixels, .. } in tasks {
                pixels.fill(1 + number as u8);
                assembly.add(number, TaskResult { pixels, ..TaskResult::default() });
            }
            let (batch, _) = assembly.finish(&pools);
            assert_eq!(*batch.images, [&[1; 12][..], &[2; 24], &[0; 12]].concat());
            let now = batch.images.as_ptr();
            assert_eq!(*place.get_or_insert(now), now);
        }
    }
}
