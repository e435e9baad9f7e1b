//! The files of a checkpoint that hold arrays: model, moving average, optimizer.

pub mod source;

use std::collections::BTreeMap;
use std::io::Cursor;

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use vim_model::{NamedArrays, PendingArrays, load_module};
use vim_torch::{Array, Checkpoint as ArrayFile, ReadError, Section, read_checkpoint};

use crate::config::OptimConfig;
use crate::error::Error;
use crate::run::checkpoint::Weights;
use crate::train::optim::{AdamW, Moments};

/// Name of the model's file in a checkpoint.
pub const MODEL: &str = "model.safetensors";
/// Name of the file of the model's moving average in a checkpoint.
pub const EMA: &str = "ema.safetensors";
/// Name of the optimizer's file in a checkpoint.
pub const OPTIMIZER: &str = "optimizer.safetensors";
/// The key of the number of steps in the metadata of the optimizer's file.
const STEPS: &str = "steps";

/// Name of the file of `weights` in a checkpoint.
#[must_use]
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
/// [`Error::Unreadable`], or [`Error::Weights`] with the parameters that are missing, of another
/// shape or not the model's.
pub fn model_from_bytes<M: Module>(model: M, bytes: &[u8], source: &str) -> Result<M, Error> {
    let file = read(bytes, source)?;
    load_module(model, &file.state).map_err(|mismatch| misfit(source, &mismatch.to_string()))
}

/// The optimizer's state.
#[must_use]
pub fn optimizer_arrays(optimizer: &AdamW) -> NamedArrays {
    let mut pending = PendingArrays::default();
    for (path, Moments { first, second }) in optimizer.moments() {
        pending.add(format!("first.{path}"), first);
        pending.add(format!("second.{path}"), second);
    }
    pending.read().with_metadata(STEPS, optimizer.steps.to_string())
}

/// The optimizer that `bytes` describes, to go on as `config` says.
///
/// # Errors
///
/// [`Error::Unreadable`], or [`Error::Weights`] if it is not an optimizer's state.
pub fn optimizer_from_bytes(
    config: &OptimConfig,
    bytes: &[u8],
    device: &Device,
    source: &str,
) -> Result<AdamW, Error> {
    let ArrayFile { about, state, .. } = read(bytes, source)?;
    let steps = about.get(STEPS).and_then(|steps| steps.parse().ok());
    let steps = steps.ok_or_else(|| misfit(source, "the number of steps is missing"))?;
    let device = device.clone().inner();
    let load = |key: &str| -> Result<Tensor<1>, Error> {
        let Array { values, .. } =
            state.array(key).ok_or_else(|| misfit(source, &format!("{key} is missing")))?;
        let data = TensorData::new(values.clone(), [values.len()]);
        Ok(Tensor::<1>::from_data(data, &device))
    };
    let paths = state.iter().filter_map(|(key, _)| key.strip_prefix("first."));
    let moments = paths.map(|path| {
        let first = load(&format!("first.{path}"))?;
        let second = load(&format!("second.{path}"))?;
        Ok((path.to_owned(), Moments { first, second }))
    });
    let moments = moments.collect::<Result<BTreeMap<_, _>, Error>>()?;
    Ok(AdamW::new(config).resumed(steps, moments))
}

fn read(bytes: &[u8], source: &str) -> Result<ArrayFile, Error> {
    let unread = |error: ReadError| Error::Unreadable { path: source.to_owned(), source: error };
    read_checkpoint(Cursor::new(bytes), Section::Model).map_err(unread)
}

fn misfit(source: &str, problems: &str) -> Error {
    Error::Weights { checkpoint: source.to_owned(), problems: problems.to_owned() }
}
