//! A description of a batch, without loading it.

use serde::Serialize;

use super::{Loader, LoaderConfig, Purpose};
use crate::dataset::{Encoding, Sample};
use crate::decode::{DecodeLimits, Decoder};
use crate::dense::DensePlan;
use crate::error::DataError;
use crate::objects::ObjectPlan;
use crate::transforms::SamplePlan;
use crate::transforms::recipe::{MixPlan, SampleKey};

/// One slot of a batch: the image, and what is done to it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Described {
    /// Index in the dataset.
    pub index: usize,
    /// The file, or `archive:member`.
    pub name: String,
    /// Its class.
    pub label: u32,
    /// The key that the plan is drawn from.
    pub key: SampleKey,
    /// Height and width of the image as stored.
    pub source: [usize; 2],
    /// What is done to it; nothing in evaluation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<SamplePlan>,
    /// What is done to it and its label map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dense: Option<DensePlan>,
    /// What is done to it and its objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<ObjectPlan>,
    /// How it is mixed with its partner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mixed: Option<MixPlan>,
}

impl Loader {
    /// Describes batch `number`, counted as in [`Loader::batches`]; only headers of files are
    /// decoded.
    ///
    /// # Errors
    /// If an image cannot be read. (In a loaded batch a replacement would take its place.)
    pub fn describe(&self, number: u64) -> Result<Vec<Described>, DataError> {
        let plan = self.plan(number, &mut None)?;
        let decoder = Decoder::new(DecodeLimits::default())?;
        let LoaderConfig { size, seed, purpose, .. } = &*self.config;
        let dataset = self.split.dataset();
        let (mut sample, mut described) = (Sample::default(), Vec::new());
        for group in plan.tasks.iter().flatten() {
            let index = self.split.index(group.position);
            let source = match self.split.encoding() {
                Encoding::Pixels { size } => size,
                Encoding::Files => {
                    dataset.read(index, &mut sample)?;
                    let header = decoder.header(&sample.image);
                    let header = header.map_err(|error| DataError::BadImage {
                        name: dataset.name(index),
                        reason: error.to_string(),
                    })?;
                    let stored = decoder.stored(&sample.image, [header.height, header.width]);
                    let exif = dataset.exif();
                    let other = match dataset.objects(index) {
                        Ok(objects) => Some(objects.size.into()),
                        Err(_) => decoder.header(&sample.labels).ok().map(|header| {
                            decoder.stored(&sample.labels, [header.height, header.width])
                        }),
                    };
                    match other.map(|other| exif.turns(stored, other)) {
                        Some(Ok(true)) => stored.seen(),
                        Some(_) => stored.size,
                        None => exif.size(stored),
                    }
                }
            };
            for &repeat in &group.repeats {
                let (seed, epoch) = (*seed, plan.epoch);
                let key = SampleKey { seed, epoch, index: index as u64, repeat, attempt: 0 };
                let (mut drawn, mut dense, mut objects) = (None, None, None);
                match purpose {
                    Purpose::Training(recipe) => drawn = Some(recipe.draw(key, source, *size)),
                    Purpose::Dense(recipe) => dense = Some(recipe.draw(key, source, *size)),
                    Purpose::Objects(recipe) => objects = Some(recipe.draw(key, source, *size)),
                    Purpose::Evaluation { .. } => {}
                }
                described.push(Described {
                    index,
                    name: dataset.name(index),
                    label: dataset.label(index),
                    key,
                    source,
                    plan: drawn,
                    dense,
                    objects,
                    mixed: plan.mixed.get(described.len()).copied(),
                });
            }
        }
        Ok(described)
    }
}
