//! Sizes that follow from the others, in closed form.

use super::model::VimConfig;
use super::ssm::StateMatrix;
use super::values::LayerScale;
use super::variant::{Bimamba, NormKind};

impl VimConfig {
    /// Channels inside the mixer.
    #[must_use]
    pub fn d_inner(&self) -> usize {
        self.expand * self.d_model
    }

    /// Rank of the delta projection.
    #[must_use]
    pub fn dt_rank(&self) -> usize {
        self.dt_rank.rank(self.d_model)
    }

    /// Rows and columns of patches.
    #[must_use]
    pub fn grid(&self) -> [usize; 2] {
        [self.image_size.height, self.image_size.width]
            .map(|side| (side - self.patch_size) / self.stride() + 1)
    }

    /// Patches.
    #[must_use]
    pub fn num_patches(&self) -> usize {
        let [rows, columns] = self.grid();
        rows * columns
    }

    /// Class tokens: none, one or two.
    #[must_use]
    pub fn num_class_tokens(&self) -> usize {
        self.class_token.positions(self.num_patches()).len()
    }

    /// Tokens: patches and class tokens.
    #[must_use]
    pub fn num_tokens(&self) -> usize {
        self.num_patches() + self.num_class_tokens()
    }

    /// Where the class tokens stand in evaluation, in the order of the tokens.
    #[must_use]
    pub fn class_token_positions(&self) -> Vec<usize> {
        self.class_token.positions(self.num_patches())
    }

    /// Trainable numbers of the model that [`VimConfig::init`] builds.
    #[must_use]
    pub fn num_parameters(&self) -> usize {
        let d_model = self.d_model;
        let patches = 3 * self.patch_size * self.patch_size * d_model + d_model;
        let positions = if self.abs_pos_embed { self.num_tokens() } else { 0 };
        let tokens = (positions + self.num_class_tokens()) * d_model;
        let head = d_model * self.num_classes + self.num_classes;
        let norm = self.norm_parameters();
        patches + tokens + self.depth * (self.mixer_parameters() + norm) + norm + head
    }

    /// Of one norm.
    fn norm_parameters(&self) -> usize {
        match self.norm {
            NormKind::Rms => self.d_model,
            NormKind::Layer => 2 * self.d_model,
        }
    }

    /// Of one mixer.
    fn mixer_parameters(&self) -> usize {
        let (d_model, d_inner, dt_rank) = (self.d_model, self.d_inner(), self.dt_rank());
        let rate = match self.ssm.a {
            StateMatrix::Diagonal => d_inner * self.d_state,
            StateMatrix::Full => d_inner * self.d_state * (1 + self.d_state),
        };
        let conv1d = d_inner * self.d_conv + d_inner;
        let x_proj = d_inner * (dt_rank + 2 * self.d_state);
        let dt_proj = dt_rank * d_inner + d_inner;
        let direction = rate + d_inner + conv1d + x_proj + dt_proj;
        let directions = match self.bimamba {
            Bimamba::None => direction,
            Bimamba::V1 => direction + rate,
            Bimamba::V2 => 2 * direction,
        };
        let gamma = match self.layer_scale {
            LayerScale::None => 0,
            LayerScale::Starts(_) => d_model,
        };
        d_model * 2 * d_inner + directions + d_inner * d_model + gamma
    }
}
