//! The part of a pickled checkpoint that holds the parameters.

use std::collections::BTreeMap;

use crate::element::Element;
use crate::error::ReadError;
use crate::limits::{Budget, MAX_RANK};
use crate::pickle::{Id, Node, Nodes, short};

/// Which parameters, where a file holds several sets of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Section {
    /// Those that were trained.
    #[default]
    Model,
    /// Their moving average.
    Ema,
}

impl Section {
    /// Names of the entry in the original's files and in timm's.
    fn names(self) -> [&'static str; 2] {
        match self {
            Self::Model => ["model", "state_dict"],
            Self::Ema => ["model_ema", "state_dict_ema"],
        }
    }

    pub(crate) fn not_in(self, found: Vec<String>) -> ReadError {
        let wanted = self.names().map(|name| format!("`{name}`")).join(" or ");
        ReadError::NoSection { wanted, found }
    }
}

/// Name of a dictionary without entries in errors.
const EMPTY: &str = "an empty dictionary";
/// The longest key of a parameter, in bytes.
const MAX_KEY: usize = 1024;

/// A state dict in a pickle, not yet read.
pub(crate) struct Found {
    /// The entry's name; none where the file is a state dict itself.
    pub(crate) entry: Option<String>,
    /// The file's other entries.
    pub(crate) others: Vec<String>,
    /// In the pickle's order.
    pub(crate) tensors: Tensors,
}

/// Tensors by key, in order; the error describes a value that is no tensor.
type Tensors = Vec<(String, Result<View, String>)>;

/// A tensor in a pickle: a view of a storage.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// The storage's node, the same for tensors that share it.
    pub(crate) storage: Id,
    /// Name of its file in the archive.
    pub(crate) key: String,
    pub(crate) element: Element,
    /// Numbers in the storage.
    pub(crate) length: usize,
    /// Number of the storage that comes first.
    pub(crate) offset: usize,
    pub(crate) shape: Vec<usize>,
    /// Numbers of the storage from one element of a dimension to the next.
    pub(crate) strides: Vec<usize>,
}

/// Finds the state dict of `section` in the value `root`.
pub(crate) fn find(nodes: &Nodes, root: Id, section: Section) -> Result<Found, ReadError> {
    let whole = "the file".to_owned();
    let Some(pairs) = nodes.dict(root) else {
        return Err(ReadError::NotAStateDict { entry: whole, found: nodes.describe(root) });
    };
    let wanted = |name| pairs.iter().rev().find(|&&(key, _)| nodes.text(key) == Some(name));
    if let Some(&(key, value)) = section.names().into_iter().find_map(wanted) {
        let entry = nodes.text(key).unwrap_or_default().to_owned();
        let Some(inner) = nodes.dict(value).filter(|inner| !inner.is_empty()) else {
            let is_empty = nodes.dict(value).is_some();
            let found = if is_empty { EMPTY.to_owned() } else { nodes.describe(value) };
            return Err(ReadError::NotAStateDict { entry: format!("`{entry}`"), found });
        };
        let others = names(nodes, pairs).filter(|name| *name != entry).collect();
        return Ok(Found { entry: Some(entry), others, tensors: tensors(nodes, inner)? });
    }
    let holds_tensors = pairs.iter().any(|&(_, value)| matches!(nodes.get(value), Node::Tensor(_)));
    if section == Section::Model && holds_tensors {
        return Ok(Found { entry: None, others: Vec::new(), tensors: tensors(nodes, pairs)? });
    }
    if pairs.is_empty() {
        return Err(ReadError::NotAStateDict { entry: whole, found: EMPTY.to_owned() });
    }
    const SHOWN: usize = 12;
    let mut found: Vec<String> = names(nodes, pairs).take(SHOWN).collect();
    if pairs.len() > SHOWN {
        found.push(format!("and {} more", pairs.len() - SHOWN));
    }
    Err(section.not_in(found))
}

fn names<'a>(nodes: &'a Nodes, pairs: &'a [(Id, Id)]) -> impl Iterator<Item = String> + 'a {
    pairs.iter().map(|&(key, _)| nodes.text(key).map_or_else(|| nodes.describe(key), short))
}

/// The entries of the file that are texts, by name.
pub(crate) fn texts(
    nodes: &Nodes,
    root: Id,
    budget: &mut Budget,
) -> Result<BTreeMap<String, String>, ReadError> {
    let mut texts = BTreeMap::new();
    for &(key, value) in nodes.dict(root).unwrap_or_default() {
        if let (Some(key), Some(text)) = (nodes.text(key), nodes.text(value)) {
            // One text of a pickle may be the value of many keys.
            budget.take((key.len() + text.len()) as u64, "the texts beside the parameters")?;
            texts.insert(key.to_owned(), text.to_owned());
        }
    }
    Ok(texts)
}

/// The tensors of a state dict; other entries are described.
fn tensors(nodes: &Nodes, pairs: &[(Id, Id)]) -> Result<Tensors, ReadError> {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut values: Vec<(&str, Id)> = Vec::new();
    for &(key, value) in pairs {
        let wrong = |found: String| ReadError::NotAStateDict { entry: "a key".into(), found };
        let name = nodes.text(key).ok_or_else(|| wrong(nodes.describe(key)))?;
        if name.len() > MAX_KEY {
            return Err(wrong(format!("a text of {} bytes", name.len())));
        }
        let place = *places.entry(name).or_insert(values.len());
        if place == values.len() {
            values.push((name, value));
        } else {
            values[place].1 = value;
        }
    }
    Ok(values.into_iter().map(|(name, value)| (name.to_owned(), view(nodes, value))).collect())
}

/// `value` as a tensor, or a description of it.
fn view(nodes: &Nodes, value: Id) -> Result<View, String> {
    let Node::Tensor(arguments) = *nodes.get(value) else { return Err(nodes.describe(value)) };
    let Some(&[storage, offset, shape, strides, ..]) = nodes.sequence(arguments) else {
        return Err("a tensor without its arguments".into());
    };
    let Node::Storage(id) = *nodes.get(storage) else {
        return Err(format!("a tensor on {}", nodes.describe(storage)));
    };
    // ("storage", class, name of the file, device, length): the device does not matter here.
    let wrong = || "a tensor on a storage of an unknown kind".to_owned();
    let &[kind, class, key, _device, length, ..] = nodes.sequence(id).ok_or_else(wrong)? else {
        return Err(wrong());
    };
    if nodes.text(kind) != Some("storage") {
        return Err(wrong());
    }
    let (_, class) = nodes.global(class).ok_or_else(wrong)?;
    let element = Element::of_storage(class).ok_or_else(|| {
        format!("a tensor of {} numbers", short(class.trim_end_matches("Storage")))
    })?;
    let key = nodes.text(key).filter(|key| key.len() <= MAX_KEY).ok_or_else(wrong)?.to_owned();
    let length = nodes.count(length).ok_or_else(wrong)?;
    let offset = nodes.count(offset).ok_or("a tensor at a negative offset")?;
    let (shape, strides) = (counts(nodes, shape), counts(nodes, strides));
    let (Some(shape), Some(strides)) = (shape, strides) else {
        return Err("a tensor whose shape is not one".into());
    };
    if shape.len() != strides.len() {
        return Err("a tensor with a stride too many or too few".into());
    }
    Ok(View { storage, key, element, length, offset, shape, strides })
}

/// The numbers of a shape.
fn counts(nodes: &Nodes, id: Id) -> Option<Vec<usize>> {
    let items = nodes.sequence(id).filter(|items| items.len() <= MAX_RANK)?;
    items.iter().map(|&item| nodes.count(item)).collect()
}
