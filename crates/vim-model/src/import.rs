//! Checkpoints of the PyTorch original.

use std::path::{Path, PathBuf};

use burn::module::{Module, ModuleMapper, Param};
use burn::store::{ApplyError, ModuleSnapshot, PytorchStore, PytorchStoreError};
use burn::tensor::{DType, Device, Tensor, TensorData};

use crate::config::{ModelError, Rope, VimConfig};
use crate::vim::Vim;

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

/// What a checkpoint of a model with rotary positions holds beside its parameters; see
/// [`RopeTable`](crate::RopeTable).
const ROPE_TABLES: [&str; 2] = ["rope.freqs_cos", "rope.freqs_sin"];

/// The entry of a checkpoint that holds the parameters.
const SECTION: &str = "model";

/// The original's name of the parameter at `path`: `layers.0.mixer.A_b_log` of `layers.0.mixer.backward.a_log`.
///
/// Shapes are the same but for [`Linear`](burn::nn::Linear) weights, which PyTorch stores as `[outputs, inputs]`.
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

/// A tensor of a checkpoint whose shape is not the model's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misshapen {
    /// Its name in the checkpoint.
    pub key: String,
    /// The shape that the model has, as PyTorch stores it.
    pub expected: Vec<usize>,
    /// The shape in the file.
    pub got: Vec<usize>,
}

/// A checkpoint that cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The configuration that the checkpoint is to be read into is wrong.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The file is not there, or is no checkpoint with a `model` entry.
    #[error("read checkpoint `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the reader says.
        #[source]
        source: Box<PytorchStoreError>,
    },
    /// The file and the model disagree. All names are the checkpoint's.
    #[error(
        "checkpoint `{}` does not fit the model: {}",
        path.display(),
        Disagreement { missing, unmatched, misshapen, unreadable }
    )]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// What the model has and the file does not.
        missing: Vec<String>,
        /// What the file has and the model does not.
        unmatched: Vec<String>,
        /// What both have, in different shapes.
        misshapen: Vec<Misshapen>,
        /// What cannot be read as numbers, with the reason.
        unreadable: Vec<String>,
    },
}

/// Reads a `.pth` file of the original into a model of `config`, which the file does not carry.
///
/// Strict: every parameter must be there, in its shape, and nothing else. Half-precision and f64
/// tensors become f32.
///
/// # Errors
///
/// [`ImportError`] says which of file, content and configuration is at fault, and names every key.
pub fn import_pytorch(
    config: &VimConfig,
    path: &Path,
    device: &Device,
) -> Result<Vim, ImportError> {
    let mut model = config.init(device, 0)?;
    let mut store = PytorchStore::from_file(path)
        .with_top_level_key(SECTION)
        .map_indices_contiguous(false) // a missing layer is an error, not a renumbering
        .validate(false)
        .allow_partial(true); // both, to be told of every disagreement at once
    for (ours, theirs) in KEYS {
        let pattern = format!(r"^(layers\.\d+\.){}(\.|$)", theirs.replace('.', r"\."));
        store = store.with_key_remapping(pattern, format!("${{1}}{ours}${{2}}"));
    }
    let result = model.load_from(&mut store).map_err(|source| ImportError::Read {
        path: path.to_path_buf(),
        source: Box::new(source),
    })?;

    let (mut misshapen, mut unreadable) = (Vec::new(), Vec::new());
    for error in result.errors {
        match error {
            ApplyError::ShapeMismatch { path, expected, found } => {
                let as_stored = |shape: &[usize]| match (shape, path.ends_with(".weight")) {
                    (&[inputs, outputs], true) => vec![outputs, inputs],
                    _ => shape.to_vec(),
                };
                misshapen.push(Misshapen {
                    key: pytorch_key(&path),
                    expected: as_stored(&expected),
                    got: as_stored(&found),
                });
            }
            ApplyError::DTypeMismatch { path, found, .. } => {
                unreadable.push(format!("{} ({found:?})", pytorch_key(&path)));
            }
            ApplyError::AdapterError { path, message }
            | ApplyError::LoadError { path, message } => {
                unreadable.push(format!("{} ({message})", pytorch_key(&path)));
            }
        }
    }
    let missing: Vec<String> = result.missing.iter().map(|(path, _)| pytorch_key(path)).collect();
    // Tables that follow from the sizes: the file has them, the model computes them.
    let is_table = |path: &str| config.rope != Rope::None && ROPE_TABLES.contains(&path);
    let unused = result.unused.iter().filter(|path| !is_table(path));
    let unmatched: Vec<String> = unused.map(|path| pytorch_key(path)).collect();
    if [missing.len(), unmatched.len(), misshapen.len(), unreadable.len()] == [0; 4] {
        return Ok(model.map(&mut ToF32));
    }
    let path = path.to_path_buf();
    Err(ImportError::Mismatch { path, missing, unmatched, misshapen, unreadable })
}

/// The store keeps a file's precision; the model computes in f32.
struct ToF32;

impl ModuleMapper for ToF32 {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let tensor = param.val();
        if tensor.dtype() == DType::F32 {
            return param;
        }
        // By way of the host, so that the parameter stays a leaf of the autodiff graph.
        let data: TensorData = tensor.to_data().convert::<f32>();
        let id = param.id;
        param.transform_for_load(Tensor::from_data(data, &tensor.device()), id)
    }
}

/// The lists of a mismatch in one line, each cut after a few names.
struct Disagreement<'a> {
    missing: &'a [String],
    unmatched: &'a [String],
    misshapen: &'a [Misshapen],
    unreadable: &'a [String],
}

impl std::fmt::Display for Disagreement<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 8;
        let shapes: Vec<String> = self
            .misshapen
            .iter()
            .map(|m| format!("{} (expected {:?}, got {:?})", m.key, m.expected, m.got))
            .collect();
        let mut parts = Vec::new();
        for (what, keys) in [
            ("missing", self.missing),
            ("not in the model", self.unmatched),
            ("of another shape", &shapes),
            ("unreadable", self.unreadable),
        ] {
            if !keys.is_empty() {
                let shown = keys[..keys.len().min(SHOWN)].join(", ");
                let more = keys.len().saturating_sub(SHOWN);
                let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
                parts.push(format!("{what}: {shown}{rest}"));
            }
        }
        f.write_str(&parts.join("; "))
    }
}
