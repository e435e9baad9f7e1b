//! The heads of a segmenter, and their dropout of whole channels: UperNet, which decodes, and the
//! auxiliary head, which training alone reads.

use burn::module::Module;
use burn::tensor::{FloatDType, Tensor};
use vim_kernels::{KernelError, drawn};
use vim_model::{Draw, Scope, keyed, unit};

use crate::conv::{Classify, ConvModule, Pass};
use crate::error::DenseError;
use crate::pyramid::Levels;
use crate::resize::{adaptive_pool, resize};

/// Windows along a side of the pyramid pooling.
pub const SCALES: [usize; 4] = [1, 2, 3, 6];

/// UperNet: pyramid pooling of the coarsest level, laterals from coarse to fine, all levels joined
/// at the finest.
///
/// # Source
///
/// Xiao et al. 2018; pyramid pooling by Zhao et al. 2017; `UPerHead` of mmsegmentation 0.29.
#[derive(Module, Debug)]
pub struct UperHead {
    /// Of the means over 1, 2·2, 3·3 and 6·6 windows of the coarsest level: 1×1, `M` → `C`.
    pub psp_modules: Vec<ConvModule>,
    /// Of that level with the four beside it: 3×3, `M + 4·C` → `C`.
    pub bottleneck: ConvModule,
    /// Of the three finer levels: 1×1, `M` → `C`.
    pub lateral_convs: Vec<ConvModule>,
    /// Of their sums: 3×3, `C` → `C`.
    pub fpn_convs: Vec<ConvModule>,
    /// Of all four levels side by side: 3×3, `4·C` → `C`.
    pub fpn_bottleneck: ConvModule,
    /// `C` → `K`.
    pub conv_seg: Classify,
}

/// What a head computes for a shard.
pub(crate) struct Decoded {
    /// The pyramid pooling after its bottleneck, `[B, h, w, C]` at stride 32.
    pub(crate) pooled: Tensor<4>,
    /// `[B, H, W, K]` at stride 4.
    pub(crate) logits: Tensor<4>,
}

impl UperHead {
    /// For levels of `inputs` channels, `channels` inside, and `classes`.
    pub(crate) fn init(scope: &Scope<'_>, inputs: usize, channels: usize, classes: usize) -> Self {
        let many = |name: &str, count: usize, inputs: usize, side: usize| {
            let scope = scope.child(name);
            (0..count)
                .map(|i| ConvModule::init(&scope.child(&i.to_string()), [inputs, channels], side))
                .collect()
        };
        let one = |name: &str, inputs| ConvModule::init(&scope.child(name), [inputs, channels], 3);
        Self {
            psp_modules: many("psp_modules", SCALES.len(), inputs, 1),
            bottleneck: one("bottleneck", inputs + SCALES.len() * channels),
            lateral_convs: many("lateral_convs", 3, inputs, 1),
            fpn_convs: many("fpn_convs", 3, channels, 3),
            fpn_bottleneck: one("fpn_bottleneck", 4 * channels),
            conv_seg: Classify::init(&scope.child("conv_seg"), channels, classes),
        }
    }

    /// The logits of each shard from its levels. `rate` is that of dropout, `draws` the shards'.
    pub(crate) fn forward(
        models: &[&Self],
        levels: Vec<Levels>,
        pass: Pass<'_>,
        rate: f64,
        draws: &[Option<Draw>],
    ) -> Result<Vec<Decoded>, DenseError> {
        let (mut finer, mut coarsest) = ([Vec::new(), Vec::new(), Vec::new()], Vec::new());
        for [first, second, third, fourth] in levels {
            for (level, map) in finer.iter_mut().zip([first, second, third]) {
                level.push(map);
            }
            coarsest.push(fourth);
        }
        let pooled = Self::pooled(models, coarsest, pass)?;

        let mut laterals = Vec::with_capacity(4);
        for (i, level) in finer.into_iter().enumerate() {
            let convs: Vec<_> = models.iter().map(|model| &model.lateral_convs[i]).collect();
            laterals.push(pass.conv(&convs, level, "decode_head.lateral_convs")?);
        }
        laterals.push(pooled.clone());
        // From coarse to fine, each with the sum so far.
        for i in (1..laterals.len()).rev() {
            let coarse = laterals[i].clone();
            let fine = std::mem::take(&mut laterals[i - 1]);
            laterals[i - 1] = fine
                .into_iter()
                .zip(coarse)
                .map(|(fine, coarse)| {
                    let size = size_of(&fine);
                    Ok(fine + resize(coarse, size)?)
                })
                .collect::<Result<_, KernelError>>()?;
        }
        let mut all: Vec<Vec<Tensor<4>>> = models.iter().map(|_| Vec::with_capacity(4)).collect();
        for (i, sums) in laterals.into_iter().enumerate() {
            let maps = if i < 3 {
                let convs: Vec<_> = models.iter().map(|model| &model.fpn_convs[i]).collect();
                pass.conv(&convs, sums, "decode_head.fpn_convs")?
            } else {
                sums
            };
            for (all, map) in all.iter_mut().zip(maps) {
                let size = all.first().map_or(size_of(&map), size_of);
                all.push(resize(map, size)?);
            }
        }
        let joined = all.into_iter().map(|maps| Tensor::cat(maps, 3)).collect();
        let bottlenecks: Vec<_> = models.iter().map(|model| &model.fpn_bottleneck).collect();
        let features = pass.conv(&bottlenecks, joined, "decode_head.fpn_bottleneck")?;
        let shards = models.iter().zip(pooled).zip(features).zip(draws);
        let decoded = shards.map(|(((model, pooled), x), &draw)| {
            let logits = model.conv_seg.forward(dropout(x, rate, draw, Place::Decode))?;
            Ok(Decoded { pooled, logits })
        });
        decoded.collect()
    }

    /// The pyramid pooling of the coarsest level, `[B, h, w, M]` to `[B, h, w, C]`.
    fn pooled(
        models: &[&Self],
        xs: Vec<Tensor<4>>,
        pass: Pass<'_>,
    ) -> Result<Vec<Tensor<4>>, DenseError> {
        let mut grids = SCALES.map(|_| Vec::with_capacity(xs.len()));
        for x in &xs {
            for (grid, pooled) in grids.iter_mut().zip(adaptive_pool(x.clone(), SCALES)?) {
                grid.push(pooled);
            }
        }
        let activations = pass.precision.activations();
        let mut beside: Vec<Vec<Tensor<4>>> =
            xs.into_iter().map(|x| vec![x.cast(activations)]).collect();
        for (i, grid) in grids.into_iter().enumerate() {
            let convs: Vec<_> = models.iter().map(|model| &model.psp_modules[i]).collect();
            let maps = pass.conv(&convs, grid, "decode_head.psp_modules")?;
            for (beside, map) in beside.iter_mut().zip(maps) {
                let size = size_of(&beside[0]);
                beside.push(resize(map, size)?);
            }
        }
        let joined = beside.into_iter().map(|maps| Tensor::cat(maps, 3)).collect();
        let bottlenecks: Vec<_> = models.iter().map(|model| &model.bottleneck).collect();
        pass.conv(&bottlenecks, joined, "decode_head.bottleneck")
    }
}

/// Height and width of `[B, H, W, C]`.
fn size_of(x: &Tensor<4>) -> [usize; 2] {
    let [_, height, width, _] = x.dims();
    [height, width]
}

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

/// The heads, which draw each for itself.
#[derive(Clone, Copy, Debug)]
enum Place {
    Decode,
    Auxiliary,
}

/// `x`, `[B, H, W, C]`, with each channel of an image set to 0 with probability `rate`, and the
/// others scaled by 1/(1 − rate). A function of the draw and of the image's place in the whole
/// batch.
///
/// # Source
///
/// Tompson et al. 2015; `torch.nn.Dropout2d`.
fn dropout(x: Tensor<4>, rate: f64, draw: Option<Draw>, place: Place) -> Tensor<4> {
    let Some(Draw { seed, first }) = draw.filter(|_| rate > 0.0) else { return x };
    let [batch, _, _, channels] = x.dims();
    let factors = drawn(seed, [batch, 1, 1, channels], &x.device(), move |seed| {
        let images = first..first + batch;
        images.flat_map(|image| factors(seed, image, rate, channels, place)).collect()
    });
    let dtype = FloatDType::from(x.dtype());
    x * factors.cast(dtype)
}

fn factors(seed: u64, image: usize, rate: f64, channels: usize, place: Place) -> Vec<f32> {
    let place = match place {
        Place::Decode => 0,
        Place::Auxiliary => 1_u64 << 32,
    };
    let mut rng = keyed(b"vim-dense: drops", seed, place + image as u64);
    let kept = (1.0 / (1.0 - rate)) as f32;
    (0..channels).map(|_| if unit(&mut rng) < rate { 0.0 } else { kept }).collect()
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn whole_channels_are_dropped_and_the_mean_is_kept() {
        let (rate, channels) = (0.3, 20_000);
        let factors = factors(5, 2, rate, channels, Place::Decode);
        let dropped = factors.iter().filter(|&&factor| factor == 0.0).count();
        // Five standard deviations of the binomial.
        assert!(dropped.abs_diff(6_000) < 325, "{dropped}");
        assert!(factors.iter().all(|&factor| factor == 0.0 || factor == (1.0 / 0.7_f64) as f32));
        let x = Tensor::<4>::ones([2, 3, 2, 8], &Device::flex());
        let y = dropout(x, 0.5, Some(Draw { seed: 1, first: 0 }), Place::Decode);
        let y: Vec<f32> = y.into_data().iter().collect();
        for (image, pixels) in y.chunks(6 * 8).enumerate() {
            assert!(pixels.chunks(8).all(|pixel| pixel == &pixels[..8]), "image {image}");
        }
    }

    #[test]
    fn a_draw_has_its_key_and_is_the_same_in_parts() {
        let of = |seed, image, place| factors(seed, image, 0.5, 64, place);
        let one = of(1, 1, Place::Decode);
        assert_eq!(one, of(1, 1, Place::Decode));
        assert_ne!(one, of(2, 1, Place::Decode));
        assert_ne!(one, of(1, 2, Place::Decode));
        assert_ne!(one, of(1, 1, Place::Auxiliary));
        let device = Device::flex();
        let ones = |batch| Tensor::<4>::ones([batch, 1, 1, 16], &device);
        let draw = |first| Some(Draw { seed: 9, first });
        let whole = dropout(ones(4), 0.4, draw(0), Place::Decode);
        let part = dropout(ones(2), 0.4, draw(2), Place::Decode);
        let expected: Vec<f32> = whole.narrow(0, 2, 2).into_data().iter().collect();
        assert_eq!(part.into_data().iter::<f32>().collect::<Vec<_>>(), expected);
    }
}
