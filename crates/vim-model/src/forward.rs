//! The forward passes of the classifier.

use burn::module::Param;
use burn::tensor::{FloatDType, Tensor};
use vim_kernels::{KernelError, Precision, linear};

use crate::config::{Pool, Rope};
use crate::drop_path::{DropPathMask, rates};
use crate::rng::Draw;
use crate::rope::Rotation;
use crate::tokens::Tokens;
use crate::vim::Vim;

/// The tensors between two blocks.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    /// The last block's output, `[B, L, M]`.
    pub(crate) hidden: Tensor<3>,
    /// The sum of the outputs before it; absent before the first block.
    pub(crate) residual: Option<Tensor<3>>,
}

impl Vim {
    /// Logits in evaluation: nothing is drawn.
    ///
    /// # Shapes
    ///
    /// - `images`: `[B, 3, H, W]`, of the model's `image_size`, normalized
    /// - result: `[B, K]`
    ///
    /// # Errors
    ///
    /// [`KernelError::Shape`] if the images have another size than the model, and
    /// [`KernelError::TooLarge`] if the batch is beyond what a GPU's kernels count.
    pub fn forward(&self, images: Tensor<4>) -> Result<Tensor<2>, KernelError> {
        self.logits(images, None)
    }

    /// Logits in training. Random choices, such as the block outputs to drop (stochastic depth),
    /// are drawn from `seed`.
    ///
    /// A draw is a pure function of `seed`, the block and the image's position in the batch, so a
    /// step can be repeated; give every step and every worker its own seed.
    ///
    /// # Shapes
    ///
    /// As [`Vim::forward`].
    ///
    /// # Errors
    ///
    /// As [`Vim::forward`].
    pub fn forward_train(&self, images: Tensor<4>, seed: u64) -> Result<Tensor<2>, KernelError> {
        self.forward_train_part(images, seed, 0)
    }

    /// [`Vim::forward_train`] of a part of a batch that begins at its image `first`: draws for an
    /// image are those of the whole batch.
    ///
    /// # Shapes
    ///
    /// As [`Vim::forward`].
    ///
    /// # Errors
    ///
    /// As [`Vim::forward`].
    pub fn forward_train_part(
        &self,
        images: Tensor<4>,
        seed: u64,
        first: usize,
    ) -> Result<Tensor<2>, KernelError> {
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
    /// # Errors
    ///
    /// As [`Vim::forward`].
    pub fn token_logits(&self, images: Tensor<4>) -> Result<Tensor<3>, KernelError> {
        let tokens = self.tokens(images, None)?;
        let stream = self.through_blocks(&tokens, self.config.depth, None, |_, _| ())?;
        self.classes(self.normed(stream, None)?)
    }

    fn logits(&self, images: Tensor<4>, draw: Option<Draw>) -> Result<Tensor<2>, KernelError> {
        let tokens = self.tokens(images, draw)?;
        let [batch, len, _] = tokens.embedded.dims();
        let depth = self.layers.len();
        let drops = draw.map(|draw| {
            let device = tokens.embedded.device();
            DropPathMask::draw(rates(depth, self.config.drop_path), draw, batch, &device)
        });
        let drops = drops.as_ref();
        let stream = self.through_blocks(&tokens, depth, drops, |_, _| ())?;
        // Only tokens that the head reads are summed and normalized.
        let read = match (&tokens.class[..], self.config.pool()) {
            (class @ [_, ..], _) => stream.select(class),
            ([], Pool::Last) => stream.select(&[len - 1]),
            ([], Pool::Mean | Pool::Max) => stream,
        };
        let tokens_read = self.normed(read, drops)?;
        let logits = match (&tokens.class[..], self.config.pool()) {
            ([_, _], _) | ([], Pool::Mean) => self.classes(tokens_read.mean_dim(1))?,
            ([], Pool::Max) => self.classes(tokens_read)?.max_dim(1),
            ([_, ..], _) | ([], Pool::Last) => self.classes(tokens_read)?,
        };
        Ok(logits.reshape([batch, self.config.num_classes]))
    }

    /// Logits of each of `tokens`, `[B, L, M]`, in f32 for every precision of the model.
    fn classes(&self, tokens: Tensor<3>) -> Result<Tensor<3>, KernelError> {
        let bias = self.head.bias.as_ref().map(Param::val);
        linear(tokens, self.head.weight.val(), bias, Precision::F32)
    }

    /// Takes tokens through the first `count` blocks, an even number if blocks come in pairs.
    /// `after` gets the number and the output of each, of a pair those of the second.
    pub(crate) fn through_blocks(
        &self,
        tokens: &Tokens,
        count: usize,
        drops: Option<&DropPathMask>,
        mut after: impl FnMut(usize, &Tensor<3>),
    ) -> Result<Stream, KernelError> {
        let drop = |place, hidden: Tensor<3>| match drops {
            Some(drops) => drops.apply(place, hidden),
            None => hidden,
        };
        let device = tokens.embedded.device();
        // Around single blocks the original rotates positions as they were before the order was
        // reversed, around pairs as they are.
        let flipped = tokens.flipped && !self.config.layer_pairs;
        let rotation = Rotation::new(&self.config, flipped, &device);
        let mut stream = Stream { hidden: tokens.embedded.clone(), residual: None };
        let step = if self.config.layer_pairs { 2 } else { 1 };
        for (i, blocks) in self.layers[..count].chunks(step).enumerate() {
            if let Some(rotation) = &rotation {
                stream = stream.rotated(rotation, self.config.rope);
            }
            let Stream { hidden, residual } = stream;
            let place = i * step;
            stream = match blocks {
                [first, second] => {
                    let (f, sum_f) =
                        first.forward(drop(place, hidden.clone()), residual.clone())?;
                    let (b, sum_b) = second.forward(
                        drop(place + 1, hidden.flip([1])),
                        residual.map(|residual| residual.flip([1])),
                    )?;
                    let residual = Some(sum_f + sum_b.flip([1]));
                    Stream { hidden: f + b.flip([1]), residual }
                }
                _ => {
                    let (mixed, sum) = blocks[0].forward(drop(place, hidden), residual)?;
                    Stream { hidden: mixed, residual: Some(sum) }
                }
            };
            after(place + step - 1, &stream.hidden);
        }
        Ok(stream)
    }

    /// The normalized sum of a stream's two parts, `[B, L, M]`.
    fn normed(
        &self,
        stream: Stream,
        drops: Option<&DropPathMask>,
    ) -> Result<Tensor<3>, KernelError> {
        let hidden = match drops {
            Some(drops) => drops.apply(self.layers.len(), stream.hidden),
            None => stream.hidden,
        };
        // The head's input is f32 in every precision.
        let hidden = hidden.cast(FloatDType::F32);
        let (normed, _) = self.norm_f.forward(hidden, stream.residual, self.config.ssm.scan)?;
        Ok(normed)
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

    fn rotated(self, rotation: &Rotation, what: Rope) -> Self {
        let residual = if what == Rope::Both {
            self.residual.map(|residual| rotation.apply(residual))
        } else {
            self.residual
        };
        Self { hidden: rotation.apply(self.hidden), residual }
    }
}
