//! A part of a dataset, shared between threads.

use std::{fmt, sync::Arc};

use crate::classes::ClassMatch;
use crate::dataset::{Class, Dataset, Encoding, Sample};
use crate::error::{ClassError, DataError};
use crate::objects::Object;
use crate::relabelled::Relabelled;
use crate::statistics::{Normalize, Statistics};

/// A view of some or all images of a dataset. Cloning it shares the images.
///
/// A *position* counts within the view, an *index* within the dataset.
#[derive(Clone)]
pub struct Split {
    dataset: Arc<dyn Dataset>,
    /// `None`: all of them, in order.
    indices: Option<Arc<[usize]>>,
}

impl Split {
    /// All images of a dataset.
    pub fn whole(dataset: Arc<dyn Dataset>) -> Self {
        Self { dataset, indices: None }
    }

    /// The images at `indices` of the same dataset, in that order.
    ///
    /// # Panics
    /// If an index is past the end of the dataset.
    pub fn only(&self, indices: Vec<usize>) -> Self {
        let dataset = Arc::clone(&self.dataset);
        assert!(indices.iter().all(|&i| i < dataset.len()), "an index is past the dataset's end");
        Self { dataset, indices: Some(indices.into()) }
    }

    /// The dataset that this is a view of.
    pub fn dataset(&self) -> &dyn Dataset {
        &*self.dataset
    }

    /// Number of images.
    pub fn len(&self) -> usize {
        self.indices.as_ref().map_or_else(|| self.dataset.len(), |indices| indices.len())
    }

    /// Whether there are no images.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The index in the dataset of the image at `position`.
    ///
    /// # Panics
    /// If `position` is past the end of a subset.
    pub fn index(&self, position: usize) -> usize {
        self.indices.as_ref().map_or(position, |indices| indices[position])
    }

    /// The class of the image at `position`.
    ///
    /// # Panics
    /// If `position` is past the end.
    pub fn label(&self, position: usize) -> Class {
        self.dataset.label(self.index(position))
    }

    /// The image at `position`, as [`Split::encoding`] says: pixels `[H, W, 3]`, or an encoded
    /// file. [`Dataset::read`] gives its label map too.
    ///
    /// # Errors
    /// If it cannot be read.
    ///
    /// # Panics
    /// If `position` is past the end.
    pub fn image(&self, position: usize) -> Result<Vec<u8>, DataError> {
        let mut sample = Sample::default();
        self.dataset.read(self.index(position), &mut sample)?;
        Ok(sample.image)
    }

    /// How [`Split::image`] returns an image.
    pub fn encoding(&self) -> Encoding {
        self.dataset.encoding()
    }

    /// `[H, W]` of every image; `None` if they are of all sizes.
    pub fn image_size(&self) -> Option<[usize; 2]> {
        match self.encoding() {
            Encoding::Pixels { size } => Some(size),
            Encoding::Files => None,
        }
    }

    /// Name of each class, by label.
    pub fn class_names(&self) -> &[String] {
        self.dataset.class_names()
    }

    /// Number of classes.
    pub fn num_classes(&self) -> usize {
        self.dataset.num_classes()
    }

    /// Number of images of each class, by label; `None` if the classes are in label maps or in
    /// objects.
    ///
    /// It looks at the label of every image and reads none.
    pub fn class_counts(&self) -> Option<Vec<usize>> {
        if self.dataset.label_maps().is_some() || self.dataset.object_classes().is_some() {
            return None;
        }
        let mut counts = vec![0; self.num_classes()];
        (0..self.len()).for_each(|position| counts[self.label(position) as usize] += 1);
        Some(counts)
    }

    /// Names of the classes without any image, by label; where the classes are in objects, of
    /// those without an object that is no crowd; in label maps, of those that the data do not know.
    pub fn empty_classes(&self) -> Vec<String> {
        let mut has = vec![false; self.num_classes()];
        if self.dataset.object_classes().is_some() {
            let mut rest = has.len();
            let mut objects = (0..self.len()).map(|position| self.objects(position));
            // Nearly always the first images have all.
            while let Some(objects) = objects.next().filter(|_| rest > 0) {
                for object in objects.iter().filter(|object| !object.crowd) {
                    rest -= usize::from(!std::mem::replace(&mut has[object.class as usize], true));
                }
            }
        } else if let Some(counts) = self.class_counts() {
            has = counts.into_iter().map(|count| count > 0).collect();
        } else {
            has.fill(true);
            self.dataset.absent_classes().iter().for_each(|&class| has[class as usize] = false);
        }
        let without = self.class_names().iter().zip(has).filter(|(_, has)| !has);
        without.map(|(name, _)| name.clone()).collect()
    }

    /// The objects of the image at `position`, none of one whose annotations cannot be used.
    fn objects(&self, position: usize) -> Vec<Object> {
        let found = self.dataset.objects(self.index(position));
        found.map_or_else(|_| vec![], |of_image| of_image.objects)
    }

    /// The same images under the labels and the names of recorded classes, as `matched` has them,
    /// in labels, label maps and objects.
    ///
    /// # Errors
    /// If a class was not recorded, or the match is of other names.
    pub fn relabelled(self, names: &[String], matched: &ClassMatch) -> Result<Self, ClassError> {
        let Self { dataset, indices } = self;
        if matched.is_identity() && dataset.class_names() == names {
            return Ok(Self { dataset, indices });
        }
        let dataset = Arc::new(Relabelled::new(dataset, names, matched)?);
        Ok(Self { dataset, indices })
    }

    /// The statistics that `normalize` chooses.
    pub fn statistics(&self, normalize: Normalize) -> Statistics {
        normalize.statistics(self.dataset.statistics())
    }
}

impl fmt::Debug for Split {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Split")
            .field("len", &self.len())
            .field("of", &self.dataset.len())
            .field("stored", &self.encoding())
            .field("num_classes", &self.num_classes())
            .finish()
    }
}
