//! The files of a checkpoint that hold arrays: model, moving average, optimizer.

mod error;
pub mod source;

use burn::module::Module;
use vim_model::load_module;
use vim_run::checkpoint::Weights;
use vim_torch::{Checkpoint as ArrayFile, read_safetensors};

use crate::error::Error;
pub use error::WeightsError;

/// Name of the model's file in a checkpoint.
pub const MODEL: &str = "model.safetensors";
/// Name of the file of the model's moving average in a checkpoint.
pub const EMA: &str = "ema.safetensors";
/// Name of the optimizer's file in a checkpoint.
pub const OPTIMIZER: &str = "optimizer.safetensors";

/// Name of the file of `weights` in a checkpoint.
pub fn file(weights: Weights) -> &'static str {
    match weights {
        Weights::Model => MODEL,
        Weights::Ema => EMA,
    }
}

/// `model` with the parameters in `bytes`, which `source` names in errors.
///
/// # Errors
///
/// [`WeightsError::Unreadable`], or [`WeightsError::Unfit`] with the parameters that are missing,
/// unknown or of another shape.
pub fn model_from_bytes<M: Module>(model: M, bytes: &[u8], source: &str) -> Result<M, Error> {
    let file = read(bytes, source)?;
    load_module(model, &file.state).map_err(|mismatch| misfit(source, &mismatch.to_string()))
}

pub(crate) fn read(bytes: &[u8], source: &str) -> Result<ArrayFile, Error> {
    read_safetensors(bytes)
        .map_err(|error| WeightsError::Unreadable { path: source.to_owned(), source: error }.into())
}

pub(crate) fn misfit(source: &str, problems: &str) -> Error {
    Error::from(WeightsError::Unfit {
        checkpoint: source.to_owned(),
        problems: problems.to_owned(),
    })
}
