//! Writing: PyTorch's archive and safetensors, the same bytes for the same arrays.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{Seek, Write};

use safetensors::tensor::{Dtype, View, serialize};
use zip::write::{SimpleFileOptions, ZipWriter};
use zip::{CompressionMethod, DateTime};

use crate::error::WriteError;
use crate::state_dict::ArrayView;

/// Where PyTorch puts the start of every storage, in bytes.
const ALIGNMENT: u16 = 64;
/// The extra field that PyTorch pads headers with: `FB`.
const PADDING: u16 = 0x4246;
/// The folder in the archive, as PyTorch calls it where it does not know the file's name.
const FOLDER: &str = "archive";

/// A value under a key of a written state dict.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// A tensor of f32.
    Floats(ArrayView<'a>),
    /// A tensor of one int64 without a dimension.
    Integer(i64),
}

impl Value<'_> {
    fn storage(&self) -> &'static str {
        match self {
            Self::Floats(_) => "FloatStorage",
            Self::Integer(_) => "LongStorage",
        }
    }

    fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Floats(array) => Cow::Borrowed(array.bytes),
            Self::Integer(number) => Cow::Owned(number.to_le_bytes().to_vec()),
        }
    }

    fn shape(&self) -> &[usize] {
        match self {
            Self::Floats(array) => array.shape,
            Self::Integer(_) => &[],
        }
    }

    fn numbers(&self) -> usize {
        match self {
            Self::Floats(array) => array.bytes.len() / 4,
            Self::Integer(_) => 1,
        }
    }
}

/// Writes `{"model": arrays}` as `torch.save` does, in f32, with `texts` beside `model`: keys and
/// their values.
///
/// `torch.load(…, weights_only=True)` reads it: the pickle holds dictionaries, texts, numbers and
/// the constructor of tensors. Entries are stored without compression and storages are aligned, so
/// that PyTorch can map them.
///
/// # Errors
///
/// If `writer` fails.
pub fn write_pytorch<'a>(
    writer: impl Write + Seek,
    arrays: impl IntoIterator<Item = (&'a str, ArrayView<'a>)>,
    texts: &[(&str, &str)],
) -> Result<(), WriteError> {
    let values: Vec<_> =
        arrays.into_iter().map(|(key, array)| (key, Value::Floats(array))).collect();
    write(writer, &Beside { meta: None, texts }, "model", &values)
}

/// Writes `{"meta": meta, "state_dict": values}` as mmcv saves a checkpoint, with `texts` beside
/// them; see [`write_pytorch`].
///
/// # Errors
///
/// If `writer` fails.
pub fn write_mmcv<'a>(
    writer: impl Write + Seek,
    meta: &[(&str, &str)],
    values: impl IntoIterator<Item = (&'a str, Value<'a>)>,
    texts: &[(&str, &str)],
) -> Result<(), WriteError> {
    let values: Vec<_> = values.into_iter().collect();
    write(writer, &Beside { meta: Some(meta), texts }, "state_dict", &values)
}

/// Entries of a checkpoint beside its arrays.
struct Beside<'a> {
    /// A dictionary of texts, called so.
    meta: Option<&'a [(&'a str, &'a str)]>,
    /// Texts.
    texts: &'a [(&'a str, &'a str)],
}

fn write(
    writer: impl Write + Seek,
    beside: &Beside<'_>,
    entry: &str,
    values: &[(&str, Value<'_>)],
) -> Result<(), WriteError> {
    let mut zip = ZipWriter::new(writer);
    let pickle = pickle(beside, entry, values);
    start(&mut zip, "data.pkl", pickle.len())?;
    zip.write_all(&pickle)?;
    start(&mut zip, "byteorder", 6)?;
    zip.write_all(b"little")?;
    for (number, (_, value)) in values.iter().enumerate() {
        let bytes = value.bytes();
        start(&mut zip, &format!("data/{number}"), bytes.len())?;
        zip.write_all(&bytes)?;
    }
    start(&mut zip, "version", 2)?;
    zip.write_all(b"3\n")?;
    zip.finish()?.flush()?;
    Ok(())
}

/// Starts the entry `name` of `size` bytes.
fn start<W: Write + Seek>(
    zip: &mut ZipWriter<W>,
    name: &str,
    size: usize,
) -> Result<(), WriteError> {
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .last_modified_time(DateTime::default())
        .large_file(size as u64 >= u64::from(u32::MAX))
        .with_alignment_and_header_id(ALIGNMENT, PADDING);
    Ok(zip.start_file(format!("{FOLDER}/{name}"), options)?)
}

/// The values under `entry`, behind what is `beside` them, as a pickle of protocol 2, every tensor
/// on a storage of its own.
fn pickle(beside: &Beside<'_>, entry: &str, values: &[(&str, Value<'_>)]) -> Vec<u8> {
    let mut out = b"\x80\x02}".to_vec(); // protocol 2; the outer dictionary
    for (key, value) in beside.texts {
        text(&mut out, key);
        text(&mut out, value);
        out.push(b's'); // set the text
    }
    if let Some(meta) = beside.meta {
        text(&mut out, "meta");
        out.extend(b"}("); // a dictionary, and a mark under its entries
        for (key, value) in meta {
            text(&mut out, key);
            text(&mut out, value);
        }
        out.extend(b"us"); // set the entries, set the dictionary
    }
    text(&mut out, entry);
    out.extend(b"ccollections\nOrderedDict\n)R("); // OrderedDict(), and a mark under its entries
    for (number, (key, value)) in values.iter().enumerate() {
        text(&mut out, key);
        // _rebuild_tensor_v2(storage, offset 0, shape, strides, requires_grad False, no hooks)
        out.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        text(&mut out, "storage");
        out.extend(b"ctorch\n");
        out.extend(value.storage().as_bytes());
        out.push(b'\n');
        text(&mut out, &number.to_string());
        text(&mut out, "cpu");
        integer(&mut out, value.numbers());
        out.extend(b"tQK\x00(");
        let shape = value.shape();
        for &length in shape {
            integer(&mut out, length);
        }
        out.extend(b"t(");
        for axis in 0..shape.len() {
            integer(&mut out, shape[axis + 1..].iter().product());
        }
        out.extend(b"t\x89ccollections\nOrderedDict\n)RtR");
    }
    out.extend(b"us."); // set the entries, set `entry`, stop
    out
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.push(b'X');
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text.as_bytes());
}

fn integer(out: &mut Vec<u8>, number: usize) {
    let number = number as u64; // a length, far below 2^63
    match i32::try_from(number) {
        Ok(small) => {
            out.push(b'J');
            out.extend(small.to_le_bytes());
        }
        Err(_) => {
            out.extend([0x8a, 8]);
            out.extend(number.to_le_bytes());
        }
    }
}

impl View for ArrayView<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }
    fn shape(&self) -> &[usize] {
        self.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.bytes)
    }
    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Writes the arrays as safetensors in f32, with `texts` as metadata: keys and their values.
///
/// # Errors
///
/// If `writer` fails, or a shape is not that of its numbers.
pub fn write_safetensors<'a>(
    mut writer: impl Write,
    arrays: impl IntoIterator<Item = (&'a str, ArrayView<'a>)>,
    texts: &[(&str, &str)],
) -> Result<(), WriteError> {
    let file = serialize(arrays, None)?;
    // The library writes several texts in no fixed order, and the same arrays and texts must be the
    // same bytes: they are put into its header here.
    let length = file.first_chunk::<8>().map_or(0, |length| u64::from_le_bytes(*length) as usize);
    let (header, numbers) = file[size_of::<u64>()..].split_at(length);
    let texts: BTreeMap<&str, &str> = texts.iter().copied().collect();
    let header = with_texts(header, &texts);
    writer.write_all(&(header.len() as u64).to_le_bytes())?;
    writer.write_all(&header)?;
    writer.write_all(numbers)?;
    writer.flush()?;
    Ok(())
}

/// A header of safetensors, `{…}` and spaces to a multiple of eight bytes, with `texts` first.
fn with_texts(header: &[u8], texts: &BTreeMap<&str, &str>) -> Vec<u8> {
    if texts.is_empty() {
        return header.to_vec();
    }
    let texts = serde_json::to_string(texts).expect("invariant: texts have a JSON form");
    let arrays = header[1..].trim_ascii_end();
    let comma = if arrays == b"}" { "" } else { "," };
    let mut header = format!("{{\"__metadata__\":{texts}{comma}").into_bytes();
    header.extend(arrays);
    header.resize(header.len().next_multiple_of(size_of::<u64>()), b' ');
    header
}
