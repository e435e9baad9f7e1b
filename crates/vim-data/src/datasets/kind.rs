//! The names of the datasets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

/// A dataset that can be trained on.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    JsonSchema,
    VariantArray,
    IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum DatasetKind {
    /// Procedural images, shape × texture: needs no files.
    #[default]
    Shapes,
    /// CIFAR-10 from the archive as published (binary or python version, packed or unpacked).
    Cifar10,
    /// CIFAR-100 from the archive as published (binary or python version, packed or unpacked).
    Cifar100,
    /// ImageNet-1k: folders of classes, the archives as published, or packs.
    Imagenet,
    /// Images of any kind in folders of classes, archives of such, WebDataset shards or packs.
    Folder,
}

impl DatasetKind {
    /// The name as in the configuration file.
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }
}
