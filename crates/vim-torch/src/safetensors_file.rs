//! Safetensors files.

use std::collections::BTreeMap;

use safetensors::SafeTensors;

use crate::checkpoint::{Checkpoint, Format};
use crate::element::Element;
use crate::error::ReadError;
use crate::limits::{Budget, MAX_HEADER};
use crate::state_dict::{Array, Item, StateDict};

/// Whether a file that begins with `start` looks like one: a length, then JSON.
pub(crate) fn looks_like(start: &[u8]) -> bool {
    matches!(start, [_, _, _, _, _, 0, 0, 0, b'{', ..])
}

/// Reads the bytes of a safetensors file. Keys stay as they are.
///
/// # Errors
///
/// [`ReadError`] says in one line what is wrong with the file.
pub fn read_safetensors(bytes: &[u8]) -> Result<Checkpoint, ReadError> {
    let length = bytes.len() as u64;
    let size = bytes.first_chunk().ok_or_else(|| ReadError::damaged("it ends early"))?;
    let size = u64::from_le_bytes(*size);
    if size > MAX_HEADER || size > length {
        return Err(ReadError::damaged(format!(
            "its header would have {size} bytes, the file has {length}"
        )));
    }
    let mut budget = Budget::of_file(length);
    let wrong = |error: safetensors::SafeTensorError| {
        ReadError::damaged(error.to_string().replace('\n', " "))
    };
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(wrong)?;
    let about = header.metadata().iter().flatten();
    let about: BTreeMap<String, String> =
        about.map(|(key, text)| (key.clone(), text.clone())).collect();
    let tensors = SafeTensors::deserialize(bytes).map_err(wrong)?;
    let mut state = StateDict::default();
    for key in header.offset_keys() {
        let tensor = tensors.tensor(&key).map_err(wrong)?;
        let item = match Element::of_safetensors(tensor.dtype()) {
            None => Item::Unreadable(format!("a tensor of {:?} numbers", tensor.dtype())),
            Some(stored) => {
                let numbers = tensor.data().chunks_exact(stored.size());
                budget.take(numbers.len() as u64 * 4, &key)?;
                let values = numbers.map(|bytes| stored.decode(bytes)).collect();
                Item::Array(Array { shape: tensor.shape().to_vec(), values, stored })
            }
        };
        state.insert(key, item);
    }
    Ok(Checkpoint {
        format: Format::Safetensors,
        entry: None,
        ignored: Vec::new(),
        had_module_prefix: false,
        state,
        about,
    })
}
