//! Pairs and images with objects one after the other, each of its own size, as evaluation needs
//! them.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use rayon::prelude::*;

use super::objects::decode_scene;
use super::pairs::decode_pair;
use super::{OnBad, THREAD_PREFIX, worker};
use crate::dataset::Sample;
use crate::decode::{DecodeLimits, Decoder};
use crate::dense::{LabelMap, decode_labels};
use crate::error::DataError;
use crate::objects::ImageObjects;
use crate::pixels::Pixels;
use crate::split::Split;

/// An image and its label map, whole and unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvalPair {
    /// Position in the split.
    pub position: usize,
    /// The image.
    pub image: Pixels,
    /// Its labels.
    pub map: LabelMap,
}

/// An image and its objects, whole and unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvalScene {
    /// Position in the split.
    pub position: usize,
    /// The image.
    pub image: Pixels,
    /// Its objects, crowds among them.
    pub objects: ImageObjects,
}

/// An image that cannot be used, or its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadPair {
    /// Position in the split.
    pub position: usize,
    /// The image's file, or `archive:member`.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
    /// The labels of a pair, if these could be read.
    pub labels: Option<Vec<u8>>,
}

/// The images of a split in order with what belongs to each, read ahead by threads. Dropping it
/// stops them.
#[derive(Debug)]
pub struct EvalItems<T> {
    ready: Receiver<Vec<Result<T, UnreadPair>>>,
    given: std::vec::IntoIter<Result<T, UnreadPair>>,
    on_bad: OnBad,
}

/// Pairs of images and label maps.
pub type EvalPairs = EvalItems<EvalPair>;
/// Images with objects.
pub type EvalScenes = EvalItems<EvalScene>;

impl EvalPairs {
    /// The pairs at `positions` of a split with label maps, `threads` of which are decoded at a
    /// time.
    ///
    /// # Errors
    /// If no thread can be started.
    ///
    /// # Panics
    /// If the split has no label maps.
    pub fn new(
        split: &Split,
        positions: Vec<usize>,
        threads: usize,
        on_bad: OnBad,
    ) -> Result<Self, DataError> {
        assert!(split.dataset().label_maps().is_some(), "the images have label maps");
        Self::start(split, positions, threads, on_bad, read)
    }
}

impl EvalScenes {
    /// The images at `positions` of a split with objects, `threads` of which are decoded at a time.
    ///
    /// # Errors
    /// If no thread can be started.
    ///
    /// # Panics
    /// If the split has no objects.
    pub fn new(
        split: &Split,
        positions: Vec<usize>,
        threads: usize,
        on_bad: OnBad,
    ) -> Result<Self, DataError> {
        assert!(split.dataset().object_classes().is_some(), "the images have objects");
        Self::start(split, positions, threads, on_bad, read_scene)
    }
}

impl<T: Send + 'static> EvalItems<T> {
    fn start(
        split: &Split,
        positions: Vec<usize>,
        threads: usize,
        on_bad: OnBad,
        read: fn(&Split, usize) -> Result<T, UnreadPair>,
    ) -> Result<Self, DataError> {
        // A group waits while the next one is made: two are in memory.
        let (sender, ready) = sync_channel(1);
        let split = split.clone();
        let reader = move || {
            for group in positions.chunks(threads.max(1)) {
                let made: Vec<_> =
                    group.par_iter().map(|&position| read(&split, position)).collect();
                if sender.send(made).is_err() {
                    return; // nobody wants them any more
                }
            }
        };
        let builder = thread::Builder::new().name(format!("{THREAD_PREFIX}pairs"));
        builder.spawn(reader).map_err(|source| DataError::Spawn { worker: 0, source })?;
        Ok(Self { ready, given: Vec::new().into_iter(), on_bad })
    }
}

/// Reads and decodes an image with objects.
fn read_scene(split: &Split, position: usize) -> Result<EvalScene, UnreadPair> {
    let (index, dataset) = (split.index(position), split.dataset());
    let unread =
        |reason: String| UnreadPair { position, name: dataset.name(index), reason, labels: None };
    let mut sample = Sample::default();
    let read = worker::read(dataset, index, &mut sample);
    read.map_err(|error| unread(format!("cannot be read: failed to {error}")))?;
    let decoder = Decoder::new(DecodeLimits::default());
    let mut decoder = decoder.map_err(|error| unread(error.to_string()))?;
    let mut image = Pixels::default();
    let (objects, _) = decode_scene(dataset, index, &mut decoder, &sample.image, &mut image)
        .map_err(|error| unread(error.to_string()))?;
    Ok(EvalScene { position, image, objects })
}

/// Reads and decodes a pair.
fn read(split: &Split, position: usize) -> Result<EvalPair, UnreadPair> {
    let (index, dataset) = (split.index(position), split.dataset());
    let mut pair = EvalPair { position, ..EvalPair::default() };
    let unread = |reason: String, labels| {
        let name = dataset.name(index);
        UnreadPair { position, name, reason, labels }
    };
    let mut sample = Sample::default();
    let read = worker::read(dataset, index, &mut sample);
    read.map_err(|error| unread(format!("cannot be read: failed to {error}"), None))?;
    let decoder = Decoder::new(DecodeLimits::default());
    let mut decoder = decoder.map_err(|error| unread(error.to_string(), None))?;
    match decode_pair(dataset, &mut decoder, &sample, &mut pair.image, &mut pair.map) {
        Ok(_) => Ok(pair),
        Err(error) => {
            // Where only the image cannot be used, the labels count.
            let labels = dataset.label_maps().and_then(|maps| {
                let classes = dataset.num_classes();
                decode_labels(&mut decoder, &sample.labels, maps, classes).ok()
            });
            Err(unread(error.to_string(), labels.map(|(map, _)| map.labels)))
        }
    }
}

impl<T> Iterator for EvalItems<T> {
    /// One that cannot be used is an error, or with [`OnBad::CountAsWrong`] an [`UnreadPair`].
    type Item = Result<Result<T, UnreadPair>, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = match self.given.next() {
            Some(next) => next,
            None => {
                self.given = self.ready.recv().ok()?.into_iter();
                self.given.next()?
            }
        };
        Some(match (next, self.on_bad) {
            (Err(UnreadPair { name, reason, .. }), OnBad::Fail | OnBad::Replace) => {
                Err(DataError::BadImage { name, reason })
            }
            (next, _) => Ok(next),
        })
    }
}
