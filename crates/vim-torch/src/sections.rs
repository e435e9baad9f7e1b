//! The part of a pickled checkpoint that holds the parameters.

use std::collections::{BTreeMap, BTreeSet};

use crate::element::Element;
use crate::error::ReadError;
use crate::limits::{Budget, MAX_RANK};
use crate::pickle::{Id, Node, Nodes, short};
use crate::wrappers::is_counter;

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
    /// Names of the entry: in the original's files and in timm's, then, where neither is there, in
    /// those of others.
    fn names(self) -> [&'static [&'static str]; 2] {
        match self {
            Self::Model => [
                &["model", "state_dict"],
                &[
                    "model_state_dict",
                    "model_state",
                    "module",
                    "net",
                    "network",
                    "state",
                    "weights",
                    "params",
                    "student",
                    "teacher",
                ],
            ],
            Self::Ema => [
                &["model_ema", "state_dict_ema"],
                &["ema_state_dict", "ema_model", "ema", "params_ema"],
            ],
        }
    }

    pub(crate) fn not_in(self, found: Vec<String>) -> ReadError {
        let [usual, other] = self.names();
        let listed = |names: &[&str], between: &str| {
            names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(between)
        };
        let wanted = format!("{}, nor {}", listed(usual, " or "), listed(other, ", "));
        ReadError::NoSection { wanted, found }
    }
}

/// Name of a dictionary without entries in errors.
const EMPTY: &str = "an empty dictionary";
/// How many entries may be in each other.
const MAX_DEPTH: usize = 4;
/// The longest key of a parameter, in bytes.
const MAX_KEY: usize = 1024;

/// A state dict in a pickle, not yet read.
pub(crate) struct Found {
    /// The entry's name, or the path to it; none where the file is a state dict itself.
    pub(crate) entry: Option<String>,
    /// The file's other entries, and the keys of the state dict's counters.
    pub(crate) ignored: Vec<String>,
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
    let mut seen = BTreeSet::from([root]);
    let mut entries = entries(nodes, pairs, section, &mut seen, 1);
    if entries.len() > 1 {
        let found = entries.into_iter().map(|entry| entry.path.join(".")).collect();
        return Err(ReadError::Ambiguous { found });
    }
    if let Some(Entry { path, inner }) = entries.pop() {
        let (tensors, counters) = tensors(nodes, inner)?;
        let ignored = beside(nodes, pairs, &path).into_iter().chain(counters).collect();
        return Ok(Found { entry: Some(path.join(".")), ignored, tensors });
    }
    if section == Section::Model && holds_tensors(nodes, pairs) {
        let (tensors, ignored) = tensors(nodes, pairs)?;
        return Ok(Found { entry: None, ignored, tensors });
    }
    if pairs.is_empty() {
        return Err(ReadError::NotAStateDict { entry: whole, found: EMPTY.to_owned() });
    }
    // What has the right name and is no state dict: a whole model, saved as an object, says most.
    let [usual, other] = section.names();
    let present = |names: &[&'static str]| -> Vec<(&'static str, Id)> {
        names.iter().filter_map(|&name| Some((name, value_of(nodes, pairs, name)?))).collect()
    };
    let (usual, other) = (present(usual), present(other));
    let is_object = |&&(_, value): &&(_, Id)| matches!(nodes.get(value), Node::Object { .. });
    let mut objects = usual.iter().chain(&other).filter(is_object);
    if let Some(&(name, value)) = objects.next().or_else(|| usual.first()) {
        let found = match nodes.dict(value) {
            None => nodes.describe(value),
            Some([]) => EMPTY.to_owned(),
            Some(_) => "a dictionary without tensors".to_owned(),
        };
        return Err(ReadError::NotAStateDict { entry: format!("`{name}`"), found });
    }
    const SHOWN: usize = 12;
    let mut found: Vec<String> = names(nodes, pairs).take(SHOWN).collect();
    if pairs.len() > SHOWN {
        found.push(format!("and {} more", pairs.len() - SHOWN));
    }
    Err(section.not_in(found))
}

/// A state dict in a dictionary.
struct Entry<'a> {
    /// The names of the entries that lead to it.
    path: Vec<&'static str>,
    inner: &'a [(Id, Id)],
}

/// The state dicts in `pairs`, which are `depth` deep, under the names of `section`: the usual
/// names if they lead to one, else all others. What was `seen` is not looked at again, so that
/// dictionaries that share or contain each other are cheap.
fn entries<'a>(
    nodes: &'a Nodes,
    pairs: &[(Id, Id)],
    section: Section,
    seen: &mut BTreeSet<Id>,
    depth: usize,
) -> Vec<Entry<'a>> {
    for known in section.names() {
        let mut found = Vec::new();
        for &name in known {
            let Some(value) = value_of(nodes, pairs, name) else { continue };
            let Some(inner) = nodes.dict(value).filter(|_| seen.insert(value)) else { continue };
            if holds_tensors(nodes, inner) {
                found.push(Entry { path: vec![name], inner });
            } else if depth < MAX_DEPTH {
                let mut below = entries(nodes, inner, Section::Model, seen, depth + 1);
                below.iter_mut().for_each(|entry| entry.path.insert(0, name));
                found.append(&mut below);
            }
        }
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

/// The entries beside those on `path`, each by the path to it.
fn beside<'a>(nodes: &'a Nodes, mut pairs: &'a [(Id, Id)], path: &[&str]) -> Vec<String> {
    let (mut found, mut parents) = (Vec::new(), String::new());
    for name in path {
        let others = names(nodes, pairs).filter(|other| other != name);
        found.extend(others.map(|other| format!("{parents}{other}")));
        pairs = value_of(nodes, pairs, name).and_then(|id| nodes.dict(id)).unwrap_or_default();
        parents = format!("{parents}{name}.");
    }
    found
}

/// The value of `name`, the last one as in Python.
fn value_of(nodes: &Nodes, pairs: &[(Id, Id)], name: &str) -> Option<Id> {
    let found = pairs.iter().rev().find(|&&(key, _)| nodes.text(key) == Some(name));
    found.map(|&(_, value)| value)
}

fn holds_tensors(nodes: &Nodes, pairs: &[(Id, Id)]) -> bool {
    pairs.iter().any(|&(_, value)| matches!(nodes.get(value), Node::Tensor(_)))
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

/// The tensors of a state dict, where other entries are described, and the keys of its counters.
fn tensors(nodes: &Nodes, pairs: &[(Id, Id)]) -> Result<(Tensors, Vec<String>), ReadError> {
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
    let is_counter = |&(name, value): &(&str, Id)| {
        if let Node::Int(_) = nodes.get(value) {
            return is_counter(name, &[], true);
        }
        shape_and_class(nodes, value).is_some_and(|(shape, class)| {
            is_counter(name, &shape, Element::is_integer_storage(class))
        })
    };
    let (counters, values): (Vec<_>, Vec<_>) = values.into_iter().partition(is_counter);
    let counters = counters.into_iter().map(|(name, _)| name.escape_debug().to_string()).collect();
    let tensors = values.into_iter().map(|(name, value)| (name.to_owned(), view(nodes, value)));
    Ok((tensors.collect(), counters))
}

/// The shape of `value`, if it is a tensor, and the class of its storage.
fn shape_and_class(nodes: &Nodes, value: Id) -> Option<(Vec<usize>, &str)> {
    let Node::Tensor(arguments) = *nodes.get(value) else { return None };
    let &[storage, _, shape, ..] = nodes.sequence(arguments)? else { return None };
    let Node::Storage(id) = *nodes.get(storage) else { return None };
    let &[_, class, ..] = nodes.sequence(id)? else { return None };
    Some((counts(nodes, shape)?, nodes.global(class)?.1))
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
