//! The optimizer's state as a file of arrays, by parameter path.

use std::collections::BTreeMap;

use burn::tensor::{Device, Tensor, TensorData};
use vim_model::{NamedArrays, PendingArrays};
use vim_torch::{Array, Checkpoint as ArrayFile};

use super::{AdamW, Moments};
use crate::error::Error;
use crate::weights::{misfit, read};

/// The key of the number of steps in the metadata of the file.
const STEPS: &str = "steps";

/// The optimizer's state.
pub fn optimizer_arrays(optimizer: &AdamW) -> NamedArrays {
    let mut pending = PendingArrays::default();
    for (path, Moments { first, second }) in optimizer.moments() {
        pending.add(format!("first.{path}"), first);
        pending.add(format!("second.{path}"), second);
    }
    pending.read().with_metadata(STEPS, optimizer.steps.to_string())
}

/// `optimizer` with the moments and the number of steps in `bytes`, which `source` names in errors.
pub fn optimizer_from_bytes(
    optimizer: AdamW,
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
    Ok(optimizer.resumed(steps, moments))
}
