//! The segmentation model and its loss.

use std::fmt;
use std::ops::Range;

use burn::tensor::{Device, Int, Tensor};
use serde::Serialize;
use vim_comm::Comm;
use vim_dense::{Segmenter, SegmenterConfig, Shard, ShardSum, layers_above, losses, predicted};
use vim_kernels::{
    KernelError, Recompute, in_own_buffer, in_own_buffer_int, overwrite, overwrite_int,
};
use vim_model::{Cost, DecayGroups, ImageSize, ModelError};

use crate::config::{Config, ConfigError};
use crate::error::Error;
use crate::task::init::{InitFor, init_weights};
use crate::task::without_data::{self, Forward, Pass, WithoutData};
use crate::task::{Draw, Held, InitWeights, Objective, Placement};

/// A segmenter and its pixels' cross-entropy.
#[derive(Debug)]
pub struct PixelClassifier {
    config: Config,
    heads: SegmenterConfig,
    classes: usize,
    comm: Comm,
}

/// Images and label maps on the device.
#[derive(Clone, Debug)]
pub struct Mapped {
    /// `[B, 3, H, W]`, normalized and padded.
    pub images: Tensor<4>,
    /// `[B, H, W]`, a class or 255.
    pub labels: Tensor<3, Int>,
}

impl Mapped {
    fn held(&self) -> Self {
        Self { images: in_own_buffer(&self.images), labels: in_own_buffer_int(&self.labels) }
    }

    fn overwrite(&self, by: Self) -> Result<(), KernelError> {
        overwrite(&self.images, by.images)?;
        overwrite_int(&self.labels, by.labels)
    }
}

impl PixelClassifier {
    /// The objective of `config` for `classes` classes; the ranks of `comm` share the statistics of
    /// batch normalization.
    pub fn new(config: &Config, classes: usize, comm: &Comm) -> Result<Self, ConfigError> {
        let heads = config.segmenter();
        heads.check(&config.model, classes)?;
        Ok(Self { config: config.clone(), heads, classes, comm: comm.clone() })
    }

    /// The size of the model's images.
    pub(crate) fn image_size(&self) -> ImageSize {
        self.config.model.image_size
    }

    /// Classes that are told apart.
    pub(crate) fn num_classes(&self) -> usize {
        self.classes
    }
}

/// How the optimizer treats the parameter at `path` of a segmenter on `depth` blocks.
///
/// # Source
///
/// `reference` is what the original's `LayerDecayOptimizerConstructor` makes of Vision Mamba,
/// `intended` what it makes of the models that it was written for.
pub fn placement(path: &str, rank: usize, depth: usize, groups: DecayGroups) -> Placement {
    let by_block = match groups {
        DecayGroups::Reference => false,
        DecayGroups::Intended => true,
    };
    let decays =
        vim_dense::decays(path, rank) && (!by_block || vim_model::decays(path, rank, groups));
    Placement { decays, layers_above: layers_above(path, depth, by_block) }
}

impl Objective for PixelClassifier {
    type Model = Segmenter;
    type Inputs = Mapped;

    const JOINT: bool = true;

    fn init(&self, device: &Device) -> Result<Segmenter, Error> {
        let Config { model, run, train, .. } = &self.config;
        let seeded = self.heads.init(model, self.classes, device, run.seed)?;
        Ok(seeded.with_precision(train.precision)?.with_recompute(train.recompute.into()))
    }

    fn with_recompute(model: Segmenter, recompute: Recompute) -> Segmenter {
        model.with_recompute(recompute)
    }

    /// From a segmenter of the same shape, or the backbone alone from a classifier.
    fn load_init(
        &self,
        device: &Device,
        of: &InitFor,
    ) -> Result<Option<InitWeights<Segmenter>>, Error> {
        init_weights::<SegmenterConfig>(self, &self.config, of, device)
    }

    fn placement(&self, path: &str, rank: usize) -> Placement {
        placement(path, rank, self.config.model.depth, self.config.optim.decay_groups)
    }

    fn held(&self) -> Result<Held<Mapped>, String> {
        Ok(Held { hold: Mapped::held, overwrite: Mapped::overwrite })
    }

    fn count(inputs: &Mapped) -> usize {
        inputs.images.dims()[0]
    }

    fn loss(
        &self,
        model: &Segmenter,
        inputs: Mapped,
        range: Range<usize>,
        draw: Draw,
    ) -> Result<Tensor<1>, Error> {
        let losses = self.losses(std::slice::from_ref(model), vec![inputs], range, &[draw])?;
        losses.into_iter().next().ok_or_else(|| Error::internal("a shard without a loss"))
    }

    fn losses(
        &self,
        models: &[Segmenter],
        shards: Vec<Mapped>,
        range: Range<usize>,
        draws: &[Draw],
    ) -> Result<Vec<Tensor<1>>, Error> {
        let (first, len) = (range.start, range.len());
        let seed = draws.first().map_or(0, |draw| draw.seed);
        let part = |(Mapped { images, labels }, draw): (Mapped, &Draw)| {
            let is_whole = len == images.dims()[0];
            Shard {
                images: if is_whole { images } else { images.narrow(0, first, len) },
                labels: if is_whole { labels } else { labels.narrow(0, first, len) },
                first: draw.first + first,
            }
        };
        let shards: Vec<Shard> = shards.into_iter().zip(draws).map(part).collect();
        let sums = ShardSum::new(self.comm.clone(), shards.len());
        let losses = losses(models, shards, seed, &sums)?;
        Ok(losses.into_iter().map(|loss| loss.loss).collect())
    }
}

impl WithoutData for PixelClassifier {
    fn without_data(config: &Config, classes: usize, comm: &Comm) -> Result<Self, Error> {
        Ok(Self::new(config, classes, comm)?)
    }

    fn cost(config: &Config, classes: usize) -> Result<Cost, ModelError> {
        config.segmenter().cost(&config.model, classes)
    }

    fn random(&self, count: usize, device: &Device) -> Mapped {
        let size = self.image_size();
        let labels =
            without_data::labels(count * size.height * size.width, self.num_classes(), device);
        let labels = labels.reshape([count, size.height, size.width]);
        Mapped { images: without_data::images(count, size, device), labels }
    }

    /// Images, or pictures by windows, to the class of each of their pixels.
    fn forward<'a>(
        config: &Config,
        model: &'a Segmenter,
        images: Tensor<4>,
        pass: Pass,
    ) -> Result<Forward<'a>, Error> {
        let ImageSize { height, width } = config.model.image_size;
        let stride = match pass {
            Pass::Whole => None,
            Pass::Windows => Some(config.pairs().stride([height, width])),
            Pass::Recorded => return Err(pass.refused()),
        };
        let [_, _, height, width] = images.dims();
        Ok(Box::new(move || {
            let logits = match stride {
                Some(stride) => model.slide(images.clone(), stride)?,
                None => model.forward(images.clone())?,
            };
            let seen = predicted(logits, [height, width])?;
            Ok(seen.labels.float().sum() + seen.probabilities.sum())
        }))
    }
}

/// The classes that cover most of an image, the largest first.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct ClassShares(Vec<ClassShare>);

/// A class, and how much of an image it covers.
#[derive(Clone, Debug, Serialize)]
pub struct ClassShare {
    /// Its number.
    pub class: usize,
    /// Its name.
    pub name: String,
    /// Share of the pixels, 0 to 1.
    pub share: f64,
}

impl ClassShares {
    /// Each of them.
    pub fn all(&self) -> &[ClassShare] {
        &self.0
    }

    /// The `top` classes of these labels, one for each pixel.
    pub(crate) fn of(
        labels: impl ExactSizeIterator<Item = usize>,
        names: &[String],
        top: usize,
    ) -> Self {
        let all = labels.len();
        let mut counts: Vec<usize> = vec![0; names.len()];
        for label in labels {
            if label >= counts.len() {
                counts.resize(label + 1, 0);
            }
            counts[label] += 1;
        }
        let mut classes: Vec<usize> =
            (0..counts.len()).filter(|&class| counts[class] > 0).collect();
        classes.sort_by_key(|&class| (std::cmp::Reverse(counts[class]), class));
        let share = |class: usize| ClassShare {
            class,
            name: names.get(class).cloned().unwrap_or_else(|| format!("class {class}")),
            share: counts[class] as f64 / all as f64,
        };
        Self(classes.into_iter().take(top).map(share).collect())
    }
}

impl fmt::Display for ClassShares {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, ClassShare { class, name, share }) in self.0.iter().enumerate() {
            let newline = if place == 0 { "" } else { "\n" };
            write!(formatter, "{newline}  {:6.2} %  {name} ({class})", 100.0 * share)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of Vim-Ti: 24 blocks.
    #[test]
    fn the_original_scales_patches_and_positions_and_intends_blocks_too() {
        use DecayGroups::{Intended, Reference};
        for (path, rank, groups, decays, layers_above) in [
            ("backbone.pos_embed", 3, Reference, true, 25),
            ("backbone.pos_embed", 3, Intended, false, 25),
            ("backbone.layers.0.mixer.forward.a_log", 2, Reference, true, 0),
            ("backbone.layers.0.mixer.forward.a_log", 2, Intended, false, 24),
            ("backbone.layers.23.mixer.in_proj.weight", 2, Intended, true, 1),
            ("backbone.layers.3.norm.weight", 1, Reference, false, 0),
            ("decode_head.conv_seg.bias", 1, Intended, false, 0),
            ("decode_head.bottleneck.conv.weight", 4, Intended, true, 0),
        ] {
            let expected = Placement { decays, layers_above };
            assert_eq!(placement(path, rank, 24, groups), expected, "{path} {groups:?}");
        }
    }

    #[test]
    fn shares_are_of_all_pixels_and_ties_in_order() {
        let names = ["a".to_owned(), "b".to_owned()];
        let shares = ClassShares::of([1, 0, 0, 1, 5].into_iter(), &names, 3);
        assert_eq!(
            shares.to_string(),
            "   40.00 %  a (0)\n   40.00 %  b (1)\n   20.00 %  class 5 (5)"
        );
        assert_eq!(ClassShares::of([1, 0, 0].into_iter(), &names, 1).0.len(), 1);
    }
}
