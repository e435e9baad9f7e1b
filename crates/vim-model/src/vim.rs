//! The classifier: how it is built, and its forward passes.

use std::marker::PhantomData;

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Device, FloatDType, Tensor};
use vim_kernels::{
    ImageFactors, KernelError, MixerWeights, Precision, PreparedMixers, Recompute, linear,
    prepare_mixers,
};

use crate::block::{Block, BlockConfig, DropPathMask, Norm, rates};
use crate::config::{ClassToken, ModelError, Pool, Rope, VimConfig};
use crate::embed::{PatchEmbed, Tokens};
use crate::init::{Rule, Scope};
use crate::mixer::Mixer;
use crate::record::{BlockRecorder, Recorder};
use crate::rng::Draw;
use crate::rope::Rotation;

/// Vision Mamba: patches and class tokens → positions → blocks → norm → head.
///
/// Built by [`VimConfig::init`] or [`import_pytorch`](crate::import_pytorch). The configuration
/// determines the optional fields.
///
/// # Source
///
/// Zhu et al. 2024; the original's `VisionMamba`.
#[derive(Module, Debug)]
pub struct Vim {
    /// Image → patches.
    pub patch_embed: PatchEmbed,
    /// The token that the head reads, `[1, 1, M]`; absent if there are two or none.
    pub cls_token: Option<Param<Tensor<3>>>,
    /// Of two class tokens the one before the patches, `[1, 1, M]`.
    pub cls_token_head: Option<Param<Tensor<3>>>,
    /// The one after them, `[1, 1, M]`.
    pub cls_token_tail: Option<Param<Tensor<3>>>,
    /// Added to all tokens by position, `[1, L, M]`.
    pub pos_embed: Option<Param<Tensor<3>>>,
    /// One after the other.
    pub layers: Vec<Block>,
    /// After the last block.
    pub norm_f: Norm,
    /// `M` → `K`; absent in a [backbone](VimConfig::init_backbone).
    pub head: Option<Linear>,
    /// The configuration that the model was built from.
    #[module(skip)]
    pub(crate) config: VimConfig,
    /// What keeps things on the way.
    #[module(skip)]
    pub(crate) recorder: Option<Recorder>,
}

impl VimConfig {
    /// Builds the model, every value a function of `seed`.
    ///
    /// # Errors
    ///
    /// [`ModelError::Range`] names a value that cannot be built, [`ModelError::Conflict`] two that
    /// do not go together; [`ModelError::Kernel`] if `ssm.scan` forces a kernel that `device`
    /// lacks.
    pub fn init(&self, device: &Device, seed: u64) -> Result<Vim, ModelError> {
        self.check()?;
        let headless = self.init_backbone(device, seed)?;
        let head = Scope::root(device, seed).child("head").linear(
            [self.d_model, self.num_classes],
            Rule::SMALL_NORMAL,
            Some(Rule::Constant(0.0)),
        );
        Ok(Vim { head: Some(head), config: self.clone(), ..headless })
    }

    /// Every block of the model.
    #[must_use]
    pub fn block(&self) -> BlockConfig {
        BlockConfig { norm: self.norm(), mixer: self.mixer() }
    }

    /// Builds the model without a head, for other tasks: the same values as [`VimConfig::init`],
    /// whatever `num_classes` is, which is 0 in the model's own configuration.
    ///
    /// # Errors
    ///
    /// As [`VimConfig::init`].
    pub fn init_backbone(&self, device: &Device, seed: u64) -> Result<Vim, ModelError> {
        self.check_backbone()?;
        self.ssm.scan.resolve(device)?;
        let scope = Scope::root(device, seed);
        let (d_model, layers) = (self.d_model, scope.child("layers"));
        let token = |name| scope.param(name, [1, 1, d_model], Rule::SMALL_NORMAL);
        let positions =
            || scope.param("pos_embed", [1, self.num_tokens(), d_model], Rule::SMALL_NORMAL);
        let double = self.class_token == ClassToken::Double;
        let block = |i: usize| self.block().init_in(&layers.child(&i.to_string()));
        Ok(Vim {
            patch_embed: self.patch_embed().init_in(&scope.child("patch_embed")),
            cls_token: (self.num_class_tokens() == 1).then(|| token("cls_token")),
            cls_token_head: double.then(|| token("cls_token_head")),
            cls_token_tail: double.then(|| token("cls_token_tail")),
            pos_embed: self.abs_pos_embed.then(positions),
            layers: (0..self.depth).map(block).collect(),
            norm_f: self.norm().init_in(&scope.child("norm_f")),
            head: None,
            config: Self { num_classes: 0, ..self.clone() },
            recorder: None,
        })
    }
}

impl Vim {
    /// The configuration that the model was built from.
    #[must_use]
    pub fn config(&self) -> &VimConfig {
        &self.config
    }

    /// The same model, multiplying in `precision`. Its weights stay f32.
    ///
    /// # Errors
    ///
    /// [`KernelError::NoPrecision`] if the model's device does not multiply in `precision`.
    pub fn with_precision(mut self, precision: Precision) -> Result<Self, KernelError> {
        precision.check(&self.norm_f.weight.val().device())?;
        self.patch_embed.precision = precision;
        for block in &mut self.layers {
            block.mixer.precision = precision;
        }
        Ok(self)
    }

    /// The same model, whose backward pass computes again what `recompute` says, on a CPU and with
    /// CUDA; the numbers are the same to the bit. On a GPU [`Recompute::States`] takes two fifths
    /// less memory than [`Recompute::Inputs`], and a step a seventh more time.
    #[must_use]
    pub fn with_recompute(mut self, recompute: Recompute) -> Self {
        for block in &mut self.layers {
            block.mixer.recompute = recompute;
        }
        self
    }

    /// Whether [`with_recompute`](Self::with_recompute) changes anything on `device`: where one
    /// operation computes both directions.
    #[must_use]
    pub fn can_recompute(&self, device: &Device) -> bool {
        self.layers.iter().all(|block| block.mixer.is_fused(device))
    }
}

impl Vim {
    /// The same model, whose passes leave their scans in `recorder`. They run direction by
    /// direction: no kernel computes both at once, which has no such tensors.
    ///
    /// # Errors
    ///
    /// [`KernelError::Method`] of a model whose A is full.
    pub fn with_recorder(mut self, recorder: &Recorder) -> Result<Self, KernelError> {
        let (flipped, pairs) = (self.flips(None), self.config().layer_pairs);
        for (block, layer) in self.layers.iter_mut().enumerate() {
            if layer.mixer.forward.a_off.is_some() {
                let method = layer.mixer.forward.scan_options.method.into();
                let operation = "hidden attention";
                return Err(KernelError::Method { operation, method, what: "a full A" });
            }
            let flipped = flipped != (pairs && block % 2 == 1);
            layer.mixer.recorder =
                Some(BlockRecorder { recorder: recorder.clone(), block, flipped });
        }
        self.recorder = Some(recorder.clone());
        Ok(self)
    }
}

impl Vim {
    /// Logits in evaluation: nothing is drawn.
    ///
    /// A pass of few images takes a GPU less time than the host needs to launch it;
    /// [`vim_kernels::Graph`] records it once and launches it as a whole.
    ///
    /// # Shapes
    ///
    /// - `images`: `[B, 3, H, W]`, of the model's `image_size`, normalized
    /// - result: `[B, K]`; of a model without a head what it would read, `[B, M]`
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
    /// step can be repeated; give every step and every worker its own seed. Shapes and errors are
    /// those of [`Vim::forward`].
    pub fn forward_train(&self, images: Tensor<4>, seed: u64) -> Result<Tensor<2>, KernelError> {
        self.forward_train_part(images, seed, 0)
    }

    /// [`Vim::forward_train`] of a part of a batch that begins at its image `first`: draws for an
    /// image are those of the whole batch.
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
        let stream = self.through_blocks(&tokens, self.layers.len(), None, |_, _| ())?;
        self.classes(self.normed(stream, None)?)
    }

    fn logits(&self, images: Tensor<4>, draw: Option<Draw>) -> Result<Tensor<2>, KernelError> {
        let tokens = self.tokens(images, draw)?;
        let [batch, _, _] = tokens.embedded.dims();
        let depth = self.layers.len();
        let drops = self.drops(draw, &tokens);
        let drops = drops.as_ref();
        let stream = self.through_blocks(&tokens, depth, drops, |_, _| ())?;
        let read = self.read_by_head(stream, &tokens.class, drops)?;
        let logits = match (&tokens.class[..], self.config.pool()) {
            ([], Pool::Max) => self.classes(read)?.max_dim(1),
            (class, _) => self.classes(self.pooled(read, class))?,
        };
        let [_, _, width] = logits.dims();
        Ok(logits.reshape([batch, width]))
    }

    /// The blocks' outputs that a pass over `tokens` drops, if it draws.
    pub(crate) fn drops(&self, draw: Option<Draw>, tokens: &Tokens) -> Option<DropPathMask> {
        let [batch, _, _] = tokens.embedded.dims();
        let rates = rates(self.layers.len(), self.config.drop_path);
        draw.map(|draw| DropPathMask::draw(rates, draw, batch, &tokens.embedded.device()))
    }

    /// The tokens of `stream` that the head reads, normalized: those at `class`, or, without class
    /// tokens, the last one or all.
    pub(crate) fn read_by_head(
        &self,
        stream: Stream,
        class: &[usize],
        drops: Option<&DropPathMask>,
    ) -> Result<Tensor<3>, KernelError> {
        let [_, len, _] = stream.hidden.dims();
        // Only tokens that the head reads are summed and normalized.
        let read = match (class, self.config.pool()) {
            ([_, ..], _) => stream.select(class),
            ([], Pool::Last) => stream.select(&[len - 1]),
            ([], Pool::Mean | Pool::Max) => stream,
        };
        self.normed(read, drops)
    }

    /// One token, `[B, 1, M]`, for those that the head reads: their mean where there are several.
    pub(crate) fn pooled(&self, read: Tensor<3>, class: &[usize]) -> Tensor<3> {
        match (class, self.config.pool()) {
            ([_, _], _) | ([], Pool::Mean | Pool::Max) => read.mean_dim(1),
            ([_, ..], _) | ([], Pool::Last) => read,
        }
    }

    /// Logits of each of `tokens`, `[B, L, M]`, in f32 for every precision of the model; without a
    /// head the tokens.
    fn classes(&self, tokens: Tensor<3>) -> Result<Tensor<3>, KernelError> {
        let Some(head) = &self.head else { return Ok(tokens) };
        let bias = head.bias.as_ref().map(Param::val);
        linear(tokens, head.weight.val(), bias, Precision::F32)
    }

    /// Takes tokens through the first `count` blocks, an even number if blocks come in pairs.
    /// `after` gets the number of each, of a pair that of the second, and the stream after it.
    pub(crate) fn through_blocks(
        &self,
        tokens: &Tokens,
        count: usize,
        drops: Option<&DropPathMask>,
        mut after: impl FnMut(usize, &Stream),
    ) -> Result<Stream, KernelError> {
        let factors = |place| drops.and_then(|drops| drops.at(place));
        let device = tokens.embedded.device();
        let blocks = &self.layers[..count];
        let prepared = PreparedWeights::new(blocks, &device);
        // Around single blocks the original rotates positions as they were before the order was
        // reversed, around pairs as they are.
        let flipped = tokens.flipped && !self.config.layer_pairs;
        let rotation = Rotation::new(&self.config, flipped, &device);
        let mut stream = Stream { hidden: tokens.embedded.clone(), residual: None };
        let step = if self.config.layer_pairs { 2 } else { 1 };
        for (i, blocks) in blocks.chunks(step).enumerate() {
            let place = i * step;
            if let Some(rotation) = &rotation {
                stream = stream.rotated(rotation, self.config.rope)?;
            }
            let Stream { hidden, residual } = stream;
            let recorder = self.recorder.as_ref();
            let cut = recorder.and_then(|to| to.cut(place, &hidden, residual.as_ref()));
            let (hidden, residual) = match cut {
                Some(cut) => (cut, None),
                None => (hidden, residual),
            };
            stream = match blocks {
                [first, second] => {
                    let (f, sum_f) =
                        first.forward_dropped(hidden.clone(), factors(place), residual.clone())?;
                    let (b, sum_b) = second.forward_dropped(
                        hidden.flip([1]),
                        factors(place + 1),
                        residual.map(|residual| residual.flip([1])),
                    )?;
                    let residual = Some(sum_f + sum_b.flip([1]));
                    Stream { hidden: f + b.flip([1]), residual }
                }
                _ => {
                    let (mixed, sum) =
                        blocks[0].forward_dropped(hidden, factors(place), residual)?;
                    Stream { hidden: mixed, residual: Some(sum) }
                }
            };
            after(place + step - 1, &stream);
        }
        std::mem::drop(prepared);
        Ok(stream)
    }

    /// The normalized sum of a stream's two parts, `[B, L, M]`.
    pub(crate) fn normed(
        &self,
        stream: Stream,
        drops: Option<&DropPathMask>,
    ) -> Result<Tensor<3>, KernelError> {
        let factors = drops.and_then(|drops| drops.at(self.layers.len()));
        let hidden = ImageFactors::apply(factors, stream.hidden);
        // The head's input is f32 in every precision.
        let hidden = hidden.cast(FloatDType::F32);
        let (normed, _) =
            self.norm_f.forward(hidden, None, stream.residual, self.config.ssm.scan)?;
        Ok(normed)
    }
}

/// What kernels take of the weights of all mixers, made at once where one operation computes both
/// directions of each. While it lives, the mixers' operations on this thread find it by the
/// addresses of their weights, which it borrows: they must not change meanwhile.
struct PreparedWeights<'a> {
    _by_address: Option<PreparedMixers>,
    _weights: PhantomData<&'a [Block]>,
}

impl<'a> PreparedWeights<'a> {
    fn new(blocks: &'a [Block], device: &Device) -> Self {
        let precision = blocks.first().map(|block| block.mixer.precision);
        let alike = |block: &Block| {
            let mixer = &block.mixer;
            mixer.is_fused(device) && Some(mixer.precision) == precision
        };
        let weights = |block: &Block| {
            let Mixer { in_proj, forward, backward, out_proj, .. } = &block.mixer;
            let backward = backward.as_ref().expect("invariant: a fused mixer has two directions");
            MixerWeights {
                in_proj: in_proj.weight.val(),
                out_proj: out_proj.weight.val(),
                directions: [forward.weights(), backward.weights()],
            }
        };
        let precision = precision.filter(|_| blocks.iter().all(alike));
        let prepare = |precision| prepare_mixers(device, blocks.iter().map(weights), precision);
        Self { _by_address: precision.map(prepare), _weights: PhantomData }
    }
}

/// The tensors between two blocks.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    /// The last block's output, `[B, L, M]`.
    pub(crate) hidden: Tensor<3>,
    /// The sum of the outputs before it; absent before the first block.
    pub(crate) residual: Option<Tensor<3>>,
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

    fn rotated(self, rotation: &Rotation, what: Rope) -> Result<Self, KernelError> {
        let residual = match self.residual {
            Some(residual) if what == Rope::Both => Some(rotation.apply(residual)?),
            unchanged => unchanged,
        };
        Ok(Self { hidden: rotation.apply(self.hidden)?, residual })
    }
}
