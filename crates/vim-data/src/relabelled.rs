//! A dataset under the labels of recorded classes.

use std::path::PathBuf;
use std::sync::Arc;

use crate::classes::ClassMatch;
use crate::dataset::{Class, Dataset, Encoding, Fingerprint, OnProgress, Sample, Suspects};
use crate::decode::Exif;
use crate::dense::{ClassList, LabelMaps};
use crate::error::{ClassError, DataError};
use crate::objects::{ImageObjects, ObjectClasses, ObjectError};
use crate::statistics::Statistics;

/// Most classes of a label map: a label is a byte, and 255 is ignored.
const MOST_IN_MAPS: usize = 255;

/// The images of another dataset under recorded labels and names. Recorded classes that the data
/// lack have a label and a name, and no image.
pub(crate) struct Relabelled {
    inner: Arc<dyn Dataset>,
    names: Vec<String>,
    /// The recorded label of each class of `inner`.
    labels: Vec<Class>,
    /// Recorded labels that no class of `inner` has.
    absent: Vec<Class>,
    label_maps: Option<LabelMaps>,
    object_classes: Option<ObjectClasses>,
}

impl Relabelled {
    /// `inner` with recorded classes of these `names`.
    ///
    /// # Errors
    /// If a class was not recorded, or `matched` is of other names.
    pub(crate) fn new(
        inner: Arc<dyn Dataset>,
        names: &[String],
        matched: &ClassMatch,
    ) -> Result<Self, ClassError> {
        if !matched.unknown.is_empty() {
            return Err(ClassError::Unknown { names: matched.unknown.clone() });
        }
        let labels: Vec<Class> = matched.labels.iter().flatten().copied().collect();
        let (classes, recorded) = (inner.num_classes(), names.len());
        let (of, is_past_end) = (matched.recorded(), |&label: &Class| label as usize >= recorded);
        if labels.len() != classes || of != recorded || labels.iter().any(is_past_end) {
            let matched = matched.labels.len();
            return Err(ClassError::OtherMatch { classes, recorded, matched, of });
        }
        // Classes that the data lack get the colours that they would have in a list of these names.
        let colours = |of_data: &[[u8; 3]]| {
            let mut colours = ClassList::of_names(names.to_vec()).colours;
            for (&label, &colour) in labels.iter().zip(of_data) {
                colours[label as usize] = colour;
            }
            colours
        };
        let label_maps = match inner.label_maps() {
            Some(_) if recorded > MOST_IN_MAPS => {
                return Err(ClassError::TooMany { classes: recorded });
            }
            Some(maps) => Some(LabelMaps {
                rule: maps.rule.relabelled(&labels, recorded),
                colours: colours(&maps.colours),
                by_colour: maps.by_colour.clone(),
            }),
            None => None,
        };
        let object_classes = inner.object_classes().map(|of_data| {
            let mut categories = vec![None; recorded];
            for (&label, &category) in labels.iter().zip(&of_data.categories) {
                categories[label as usize] = category;
            }
            let federated = of_data.federated;
            ObjectClasses { categories, colours: colours(&of_data.colours), federated }
        });
        let absent = (0..).take(recorded).filter(|label| !labels.contains(label)).collect();
        let names = names.to_vec();
        Ok(Self { inner, names, labels, absent, label_maps, object_classes })
    }

    /// The recorded label of a class of the data.
    fn recorded(&self, label: Class) -> Class {
        self.labels[label as usize]
    }
}

impl Dataset for Relabelled {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn encoding(&self) -> Encoding {
        self.inner.encoding()
    }

    fn class_names(&self) -> &[String] {
        &self.names
    }

    fn label(&self, index: usize) -> Class {
        let label = self.inner.label(index);
        // Where an image has no class of its own, its label stands for none.
        let has_class = self.label_maps.is_none() && self.object_classes.is_none();
        if has_class { self.recorded(label) } else { label }
    }

    fn absent_classes(&self) -> &[Class] {
        &self.absent
    }

    fn exif(&self) -> Exif {
        self.inner.exif()
    }

    fn label_maps(&self) -> Option<&LabelMaps> {
        self.label_maps.as_ref()
    }

    fn object_classes(&self) -> Option<&ObjectClasses> {
        self.object_classes.as_ref()
    }

    fn objects(&self, index: usize) -> Result<ImageObjects, ObjectError> {
        let mut found = self.inner.objects(index)?;
        for object in &mut found.objects {
            object.class = self.recorded(object.class);
        }
        for object in &mut found.left_out {
            object.class = self.recorded(object.class);
        }
        Ok(found)
    }

    fn suspects(&self, workers: usize, watch: OnProgress<'_>) -> Result<Suspects, DataError> {
        self.inner.suspects(workers, watch)
    }

    fn roots(&self) -> Vec<PathBuf> {
        self.inner.roots()
    }

    fn name(&self, index: usize) -> String {
        self.inner.name(index)
    }

    fn read(&self, index: usize, into: &mut Sample) -> Result<(), DataError> {
        self.inner.read(index, into)
    }

    fn statistics(&self) -> Statistics {
        self.inner.statistics()
    }

    fn fingerprint_by(&self, names: &[String], label: &dyn Fn(Class) -> Class) -> Fingerprint {
        self.inner.fingerprint_by(names, &|class| label(self.recorded(class)))
    }
}
