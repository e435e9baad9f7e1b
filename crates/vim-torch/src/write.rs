//! Writing: PyTorch's archive and safetensors, the same bytes for the same arrays.

use std::borrow::Cow;
use std::collections::HashMap;
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

/// Writes `{"model": arrays}` as `torch.save` does, in f32.
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
) -> Result<(), WriteError> {
    let values: Vec<_> =
        arrays.into_iter().map(|(key, array)| (key, Value::Floats(array))).collect();
    write(writer, "model", None, &values)
}

/// Writes `{"meta": meta, "state_dict": values}` as mmcv saves a checkpoint; see [`write_pytorch`].
///
/// # Errors
///
/// If `writer` fails.
pub fn write_mmcv<'a>(
    writer: impl Write + Seek,
    meta: &[(&str, &str)],
    values: impl IntoIterator<Item = (&'a str, Value<'a>)>,
) -> Result<(), WriteError> {
    let values: Vec<_> = values.into_iter().collect();
    write(writer, "state_dict", Some(("meta", meta)), &values)
}

/// A dictionary of texts under a name.
type Texts<'a> = (&'a str, &'a [(&'a str, &'a str)]);

fn write(
    writer: impl Write + Seek,
    entry: &str,
    texts: Option<Texts<'_>>,
    values: &[(&str, Value<'_>)],
) -> Result<(), WriteError> {
    let mut zip = ZipWriter::new(writer);
    let pickle = pickle(entry, texts, values);
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

/// The values under `entry`, behind `texts`, as a pickle of protocol 2, every tensor on a storage
/// of its own.
fn pickle(entry: &str, texts: Option<Texts<'_>>, values: &[(&str, Value<'_>)]) -> Vec<u8> {
    let mut out = b"\x80\x02}".to_vec(); // protocol 2; the outer dictionary
    if let Some((name, texts)) = texts {
        text(&mut out, name);
        out.extend(b"}("); // a dictionary, and a mark under its entries
        for (key, value) in texts {
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

/// Writes the arrays as safetensors in f32, with at most one text beside them, `metadata`: a key
/// and its value. The format's library writes several texts in no fixed order.
///
/// # Errors
///
/// If `writer` fails, or a shape is not that of its numbers.
pub fn write_safetensors<'a>(
    mut writer: impl Write,
    arrays: impl IntoIterator<Item = (&'a str, ArrayView<'a>)>,
    metadata: Option<(&str, &str)>,
) -> Result<(), WriteError> {
    let metadata = metadata.map(|(key, text)| HashMap::from([(key.to_owned(), text.to_owned())]));
    writer.write_all(&serialize(arrays, metadata)?)?;
    writer.flush()?;
    Ok(())
}
