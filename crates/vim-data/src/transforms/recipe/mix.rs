//! Mixup and cutmix: how each image of a batch is mixed with its partner. The targets and losses on
//! plain numbers are the reference for those of the device.

use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::{MixMode, Recipe};
use crate::{pixels::Region, rng};

/// One shard of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct MixKey {
    /// The run's.
    pub seed: u64,
    /// Pass over the training images.
    pub epoch: u64,
    /// Batch within the epoch.
    pub step: u64,
    /// The shard: each is mixed within itself.
    pub shard: u64,
}

/// How image `i` of a batch of `B` is mixed with its partner, image `B − 1 − i` before it was
/// itself mixed.
///
/// The target is mixed likewise: [`MixPlan::lambda`] of the image's own, the rest of the partner's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MixPlan {
    /// Not at all.
    None,
    /// `lambda · own + (1 − lambda) · partner`, pixel by pixel.
    Mixup {
        /// Weight of the image itself, 0 to 1.
        lambda: f64,
    },
    /// A box of the partner's pixels, at the same place.
    Cutmix {
        /// The box; it may be empty.
        region: Region,
        /// Share of the area outside the box.
        lambda: f64,
    },
}

impl MixPlan {
    /// Weight of the image's own target.
    #[must_use]
    pub fn lambda(&self) -> f64 {
        match *self {
            Self::None => 1.0,
            Self::Mixup { lambda } | Self::Cutmix { lambda, .. } => lambda,
        }
    }
}

impl Recipe {
    /// Draws the mixing of a batch's images: a pure function of the arguments. In mode `batch` all
    /// are mixed alike, in mode `pair` an image and its partner.
    ///
    /// `size` is the images' height and width.
    ///
    /// # Source
    /// timm 0.4.12's `Mixup`. Its modes `pair` and `elem` fail with numpy 1.24 and later; here they
    /// work as written.
    ///
    /// # Panics
    /// If images are mixed and `batch` is odd: [`Recipe::check_batch`] refuses that.
    #[must_use]
    pub fn draw_mix(&self, key: MixKey, batch: usize, size: [usize; 2]) -> Vec<MixPlan> {
        if !self.mixes() {
            return vec![MixPlan::None; batch];
        }
        assert!(batch.is_multiple_of(2), "{batch} images cannot be mixed in pairs");
        let MixKey { seed, epoch, step, shard } = key;
        let mut rng = rng::keyed("vim-data mix v1", &[seed, epoch, step, shard]);
        match self.mix_mode {
            MixMode::Batch => vec![self.draw_mix_of_one(&mut rng, size); batch],
            MixMode::Elem => (0..batch).map(|_| self.draw_mix_of_one(&mut rng, size)).collect(),
            MixMode::Pair => {
                let half: Vec<_> =
                    (0..batch / 2).map(|_| self.draw_mix_of_one(&mut rng, size)).collect();
                half.iter().chain(half.iter().rev()).copied().collect()
            }
        }
    }

    /// Of an image, a pair or a batch.
    fn draw_mix_of_one(&self, rng: &mut ChaCha8Rng, size: [usize; 2]) -> MixPlan {
        if !rng::chance(rng, self.mix_prob) {
            return MixPlan::None;
        }
        let cutmix = match (self.mixup > 0.0, self.cutmix() > 0.0) {
            (true, true) => rng::chance(rng, self.mix_switch_prob),
            (_, cutmix) => cutmix,
        };
        if !cutmix {
            return MixPlan::Mixup { lambda: rng::beta(rng, self.mixup) };
        }
        let region = match self.cutmix_minmax {
            Some(range) => box_between(rng, range, size),
            None => {
                let lambda = rng::beta(rng, self.cutmix());
                let centre = size.map(|side| rng::below(rng, side as u32) as usize);
                cutmix_box(lambda, centre, size)
            }
        };
        // From the area of the box after clipping at the image's edge.
        let lambda = 1.0 - (region.height * region.width) as f64 / (size[0] * size[1]) as f64;
        MixPlan::Cutmix { region, lambda }
    }
}

/// The box of share `1 − lambda` of an image of `size` (height, width) around `centre` (row,
/// column), clipped at the image's edge.
///
/// # Source
/// Yun et al. 2019, "CutMix", equation 2; `rand_bbox` of timm 0.4.12, whose rounding is kept: sides
/// are rounded down, and half of an odd one too.
#[must_use]
pub fn cutmix_box(lambda: f64, centre: [usize; 2], size: [usize; 2]) -> Region {
    let share = (1.0 - lambda).sqrt();
    let along = |axis: usize| {
        let half = (size[axis] as f64 * share) as usize / 2;
        (centre[axis].saturating_sub(half), (centre[axis] + half).min(size[axis]))
    };
    let ((top, bottom), (left, right)) = (along(0), along(1));
    Region { top, left, height: bottom - top, width: right - left }
}

/// A box whose sides are shares in `range` of the image's, anywhere inside the image.
///
/// # Source
/// `rand_bbox_minmax` of timm 0.4.12, which leaves out the largest side and the last place.
fn box_between(rng: &mut ChaCha8Rng, [low, high]: [f64; 2], size: [usize; 2]) -> Region {
    let mut within = |low: usize, high: usize| {
        low + rng::below(rng, high.saturating_sub(low).max(1) as u32) as usize
    };
    let sides = size.map(|side| {
        let side = side as f64;
        within((side * low) as usize, (side * high) as usize)
    });
    let [height, width] = sides;
    let [top, left] = [0, 1].map(|axis| within(0, size[axis] - sides[axis]));
    Region { top, left, height, width }
}

/// The targets of a mixed batch, `[B, K]`: of image `i`, `lambdas[i]` of its own smoothed label and
/// the rest of image `B − 1 − i`'s.
///
/// A label smoothed by `s` is `1 − s + s/K` at its class and `s/K` elsewhere.
///
/// # Source
/// `mixup_target` of timm 0.4.12.
///
/// # Panics
/// If there are not as many lambdas as labels, or a label is not below `classes`.
pub fn mixed_targets(
    labels: &[u32],
    classes: usize,
    lambdas: &[f64],
    smoothing: f64,
) -> Vec<Vec<f64>> {
    assert_eq!(labels.len(), lambdas.len(), "a lambda for each label");
    let smoothed = |label: u32| {
        let mut target = vec![smoothing / classes as f64; classes];
        target[label as usize] += 1.0 - smoothing;
        target
    };
    let pairs = labels.iter().zip(labels.iter().rev()).zip(lambdas);
    pairs
        .map(|((&own, &partner), lambda)| {
            let both = smoothed(own).into_iter().zip(smoothed(partner));
            both.map(|(own, partner)| own * lambda + partner * (1.0 - lambda)).collect()
        })
        .collect()
}

/// The mean over the batch of `−Σ target · log softmax(logits)`.
///
/// # Shapes
/// Both `[B, K]`.
///
/// # Source
/// `SoftTargetCrossEntropy` of timm 0.4.12.
pub fn soft_target_loss(logits: &[Vec<f64>], targets: &[Vec<f64>]) -> f64 {
    let losses = logits.iter().zip(targets).map(|(logits, targets)| {
        let log_p = log_softmax(logits);
        -targets.iter().zip(log_p).map(|(target, log_p)| target * log_p).sum::<f64>()
    });
    losses.sum::<f64>() / logits.len() as f64
}

/// The mean over the batch of `(1 − s) · nll(label) + s · mean over classes of nll`; 0 smoothing is
/// plain cross-entropy.
///
/// # Shapes
/// `logits` is `[B, K]`, `labels` `[B]`.
///
/// # Source
/// `LabelSmoothingCrossEntropy` of timm 0.4.12.
pub fn label_smoothing_loss(logits: &[Vec<f64>], labels: &[u32], smoothing: f64) -> f64 {
    let losses = logits.iter().zip(labels).map(|(logits, &label)| {
        let log_p = log_softmax(logits);
        let mean = log_p.iter().sum::<f64>() / log_p.len() as f64;
        -(1.0 - smoothing) * log_p[label as usize] - smoothing * mean
    });
    losses.sum::<f64>() / logits.len() as f64
}

fn log_softmax(logits: &[f64]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum = logits.iter().map(|logit| (logit - largest).exp()).sum::<f64>();
    logits.iter().map(|logit| logit - largest - sum.ln()).collect()
}
