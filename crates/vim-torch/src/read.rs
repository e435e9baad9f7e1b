//! Reading: the format of a file, and the arrays in it.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};

use safetensors::{SafeTensorError, SafeTensors};

use crate::archive::Archive;
use crate::element::Element;
use crate::error::ReadError;
use crate::limits::{Budget, MAX_HEADER};
use crate::pickle;
use crate::sections::{Found, Section, View, find, texts};
use crate::state_dict::{Array, Checkpoint, Format, Item, StateDict};
use crate::wrappers::{Unwrapped, is_counter, unwrap};

/// Reads the parameters of `section`.
///
/// Only that section is read: the optimizer's numbers of a PyTorch checkpoint are skipped. Wrappers
/// of a model, such as `module.`, are taken off its keys: [`Checkpoint::prefix`] and
/// [`Checkpoint::inner`].
///
/// # Errors
///
/// [`ReadError`] says in one line what is wrong with the file. A tensor of integers is no error: it
/// is an [`Item::Unreadable`] in the state dict, or, if it counts something, ignored.
pub fn read_checkpoint(
    mut reader: impl Read + Seek,
    section: Section,
) -> Result<Checkpoint, ReadError> {
    let length = reader.seek(SeekFrom::End(0))?;
    reader.rewind()?;
    let mut start = Vec::new();
    reader.by_ref().take(512).read_to_end(&mut start)?;
    reader.rewind()?;
    let mut checkpoint = match start.as_slice() {
        [b'P', b'K', 3 | 5, 4 | 6, ..] => pytorch(reader, length, section)?,
        // A length, then JSON.
        [_, _, _, _, _, 0, 0, 0, b'{', ..] => {
            if section != Section::Model {
                return Err(section.not_in(vec!["its tensors alone, being safetensors".to_owned()]));
            }
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes)?;
            safetensors(&bytes, is_counter)?
        }
        start => return Err(unknown(start)),
    };
    let Unwrapped { prefix, inner } = unwrap(&mut checkpoint.state);
    Ok(Checkpoint { prefix, inner, ..checkpoint })
}

/// What a file that begins with `start` may be, if it is neither format.
fn unknown(start: &[u8]) -> ReadError {
    /// The number that a file of the old format begins with, pickled.
    const LEGACY: &[u8] = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
    let is_legacy = start.get(2..).is_some_and(|rest| rest.starts_with(LEGACY));
    if is_legacy || start.get(257..262) == Some(b"ustar") {
        return ReadError::Legacy;
    }
    let found = match start {
        [] => "it is empty".to_owned(),
        [0x80, 2..=5, ..] => "it is a bare pickle".to_owned(),
        [0x89, b'H', b'D', b'F', ..] => "it is HDF5".to_owned(),
        [b'<', ..] => "it is a web page".to_owned(),
        [b'v', b'e', b'r', b's', b'i', b'o', b'n', b' ', ..] => {
            "it is a pointer of Git LFS, not the file (git lfs pull)".to_owned()
        }
        start => {
            let bytes: Vec<String> = start.iter().take(4).map(|b| format!("{b:02x}")).collect();
            format!("it begins with the bytes {}", bytes.join(" "))
        }
    };
    ReadError::Unknown { found }
}

fn pytorch(
    reader: impl Read + Seek,
    length: u64,
    section: Section,
) -> Result<Checkpoint, ReadError> {
    let mut archive = Archive::open(reader)?;
    let mut budget = Budget::of_file(length);
    let (nodes, root) = pickle::run(&archive.pickle(&mut budget)?)?;
    let Found { entry, ignored, tensors } = find(&nodes, root, section)?;
    let about = texts(&nodes, root, &mut budget)?;
    drop(nodes);
    let mut state = StateDict::default();
    let mut last: Option<(pickle::Id, Vec<u8>)> = None; // tensors may share a storage
    for (key, view) in tensors {
        let item = match view {
            Err(what) => Item::Unreadable(what),
            Ok(view) => {
                let size = (view.length as u64).checked_mul(view.element.size() as u64);
                let size = size.ok_or_else(|| too_large(&key, &budget))?;
                let bytes = match last.take() {
                    Some((storage, bytes)) if storage == view.storage => bytes,
                    Some(_) | None => archive.storage(&view.key, size, &mut budget)?,
                };
                let array = gather(&key, &view, &bytes, &mut budget)?;
                last = Some((view.storage, bytes));
                Item::Array(array)
            }
        };
        state.insert(key, item);
    }
    Ok(Checkpoint {
        format: Format::Pytorch,
        entry,
        ignored,
        prefix: None,
        inner: Vec::new(),
        state,
        about,
    })
}

fn too_large(key: &str, budget: &Budget) -> ReadError {
    ReadError::TooLarge { what: key.to_owned(), bytes: u64::MAX, limit: budget.total() }
}

/// The numbers of a view of the storage `bytes`, row by row.
fn gather(key: &str, view: &View, bytes: &[u8], budget: &mut Budget) -> Result<Array, ReadError> {
    let count = view.shape.iter().try_fold(1_usize, |count, &n| count.checked_mul(n));
    let count = count.ok_or_else(|| too_large(key, budget))?;
    budget.take((count as u64).saturating_mul(4), key)?;
    let mut values = Vec::new();
    if count > 0 {
        let last =
            view.shape.iter().zip(&view.strides).try_fold(view.offset, |last, (&n, &by)| {
                last.checked_add((n - 1).checked_mul(by)?)
            });
        if last.is_none_or(|last| last >= view.length) {
            return Err(ReadError::damaged(format!("{key} reaches past the end of its storage")));
        }
        values.reserve_exact(count);
        let (size, rank) = (view.element.size(), view.shape.len());
        let mut index = vec![0; rank];
        let mut at = view.offset;
        for _ in 0..count {
            values.push(view.element.decode(&bytes[at * size..(at + 1) * size]));
            for axis in (0..rank).rev() {
                index[axis] += 1;
                at += view.strides[axis];
                if index[axis] < view.shape[axis] {
                    break;
                }
                at -= view.strides[axis] * view.shape[axis];
                index[axis] = 0;
            }
        }
    }
    Ok(Array { shape: view.shape.clone(), values, stored: view.element })
}

/// Reads the bytes of a safetensors file. Keys stay as they are, and all are there.
///
/// # Errors
///
/// [`ReadError`] says in one line what is wrong with the file.
pub fn read_safetensors(bytes: &[u8]) -> Result<Checkpoint, ReadError> {
    safetensors(bytes, |_, _, _| false)
}

/// All of a safetensors file but the numbers that `is_ignored`, by key, shape and whether they are
/// integers.
fn safetensors(
    bytes: &[u8],
    is_ignored: fn(&str, &[usize], bool) -> bool,
) -> Result<Checkpoint, ReadError> {
    let length = bytes.len() as u64;
    let size = bytes.first_chunk().ok_or_else(|| ReadError::damaged("it ends early"))?;
    let size = u64::from_le_bytes(*size);
    if size > MAX_HEADER || size > length {
        return Err(ReadError::damaged(format!(
            "its header would have {size} bytes, the file has {length}"
        )));
    }
    let mut budget = Budget::of_file(length);
    let wrong = |error: SafeTensorError| ReadError::damaged(error.to_string().replace('\n', " "));
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(wrong)?;
    let about = header.metadata().iter().flatten();
    let about: BTreeMap<String, String> =
        about.map(|(key, text)| (key.clone(), text.clone())).collect();
    let tensors = SafeTensors::deserialize(bytes).map_err(wrong)?;
    let (mut state, mut ignored) = (StateDict::default(), Vec::new());
    for key in header.offset_keys() {
        let tensor = tensors.tensor(&key).map_err(wrong)?;
        if is_ignored(&key, tensor.shape(), Element::is_integer_dtype(tensor.dtype())) {
            ignored.push(key.escape_debug().to_string());
            continue;
        }
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
        ignored,
        prefix: None,
        inner: Vec::new(),
        state,
        about,
    })
}
