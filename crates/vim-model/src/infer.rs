//! What a checkpoint's shapes say about the model that it is of.

use std::collections::BTreeMap;

use vim_checkpoint::{Item, StateDict};
use vim_kernels::Discretization;

use crate::config::{ModelConfig, ModelError, SsmConfig, StateMatrix, VimConfig};
use crate::import::pytorch_key;

/// A model description found in a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Inferred {
    /// The sizes, every key set.
    pub model: ModelConfig,
    /// The numerics: defaults, but for what leaves a parameter behind.
    pub ssm: SsmConfig,
    /// Size of the head.
    pub num_classes: usize,
    /// What the shapes do not say, in words.
    pub assumed: String,
}

impl Inferred {
    /// The complete description.
    ///
    /// # Errors
    ///
    /// If such a model cannot be built.
    pub fn config(&self) -> Result<VimConfig, ModelError> {
        VimConfig::new(&self.model, self.ssm, self.num_classes)
    }
}

/// A checkpoint that is not of a Vision Mamba that can be recognised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InferError {
    /// A tensor that every model has is not there.
    #[error("has no {0}: it is not of a Vision Mamba, or has no complete one")]
    Missing(String),
    /// A tensor has the wrong shape for what it is.
    #[error("has {key} of shape {shape:?}, not {expected}")]
    Shape {
        /// Its name.
        key: String,
        /// Its shape.
        shape: Vec<usize>,
        /// What would do.
        expected: String,
    },
}

/// The largest number of blocks that is believed.
const MAX_DEPTH: usize = 10_000;

/// Finds the model that `state` is of, under our names or the original's.
///
/// The shapes leave open which image size and stride a grid of positions comes from: the patch's own
/// size is taken for the stride, unless another one makes it a model for 224 px, the original's size.
///
/// # Errors
///
/// [`InferError`] names the first tensor that is missing or that no model has in this shape.
pub fn infer(state: &StateDict) -> Result<Inferred, InferError> {
    let shapes = Shapes::of(state);
    let [d_model, _, patch_size, _] = shapes.get(
        "patch_embed.proj.weight",
        |&[m, c, h, w]| (m > 0 && c == 3 && h == w && h > 0).then_some([m, c, h, w]),
        "[d_model, 3, patch, patch]",
    )?;
    let [d_inner, d_state] = shapes.get(
        "layers.0.mixer.A_log",
        |&[d, n]| (d > 0 && n > 0 && d % d_model == 0).then_some([d, n]),
        "[expand · d_model, d_state]",
    )?;
    let [_, _, d_conv] = shapes.get(
        "layers.0.mixer.conv1d.weight",
        |&[d, one, w]| ((d, one) == (d_inner, 1)).then_some([d, one, w]),
        "[d_inner, 1, taps]",
    )?;
    let grid = shapes.get(
        "pos_embed",
        |&[one, tokens, m]| {
            let grid = tokens.checked_sub(1)?.isqrt();
            (one == 1 && m == d_model && grid > 0 && grid * grid + 1 == tokens).then_some(grid)
        },
        "[1, grid · grid + 1, d_model]",
    )?;
    let num_classes = shapes.get(
        "head.weight",
        |&[k, m]| (k > 0 && m == d_model).then_some(k),
        "[classes, d_model]",
    )?;
    let depth = shapes.depth();

    const USUAL_SIZE: usize = 224;
    let side = |stride: usize| (grid - 1) * stride + patch_size;
    let strides = (1..patch_size).rev().filter(|&stride| side(stride) == USUAL_SIZE);
    let stride = match strides.max() {
        Some(stride) if side(patch_size) != USUAL_SIZE && grid > 1 => stride,
        Some(_) | None => patch_size,
    };
    let is_full = shapes.0.contains_key("layers.0.mixer.forward.a_off");
    let model = ModelConfig {
        discretization: if is_full { Discretization::Bilinear } else { Discretization::Zoh },
        image_size: Some(side(stride)),
        patch_size: Some(patch_size),
        stride: Some(stride),
        depth: Some(depth),
        d_model: Some(d_model),
        d_state: Some(d_state),
        d_conv: Some(d_conv),
        expand: Some(d_inner / d_model),
        ..ModelConfig::default()
    };
    let a = if is_full { StateMatrix::Full } else { StateMatrix::Diagonal };
    let assumed = format!(
        "image_size {}, stride {stride}, discretization {}, series {}",
        side(stride),
        model.discretization,
        SsmConfig::default().series
    );
    let ssm = SsmConfig { a, ..SsmConfig::default() };
    Ok(Inferred { model, ssm, num_classes, assumed })
}

/// Shapes by the original's names, as it stores them.
struct Shapes(BTreeMap<String, Vec<usize>>);

impl Shapes {
    fn of(state: &StateDict) -> Self {
        let is_ours = state.iter().any(|(key, _)| key != pytorch_key(key));
        let shapes = state.iter().filter_map(|(key, item)| {
            let Item::Array(array) = item else { return None };
            let mut shape = array.shape.clone();
            if is_ours && shape.len() == 2 && key.ends_with(".weight") {
                shape.reverse(); // a linear layer's
            }
            Some((pytorch_key(key), shape))
        });
        Self(shapes.collect())
    }

    /// What `read` makes of the shape of `key`.
    fn get<const D: usize, T>(
        &self,
        key: &str,
        read: impl Fn(&[usize; D]) -> Option<T>,
        expected: &str,
    ) -> Result<T, InferError> {
        let shape = self.0.get(key).ok_or_else(|| InferError::Missing(key.to_owned()))?;
        shape.as_slice().try_into().ok().and_then(read).ok_or_else(|| InferError::Shape {
            key: key.to_owned(),
            shape: shape.clone(),
            expected: expected.to_owned(),
        })
    }

    /// One more than the largest number of a layer.
    fn depth(&self) -> usize {
        let number = |key: &String| key.strip_prefix("layers.")?.split('.').next()?.parse().ok();
        let numbers = self.0.keys().filter_map(number).filter(|&number: &usize| number < MAX_DEPTH);
        numbers.max().map_or(0, |last| last + 1)
    }
}
