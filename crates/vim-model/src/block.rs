//! One layer: add, norm, mixer.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use vim_kernels::KernelError;

use crate::config::{ModelError, VimConfig};
use crate::init::Scope;
use crate::mixer::{Mixer, MixerConfig};
use crate::norm::{Norm, NormConfig};

/// What a [`Block`] is built from.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockConfig {
    /// Before the mixer.
    pub norm: NormConfig,
    /// The only sub-layer.
    pub mixer: MixerConfig,
}

impl BlockConfig {
    /// Builds the block. Its values are a function of `seed`.
    ///
    /// # Errors
    ///
    /// [`ModelError`] as [`NormConfig::init`] and [`MixerConfig::init`].
    pub fn init(&self, device: &Device, seed: u64) -> Result<Block, ModelError> {
        self.norm.init(device)?;
        self.mixer.check(device)?;
        Ok(self.init_in(&Scope::root(device, seed)))
    }

    pub(crate) fn init_in(&self, scope: &Scope<'_>) -> Block {
        Block {
            norm: self.norm.init_in(&scope.child("norm")),
            mixer: self.mixer.init_in(&scope.child("mixer")),
        }
    }
}

impl VimConfig {
    /// Every norm of the model.
    #[must_use]
    pub fn norm(&self) -> NormConfig {
        NormConfig { d_model: self.d_model, kind: self.norm, epsilon: self.norm_eps }
    }

    /// Every block of the model.
    #[must_use]
    pub fn block(&self) -> BlockConfig {
        BlockConfig { norm: self.norm(), mixer: self.mixer() }
    }
}

/// Adds what comes in to the residual stream, and mixes the normalized sum.
#[derive(Module, Debug)]
pub struct Block {
    /// Before the mixer.
    pub norm: Norm,
    /// The only sub-layer: there is no MLP.
    pub mixer: Mixer,
}

impl Block {
    /// Takes the previous block's output and the residual stream to this block's.
    ///
    /// The sum is taken at the start of the next block, so that one kernel takes it and the norm;
    /// the first block has no residual yet.
    ///
    /// # Shapes
    ///
    /// - `hidden`, `residual`, and both results: `[B, L, M]`
    ///
    /// # Errors
    ///
    /// [`KernelError`] as [`Mixer::forward`] and [`Norm::forward`].
    pub fn forward(
        &self,
        hidden: Tensor<3>,
        residual: Option<Tensor<3>>,
    ) -> Result<(Tensor<3>, Tensor<3>), KernelError> {
        let choice = self.mixer.forward.scan_options.choice;
        let (normed, residual) = self.norm.forward(hidden, residual, choice)?;
        Ok((self.mixer.forward(normed)?, residual))
    }
}
