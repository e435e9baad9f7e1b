//! The description of a dataset by which it is registered.

use std::sync::Arc;

use super::{config::DataConfig, outline::Outline};
use crate::dataset::Dataset;
use crate::error::DataError;
use crate::split::Split;
use crate::statistics::Statistics;
use crate::storage::env_paths::EnvPaths;
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
    pub(super) open: fn(&DataConfig, &EnvPaths) -> Result<Splits, DataError>,
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

/// The parts of a dataset, disjoint from each other.
#[derive(Clone, Debug)]
pub struct Splits {
    /// Trained on.
    pub train: Split,
    /// Chooses the best checkpoint; absent unless held out or drawn. Never the test set.
    pub val: Option<Split>,
    /// Measured at the end.
    pub test: Split,
    /// Oddities that are no errors, a line each, such as counts that are not ImageNet's.
    pub notes: Vec<String>,
    /// The copying of archives to the node's disk, if there is any.
    pub staging: Option<Arc<Staging>>,
}

impl Splits {
    /// Two parts without notes.
    pub(super) fn new(train: impl Dataset + 'static, test: impl Dataset + 'static) -> Self {
        let [train, test] = [Arc::new(train) as Arc<dyn Dataset>, Arc::new(test)].map(Split::whole);
        Self { train, val: None, test, notes: vec![], staging: None }
    }
}

impl Source {
    /// The splits as `config` alone determines them; `None` if only the files tell their sizes.
    pub(super) fn dry_run(&self, config: &DataConfig) -> Result<Option<Splits>, DataError> {
        match self.files {
            Files::None => (self.open)(config, &EnvPaths::default()).map(Some),
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
                Ok(Some(Splits::new(train, test)))
            }
            Files::Images => config.required_path().map(|_| None),
        }
    }
}
