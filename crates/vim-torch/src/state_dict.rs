//! Named arrays.

use std::collections::BTreeMap;

use crate::element::Element;

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its numbers, row by row, whatever their type in the file.
    pub values: Vec<f32>,
    /// Their type in the file.
    pub stored: Element,
}

/// What stands under a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A tensor of floats.
    Array(Array),
    /// Something else, in words: `int64 numbers`, `a list`.
    Unreadable(String),
}

/// Arrays by key, in the file's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateDict {
    entries: Vec<(String, Item)>,
    places: BTreeMap<String, usize>,
}

impl StateDict {
    /// Sets `key`; as in Python, one that is there keeps its place and changes its value.
    pub fn insert(&mut self, key: String, item: Item) {
        match self.places.get(&key) {
            Some(&place) => self.entries[place].1 = item,
            None => {
                self.places.insert(key.clone(), self.entries.len());
                self.entries.push((key, item));
            }
        }
    }

    /// What stands under `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Item> {
        self.places.get(key).map(|&place| &self.entries[place].1)
    }

    /// The array under `key`, if it is one.
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
        self.iter()
            .map(|(_, item)| match item {
                Item::Array(array) => array.values.len(),
                Item::Unreadable(_) => 0,
            })
            .sum()
    }

    /// Every key without `prefix`, if all have it; whether it was so.
    pub(crate) fn strip_prefix(&mut self, prefix: &str) -> bool {
        if self.is_empty() || !self.entries.iter().all(|(key, _)| key.starts_with(prefix)) {
            return false;
        }
        let entries = std::mem::take(&mut self.entries);
        self.places.clear();
        for (key, item) in entries {
            self.insert(key[prefix.len()..].to_owned(), item);
        }
        true
    }
}
