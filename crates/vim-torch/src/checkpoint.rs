//! What was read from a file.

use std::collections::BTreeMap;

use crate::state_dict::StateDict;

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A zip archive of `torch.save`.
    Pytorch,
    /// A safetensors file.
    Safetensors,
}

/// What was read from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// The file's format.
    pub format: Format,
    /// The entry that was read, such as `model_ema`; none if the file is a state dict itself.
    pub entry: Option<String>,
    /// Entries that were not read, such as `optimizer`.
    pub ignored: Vec<String>,
    /// Whether all keys began with `module.`, as data-parallel training saves them.
    pub had_module_prefix: bool,
    /// The arrays, without that prefix.
    pub state: StateDict,
    /// Texts beside the arrays: the metadata of safetensors.
    pub about: BTreeMap<String, String>,
}
