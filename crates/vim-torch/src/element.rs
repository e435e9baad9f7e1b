//! The types of numbers in files.

use half::{bf16, f16};
use safetensors::Dtype;

/// The type of a tensor's numbers as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Element {
    /// 64-bit float.
    F64,
    /// 32-bit float.
    F32,
    /// 16-bit float of IEEE 754.
    F16,
    /// The upper half of a 32-bit float.
    Bf16,
}

impl Element {
    /// Bytes of a number.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::F64 => 8,
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// The little-endian number in `bytes`, which has [`Element::size`] of them.
    pub(crate) fn decode(self, bytes: &[u8]) -> f32 {
        match (self, bytes) {
            (Self::F64, &[a, b, c, d, e, f, g, h]) => {
                f64::from_le_bytes([a, b, c, d, e, f, g, h]) as f32
            }
            (Self::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
            (Self::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f32(),
            (Self::Bf16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f32(),
            (Self::F64 | Self::F32 | Self::F16 | Self::Bf16, _) => f32::NAN,
        }
    }

    /// Whether a storage class of PyTorch is of integers.
    pub(crate) fn is_integer_storage(class: &str) -> bool {
        ["LongStorage", "IntStorage", "ShortStorage", "CharStorage", "ByteStorage"].contains(&class)
    }

    /// Whether a type of safetensors is of integers.
    pub(crate) fn is_integer_dtype(dtype: Dtype) -> bool {
        use Dtype::{I8, I16, I32, I64, U8, U16, U32, U64};
        matches!(dtype, I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64)
    }

    /// Of a storage class of PyTorch, such as `FloatStorage`.
    pub(crate) fn of_storage(class: &str) -> Option<Self> {
        STORED.iter().find(|(_, name, _)| *name == class).map(|(element, ..)| *element)
    }

    /// Of a safetensors header.
    pub(crate) fn of_safetensors(dtype: Dtype) -> Option<Self> {
        STORED.iter().find(|(.., known)| *known == dtype).map(|(element, ..)| *element)
    }
}

/// The names of the elements in the two formats.
const STORED: [(Element, &str, Dtype); 4] = [
    (Element::F64, "DoubleStorage", Dtype::F64),
    (Element::F32, "FloatStorage", Dtype::F32),
    (Element::F16, "HalfStorage", Dtype::F16),
    (Element::Bf16, "BFloat16Storage", Dtype::BF16),
];

impl std::fmt::Display for Element {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        })
    }
}
