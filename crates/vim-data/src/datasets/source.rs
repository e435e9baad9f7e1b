//! What a dataset tells of itself: one [`Source`] each.

use std::sync::Arc;

use super::config::DataConfig;
use super::outline::Outline;
use crate::dataset::Dataset;
use crate::error::DataError;
use crate::statistics::Statistics;
use crate::storage::env_paths::Surroundings;
use crate::storage::staging::Staging;

/// A dataset as it is registered in [`DatasetKind`](super::kind::DatasetKind).
pub(super) struct Source {
    /// Name of each class, by label; none if the files tell them.
    pub(super) class_names: &'static [&'static str],
    /// Statistics of the pixels.
    pub(super) statistics: Statistics,
    /// The files that it is read from.
    pub(super) files: Files,
    /// Opens it.
    pub(super) open: fn(&DataConfig, &Surroundings) -> Result<Parts, DataError>,
}

/// What is known of a dataset's files before they are opened.
pub(super) enum Files {
    /// There are none: images are made on demand.
    None,
    /// `data.path` names one archive, or the folder unpacked from it.
    Archive {
        /// `[H, W]` of every image.
        size: [usize; 2],
        /// Images of the training and of the test part, as published.
        images: [usize; 2],
    },
    /// `data.path` names image files, which are listed.
    Images,
}

/// The parts of a dataset as its source has them.
pub(super) struct Parts {
    pub(super) train: Arc<dyn Dataset>,
    pub(super) val: Option<Arc<dyn Dataset>>,
    pub(super) test: Arc<dyn Dataset>,
    pub(super) notes: Vec<String>,
    pub(super) staging: Option<Arc<Staging>>,
}

impl Parts {
    /// Two parts, about which there is nothing to note.
    pub(super) fn new(train: impl Dataset + 'static, test: impl Dataset + 'static) -> Self {
        let (train, test) = (Arc::new(train), Arc::new(test));
        Self { train, val: None, test, notes: vec![], staging: None }
    }
}

impl Source {
    /// The parts as far as `config` alone tells them; `None` where only the files know their number.
    pub(super) fn dry_run(&self, config: &DataConfig) -> Result<Option<Parts>, DataError> {
        match self.files {
            Files::None => (self.open)(config, &Surroundings::default()).map(Some),
            Files::Archive { size, images } => {
                config.required_path()?;
                let part = |images| {
                    Outline::new(
                        config.dataset.name(),
                        self.class_names,
                        size,
                        images,
                        self.statistics,
                    )
                };
                let [train, test] = images.map(part);
                Ok(Some(Parts::new(train, test)))
            }
            Files::Images => config.required_path().map(|_| None),
        }
    }
}
