//! Maps of four strides from a backbone's features, which all have one.

use burn::module::Module;
use burn::tensor::Tensor;
use vim_kernels::Precision;
use vim_model::Scope;

use crate::batch_norm::{BatchNorm, Statistics};
use crate::conv::Upsample;
use crate::error::DenseError;
use crate::resize::max_pool;

/// Maps at strides 4, 8, 16 and 32, all with the backbone's channels.
pub(crate) type Levels = [Tensor<4>; 4];

/// The maps at strides 4, 8, 16 and 32 of features that all have the stride of the patches.
///
/// | patches of | stride 4 | 8 | 16 | 32 |
/// |---|---|---|---|---|
/// | 16 px | up, norm, GELU, up | up | as it is | largest of 2×2 |
/// | 8 px | up | as it is | largest of 2×2 | largest of 4×4 |
///
/// # Source
///
/// The original's `seg/backbone/vim.py`, which has it of BEiT (Bao et al. 2021).
#[derive(Module, Debug)]
pub struct Pyramid {
    /// To stride 4.
    pub fpn1: UpPath,
    /// To stride 8, from patches of 16 px.
    pub fpn2: Option<Upsample>,
}

/// One or two enlargements.
#[derive(Module, Debug)]
pub struct UpPath {
    /// By 2.
    pub first: Upsample,
    /// The second, from patches of 16 px.
    pub second: Option<Again>,
}

/// A normalization, and an enlargement by 2.
#[derive(Module, Debug)]
pub struct Again {
    /// Of what the first one made; a GELU follows.
    pub norm: BatchNorm,
    /// By 2.
    pub up: Upsample,
}

impl Pyramid {
    /// Of patches with a side of 16 or 8.
    pub(crate) fn init(scope: &Scope<'_>, channels: usize, patch: usize) -> Self {
        let (fpn1, same) = (scope.child("fpn1"), [channels, channels]);
        let again = fpn1.child("second");
        Self {
            fpn1: UpPath {
                first: Upsample::init(&fpn1.child("first"), same),
                second: (patch == 16).then(|| Again {
                    norm: BatchNorm::init(&again.child("norm"), channels),
                    up: Upsample::init(&again.child("up"), same),
                }),
            },
            fpn2: (patch == 16).then(|| Upsample::init(&scope.child("fpn2"), same)),
        }
    }

    /// The levels of each shard from its four maps, `[B, G_h, G_w, M]`.
    pub(crate) fn forward(
        models: &[&Self],
        maps: Vec<Levels>,
        statistics: Statistics<'_>,
        precision: Precision,
    ) -> Result<Vec<Levels>, DenseError> {
        let up =
            |(model, maps): (&&Self, &Levels)| model.fpn1.first.forward(maps[0].clone(), precision);
        let mut firsts = models.iter().zip(&maps).map(up).collect::<Result<Vec<_>, _>>()?;
        let again: Vec<&Again> =
            models.iter().filter_map(|model| model.fpn1.second.as_ref()).collect();
        if !again.is_empty() {
            let norms: Vec<&BatchNorm> = again.iter().map(|again| &again.norm).collect();
            firsts = BatchNorm::forward(&norms, firsts, statistics, false, "fpn1")?;
            let up = |(again, x): (&&Again, Tensor<4>)| again.up.forward(gelu(x), precision);
            firsts = again.iter().zip(firsts).map(up).collect::<Result<_, _>>()?;
        }
        let levels = models.iter().zip(maps).zip(firsts).map(|((model, maps), first)| {
            let [_, second, third, fourth] = maps;
            Ok(match &model.fpn2 {
                Some(fpn2) => [first, fpn2.forward(second, precision)?, third, max_pool(fourth)],
                None => [first, second, max_pool(third), max_pool(max_pool(fourth))],
            })
        });
        levels.collect()
    }
}

/// `x · Φ(x)`, by the error function. (Burn's own has the gradient of an approximation on a GPU.)
///
/// # Source
///
/// Hendrycks and Gimpel 2016; `torch.nn.GELU`.
pub(crate) fn gelu(x: Tensor<4>) -> Tensor<4> {
    let phi = x.clone().mul_scalar(std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0;
    x * phi.mul_scalar(0.5)
}
