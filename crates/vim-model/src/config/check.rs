//! What can be built.

use vim_kernels::{Discretization, KernelError, MAX_FULL_STATES};

use super::model::{MixerConfig, SsmConfig, VimConfig};
use super::values::{ImageSize, LayerScale};
use super::variant::{Bimamba, ClassToken, GateGradient, Rope, StateMatrix};

/// The most channels between layers, and the most that a mixer multiplies them by: products of the
/// largest sizes can still be counted.
pub(crate) const MOST_CHANNELS: usize = 65_536;
const MOST_EXPANDED: usize = 64;
/// What a full A can be scanned with.
const ONLY_BILINEAR: &str = "\"bilinear\", the one method for ssm.a = \"full\"";

/// A model description that cannot be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// A value outside its range.
    #[error("model.{key}: {value} is out of range ({expected})")]
    Range {
        /// The key in `[model]`, or the field of a layer's configuration.
        key: &'static str,
        /// What it was set to.
        value: String,
        /// What would do.
        expected: String,
    },
    /// A value that does not go with another one.
    #[error("{key}: {value} does not go with {other}: {reason}")]
    Conflict {
        /// The key with its section, such as `model.rope`, or the field with its configuration.
        key: &'static str,
        /// What it was set to.
        value: String,
        /// The other key and its value.
        other: String,
        /// Why not, and what would do.
        reason: String,
    },
    /// The implementation that `ssm.scan` forces does not exist on the device.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

pub(crate) fn range(
    key: &'static str,
    value: &dyn ToString,
    expected: &str,
) -> Result<(), ModelError> {
    Err(ModelError::Range { key, value: value.to_string(), expected: expected.to_string() })
}

pub(crate) fn conflict(
    key: &'static str,
    value: &dyn ToString,
    other: impl Into<String>,
    reason: impl Into<String>,
) -> Result<(), ModelError> {
    let (value, other, reason) = (value.to_string(), other.into(), reason.into());
    Err(ModelError::Conflict { key, value, other, reason })
}

/// Refuses the first of some sizes that is 0 or more than its most.
pub(crate) fn check_sizes<const N: usize>(
    sizes: [(&'static str, usize, usize); N],
) -> Result<(), ModelError> {
    for (key, value, most) in sizes {
        if value == 0 {
            return range(key, &value, "at least 1");
        }
        if value > most {
            return range(key, &value, &format!("at most {most}"));
        }
    }
    Ok(())
}

impl VimConfig {
    /// This model with a head of `num_classes`, checked.
    ///
    /// # Errors
    ///
    /// As [`VimConfig::check`].
    pub fn with_classes(&self, num_classes: usize) -> Result<Self, ModelError> {
        let config = Self { num_classes, ..self.clone() };
        config.check()?;
        Ok(config)
    }

    /// Checks every value, and that the values go together.
    ///
    /// # Errors
    ///
    /// [`ModelError::Range`] names the first key whose value cannot be built,
    /// [`ModelError::Conflict`] the first that another one rules out.
    pub fn check(&self) -> Result<(), ModelError> {
        check_sizes([("num_classes", self.num_classes, usize::MAX)])?;
        self.check_backbone()
    }

    /// [`VimConfig::check`] of all but the number of classes.
    ///
    /// # Errors
    ///
    /// As [`VimConfig::check`].
    pub fn check_backbone(&self) -> Result<(), ModelError> {
        self.check_unused()?;
        self.check_sizes()?;
        self.check_numbers()?;
        self.block().check()?;
        self.check_rope()?;
        if self.dropout > 0.0 && !self.abs_pos_embed {
            let reason = "numbers are dropped where positions are added, and nowhere else";
            return conflict("model.dropout", &self.dropout, "model.abs_pos_embed = false", reason);
        }
        if self.layer_pairs && self.depth % 2 == 1 {
            let reason = "an even number of blocks makes pairs";
            let other = format!("model.depth = {}", self.depth);
            return conflict("model.layer_pairs", &true, other, reason);
        }
        Ok(())
    }

    /// Refuses keys that have no effect beside the others.
    fn check_unused(&self) -> Result<(), ModelError> {
        if let Some(pool) = self.pool
            && self.class_token != ClassToken::None
        {
            let other = format!("model.class_token = \"{}\"", self.class_token);
            let reason = "the head reads the class token; pooling needs class_token = \"none\"";
            return conflict("model.pool", &pool, other, reason);
        }
        if let Some(grid) = self.rope_grid
            && self.rope == Rope::None
        {
            let reason = "there are no rotary positions to scale";
            return conflict("model.rope_grid", &grid, "model.rope = \"none\"", reason);
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<(), ModelError> {
        let ImageSize { height, width } = self.image_size;
        if height.min(width) < self.patch_size {
            let least = format!("at least patch_size = {}", self.patch_size);
            return range("image_size", &self.image_size, &least);
        }
        self.patch_embed().check()?;
        check_sizes([
            ("image_size", height.max(width), 65_536),
            ("rope_grid", self.rope_grid(), usize::MAX),
        ])
    }

    fn check_numbers(&self) -> Result<(), ModelError> {
        if !(0.0..1.0).contains(&self.drop_path) {
            return range("drop_path", &self.drop_path, "0 <= drop_path < 1");
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return range("dropout", &self.dropout, "0 <= dropout < 1");
        }
        if !(0.0..=1.0).contains(&self.flip_ratio) {
            return range("flip_ratio", &self.flip_ratio, "0 <= flip_ratio <= 1");
        }
        Ok(())
    }

    /// Where the original's rotary positions have the shape of its tokens.
    fn check_rope(&self) -> Result<(), ModelError> {
        if self.rope == Rope::None {
            return Ok(());
        }
        let side = self.image_size.height / self.patch_size;
        for (fits, other, reason) in [
            (
                self.class_token != ClassToken::Double,
                format!("model.class_token = \"{}\"", self.class_token),
                "rotary positions are for the patches and at most one token before them",
            ),
            (
                self.image_size.side().is_some(),
                format!("model.image_size = {}", self.image_size),
                "rotary positions are for square images",
            ),
            (
                self.d_model.is_multiple_of(4),
                format!("model.d_model = {}", self.d_model),
                "rows and columns each turn pairs of channels: a multiple of 4",
            ),
            (
                self.grid() == [side, side],
                format!("model.stride = {}", self.stride()),
                "there is one rotary position for each patch that touches its neighbours",
            ),
            (
                side.is_multiple_of(2),
                format!("a grid of {side} x {side} patches"),
                "an odd number of patches is taken for a class token and the others",
            ),
        ] {
            if !fits {
                return conflict("model.rope", &self.rope, other, reason);
            }
        }
        Ok(())
    }
}

impl MixerConfig {
    pub(crate) fn check(&self) -> Result<(), ModelError> {
        check_sizes([
            ("depth", self.depth, 4096),
            ("d_model", self.d_model, MOST_CHANNELS),
            ("expand", self.expand, MOST_EXPANDED),
        ])?;
        if let LayerScale::Starts(value) = self.layer_scale
            && !value.is_finite()
        {
            return range("layer_scale", &value, "\"none\" or a finite number");
        }
        if self.divide_out == Some(true) && self.bimamba != Bimamba::V2 {
            let other = format!("model.bimamba = \"{}\"", self.bimamba);
            let reason = "only \"v2\" halves its sum; leave divide_out out";
            return conflict("model.divide_out", &true, other, reason);
        }
        self.ssm.check(self.discretization, self.bimamba)?;
        self.check_direction()
    }

    /// Checks what a direction is built from.
    fn check_direction(&self) -> Result<(), ModelError> {
        check_sizes([
            ("d_inner", self.d_inner(), MOST_CHANNELS * MOST_EXPANDED),
            ("d_state", self.d_state, usize::MAX),
            ("dt_rank", self.dt_rank(), MOST_CHANNELS),
        ])?;
        if !(2..=4).contains(&self.d_conv) {
            return range("d_conv", &self.d_conv, "2 to 4");
        }
        if self.d_state > 256 {
            return range("d_state", &self.d_state, "1 to 256");
        }
        if self.ssm.a == StateMatrix::Full && self.d_state > MAX_FULL_STATES {
            let most = format!("1 to {MAX_FULL_STATES} with ssm.a = \"full\"");
            return range("d_state", &self.d_state, &most);
        }
        Ok(())
    }
}

impl SsmConfig {
    /// Checks that the values go together, and with the model's.
    pub(crate) fn check(
        &self,
        discretization: Discretization,
        bimamba: Bimamba,
    ) -> Result<(), ModelError> {
        let ways = [("ssm.method_fwd", self.method_fwd), ("ssm.method_bwd", self.method_bwd)];
        let methods = [("model.discretization", Some(discretization))].into_iter().chain(ways);
        for (key, method) in methods {
            if let Some(method) = method.filter(|method| !method.series().contains(&self.series)) {
                let other = format!("ssm.series = \"{}\"", self.series);
                let reason = "no truncation of it is published: use \"exact\"";
                return conflict(key, &method, other, reason);
            }
        }
        if self.a == StateMatrix::Full {
            if discretization != Discretization::Bilinear {
                return range("discretization", &discretization, ONLY_BILINEAR);
            }
            for (key, method) in ways {
                if let Some(method) = method
                    && method != Discretization::Bilinear
                {
                    let reason = format!("use {ONLY_BILINEAR}");
                    return conflict(key, &method, "ssm.a = \"full\"", reason);
                }
            }
        }
        let other = || format!("model.bimamba = \"{bimamba}\"");
        if let Some(gradient) = self.v1_gate_gradient
            && bimamba != Bimamba::V1
        {
            let value = match gradient {
                GateGradient::Exact => "\"exact\"",
                GateGradient::Upstream => "\"upstream\"",
            };
            let reason = "it is for \"v1\"; leave it out";
            return conflict("ssm.v1_gate_gradient", &value, other(), reason);
        }
        if let (Some(method), Bimamba::None) = (self.method_bwd, bimamba) {
            return conflict("ssm.method_bwd", &method, other(), "there is no backward way");
        }
        Ok(())
    }
}
