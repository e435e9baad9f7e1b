//! The classifier.

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Device, FloatDType, Tensor};
use vim_kernels::{Precision, linear};

use crate::block::Block;
use crate::config::{Pool, Rope, VimConfig};
use crate::drop_path::{Drops, rates};
use crate::norm::Norm;
use crate::patch_embed::PatchEmbed;
use crate::rng::Draw;
use crate::rope::Rotation;
use crate::tokens::Tokens;

/// Vision Mamba: patches and class tokens → positions → blocks → norm → head.
///
/// Built by [`VimConfig::init`] or [`import_pytorch`](crate::import_pytorch). What is optional is there
/// where the configuration says so.
///
/// # Source
///
/// Zhu et al. 2024; the original's `VisionMamba`.
#[derive(Module, Debug)]
pub struct Vim {
    /// Image → patches.
    pub patch_embed: PatchEmbed,
    /// The token that the head reads, `[1, 1, M]`; absent where there are two or none.
    pub cls_token: Option<Param<Tensor<3>>>,
    /// Of two class tokens the one before the patches, `[1, 1, M]`.
    pub cls_token_head: Option<Param<Tensor<3>>>,
    /// The one after them, `[1, 1, M]`.
    pub cls_token_tail: Option<Param<Tensor<3>>>,
    /// Added to the tokens by their place in the sequence, class tokens among them: `[1, L, M]`.
    pub pos_embed: Option<Param<Tensor<3>>>,
    /// One after the other.
    pub layers: Vec<Block>,
    /// After the last block.
    pub norm_f: Norm,
    /// `M` → `K`.
    pub head: Linear,
    /// What the model was built from.
    #[module(skip)]
    pub(crate) config: VimConfig,
}

/// What goes from block to block.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    /// What the last block put out, `[B, L, M]`.
    pub(crate) hidden: Tensor<3>,
    /// The sum of what came before it; there is none before the first block.
    pub(crate) residual: Option<Tensor<3>>,
}

impl Vim {
    /// What the model was built from.
    #[must_use]
    pub fn config(&self) -> &VimConfig {
        &self.config
    }

    /// The same model, multiplying in `precision`: its weights are f32 in any.
    #[must_use]
    pub fn with_precision(mut self, precision: Precision) -> Self {
        self.patch_embed.precision = precision;
        for block in &mut self.layers {
            block.mixer.precision = precision;
        }
        self
    }

    /// The same model, which on a GPU computes the states of its scans again on the way back, if `recompute`, rather than keep
    /// them: half of what a layer keeps for a tenth of a step's time. The numbers are the same to the bit.
    #[must_use]
    pub fn with_recompute(mut self, recompute: bool) -> Self {
        for block in &mut self.layers {
            block.mixer.recompute = recompute;
        }
        self
    }

    /// Whether [`with_recompute`](Self::with_recompute) saves memory on `device`: where one launch takes both directions.
    #[must_use]
    pub fn can_recompute(&self, device: &Device) -> bool {
        self.layers.iter().all(|block| block.mixer.both_at_once(device))
    }

    /// Logits of evaluation: nothing is drawn.
    ///
    /// # Shapes
    ///
    /// - `images`: `[B, 3, H, W]`, of the model's `image_size`, normalized
    /// - result: `[B, K]`
    ///
    /// # Panics
    ///
    /// If the images have another size than the model.
    #[must_use]
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        self.logits(images, None)
    }

    /// Logits of training: what is random is drawn from `seed`, above all which block outputs are dropped
    /// (stochastic depth).
    ///
    /// What is drawn is a pure function of `seed` and of the block and the image's place in the
    /// batch, so a step can be repeated; give every step and every worker its own seed.
    ///
    /// # Shapes
    ///
    /// As [`Vim::forward`].
    ///
    /// # Panics
    ///
    /// As [`Vim::forward`].
    #[must_use]
    pub fn forward_train(&self, images: Tensor<4>, seed: u64) -> Tensor<2> {
        self.forward_train_part(images, seed, 0)
    }

    /// [`Vim::forward_train`] of a part of a batch, whose first image has the place `first` in it: what is
    /// drawn for an image is the same as if the batch came whole.
    ///
    /// # Shapes
    ///
    /// As [`Vim::forward`].
    ///
    /// # Panics
    ///
    /// As [`Vim::forward`].
    #[must_use]
    pub fn forward_train_part(&self, images: Tensor<4>, seed: u64, first: usize) -> Tensor<2> {
        self.logits(images, Some(Draw { seed, first }))
    }

    /// Logits of every token, class tokens among them, in the order in which the blocks saw them:
    /// the original's `final_pool_type = "all"`, whatever the model's own class token or pooling.
    ///
    /// # Shapes
    ///
    /// - `images`: as [`Vim::forward`]
    /// - result: `[B, L, K]`
    ///
    /// # Panics
    ///
    /// As [`Vim::forward`].
    #[must_use]
    pub fn token_logits(&self, images: Tensor<4>) -> Tensor<3> {
        let tokens = self.tokens(images, None);
        let stream = self.through_blocks(&tokens, self.config.depth, None, |_, _| ());
        self.classes(self.normed(stream, None))
    }

    fn logits(&self, images: Tensor<4>, draw: Option<Draw>) -> Tensor<2> {
        let tokens = self.tokens(images, draw);
        let [batch, len, _] = tokens.embedded.dims();
        let depth = self.layers.len();
        let drops = draw.map(|draw| {
            let device = tokens.embedded.device();
            Drops::draw(rates(depth, self.config.drop_path), draw, batch, &device)
        });
        let stream = self.through_blocks(&tokens, depth, drops.as_ref(), |_, _| ());
        // Only what the head reads is added up and normalized.
        let only = |positions: &[usize]| stream.select(positions);
        let flat = |logits: Tensor<3>| logits.reshape([batch, self.config.num_classes]);
        match (&tokens.class[..], self.config.pool) {
            (&[head, tail], _) => {
                let both = self.normed(only(&[head, tail]), drops.as_ref());
                flat(self.classes(both.mean_dim(1)))
            }
            (&[_, ..], _) => flat(self.classes(self.normed(only(&tokens.class), drops.as_ref()))),
            ([], Pool::Last) => flat(self.classes(self.normed(only(&[len - 1]), drops.as_ref()))),
            ([], Pool::Mean) => flat(self.classes(self.normed(stream, drops.as_ref()).mean_dim(1))),
            ([], Pool::Max) => flat(self.classes(self.normed(stream, drops.as_ref())).max_dim(1)),
        }
    }

    /// Logits of each of `tokens`, `[B, L, M]`; in f32 whatever the model's precision.
    fn classes(&self, tokens: Tensor<3>) -> Tensor<3> {
        let bias = self.head.bias.as_ref().map(Param::val);
        linear(tokens, self.head.weight.val(), bias, Precision::F32)
            .expect("invariant: the model's sizes agree, and every device multiplies in f32")
    }

    /// Takes tokens through the first `count` blocks, an even number where blocks come in pairs;
    /// `after` sees what each puts out, by its number, the second of a pair for both.
    pub(crate) fn through_blocks(
        &self,
        tokens: &Tokens,
        count: usize,
        drops: Option<&Drops>,
        mut after: impl FnMut(usize, &Tensor<3>),
    ) -> Stream {
        let drop = |place, hidden: Tensor<3>| match drops {
            Some(drops) => drops.apply(place, hidden),
            None => hidden,
        };
        let device = tokens.embedded.device();
        // Around single blocks the original turns positions as they stood before the order was
        // reversed, around pairs as they stand.
        let flipped = tokens.flipped && !self.config.layer_pairs;
        let rotation = Rotation::new(&self.config, flipped, &device);
        let mut stream = Stream { hidden: tokens.embedded.clone(), residual: None };
        let step = if self.config.layer_pairs { 2 } else { 1 };
        for (i, blocks) in self.layers[..count].chunks(step).enumerate() {
            if let Some(rotation) = &rotation {
                stream = stream.turned(rotation, self.config.rope);
            }
            let Stream { hidden, residual } = stream;
            let place = i * step;
            stream = match blocks {
                [first, second] => {
                    let (f, sum_f) = first.forward(drop(place, hidden.clone()), residual.clone());
                    let (b, sum_b) = second.forward(
                        drop(place + 1, hidden.flip([1])),
                        residual.map(|residual| residual.flip([1])),
                    );
                    let residual = Some(sum_f + sum_b.flip([1]));
                    Stream { hidden: f + b.flip([1]), residual }
                }
                _ => {
                    let (mixed, sum) = blocks[0].forward(drop(place, hidden), residual);
                    Stream { hidden: mixed, residual: Some(sum) }
                }
            };
            after(place + step - 1, &stream.hidden);
        }
        stream
    }

    /// The normalized sum of a stream's two parts, `[B, L, M]`.
    fn normed(&self, stream: Stream, drops: Option<&Drops>) -> Tensor<3> {
        let hidden = match drops {
            Some(drops) => drops.apply(self.layers.len(), stream.hidden),
            None => stream.hidden,
        };
        // What the head reads is f32 throughout.
        let hidden = hidden.cast(FloatDType::F32);
        let (normed, _) = self.norm_f.forward(hidden, stream.residual, self.config.ssm.scan);
        normed
    }
}

impl Stream {
    /// The tokens at `positions`, one or two, alone.
    fn select(&self, positions: &[usize]) -> Self {
        let at = |tokens: &Tensor<3>| match *positions {
            [one] => tokens.clone().narrow(1, one, 1),
            _ => {
                let each = positions.iter().map(|&i| tokens.clone().narrow(1, i, 1));
                Tensor::cat(each.collect(), 1)
            }
        };
        Self { hidden: at(&self.hidden), residual: self.residual.as_ref().map(at) }
    }

    fn turned(self, rotation: &Rotation, what: Rope) -> Self {
        let residual = if what == Rope::Both {
            self.residual.map(|residual| rotation.apply(residual))
        } else {
            self.residual
        };
        Self { hidden: rotation.apply(self.hidden), residual }
    }
}
