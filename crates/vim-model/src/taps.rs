//! Features of blocks in training, for the heads of other tasks.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::Display;

use crate::embed::Tokens;
use crate::features::{FeatureError, without};
use crate::rng::Draw;
use crate::vim::{Stream, Vim};

/// Which tensor of a block is its feature.
#[derive(
    Clone, Copy, Debug, Default, Display, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Tapped {
    /// What the block puts out, before it is added to the residual stream.
    #[default]
    Hidden,
    /// The residual stream with the block's output: `use_residual_as_feature` in the original.
    Residual,
}

/// What the feature of the model's last block is where the residual stream is tapped: no block
/// follows that would add its output. The original's `last_layer_process`.
#[derive(
    Clone, Copy, Debug, Default, Display, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum LastTap {
    /// The block's output alone.
    #[default]
    None,
    /// The residual stream with it.
    Add,
    /// That through the model's last norm: `"add & norm"` in the original.
    AddNorm,
}

/// Which features a model gives to the heads of a dense task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taps {
    /// Numbers of blocks, from 0, ascending.
    pub blocks: Vec<usize>,
    /// Which tensor.
    pub what: Tapped,
    /// Of the last block.
    pub last: LastTap,
}

impl Vim {
    /// The features of `taps` for the patches: without class tokens, and in the order of the image.
    /// With a `draw` as in training, where block outputs are dropped; without one as in evaluation.
    ///
    /// The residual stream after block `i` is that which block `i + 1` begins with: its addition of
    /// block `i`'s output, which may be dropped, after the rotation of rotary positions. After the
    /// model's last block nothing is dropped and nothing is rotated.
    ///
    /// # Shapes
    ///
    /// - `images`: as [`Vim::forward`]
    /// - results, one for each of the blocks: `[B, G_h·G_w, M]`, row by row
    ///
    /// # Errors
    ///
    /// [`FeatureError::Block`] if there is no such block, if they do not ascend, or if blocks come
    /// in pairs and a feature would be half of a sum or lie within a pair;
    /// [`FeatureError::Kernel`] as [`Vim::forward`].
    ///
    /// # Source
    ///
    /// The original's `seg/backbone/vim.py`.
    pub fn tapped(
        &self,
        images: Tensor<4>,
        taps: &Taps,
        draw: Option<Draw>,
    ) -> Result<Vec<Tensor<3>>, FeatureError> {
        self.check_taps(taps)?;
        let Some(&last) = taps.blocks.last() else { return Ok(Vec::new()) };
        let depth = self.layers.len();
        let tokens = self.tokens(images, draw)?;
        let drops = self.drops(draw, &tokens);
        let count = match taps.what {
            Tapped::Hidden => last + 1,
            Tapped::Residual => depth.min(last + 2),
        };
        let mut found = Vec::with_capacity(taps.blocks.len());
        let stream = self.through_blocks(&tokens, count, drops.as_ref(), |number, stream| {
            let feature = match taps.what {
                Tapped::Hidden => {
                    taps.blocks.contains(&number).then(|| Some(stream.hidden.clone()))
                }
                Tapped::Residual => number
                    .checked_sub(1)
                    .is_some_and(|before| taps.blocks.contains(&before))
                    .then(|| stream.residual.clone()),
            };
            found.extend(feature.flatten());
        })?;
        if taps.what == Tapped::Residual && last + 1 == depth {
            found.push(self.last_tap(stream, taps.last)?);
        }
        Ok(found.into_iter().map(|feature| of_patches(feature, &tokens)).collect())
    }

    fn last_tap(&self, stream: Stream, last: LastTap) -> Result<Tensor<3>, FeatureError> {
        Ok(match (last, stream.residual) {
            (LastTap::None, _) | (LastTap::Add, None) => stream.hidden,
            (LastTap::Add, Some(residual)) => {
                residual.clone() + stream.hidden.cast(residual.dtype())
            }
            (LastTap::AddNorm, residual) => {
                self.normed(Stream { hidden: stream.hidden, residual }, None)?
            }
        })
    }

    /// Checks that the model has the features of `taps`.
    ///
    /// # Errors
    ///
    /// [`FeatureError::Block`], as [`Vim::tapped`].
    pub fn check_taps(&self, taps: &Taps) -> Result<(), FeatureError> {
        self.check_blocks(&taps.blocks)?;
        let wrong = |block, why: &str| FeatureError::Block { block, why: why.to_owned() };
        if let Some(pair) = taps.blocks.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(wrong(pair[1], "blocks are named once, in ascending order"));
        }
        if self.config().layer_pairs
            && taps.what == Tapped::Residual
            && let Some(&block) = taps.blocks.first()
        {
            return Err(wrong(block, "the stream of blocks that come in pairs is not tapped"));
        }
        Ok(())
    }

    /// The model whose parameters that no feature of `taps` depends on require no gradient: blocks
    /// behind the last one that is tapped, and the last norm unless a feature goes through it.
    ///
    /// An optimizer leaves them as they are, and checkpoints hold them.
    ///
    /// # Errors
    ///
    /// As [`Vim::check_taps`].
    pub fn frozen_behind(mut self, taps: &Taps) -> Result<Self, FeatureError> {
        self.check_taps(taps)?;
        let depth = self.layers.len();
        let reached = taps.blocks.last().map_or(0, |last| last + 1);
        let behind = self.layers.split_off(reached.min(depth));
        self.layers.extend(behind.into_iter().map(|block| block.map(&mut Freeze)));
        let is_normed =
            taps.what == Tapped::Residual && taps.last == LastTap::AddNorm && reached == depth;
        if !is_normed {
            self.norm_f = self.norm_f.map(&mut Freeze);
        }
        Ok(self)
    }
}

/// The patches of a feature in the order of the image.
fn of_patches(feature: Tensor<3>, tokens: &Tokens) -> Tensor<3> {
    let feature = if tokens.flipped { feature.flip([1]) } else { feature };
    if tokens.class.is_empty() { feature } else { without(feature, &tokens.class) }
}

/// Parameters that require no gradient.
struct Freeze;

impl ModuleMapper for Freeze {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.set_require_grad(false)
    }
}
