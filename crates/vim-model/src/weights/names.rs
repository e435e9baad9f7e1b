//! Names of parameters, here and in the PyTorch original.

use crate::config::{Rope, VimConfig};

/// Whose names and layout arrays have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// This program's: module paths, a linear layer's weight as `[inputs, outputs]`.
    Ours,
    /// The original's: [`pytorch_key`], a linear layer's weight as `[outputs, inputs]`.
    Pytorch,
}

/// The path of the parameter that a visitor of a module is at.
#[derive(Default)]
pub(crate) struct ModulePath {
    names: Vec<String>,
    is_linear: Vec<bool>,
}

impl ModulePath {
    pub(crate) fn enter(&mut self, name: &str, container_type: &str) {
        self.names.push(name.to_owned());
        self.is_linear.push(container_type == "Struct:Linear");
    }

    pub(crate) fn exit(&mut self) {
        self.names.pop();
        self.is_linear.pop();
    }

    pub(crate) fn join(&self) -> String {
        self.names.join(".")
    }

    /// Whether PyTorch stores the transpose of the parameter at this path, which has `rank`
    /// dimensions.
    pub(crate) fn is_transposed(&self, rank: usize, names: Names) -> bool {
        // The last name is the parameter's own, the one before it is its module's.
        names == Names::Pytorch && rank == 2 && self.is_linear.last() == Some(&true)
    }
}

/// Our names inside a layer, and the original's; every other name is the same in both.
const KEYS: [(&str, &str); 10] = [
    ("mixer.forward.a_log", "mixer.A_log"),
    ("mixer.forward.d", "mixer.D"),
    ("mixer.forward.conv1d", "mixer.conv1d"),
    ("mixer.forward.x_proj", "mixer.x_proj"),
    ("mixer.forward.dt_proj", "mixer.dt_proj"),
    ("mixer.backward.a_log", "mixer.A_b_log"),
    ("mixer.backward.d", "mixer.D_b"),
    ("mixer.backward.conv1d", "mixer.conv1d_b"),
    ("mixer.backward.x_proj", "mixer.x_proj_b"),
    ("mixer.backward.dt_proj", "mixer.dt_proj_b"),
];

/// Our parameters without a counterpart in the original.
const OURS_ALONE: [&str; 1] = ["a_off"];

/// The keys of a model with rotary positions that are no parameters; see
/// [`RopeTable`](crate::RopeTable).
pub(crate) const ROPE_TABLES: [&str; 2] = ["rope.freqs_cos", "rope.freqs_sin"];

/// The original's name of the parameter at `path`: `layers.0.mixer.A_b_log` for
/// `layers.0.mixer.backward.a_log`.
///
/// Shapes are the same except [`Linear`](burn::nn::Linear) weights, which PyTorch stores as
/// `[outputs, inputs]`.
#[must_use]
pub fn pytorch_key(path: &str) -> String {
    for (ours, theirs) in KEYS {
        if let Some((layer, rest)) = path.split_once(ours)
            && (rest.is_empty() || rest.starts_with('.'))
        {
            return format!("{layer}{theirs}{rest}");
        }
    }
    path.to_string()
}

/// Whether the original has a counterpart of the parameter at `path`.
pub(crate) fn has_pytorch_key(path: &str) -> bool {
    !OURS_ALONE.contains(&path.rsplit('.').next().unwrap_or(path))
}

/// Whether `key` of a checkpoint of a model of `config` is computed or counted, not learned.
pub(crate) fn is_buffer(key: &str, config: &VimConfig) -> bool {
    let is_table = config.rope != Rope::None && ROPE_TABLES.contains(&key);
    is_table || key.ends_with(".num_batches_tracked")
}

/// The transpose of a matrix whose rows have `columns` numbers.
pub(crate) fn transposed(values: &[f32], columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|c| values.iter().skip(c).step_by(columns).copied()).collect()
}
