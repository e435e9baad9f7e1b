//! The mask of a box.

use burn::module::Module;
use burn::tensor::activation::relu;
use burn::tensor::{Int, Tensor, TensorData};
use vim_kernels::{KernelError, Precision};
use vim_model::{Rule, Scope};

use super::box_head::convs;
use super::layers::{BiasedConv, NormedConv};
use super::rpn::binary_cross_entropy;
use crate::conv::{Upsample, kaiming};

/// Bins along a side of a box.
pub const MASK_BINS: usize = 14;
/// Cells along a side of a mask.
pub const MASK_SIDE: usize = 2 * MASK_BINS;

/// Four convolutions, an enlargement by 2, and logits for every class.
///
/// # Source
///
/// He et al. 2017, figure 4; `MaskRCNNConvUpsampleHead` of detectron2.
#[derive(Module, Debug)]
pub struct MaskHead {
    /// Four: 3×3, `C` → `C`, each with a ReLU.
    pub convs: Vec<NormedConv>,
    /// `C` → `C`, with a ReLU.
    pub deconv: Upsample,
    /// 1×1, `C` → `K`.
    pub predictor: BiasedConv,
}

impl MaskHead {
    pub(crate) fn init(scope: &Scope<'_>, channels: usize, classes: usize) -> Self {
        let bias = Rule::Constant(0.0);
        Self {
            convs: convs(scope, channels),
            deconv: Upsample::init_by(
                &scope.child("deconv"),
                [channels; 2],
                kaiming(4 * channels),
                bias,
            ),
            predictor: BiasedConv::init(&scope.child("predictor"), [channels, classes], 1, 0.001),
        }
    }

    /// Logits of the features of boxes: `[R, 14, 14, C]` to `[R, 28, 28, K]`.
    pub(crate) fn forward(
        &self,
        mut x: Tensor<4>,
        precision: Precision,
    ) -> Result<Tensor<4>, KernelError> {
        for conv in &self.convs {
            // As the layer behind it rounds it.
            x = conv.forward(x, precision, true, precision.activations().into())?;
        }
        let x = relu(self.deconv.forward(x, precision)?);
        self.predictor.forward(x, Precision::F32)
    }
}

/// The logits of each mask's class: `[R, 28, 28, K]` and `R` classes to `[R, 28, 28]`.
#[must_use]
pub fn of_classes(logits: Tensor<4>, classes: &[usize]) -> Tensor<3> {
    let [count, height, width, _] = logits.dims();
    let own = classes.iter().map(|&class| class as i32).collect();
    let own = TensorData::new::<i32, _>(own, [count]);
    let own = Tensor::<1, Int>::from_data(own, &logits.device());
    let own = own.reshape([count, 1, 1, 1]).expand([count, height, width, 1]);
    logits.gather(3, own).squeeze_dim(3)
}

/// The mean cross-entropy of all cells of the masks' own classes, `[1]`.
///
/// # Shapes
///
/// - `logits`: `[R, 28, 28, K]`, at least one mask
/// - `classes`, `targets`: of each mask
///
/// # Source
///
/// He et al. 2017, section 3; `mask_rcnn_loss` of detectron2.
#[must_use]
pub fn mask_loss(logits: Tensor<4>, classes: &[usize], targets: &[Vec<bool>]) -> Tensor<1> {
    let own = of_classes(logits, classes);
    let cells = targets.iter().flatten().map(|&is_in| f32::from(u8::from(is_in))).collect();
    let wanted = TensorData::new::<f32, _>(cells, own.dims());
    let wanted = Tensor::<3>::from_data(wanted, &own.device());
    binary_cross_entropy(own, wanted).mean()
}
