//! Checkpoints of the PyTorch original.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use vim_torch::{ReadError, Section, read_checkpoint};

use crate::config::{ModelError, Rope, VimConfig};
use crate::misfit::Misfit;
use crate::state::Tolerance;
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

/// Our parameters that the original has nothing for.
const OURS_ALONE: [&str; 1] = ["a_off"];

/// What a checkpoint of a model with rotary positions holds beside its parameters; see
/// [`RopeTable`](crate::RopeTable).
pub(crate) const ROPE_TABLES: [&str; 2] = ["rope.freqs_cos", "rope.freqs_sin"];

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

/// Whether the original has a counterpart of the parameter at `path`.
pub(crate) fn has_pytorch_key(path: &str) -> bool {
    !OURS_ALONE.contains(&path.rsplit('.').next().unwrap_or(path))
}

/// Whether `key` of a checkpoint of a model of `config` is computed, not learned.
pub(crate) fn is_buffer(key: &str, config: &VimConfig) -> bool {
    config.rope != Rope::None && ROPE_TABLES.contains(&key)
}

/// A checkpoint that cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The configuration that the checkpoint is to be read into is wrong.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The file is not there, or is no checkpoint.
    #[error("{} {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the reader says.
        #[source]
        source: ReadError,
    },
    /// The file and the model disagree.
    #[error("{} does not fit the model: {misfit}", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// Every disagreement.
        misfit: Box<Misfit>,
    },
}

/// Reads a checkpoint file into a model of `config`, which the file does not carry.
///
/// Any file that [`vim_torch::read_checkpoint`] reads. Strict: every parameter must be there, in
/// its shape, and nothing else. Half-precision and f64 tensors become f32.
///
/// # Errors
///
/// [`ImportError`] says which of file, content and configuration is at fault, and names every key.
pub fn import_pytorch(
    config: &VimConfig,
    path: &Path,
    device: &Device,
) -> Result<Vim, ImportError> {
    let model = config.init(device, 0)?;
    let unread = |source| ImportError::Read { path: path.to_path_buf(), source };
    let file = File::open(path).map_err(|error| unread(ReadError::Io(error)))?;
    let checkpoint = read_checkpoint(BufReader::new(file), Section::Model).map_err(unread)?;
    let (model, _) = model
        .load(&checkpoint.state, Tolerance::default())
        .map_err(|misfit| ImportError::Mismatch { path: path.to_path_buf(), misfit })?;
    Ok(model)
}
