//! The region proposal network: what every anchor scores, its loss, and the proposals.

use burn::module::Module;
use burn::tensor::activation::{log_sigmoid, relu};
use burn::tensor::{FloatDType, Int, Tensor, TensorData};
use vim_kernels::{KernelError, Precision, read_while, sum_in_order};
use vim_model::{Draw, Scope};

use super::boxes::{Edges, clip, is_finite, is_nonempty};
use super::coder::BoxCoder;
use super::config::RATIOS;
use super::layers::BiasedConv;
use super::matcher::{Label, Matcher, Matches};
use super::nms::{batched_nms, by_score};
use super::sampler::{Purpose, Sampled, sample};

/// Weights of the differences from an anchor to a box.
pub const ANCHOR_CODER: BoxCoder = BoxCoder([1.0; 4]);
/// Most of the anchors in the loss that are positive.
const POSITIVE: f64 = 0.5;
/// Overlap from which the lower one of two proposals of a level is dropped.
const OVERLAP: f64 = 0.7;
/// Deviation of the initial weights.
const DEVIATION: f64 = 0.01;

/// Scores and differences of every anchor, by the same layers on every level.
///
/// # Source
///
/// Ren et al. 2015; `StandardRPNHead` of detectron2 with two convolutions.
#[derive(Module, Debug)]
pub struct RpnHead {
    /// Two: 3×3, `C` → `C`, each with a ReLU.
    pub convs: Vec<BiasedConv>,
    /// 1×1, `C` → anchors of a pixel.
    pub objectness: BiasedConv,
    /// 1×1, `C` → four times as many.
    pub deltas: BiasedConv,
}

/// What the head says of the anchors of all levels, from the finest on, in the anchors' order.
#[derive(Clone, Debug)]
pub struct AnchorScores {
    /// `[B, A]`.
    pub logits: Tensor<2>,
    /// `[B, A, 4]`.
    pub deltas: Tensor<3>,
}

impl AnchorScores {
    /// Logits and differences on the host, and the result of `meanwhile`, which runs before it
    /// waits.
    pub(super) fn read_while<T>(&self, meanwhile: impl FnOnce() -> T) -> ([Vec<f32>; 2], T) {
        let [batch, anchors] = self.logits.dims();
        let deltas = self.deltas.clone().reshape([batch, 4 * anchors]);
        read_while([self.logits.clone(), deltas], meanwhile)
    }
}

impl RpnHead {
    pub(crate) fn init(scope: &Scope<'_>, channels: usize) -> Self {
        let convs = scope.child("convs");
        let conv = |at: usize| {
            BiasedConv::init(&convs.child(&at.to_string()), [channels; 2], 3, DEVIATION)
        };
        let last = |name, each: usize| {
            let outputs = each * RATIOS.len();
            BiasedConv::init(&scope.child(name), [channels, outputs], 1, DEVIATION)
        };
        Self {
            convs: (0..2).map(conv).collect(),
            objectness: last("objectness", 1),
            deltas: last("deltas", 4),
        }
    }

    /// Of maps `[B, h, w, C]`.
    pub(crate) fn forward(
        &self,
        maps: &[Tensor<4>],
        precision: Precision,
    ) -> Result<AnchorScores, KernelError> {
        let (mut logits, mut deltas) = (Vec::new(), Vec::new());
        for map in maps {
            let [batch, height, width, _] = map.dims();
            let mut x = map.clone();
            for conv in &self.convs {
                x = relu(conv.forward(x, precision)?);
            }
            let count = height * width * RATIOS.len();
            logits.push(self.objectness.forward(x.clone(), precision)?.reshape([batch, count]));
            deltas.push(self.deltas.forward(x, precision)?.reshape([batch, count, 4]));
        }
        let logits = Tensor::cat(logits, 1).cast(FloatDType::F32);
        Ok(AnchorScores { logits, deltas: Tensor::cat(deltas, 1).cast(FloatDType::F32) })
    }
}

/// The anchors of an image that are in the loss, and what they are to find.
#[derive(Clone, Debug, Default)]
pub struct AnchorTargets {
    /// Which.
    pub sampled: Sampled,
    /// For each positive one the box of its truth.
    pub boxes: Vec<Edges>,
}

impl AnchorTargets {
    /// Matches `anchors` with the boxes of an image's truths, and draws `count` of them.
    #[must_use]
    pub fn of(anchors: &[Edges], truths: &[Edges], count: usize, draw: Option<Draw>) -> Self {
        let Matches { matched, labels } = Matcher::PROPOSALS.matches(truths, anchors);
        let sampled = sample(&labels, count, POSITIVE, draw, Purpose::Anchors);
        let boxes = sampled.positives.iter().map(|&at| truths[matched[at]]).collect();
        Self { sampled, boxes }
    }

    /// The label of every one of `count` anchors: ignored where it was not drawn.
    #[must_use]
    pub fn labels(&self, count: usize) -> Vec<Label> {
        let mut labels = vec![Label::Ignored; count];
        self.sampled.positives.iter().for_each(|&at| labels[at] = Label::Positive);
        self.sampled.negatives.iter().for_each(|&at| labels[at] = Label::Negative);
        labels
    }
}

/// The two losses of the proposals, each `[1]`: cross-entropy of the drawn anchors' scores, and
/// distance of the positive ones' differences, both summed, over `count` anchors for each image.
///
/// # Source
///
/// `RPN.losses` of detectron2 with a distance of L1.
#[must_use]
pub fn anchor_losses(
    scores: &AnchorScores,
    anchors: &[Edges],
    targets: &[AnchorTargets],
    count: usize,
) -> [Tensor<1>; 2] {
    let device = scores.logits.device();
    let [batch, all] = scores.logits.dims();
    let (mut chosen, mut wanted) = (Vec::new(), Vec::new());
    let (mut positives, mut differences) = (Vec::new(), Vec::new());
    for (image, AnchorTargets { sampled, boxes }) in targets.iter().enumerate() {
        for (kind, at) in [(1.0_f32, &sampled.positives), (0.0, &sampled.negatives)] {
            chosen.extend(at.iter().map(|at| (image * all + at) as i32));
            wanted.extend(at.iter().map(|_| kind));
        }
        for (&at, &to) in sampled.positives.iter().zip(boxes) {
            positives.push((image * all + at) as i32);
            differences.extend(ANCHOR_CODER.encode(anchors[at], to));
        }
    }
    let norm = (count * batch.max(1)) as f64;
    let index = |of: Vec<i32>| {
        let len = of.len();
        Tensor::<1, Int>::from_data(TensorData::new(of, [len]), &device)
    };
    let (drawn, found) = (chosen.len(), positives.len());
    // Of none it is 0, and so is the gradient of each of the layers.
    let class = if drawn == 0 {
        sum_in_order(scores.logits.clone()).mul_scalar(0.0)
    } else {
        let logits = scores.logits.clone().reshape([batch * all, 1]).select(0, index(chosen));
        let wanted = Tensor::<2>::from_data(TensorData::new(wanted, [drawn, 1]), &device);
        sum_in_order(binary_cross_entropy(logits, wanted)).div_scalar(norm)
    };
    let place = if found == 0 {
        sum_in_order(scores.deltas.clone()).mul_scalar(0.0)
    } else {
        let deltas = scores.deltas.clone().reshape([batch * all, 4]).select(0, index(positives));
        let wanted = Tensor::<2>::from_data(TensorData::new(differences, [found, 4]), &device);
        sum_in_order((deltas - wanted).abs()).div_scalar(norm)
    };
    [class, place]
}

/// −t·ln σ(x) − (1 − t)·ln σ(−x).
pub(crate) fn binary_cross_entropy<const D: usize>(x: Tensor<D>, wanted: Tensor<D>) -> Tensor<D> {
    (wanted.neg() + 1.0) * x.clone() - log_sigmoid(x)
}

/// Proposals of an image, from the highest score to the lowest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proposals {
    /// Within the image.
    pub boxes: Vec<Edges>,
    /// Logits.
    pub scores: Vec<f32>,
}

/// How many proposals there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The best of each level that are looked at.
    pub per_level: usize,
    /// Of an image.
    pub all: usize,
}

/// The proposals of an image of `size`, `[height, width]`, from what the head says of its anchors:
/// the best of each level, without those that overlap a better one of their level.
///
/// A box or a score that is no finite number is left out, and so is a box without an inside.
///
/// # Source
///
/// `find_top_rpn_proposals` of detectron2, which ends a training run where one is not finite.
#[must_use]
pub fn proposals(
    levels: &[Vec<Edges>],
    logits: &[f32],
    deltas: &[[f32; 4]],
    size: [usize; 2],
    limits: Limits,
) -> Proposals {
    let (mut boxes, mut scores, mut of_level) = (Vec::new(), Vec::new(), Vec::new());
    let mut before = 0;
    for (level, anchors) in levels.iter().enumerate() {
        let own = before..before + anchors.len();
        let (logits, deltas) = (&logits[own.clone()], &deltas[own.clone()]);
        before = own.end;
        for at in by_score(logits, limits.per_level) {
            let edges = ANCHOR_CODER.decode(anchors[at], deltas[at]);
            if !(is_finite(edges) && logits[at].is_finite()) {
                continue;
            }
            let edges = clip(edges, size);
            if is_nonempty(edges) {
                boxes.push(edges);
                scores.push(logits[at]);
                of_level.push(level);
            }
        }
    }
    let kept = batched_nms(&boxes, &scores, &of_level, OVERLAP, limits.all);
    Proposals {
        boxes: kept.iter().map(|&at| boxes[at]).collect(),
        scores: kept.iter().map(|&at| scores[at]).collect(),
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn what_is_not_finite_is_no_proposal() {
        let anchor = |left: f32| [left, 0.0, left + 4.0, 4.0];
        let levels = vec![vec![anchor(0.0), anchor(8.0), anchor(16.0)], vec![anchor(0.0)]];
        let logits = [1.0, f32::NAN, 2.0, f32::INFINITY];
        let deltas = [[0.0; 4], [0.0; 4], [f32::NAN, 0.0, 0.0, 0.0], [0.0; 4]];
        let limits = Limits { per_level: 10, all: 10 };
        let found = proposals(&levels, &logits, &deltas, [30, 30], limits);
        assert_eq!(found.boxes, [anchor(0.0)]);
        let none = proposals(&levels, &[f32::NAN; 4], &deltas, [30, 30], limits);
        assert_eq!(none, Proposals::default());
        // Outside of the image there is nothing.
        assert_eq!(proposals(&levels, &[0.0; 4], &[[1e3; 4]; 4], [2, 2], limits).boxes.len(), 0);
    }

    #[test]
    fn a_level_gives_its_best_and_levels_do_not_suppress_each_other() {
        let levels = vec![vec![[0.0, 0.0, 4.0, 4.0], [9.0, 0.0, 14.0, 4.0]]; 2];
        let (logits, deltas) = ([0.1, 0.2, 0.3, 0.4], [[0.0; 4]; 4]);
        let of = |per_level, all| {
            proposals(&levels, &logits, &deltas, [20, 20], Limits { per_level, all }).scores
        };
        assert_eq!(of(2, 9), [0.4, 0.3, 0.2, 0.1]);
        assert_eq!(of(1, 9), [0.4, 0.2]);
        assert_eq!(of(2, 3), [0.4, 0.3, 0.2]);
    }

    #[test]
    fn cross_entropy_is_that_of_a_sigmoid() {
        let x = [-30.0, -1.5, 0.0, 2.0, 40.0_f32];
        let tensor = |values: &[f32]| {
            Tensor::<1>::from_data(TensorData::new(values.to_vec(), [5]), &Device::flex())
        };
        for wanted in [0.0, 1.0_f32] {
            let got = binary_cross_entropy(tensor(&x), tensor(&[wanted; 5]));
            let got: Vec<f32> = got.into_data().iter().collect();
            for (got, x) in got.into_iter().zip(x) {
                let x = f64::from(if wanted == 1.0 { x } else { -x });
                assert!((f64::from(got) - (-x).exp().ln_1p()).abs() < 1e-5, "{x} {got}");
            }
        }
    }

    #[test]
    fn an_image_without_truths_has_negative_anchors_alone() {
        let anchors: Vec<Edges> =
            (0..20).map(|at| [at as f32, 0.0, at as f32 + 3.0, 3.0]).collect();
        let targets = AnchorTargets::of(&anchors, &[], 8, Some(Draw { seed: 1, first: 0 }));
        assert_eq!((targets.sampled.positives.len(), targets.sampled.negatives.len()), (0, 8));
        let device = Device::flex();
        let scores = AnchorScores {
            logits: Tensor::zeros([1, 20], &device),
            deltas: Tensor::zeros([1, 20, 4], &device),
        };
        let [class, place] = anchor_losses(&scores, &anchors, &[targets], 8);
        let number = |tensor: Tensor<1>| tensor.into_scalar::<f32>();
        assert!((number(class) - std::f32::consts::LN_2).abs() < 1e-6);
        assert_eq!(number(place), 0.0);
    }
}
