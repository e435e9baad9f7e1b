//! Maps of five strides from a backbone's last feature.

use burn::module::Module;
use burn::tensor::{FloatDType, Int, Tensor, TensorData};
use vim_kernels::{KernelError, Precision};
use vim_model::{Rule, Scope};

use super::layers::{ChannelNorm, NormedConv};
use crate::conv::Upsample;
use crate::pyramid::gelu;
use crate::resize::max_pool;

/// Pixels of the image to one of each map that boxes are proposed on, for patches of 16 px; the
/// last is a part of the one before.
pub const STRIDES: [usize; 5] = [4, 8, 16, 32, 64];
/// Those that the heads read boxes from.
pub const HEAD_STRIDES: [usize; 4] = [4, 8, 16, 32];

/// The maps at strides 4 to 32, all of one width, of a feature at stride 16, `M` channels. Those of
/// patches of another size are in proportion.
///
/// | stride | before the two convolutions |
/// |---|---|
/// | 4 | up to M/2, norm, GELU, up to M/4 |
/// | 8 | up to M/2 |
/// | 16 | as it is |
/// | 32 | the largest of 2×2 |
///
/// # Source
///
/// Li et al. 2022, section 3; `SimpleFeaturePyramid` of detectron2 with layer normalizations.
#[derive(Module, Debug)]
pub struct SimplePyramid {
    /// From stride 4 to stride 32.
    pub levels: Vec<Level>,
}

/// What makes a map.
#[derive(Module, Debug)]
pub struct Level {
    /// An enlargement by 2.
    pub first: Option<Upsample>,
    /// A normalization, a GELU and a second one.
    pub norm: Option<ChannelNorm>,
    /// The second one.
    pub second: Option<Upsample>,
    /// 1×1.
    pub lateral: NormedConv,
    /// 3×3.
    pub output: NormedConv,
}

impl SimplePyramid {
    /// Of a feature with `width` channels to maps with `channels`.
    pub(crate) fn init(scope: &Scope<'_>, width: usize, channels: usize) -> Self {
        let levels = scope.child("levels");
        let level = |at: usize| {
            let scope = levels.child(&at.to_string());
            let (half, quarter) = (width / 2, width / 4);
            let inputs = [quarter, half, width, width][at];
            Level {
                first: (at < 2).then(|| Upsample::init(&scope.child("first"), [width, half])),
                norm: (at == 0).then(|| ChannelNorm::init(&scope.child("norm"), half)),
                second: (at == 0).then(|| Upsample::init(&scope.child("second"), [half, quarter])),
                lateral: NormedConv::init(
                    &scope.child("lateral"),
                    [inputs, channels],
                    1,
                    Rule::fan_in(inputs),
                ),
                output: NormedConv::init(
                    &scope.child("output"),
                    [channels, channels],
                    3,
                    Rule::fan_in(9 * channels),
                ),
            }
        };
        Self { levels: (0..HEAD_STRIDES.len()).map(level).collect() }
    }

    /// The maps at all of [`STRIDES`].
    ///
    /// # Shapes
    ///
    /// - `x`: `[B, G_h, G_w, M]`
    /// - results: `[B, h, w, C]`
    pub(crate) fn forward(
        &self,
        x: &Tensor<4>,
        precision: Precision,
    ) -> Result<Vec<Tensor<4>>, KernelError> {
        let mut maps = Vec::with_capacity(STRIDES.len());
        for (at, level) in self.levels.iter().enumerate() {
            let mut map = x.clone();
            if let Some(up) = &level.first {
                map = up.forward(map, precision)?;
            }
            if let Some(norm) = &level.norm {
                map = gelu(norm.forward(map, false, FloatDType::F32)?);
            }
            if let Some(up) = &level.second {
                map = up.forward(map, precision)?;
            }
            if at + 1 == HEAD_STRIDES.len() {
                map = max_pool(map);
            }
            // As the convolution behind it rounds it.
            let rounded = precision.activations().into();
            let lateral = level.lateral.forward(map, precision, false, rounded)?;
            maps.push(level.output.forward(lateral, precision, false, FloatDType::F32)?);
        }
        maps.extend(maps.last().cloned().map(every_second));
        Ok(maps)
    }
}

/// Every second pixel of every second row, from the first on.
fn every_second(x: Tensor<4>) -> Tensor<4> {
    let device = x.device();
    (1..3).fold(x, |x, axis| {
        let kept: Vec<i32> = (0..x.dims()[axis] as i32).step_by(2).collect();
        let count = kept.len();
        let kept = Tensor::<1, Int>::from_data(TensorData::new(kept, [count]), &device);
        x.select(axis, kept)
    })
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn maps_have_their_strides() {
        let device = Device::flex();
        let pyramid = SimplePyramid::init(&Scope::root(&device, 0), 8, 5);
        let x = Tensor::ones([2, 6, 4, 8], &device);
        let maps = pyramid.forward(&x, Precision::F32).unwrap();
        let sizes: Vec<[usize; 4]> = maps.iter().map(Tensor::dims).collect();
        assert_eq!(
            sizes,
            [[2, 24, 16, 5], [2, 12, 8, 5], [2, 6, 4, 5], [2, 3, 2, 5], [2, 2, 1, 5]]
        );
        let [fourth, last] = [3, 4].map(|at: usize| -> Vec<f32> {
            maps[at].clone().narrow(0, 0, 1).into_data().iter().collect()
        });
        assert_eq!(last[..5], fourth[..5]);
        assert_eq!(last[5..], fourth[4 * 5..5 * 5]);
    }
}
