//! Checkpoints of the PyTorch original.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use vim_torch::{ReadError, Section, read_checkpoint};

use super::load::LoadOptions;
use super::mismatch::StateDictMismatch;
use crate::config::{ModelError, VimConfig};
use crate::vim::Vim;

/// A checkpoint that cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The configuration is wrong.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The file is not there, or is no checkpoint.
    #[error("{} {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: ReadError,
    },
    /// The file and the model disagree.
    #[error("{} does not fit the model: {mismatch}", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// Every difference.
        mismatch: Box<StateDictMismatch>,
    },
}

/// Reads a checkpoint file into a model of `config`, which the file does not carry.
///
/// Any file that [`vim_torch::read_checkpoint`] reads. Strict: every parameter must be there, in
/// its shape, and nothing else. Half-precision and f64 tensors become f32.
///
/// # Errors
///
/// [`ImportError`] names the file, the configuration's key, or every key that differs.
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
        .load(&checkpoint.state, LoadOptions::default())
        .map_err(|mismatch| ImportError::Mismatch { path: path.to_path_buf(), mismatch })?;
    Ok(model)
}
