//! Images to the sequence that the blocks see: patches, class tokens, positions, and its order.

use burn::tensor::Tensor;
use vim_kernels::KernelError;

use crate::config::ClassToken;
use crate::dropout;
use crate::rng::{Draw, keyed, unit};
use crate::vim::Vim;

/// Added to a draw before the original compares it with `flip_ratio`: at a ratio of 1 all but one
/// draw in 10⁵ flip.
const FLIP_MARGIN: f64 = 1e-5;

/// A batch of sequences.
#[derive(Clone, Debug)]
pub(crate) struct Tokens {
    /// `[B, L, M]`, in the order in which the blocks see them.
    pub(crate) embedded: Tensor<3>,
    /// Positions of the class tokens before the order was reversed.
    pub(crate) class: Vec<usize>,
    /// Whether the order was reversed.
    pub(crate) flipped: bool,
}

impl Vim {
    /// Embeds `images`, `[B, 3, H, W]`; `draw` draws what training draws.
    pub(crate) fn tokens(
        &self,
        images: Tensor<4>,
        draw: Option<Draw>,
    ) -> Result<Tokens, KernelError> {
        let [batch, channels, height, width] = images.dims();
        let size = self.config.image_size;
        if [channels, height, width] != [3, size.height, size.width] {
            return Err(KernelError::Shape {
                operation: "Vim",
                tensor: "images",
                got: images.dims().to_vec(),
                expected: format!("[B, 3, {}, {}]: image_size", size.height, size.width),
            });
        }
        let patches = self.patch_embed.forward(images)?;
        let [_, _, d_model] = patches.dims();
        let class = self.class_positions(draw);
        let mut tokens = self.with_class_tokens(patches, &class);
        if let Some(positions) = &self.pos_embed {
            tokens = tokens + positions.val();
        }
        if let Some(draw) = draw
            && self.config.dropout > 0.0
        {
            let shape = [batch, self.config.num_tokens(), d_model];
            let device = tokens.device();
            tokens = tokens * dropout::factors(draw, self.config.dropout, shape, &device);
        }
        let flipped = self.flips(draw);
        let embedded = if flipped { tokens.flip([1]) } else { tokens };
        Ok(Tokens { embedded, class, flipped })
    }

    /// Positions of the class tokens in this pass.
    fn class_positions(&self, draw: Option<Draw>) -> Vec<usize> {
        match (self.config.class_token, draw) {
            (ClassToken::Random, Some(Draw { seed, .. })) => {
                let places = self.config.num_patches() + 1;
                let draw = unit(&mut keyed(b"vim-model: place", seed, 0));
                vec![((draw * places as f64) as usize).min(places - 1)]
            }
            _ => self.config.class_token_positions(),
        }
    }

    /// Whether this pass sees the tokens reversed. In training it is drawn; in evaluation, which
    /// draws nothing, it is so if training (almost) always does.
    fn flips(&self, draw: Option<Draw>) -> bool {
        let ratio = self.config.flip_ratio;
        match draw {
            Some(Draw { seed, .. }) => {
                ratio - unit(&mut keyed(b"vim-model: flips", seed, 0)) > FLIP_MARGIN
            }
            None => ratio >= 1.0,
        }
    }

    /// The patches, `[B, P, M]`, with the class tokens among them.
    fn with_class_tokens(&self, patches: Tensor<3>, class: &[usize]) -> Tensor<3> {
        let [batch, num_patches, d_model] = patches.dims();
        let expand = |token: Tensor<3>| token.expand([batch, 1, d_model]);
        if let (Some(head), Some(tail)) = (&self.cls_token_head, &self.cls_token_tail) {
            return Tensor::cat(vec![expand(head.val()), patches, expand(tail.val())], 1);
        }
        let (Some(token), &[position]) = (&self.cls_token, class) else { return patches };
        let token = expand(token.val());
        let mut parts = Vec::with_capacity(3);
        if position > 0 {
            parts.push(patches.clone().slice([0..batch, 0..position]));
        }
        parts.push(token);
        if position < num_patches {
            parts.push(patches.slice([0..batch, position..num_patches]));
        }
        Tensor::cat(parts, 1)
    }
}
