//! What a file holds: named arrays.

use std::collections::BTreeMap;

use indexmap::{IndexMap, IndexSet};

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

    /// Where another name stands in front of `name`: the prefix of the first key that ends with it
    /// behind a dot, and the keys of tensors that do not begin with this prefix. `None` if there is
    /// no such key, or `name` itself is there.
    ///
    /// ```
    /// # use vim_torch::{Array, Element, Item, StateDict};
    /// # let one = Item::Array(Array { shape: vec![], values: vec![1.0], stored: Element::F32 });
    /// let mut state = StateDict::default();
    /// state.insert("model.head.bias".into(), one.clone());
    /// state.insert("loss.weight".into(), one);
    /// assert_eq!(state.prefix_before("head.bias"), Some(("model.", vec!["loss.weight"])));
    /// ```
    #[must_use]
    pub fn prefix_before(&self, name: &str) -> Option<(&str, Vec<&str>)> {
        if self.entries.contains_key(name) {
            return None;
        }
        let prefix = self.entries.keys().find_map(|key| {
            key.strip_suffix(name).filter(|prefix| prefix.ends_with('.') && prefix.len() > 1)
        })?;
        let is_array = |item: &Item| matches!(item, Item::Array(_));
        let others = self.iter().filter(|(key, item)| is_array(item) && !key.starts_with(prefix));
        Some((prefix, others.map(|(key, _)| key).collect()))
    }

    /// Gives every key the name that `new` makes of it, in the same order, unless two would have
    /// the same; returns whether it did.
    pub(crate) fn rename(&mut self, new: impl Fn(&str) -> String) -> bool {
        let names: IndexSet<String> = self.entries.keys().map(|key| new(key)).collect();
        let is_one_to_one = names.len() == self.entries.len();
        if is_one_to_one {
            let items = std::mem::take(&mut self.entries).into_values();
            self.entries = names.into_iter().zip(items).collect();
        }
        is_one_to_one
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
    /// The entry that was read, such as `model_ema`, or `model.state_dict` where the one is in the
    /// other; none if the file is a state dict itself.
    pub entry: Option<String>,
    /// What was not read: other entries, such as `optimizer`, of which texts alone are read, for
    /// `about`; then the keys of counters among the arrays, such as `n_averaged` or
    /// `head.total_ops`.
    pub ignored: Vec<String>,
    /// The wrappers that all keys of tensors began with, such as `_orig_mod.module.`; they are
    /// taken off.
    pub prefix: Option<String>,
    /// Wrappers that were taken out of the midst of keys, such as `_fsdp_wrapped_module.`.
    pub inner: Vec<String>,
    /// The arrays, by keys without wrappers.
    pub state: StateDict,
    /// Texts beside the arrays: the metadata of safetensors, or such entries of a PyTorch file.
    pub about: BTreeMap<String, String>,
}
