//! What is known of images before the first of them is trained or evaluated on: by the headers of
//! their files, their annotations and label maps, and earlier verifications.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Finding;
use super::labels::LabelCounts;
use crate::dataset::{Dataset, OnProgress, Sample, Suspects, Turned};
use crate::decode::{DecodeLimits, Decoder, Exif};
use crate::dense::{LabelMap, PairError};
use crate::error::DataError;
use crate::loader::objects::decode_scene;
use crate::loader::pairs::decode_pair;
use crate::loader::{BadTest, BadTrain, ends_training, worker};
use crate::objects::ImageObjects;
use crate::pixels::Pixels;
use crate::split::Split;
use crate::storage::each::{ProgressCounter, for_each};

/// The most images that seem bad for those that cannot be read to be tried again.
const PATIENT: usize = 64;

/// What is known of some images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KnownImages {
    /// What they are: `training images` and the like.
    pub what: String,
    /// Their number.
    pub images: usize,
    /// Those that cannot be used.
    pub bad: Vec<Finding>,
    /// Whether the operating system failed to read one of those, which may be good.
    pub is_io: bool,
    /// What is to be said of them beside that, a line each.
    pub notes: Vec<String>,
    /// What their label maps hold, if they have some.
    pub labels: Option<LabelCounts>,
}

/// What becomes of bad images, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRule {
    /// In training, which draws this number of images in all.
    Train(BadTrain, u64),
    /// In evaluations.
    Test(BadTest),
}

impl KnownImages {
    /// What is known of the images of `split`, called `what`. Headers that nobody has looked at are
    /// read by `workers` threads; images that seem bad are read and decoded, so that what was
    /// mended since is not bad.
    ///
    /// # Errors
    /// If a decoder cannot be set up.
    pub fn of_split(
        split: &Split,
        what: &str,
        workers: usize,
        watch: OnProgress<'_>,
    ) -> Result<Self, DataError> {
        let indices = (0..split.len()).map(|position| split.index(position)).collect();
        Self::of(split.dataset(), indices, what, workers, watch)
    }

    /// As [`Self::of_split`], of all images of a dataset.
    ///
    /// # Errors
    /// As there.
    pub fn of_all(
        dataset: &dyn Dataset,
        what: &str,
        workers: usize,
        watch: OnProgress<'_>,
    ) -> Result<Self, DataError> {
        Self::of(dataset, (0..dataset.len()).collect(), what, workers, watch)
    }

    fn of(
        dataset: &dyn Dataset,
        indices: Vec<usize>,
        what: &str,
        workers: usize,
        watch: OnProgress<'_>,
    ) -> Result<Self, DataError> {
        let found = dataset.suspects(workers, watch)?;
        let suspects: Vec<usize> =
            indices.iter().copied().filter(|index| found.bad.contains(index)).collect();
        let count = ProgressCounter::new(suspects.len(), watch);
        // Storage that is slow for a moment is waited for, unless much cannot be read.
        let is_patient = suspects.len() <= PATIENT;
        let start = || Ok(Tools { is_patient, ..Tools::new()? });
        let checked = for_each(0..suspects.len(), workers, &count, &start, &|tools, at| {
            Ok(examine(dataset, suspects[at], tools))
        })?;
        let (mut bad, mut is_io) = (Vec::new(), false);
        for (&index, checked) in suspects.iter().zip(checked) {
            if let Err((what, of_system)) = checked {
                bad.push(Finding::of(dataset, index, what));
                is_io |= of_system;
            }
        }
        let (labels, notes) = said(dataset, &indices, found, what);
        Ok(Self { what: what.to_owned(), images: indices.len(), bad, is_io, notes, labels })
    }

    /// Everything that is to be said before training or an evaluation begins, a line each.
    ///
    /// # Errors
    /// If that would end, sooner or later, for the images known to be bad.
    pub fn check(self, rule: BadRule) -> Result<Vec<String>, DataError> {
        let Self { what, images, bad, is_io, mut notes, labels: _ } = self;
        let Some(first) = bad.first() else { return Ok(notes) };
        let count = bad.len();
        let draws_all = |draws: u64| draws >= images as u64;
        let advice = match rule {
            BadRule::Train(BadTrain::Fail, draws) if draws_all(draws) => {
                "`data.bad_train = \"replace\"` takes others in their places"
            }
            BadRule::Train(BadTrain::Replace, draws)
                if draws_all(draws) && ends_training(count as u64, images as u64) =>
            {
                "that number ends a training"
            }
            BadRule::Test(BadTest::Fail) => "`data.bad_test = \"wrong\"` counts them as wrong",
            BadRule::Train(..) | BadRule::Test(BadTest::Wrong) => {
                let (key, value) = match rule {
                    BadRule::Train(BadTrain::Replace, _) => ("bad_train", "replace"),
                    BadRule::Train(BadTrain::Fail, _) => ("bad_train", "fail"),
                    BadRule::Test(_) => ("bad_test", "wrong"),
                };
                notes.push(format!(
                    "{count} of {images} {what} cannot be used (data.{key} = \"{value}\"), the \
                     first is {}: it {}",
                    first.name, first.what
                ));
                return Ok(notes);
            }
        };
        let (name, reason) = (first.name.clone(), first.what.clone());
        Err(DataError::KnownBad { count, images, what, name, reason, is_io, advice })
    }
}

/// What the label maps of the images `indices`, called `what`, hold, and what is to be said of them
/// beside those that are bad, by what was `found` in the dataset.
pub(super) fn said(
    dataset: &dyn Dataset,
    indices: &[usize],
    found: Suspects,
    what: &str,
) -> (Option<LabelCounts>, Vec<String>) {
    let mut notes = found.notes;
    let turned = indices.iter().filter_map(|index| found.turned.get_key_value(index));
    let turned = turned.map(|(&index, &turned)| (index, turned)).collect();
    notes.extend(turned_note(dataset, &turned, what, indices.len()));
    let labels = LabelCounts::of(dataset, indices, &found.tallies);
    let unknown = dataset.absent_classes().iter().map(|&class| class as usize);
    let unknown: Vec<String> = unknown.map(|class| dataset.class_names()[class].clone()).collect();
    notes.extend(labels.iter().flat_map(|labels| labels.notes(what, &unknown)));
    (labels, notes)
}

/// What is to be said of the images that have an EXIF orientation, among `images` called `what`.
pub(super) fn turned_note(
    dataset: &dyn Dataset,
    turned: &BTreeMap<usize, Turned>,
    what: &str,
    images: usize,
) -> Option<String> {
    let (first, all) = (dataset.name(*turned.first_key_value()?.0), turned.len());
    let count = |kind| turned.values().filter(|&&turned| turned == kind).count();
    let (either, stored) = (count(Turned::AsSeen), count(Turned::AsStored));
    let has_classes = dataset.label_maps().is_none() && dataset.object_classes().is_none();
    let decided = match (dataset.exif(), has_classes, stored) {
        (Exif::Ignore, true, _) => {
            "which is not applied, as by timm (but of TIFF): `data.exif = \"apply\"` turns \
                                    them as viewers do"
                .to_owned()
        }
        (Exif::Ignore, false, _) => "which is not applied (data.exif = \"ignore\"): their \
                                     annotations must be of the pixels as stored"
            .to_owned(),
        (Exif::Apply, _, 0) => "and are turned as viewers show them (data.exif = \"apply\")".into(),
        (Exif::Apply, ..) => {
            let rest = match either {
                0 => String::new(),
                either => format!(
                    "; {either} fit either way and are turned: if their annotations are of the \
                     pixels as stored, too, set data.exif = \"ignore\""
                ),
            };
            format!(
                "of which {} are turned as viewers show them and {stored} stay as stored, since \
                 their annotations are of that size{rest}",
                all - stored
            )
        }
    };
    Some(format!(
        "{all} of {images} {what} have an EXIF orientation, {decided}; {first} is the first"
    ))
}

/// A thread's tools and buffers.
pub(super) struct Tools {
    decoder: Decoder,
    sample: Sample,
    image: Pixels,
    map: LabelMap,
    /// Whether a file that cannot be read is tried again, as in training.
    is_patient: bool,
}

impl Tools {
    pub(super) fn new() -> Result<Self, DataError> {
        let decoder = Decoder::new(DecodeLimits::default())?;
        Ok(Self {
            decoder,
            sample: Sample::default(),
            image: Pixels::default(),
            map: LabelMap::default(),
            is_patient: false,
        })
    }
}

/// Reads and decodes an image and what belongs to it, as training and evaluation do: a warning, or
/// why it cannot be used and whether the operating system failed; and the bytes read.
pub(super) fn examine(
    dataset: &dyn Dataset,
    index: usize,
    Tools { decoder, sample, image, map, is_patient }: &mut Tools,
) -> (Result<Option<String>, (String, bool)>, u64) {
    let read = match is_patient {
        true => worker::read(dataset, index, sample),
        false => dataset.read(index, sample),
    };
    if let Err(error) = read {
        return (Err((format!("cannot be read: failed to {error}"), error.is_io())), 0);
    }
    let bytes = sample.bytes();
    let checked = if dataset.label_maps().is_some() {
        let decoded = decode_pair(dataset, decoder, sample, image, map);
        let checked =
            decoded.and_then(|(warning, stray)| PairError::check_labels(stray).map(|()| warning));
        checked.map_err(|error| error.to_string())
    } else if dataset.object_classes().is_some() {
        let decoded = decode_scene(dataset, index, decoder, &sample.image, image);
        let warnings = |(of_image, warning): (ImageObjects, Option<String>)| -> Option<String> {
            let all: Vec<String> = warning.into_iter().chain(left_out(&of_image)).collect();
            (!all.is_empty()).then(|| all.join("; "))
        };
        decoded.map(warnings).map_err(|error| error.to_string())
    } else {
        let decoded = decoder.decode(&sample.image, image);
        decoded.map(|decoded| decoded.warning).map_err(|error| error.to_string())
    };
    (checked.map_err(|what| (what, false)), bytes)
}

/// The objects of an image that are left out, if there are some.
pub(super) fn left_out(of_image: &ImageObjects) -> Option<String> {
    let all: Vec<String> = of_image.left_out.iter().map(ToString::to_string).collect();
    (!all.is_empty()).then(|| format!("has an object that is left out: {}", all.join("; ")))
}
