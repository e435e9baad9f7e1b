//! What a forward pass of one image costs, by component, in closed form.
//!
//! The conventions are those of [`VimConfig::cost`]. The heads look at as many proposals, and find
//! as many objects, as the configuration allows; a bin of a box is the mean of four points of four
//! taps. What the host chooses is not counted. A normalization is five operations for every number,
//! a ReLU is free.

use vim_model::{ComponentCost, Cost, ModelError, VimConfig};

use super::box_head::{BOX_BINS, CONVS, OVERLAPS};
use super::config::{DetectorConfig, RATIOS};
use super::mask_head::{MASK_BINS, MASK_SIDE};
use super::pyramid::HEAD_STRIDES;

/// Of a normalization, for a number: its share of the mean and of the variance, centring, scaling
/// and the bias.
const NORM: u64 = 5;
/// Of a GELU, beside its two products: an error function.
const GELU: u64 = 4;
/// Multiply–adds of a bin of a box, for each channel.
const BIN: u64 = 16;

/// Parameters, multiply–adds and other operations.
type Count = [u64; 3];

fn sum(counts: impl IntoIterator<Item = Count>) -> Count {
    counts.into_iter().fold([0; 3], |[a, b, c], [d, e, f]| [a + d, b + e, c + f])
}

/// A convolution of `side` by `side` at `places`, from `inputs` to `outputs` channels, with a bias.
fn biased(side: u64, [inputs, outputs]: [u64; 2], places: u64) -> Count {
    let weights = side * side * inputs * outputs;
    [weights + outputs, weights * places, 0]
}

/// The same without a bias, and a normalization.
fn normed(side: u64, [inputs, outputs]: [u64; 2], places: u64) -> Count {
    let weights = side * side * inputs * outputs;
    [weights + 2 * outputs, weights * places, NORM * outputs * places]
}

/// An enlargement by two of a map of `places`.
fn enlarged([inputs, outputs]: [u64; 2], places: u64) -> Count {
    let weights = 4 * inputs * outputs;
    [weights + outputs, weights * places, 0]
}

/// The same layers for `times` boxes: their parameters count once.
fn of_boxes([parameters, macs, others]: Count, times: u64) -> Count {
    [parameters, macs * times, others * times]
}

impl DetectorConfig {
    /// Parameters, multiply–adds and operations of every component, for one image in evaluation.
    ///
    /// # Errors
    ///
    /// As [`DetectorConfig::check`] and [`VimConfig::backbone_cost`].
    pub fn cost(&self, backbone: &VimConfig, classes: usize) -> Result<Cost, ModelError> {
        self.check(backbone, classes)?;
        let mut cost = backbone.backbone_cost()?;
        let norms = backbone.depth as u64 + 1;
        // The backbone's last norm, where nothing reads it.
        let unread = u64::from(!self.reads_norm());
        for norm in cost.components.iter_mut().filter(|component| component.name == "norm") {
            norm.parameters -= unread * norm.parameters / norms;
        }
        let [rows, columns] = backbone.grid().map(|n| n as u64);
        let [m, c, f, k] =
            [backbone.d_model, self.channels, self.box_features, classes].map(|n| n as u64);
        let level = |up: u64, down: u64| (rows * up / down) * (columns * up / down);
        let places = [level(4, 1), level(2, 1), level(1, 1), level(1, 2)];
        let last = rows.div_ceil(2).div_ceil(2) * columns.div_ceil(2).div_ceil(2);
        let all = places.iter().sum::<u64>() + last;
        let anchors = all * RATIOS.len() as u64;
        let proposals = anchors.min(self.test_proposals as u64);
        let found = (proposals * k).min(self.detections as u64);

        let inputs = [m / 4, m / 2, m, m];
        let laterals = (0..HEAD_STRIDES.len()).map(|at| normed(1, [inputs[at], c], places[at]));
        let outputs = places.iter().map(|&at| normed(3, [c, c], at));
        let gelu = [2 * (m / 2), 0, places[1] * (m / 2) * (NORM + GELU + 2)];
        let ups = [
            enlarged([m, m / 2], places[2]),
            gelu,
            enlarged([m / 2, m / 4], places[1]),
            enlarged([m, m / 2], places[2]),
        ];
        let pyramid = sum(ups.into_iter().chain(laterals).chain(outputs));
        let shapes = RATIOS.len() as u64;
        let rpn = sum([
            biased(3, [c, c], all),
            biased(3, [c, c], all),
            biased(1, [c, shapes], all),
            biased(1, [c, 4 * shapes], all),
        ]);
        let [box_bins, mask_bins, cells] =
            [BOX_BINS, MASK_BINS, MASK_SIDE].map(|side| (side * side) as u64);
        let convs = |bins: u64| (0..CONVS).map(move |_| normed(3, [c, c], bins));
        let softmax = [0, 0, 3 * (k + 1)];
        let pooled = |bins: u64| [0, bins * c * BIN, 0];
        let stage = sum(convs(box_bins).chain([
            pooled(box_bins),
            biased(1, [box_bins * c, f], 1),
            biased(1, [f, k + 1], 1),
            biased(1, [f, 4], 1),
            softmax,
        ]));
        let stages = sum((0..OVERLAPS.len()).map(|_| of_boxes(stage, proposals)));
        let mask = sum(convs(mask_bins).chain([
            pooled(mask_bins),
            enlarged([c, c], mask_bins),
            biased(1, [c, k], cells),
            [0, 0, 3 * cells],
        ]));
        for (name, what, [parameters, macs, others]) in [
            ("pyramid", "maps of five strides", pyramid),
            ("rpn", "scores and differences of every anchor", rpn),
            ("box_heads", "classes and boxes of the proposals, three stages", stages),
            ("mask_head", "masks of the detections", of_boxes(mask, found)),
        ]
        .into_iter()
        .take(if self.masks { 4 } else { 3 })
        {
            let flops = 2 * macs + others;
            cost.components.push(ComponentCost { name, what, parameters, macs, flops });
        }
        Ok(cost)
    }
}
