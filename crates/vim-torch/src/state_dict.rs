//! What a file holds: named arrays.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use crate::element::Element;

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its numbers as f32, row by row.
    pub values: Vec<f32>,
    /// Their type in the file.
    pub stored: Element,
}

/// A tensor to be written.
#[derive(Clone, Copy, Debug)]
pub struct ArrayView<'a> {
    /// Its shape.
    pub shape: &'a [usize],
    /// Its numbers as little-endian f32, row by row.
    pub bytes: &'a [u8],
}

// The values of an `Array` are written as they are in memory.
const _: () = assert!(cfg!(target_endian = "little"));

impl<'a> From<&'a Array> for ArrayView<'a> {
    fn from(array: &'a Array) -> Self {
        Self { shape: &array.shape, bytes: bytemuck::cast_slice(&array.values) }
    }
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A tensor of floats.
    Array(Array),
    /// A description of something else: `int64 numbers`, `a list`.
    Unreadable(String),
}

/// Arrays by key, in the file's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateDict {
    entries: IndexMap<String, Item>,
}

impl StateDict {
    /// Sets `key`. A key that is present keeps its position and changes its value, as in Python.
    pub fn insert(&mut self, key: String, item: Item) {
        self.entries.insert(key, item);
    }

    /// The item under `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Item> {
        self.entries.get(key)
    }

    /// The array under `key`, if the item is one.
    #[must_use]
    pub fn array(&self, key: &str) -> Option<&Array> {
        match self.get(key)? {
            Item::Array(array) => Some(array),
            Item::Unreadable(_) => None,
        }
    }

    /// All entries, in the file's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Item)> {
        self.entries.iter().map(|(key, item)| (key.as_str(), item))
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Numbers in all arrays.
    #[must_use]
    pub fn num_elements(&self) -> usize {
        let size = |item: &Item| match item {
            Item::Array(array) => array.values.len(),
            Item::Unreadable(_) => 0,
        };
        self.entries.values().map(size).sum()
    }

    /// Takes `prefix` off every key if all keys have it; returns whether they have.
    pub(crate) fn strip_prefix(&mut self, prefix: &str) -> bool {
        let all = !self.is_empty() && self.entries.keys().all(|key| key.starts_with(prefix));
        if all {
            let entries = std::mem::take(&mut self.entries).into_iter();
            self.entries = entries.map(|(key, item)| (key[prefix.len()..].into(), item)).collect();
        }
        all
    }
}

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
    /// The file's other entries, such as `optimizer`, of which texts alone are read, for `about`.
    pub ignored: Vec<String>,
    /// Whether all keys began with `module.`, as data-parallel training saves them.
    pub had_module_prefix: bool,
    /// The arrays, without that prefix.
    pub state: StateDict,
    /// Texts beside the arrays: the metadata of safetensors, or such entries of a PyTorch file.
    pub about: BTreeMap<String, String>,
}
