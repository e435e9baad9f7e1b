//! The model that a checkpoint's shapes belong to.

use std::collections::BTreeMap;
use std::fmt;

use vim_kernels::Discretization;
use vim_torch::{Item, StateDict};

use super::names::{ROPE_TABLES, pytorch_key};
use crate::config::{
    Bimamba, ClassToken, DtRank, LayerScale, NormKind, Pool, Rope, SsmConfig, StateMatrix,
    VimConfig,
};

/// A model description found in a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Inferred {
    /// Everything that the shapes determine; not checked.
    pub config: VimConfig,
    /// The values that the shapes do not determine.
    pub assumed: Vec<Assumption>,
}

/// A value that had to be assumed of weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumption {
    /// The key of a configuration, such as `discretization`.
    pub key: &'static str,
    /// Its value, as a configuration has it.
    pub value: String,
}

impl Assumption {
    /// That `key` is `value`.
    pub fn new(key: &'static str, value: impl fmt::Display) -> Self {
        Self { key, value: value.to_string() }
    }
}

impl fmt::Display for Assumption {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.key, self.value)
    }
}

/// A checkpoint that is not of a Vision Mamba that can be recognised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InferError {
    /// A tensor that every model has is not there.
    #[error("has no {0}: it is not of a Vision Mamba, or has no complete one")]
    Missing(String),
    /// A tensor that every model has is of another type than floats.
    #[error("has {key} as {what}, not as floats: no weights of this type are read")]
    Unreadable {
        /// Its name.
        key: String,
        /// What is there.
        what: String,
    },
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

/// The largest number of blocks that is accepted.
const MAX_DEPTH: usize = 10_000;

/// The side of the original's images.
const USUAL_SIZE: usize = 224;

/// Finds the model that `state` is of, under our names or the original's.
///
/// The shapes do not determine the image size and stride of a grid of positions: the stride is
/// taken to be the patch size, unless another one makes it a model for 224 px, the original's size.
/// Neither do they determine where a class token stands, what is pooled without one, and what
/// rotary positions rotate; [`Inferred::assumed`] lists the assumptions.
///
/// # Errors
///
/// [`InferError`] names the first tensor that is missing or that no model has in this shape.
pub fn infer(state: &StateDict) -> Result<Inferred, InferError> {
    inferred(&Shapes::of(state, ""), None)
}

/// Finds the backbone, whose names begin with `prefix`, of the model that `state` is of, as
/// [`infer`] does. Its patches touch, it has no classes, and rotary positions, if there are some,
/// rotate what `rope` says.
///
/// # Errors
///
/// As [`infer`], with names below `prefix`.
pub fn infer_backbone(state: &StateDict, prefix: &str, rope: Rope) -> Result<Inferred, InferError> {
    inferred(&Shapes::of(state, prefix), Some(rope))
}

/// Of a classifier, or of a `backbone` whose rotary positions rotate this.
fn inferred(shapes: &Shapes, backbone: Option<Rope>) -> Result<Inferred, InferError> {
    let is_backbone = backbone.is_some();
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
    let dt_rank = shapes.get(
        "layers.0.mixer.dt_proj.weight",
        |&[d, r]| (d == d_inner && r > 0).then_some(r),
        "[d_inner, dt_rank]",
    )?;
    let num_classes = if is_backbone {
        0
    } else {
        shapes.get(
            "head.weight",
            |&[k, m]| (k > 0 && m == d_model).then_some(k),
            "[classes, d_model]",
        )?
    };
    let class_token = match (shapes.has("cls_token_head"), shapes.has("cls_token")) {
        (true, _) => ClassToken::Double,
        (false, true) => ClassToken::Middle,
        (false, false) => ClassToken::None,
    };
    let has_backward_conv = shapes.has("layers.0.mixer.conv1d_b.weight");
    let bimamba = match (has_backward_conv, shapes.has("layers.0.mixer.A_b_log")) {
        (true, _) => Bimamba::V2,
        (false, true) => Bimamba::V1,
        (false, false) => Bimamba::None,
    };
    let rotated = backbone.unwrap_or(Rope::Hidden);
    let rope = if shapes.has(ROPE_TABLES[0]) { rotated } else { Rope::None };
    let grid = shapes.grid(d_model, class_token)?;
    let side = |stride: usize| (grid.unwrap_or(1) - 1) * stride + patch_size;
    let stride = match (1..patch_size).rev().find(|&stride| side(stride) == USUAL_SIZE) {
        Some(stride) if !is_backbone && side(patch_size) != USUAL_SIZE && grid > Some(1) => stride,
        Some(_) | None => patch_size,
    };
    let image_size = if grid.is_some() { side(stride) } else { USUAL_SIZE };
    let (a, discretization) = if shapes.has("layers.0.mixer.forward.a_off") {
        (StateMatrix::Full, Discretization::Bilinear)
    } else {
        (StateMatrix::Diagonal, Discretization::Zoh)
    };
    let is_automatic = dt_rank == d_model.div_ceil(16);
    let has_gain = shapes.has("layers.0.mixer.gamma");
    let is_layer_norm = shapes.has("layers.0.norm.bias");
    let config = VimConfig {
        discretization,
        image_size: image_size.into(),
        patch_size,
        stride: Some(stride),
        depth: shapes.depth(),
        d_model,
        d_state,
        d_conv,
        expand: d_inner / d_model,
        dt_rank: if is_automatic { DtRank::Auto } else { DtRank::Rank(dt_rank) },
        bimamba,
        // The initial value, which loading replaces.
        layer_scale: if has_gain { LayerScale::Starts(1.0) } else { LayerScale::None },
        norm: if is_layer_norm { NormKind::Layer } else { NormKind::Rms },
        class_token,
        abs_pos_embed: shapes.has("pos_embed"),
        rope,
        num_classes,
        ssm: SsmConfig { a, ..SsmConfig::default() },
        ..VimConfig::default()
    };
    let mut assumed = vec![
        Assumption::new("image_size", image_size),
        Assumption::new("stride", stride),
        Assumption::new("discretization", discretization),
        Assumption::new("series", SsmConfig::default().series),
    ];
    match class_token {
        ClassToken::Middle | ClassToken::Head | ClassToken::Random => {
            assumed.push(Assumption::new("class_token", class_token));
        }
        ClassToken::Double => {}
        ClassToken::None if is_backbone => {}
        ClassToken::None => assumed.push(Assumption::new("pool", Pool::default())),
    }
    if bimamba == Bimamba::V2 {
        assumed.push(Assumption::new("divide_out", true));
    }
    if rope != Rope::None {
        assumed.push(Assumption::new("rope", rope));
    }
    Ok(Inferred { config, assumed })
}

/// Shapes by the original's names, as it stores them.
struct Shapes {
    arrays: BTreeMap<String, Vec<usize>>,
    /// What else the keys have.
    unreadable: BTreeMap<String, String>,
}

impl Shapes {
    /// Of those whose names begin with `prefix`, without it.
    fn of(state: &StateDict, prefix: &str) -> Self {
        let items: Vec<(&str, &Item)> = state
            .iter()
            .filter_map(|(key, item)| Some((key.strip_prefix(prefix)?, item)))
            .collect();
        let is_ours = items.iter().any(|(key, _)| *key != pytorch_key(key));
        let (mut arrays, mut unreadable) = (BTreeMap::new(), BTreeMap::new());
        for (key, item) in items {
            match item {
                Item::Array(array) => {
                    let mut shape = array.shape.clone();
                    if is_ours && shape.len() == 2 && key.ends_with(".weight") {
                        shape.reverse(); // a linear layer's
                    }
                    arrays.insert(pytorch_key(key), shape);
                }
                Item::Unreadable(what) => {
                    unreadable.insert(pytorch_key(key), what.clone());
                }
            }
        }
        Self { arrays, unreadable }
    }

    fn has(&self, key: &str) -> bool {
        self.arrays.contains_key(key)
    }

    /// Patches along a side of a square image, where a table tells.
    fn grid(&self, d_model: usize, class_token: ClassToken) -> Result<Option<usize>, InferError> {
        let classes = class_token.positions(0).len();
        let root = |patches: usize| {
            let grid = patches.isqrt();
            (grid > 0 && grid * grid == patches).then_some(grid)
        };
        if self.has("pos_embed") {
            let read = |&[one, tokens, m]: &[usize; 3]| {
                let grid = root(tokens.checked_sub(classes)?)?;
                (one == 1 && m == d_model).then_some(grid)
            };
            let expected = "[1, grid · grid + class tokens, d_model] of a square grid (of another \
                            one the configuration must be given)";
            return self.get("pos_embed", read, expected).map(Some);
        }
        if self.has(ROPE_TABLES[0]) {
            let read = |&[patches, m]: &[usize; 2]| root(patches).filter(|_| m == d_model);
            let expected = "[grid · grid, d_model] of a square grid (of another one the \
                            configuration must be given)";
            return self.get(ROPE_TABLES[0], read, expected).map(Some);
        }
        Ok(None)
    }

    /// What `read` makes of the shape of `key`.
    fn get<const D: usize, T>(
        &self,
        key: &str,
        read: impl Fn(&[usize; D]) -> Option<T>,
        expected: &str,
    ) -> Result<T, InferError> {
        let shape = self.arrays.get(key).ok_or_else(|| match self.unreadable.get(key) {
            Some(what) => InferError::Unreadable { key: key.to_owned(), what: what.clone() },
            None => InferError::Missing(key.to_owned()),
        })?;
        shape.as_slice().try_into().ok().and_then(read).ok_or_else(|| InferError::Shape {
            key: key.to_owned(),
            shape: shape.clone(),
            expected: expected.to_owned(),
        })
    }

    /// One more than the largest number of a layer.
    fn depth(&self) -> usize {
        let number = |key: &String| key.strip_prefix("layers.")?.split('.').next()?.parse().ok();
        let numbers =
            self.arrays.keys().filter_map(number).filter(|&number: &usize| number < MAX_DEPTH);
        numbers.max().map_or(0, |last| last + 1)
    }
}
