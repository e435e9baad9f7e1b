//! A stage of the cascade: the class of a box and its refinement.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::activation::{log_softmax, relu};
use burn::tensor::{Int, Tensor, TensorData};
use vim_kernels::{KernelError, Precision, sum_in_order};
use vim_model::{Rule, Scope};

use super::boxes::Edges;
use super::coder::BoxCoder;
use super::config::DetectorConfig;
use super::layers::{NormedConv, linear_layer, linear_of, normal};
use crate::conv::kaiming;

/// Bins along a side of a box.
pub const BOX_BINS: usize = 7;
/// Convolutions of a head.
pub(crate) const CONVS: usize = 4;
/// Overlaps from which a box is a truth's, stage by stage.
pub const OVERLAPS: [f32; 3] = [0.5, 0.6, 0.7];
/// Weights of the differences between boxes, stage by stage.
pub const CODERS: [BoxCoder; 3] = [
    BoxCoder([10.0, 10.0, 5.0, 5.0]),
    BoxCoder([20.0, 20.0, 10.0, 10.0]),
    BoxCoder([30.0, 30.0, 15.0, 15.0]),
];

/// Four convolutions, a linear layer, and what it says of a box.
///
/// # Source
///
/// Cai and Vasconcelos 2018; `FastRCNNConvFCHead` and `FastRCNNOutputLayers` of detectron2.
#[derive(Module, Debug)]
pub struct BoxHead {
    /// Four: 3×3, `C` → `C`, each with a ReLU.
    pub convs: Vec<NormedConv>,
    /// `C·7·7` → features, the channels' maps one after the other, with a ReLU.
    pub fc1: Linear,
    /// Features → `K + 1`, the background last.
    pub cls_score: Linear,
    /// Features → 4, the same for all classes.
    pub bbox_pred: Linear,
}

/// What a stage says of `R` boxes.
#[derive(Clone, Debug)]
pub struct BoxScores {
    /// Logits, `[R, K + 1]`.
    pub logits: Tensor<2>,
    /// Differences to the box, `[R, 4]`.
    pub deltas: Tensor<2>,
}

/// Four 3×3 convolutions.
pub(crate) fn convs(scope: &Scope<'_>, channels: usize) -> Vec<NormedConv> {
    let scope = scope.child("convs");
    let rule = kaiming(9 * channels);
    (0..CONVS)
        .map(|at| NormedConv::init(&scope.child(&at.to_string()), [channels; 2], 3, rule))
        .collect()
}

impl BoxHead {
    pub(crate) fn init(scope: &Scope<'_>, config: &DetectorConfig, classes: usize) -> Self {
        let (channels, features) = (config.channels, config.box_features);
        let inputs = channels * BOX_BINS * BOX_BINS;
        // Kaiming He's uniform one of the inputs, which Caffe2 calls Xavier's.
        let uniform = Rule::Uniform { bound: (3.0 / inputs as f64).sqrt() };
        let linear =
            |name, outputs, std| linear_layer(&scope.child(name), [features, outputs], normal(std));
        Self {
            convs: convs(scope, channels),
            fc1: linear_layer(&scope.child("fc1"), [inputs, features], uniform),
            cls_score: linear("cls_score", classes + 1, 0.01),
            bbox_pred: linear("bbox_pred", 4, 0.001),
        }
    }

    /// Of the features of boxes, `[R, 7, 7, C]`.
    pub(crate) fn forward(
        &self,
        mut x: Tensor<4>,
        precision: Precision,
    ) -> Result<BoxScores, KernelError> {
        for conv in &self.convs {
            // As the layer behind it rounds it.
            x = conv.forward(x, precision, true, precision.activations().into())?;
        }
        let [boxes, height, width, channels] = x.dims();
        let flat = x.permute([0, 3, 1, 2]).reshape([boxes, channels * height * width]);
        let features = relu(linear_of(&self.fc1, flat, precision)?);
        Ok(BoxScores {
            logits: linear_of(&self.cls_score, features.clone(), Precision::F32)?,
            deltas: linear_of(&self.bbox_pred, features, Precision::F32)?,
        })
    }
}

/// What a stage's boxes are to find.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BoxTargets {
    /// The boxes.
    pub boxes: Vec<Edges>,
    /// Of each its class, `K` for background.
    pub classes: Vec<usize>,
    /// Of each the number of the truth that it overlaps most, 0 where there is none.
    pub truths: Vec<usize>,
    /// Of each the box of that truth; its own where there is none.
    pub to: Vec<Edges>,
}

/// The two losses of a stage, each `[1]`: mean cross-entropy of the classes, and distance of the
/// foreground boxes' differences, summed, over the number of all boxes. Of no boxes both are 0.
///
/// # Source
///
/// `FastRCNNOutputLayers.losses` of detectron2 with a distance of L1.
#[must_use]
pub fn box_losses(
    scores: &BoxScores,
    targets: &[BoxTargets],
    coder: BoxCoder,
    classes: usize,
) -> [Tensor<1>; 2] {
    let device = scores.logits.device();
    let [count, _] = scores.logits.dims();
    let (mut wanted, mut foreground, mut differences) = (Vec::new(), Vec::new(), Vec::new());
    for of in targets {
        for ((&class, &from), &to) in of.classes.iter().zip(&of.boxes).zip(&of.to) {
            if class < classes {
                foreground.push(wanted.len() as i32);
                differences.extend(coder.encode(from, to));
            }
            wanted.push(class as i32);
        }
    }
    let index = |of: Vec<i32>| {
        let len = of.len();
        Tensor::<1, Int>::from_data(TensorData::new(of, [len]), &device)
    };
    let norm = count.max(1) as f64;
    let wanted = index(wanted).reshape([count, 1]);
    let class = sum_in_order(log_softmax(scores.logits.clone(), 1).gather(1, wanted)).neg();
    let found = foreground.len();
    let place = if found == 0 {
        sum_in_order(scores.deltas.clone()).mul_scalar(0.0)
    } else {
        let deltas = scores.deltas.clone().select(0, index(foreground));
        let wanted = Tensor::<2>::from_data(TensorData::new(differences, [found, 4]), &device);
        sum_in_order((deltas - wanted).abs())
    };
    [class.div_scalar(norm), place.div_scalar(norm)]
}
