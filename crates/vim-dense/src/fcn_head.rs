//! The auxiliary head, which training alone reads.

use burn::module::Module;
use burn::tensor::Tensor;
use vim_model::{Draw, Scope};

use crate::conv::{Classify, ConvModule};
use crate::dropout::{Place, dropout};
use crate::error::DenseError;
use crate::pass::Pass;

/// One convolution and logits, at the stride of its input.
///
/// # Source
///
/// Long et al. 2015; `FCNHead` of mmsegmentation 0.29 with one convolution.
#[derive(Module, Debug)]
pub struct FcnHead {
    /// One: 3×3, `M` → `C`.
    pub convs: Vec<ConvModule>,
    /// `C` → `K`.
    pub conv_seg: Classify,
}

impl FcnHead {
    /// For a level of `inputs` channels, `channels` inside, and `classes`.
    pub(crate) fn init(scope: &Scope<'_>, inputs: usize, channels: usize, classes: usize) -> Self {
        let first = scope.child("convs").child("0");
        Self {
            convs: vec![ConvModule::init(&first, [inputs, channels], 3)],
            conv_seg: Classify::init(&scope.child("conv_seg"), channels, classes),
        }
    }

    /// The logits of each shard, `[B, H, W, M]` to `[B, H, W, K]`. `rate` is that of dropout.
    pub(crate) fn forward(
        models: &[&Self],
        mut xs: Vec<Tensor<4>>,
        pass: Pass<'_>,
        rate: f64,
        draws: &[Option<Draw>],
    ) -> Result<Vec<Tensor<4>>, DenseError> {
        for i in 0..models.first().map_or(0, |model| model.convs.len()) {
            let convs: Vec<_> = models.iter().map(|model| &model.convs[i]).collect();
            xs = pass.conv(&convs, xs, "auxiliary_head.convs")?;
        }
        let shards = models.iter().zip(xs).zip(draws);
        let logits = shards.map(|((model, x), &draw)| {
            Ok(model.conv_seg.forward(dropout(x, rate, draw, Place::Auxiliary))?)
        });
        logits.collect()
    }
}
