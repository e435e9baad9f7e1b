//! Names that tools put around a model, and numbers that they put into its state dict.

use crate::state_dict::{Item, StateDict};

/// Segments that begin all keys of a model in a wrapper. What is of a model's own, such as
/// `layers`, must not be here.
const WRAPPERS: [&str; 11] = [
    "module",          // DataParallel, DistributedDataParallel, AveragedModel
    "_forward_module", // Lightning Fabric
    "model",           // a LightningModule, and most classes of users
    "net",
    "network",
    "backbone",
    "encoder",
    "student",
    "teacher",
    "ema",
    "ema_model",
];

/// Segments of wrappers of any module, also of one inside the model: no parameter is called so.
const INNER: [&str; 3] = [
    "_orig_mod",                  // torch.compile
    "_fsdp_wrapped_module",       // FullyShardedDataParallel
    "_checkpoint_wrapped_module", // activation checkpointing
];

/// What was taken out of names.
#[derive(Default)]
pub(crate) struct Unwrapped {
    /// From the start of all keys of tensors, with its last dot.
    pub(crate) prefix: Option<String>,
    /// From inside some keys, each a segment with its dot.
    pub(crate) inner: Vec<String>,
}

/// Takes wrappers off the names of `state`, in any order and as often as they are there: `INNER`
/// everywhere, `WRAPPERS` from the start while all tensors of floats have them.
pub(crate) fn unwrap(state: &mut StateDict) -> Unwrapped {
    let mut prefix = String::new();
    strip(state, &mut prefix);
    let is_inner = |segment: &str| INNER.contains(&segment);
    let mut inner = Vec::new();
    for name in INNER {
        let mut parents = state.iter().filter_map(|(key, _)| key.rsplit_once('.'));
        if parents.any(|(parents, _)| parents.split('.').any(|segment| segment == name)) {
            inner.push(format!("{name}."));
        }
    }
    let without = |key: &str| match key.rsplit_once('.') {
        Some((parents, own)) => {
            let kept = parents.split('.').filter(|segment| !is_inner(segment));
            kept.chain([own]).collect::<Vec<_>>().join(".")
        }
        None => key.to_owned(),
    };
    if inner.is_empty() || !state.rename(without) {
        inner.clear();
    } else {
        // Where only some keys had an inner wrapper in front, all may share what was behind it.
        strip(state, &mut prefix);
    }
    Unwrapped { prefix: Some(prefix).filter(|prefix| !prefix.is_empty()), inner }
}

/// Takes the longest prefix of wrappers that all tensors have off, and adds it to `taken`.
fn strip(state: &mut StateDict, taken: &mut String) {
    let shared = shared(state);
    if !shared.is_empty() && state.rename(|key| key.strip_prefix(&shared).unwrap_or(key).to_owned())
    {
        taken.push_str(&shared);
    }
}

/// The longest prefix of wrappers that all tensors have; of all keys if no tensor is readable.
fn shared(state: &StateDict) -> String {
    let arrays = || state.iter().filter(|(_, item)| matches!(item, Item::Array(_)));
    let mut rests: Vec<&str> = match arrays().next() {
        Some(_) => arrays().map(|(key, _)| key).collect(),
        None => state.iter().map(|(key, _)| key).collect(),
    };
    let mut prefix = String::new();
    while let Some((segment, _)) = rests.first().and_then(|rest| rest.split_once('.'))
        && (WRAPPERS.contains(&segment) || INNER.contains(&segment))
    {
        let behind = |rest: &&str| {
            let (first, rest) = rest.split_once('.')?;
            (first == segment && !rest.is_empty()).then_some(rest.len())
        };
        let Some(lengths) = rests.iter().map(behind).collect::<Option<Vec<usize>>>() else { break };
        prefix.push_str(segment);
        prefix.push('.');
        for (rest, length) in rests.iter_mut().zip(lengths) {
            *rest = &rest[rest.len() - length..];
        }
    }
    prefix
}

/// Whether the number under `key`, of `shape`, counts something and is no parameter: an integer
/// without dimensions, or one number of the profiler thop.
///
/// The count of a batch normalization is none of these: models have it, and read past it.
pub(crate) fn is_counter(key: &str, shape: &[usize], is_integer: bool) -> bool {
    match key.rsplit('.').next() {
        Some("num_batches_tracked") => false,
        Some("total_ops" | "total_params") => shape.iter().all(|&length| length == 1),
        Some(_) | None => is_integer && shape.is_empty(),
    }
}
