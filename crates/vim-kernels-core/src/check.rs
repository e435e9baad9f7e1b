//! Checks that several operations share: shapes, types, and sizes that a GPU can count and launch.

use burn::tensor::{DType, Device, Tensor};

use crate::error::KernelError;
use crate::precision::Precision;

/// The largest grid in y and z that every GPU can launch.
pub const MAX_ROWS: usize = 65_535;

/// The most elements that a 32-bit index can address.
pub const MAX_ELEMENTS: usize = u32::MAX as usize;

/// The shape of an argument, and its type.
pub type ShapeAndType<const R: usize> = ([usize; R], DType);

pub fn shape_of<const R: usize>(tensor: &Tensor<R>) -> ShapeAndType<R> {
    (tensor.dims(), tensor.dtype())
}

/// Fewest rows of a product for each cube where there are many rows; also the rows of a strip of a
/// column sum.
const MIN_ROWS_PER_CUBE: usize = 64;

/// Checks that the matrix kernels can index and launch `tokens` rows of at most `width` elements.
///
/// # Errors
///
/// [`KernelError::TooLarge`] names what is too large.
pub fn check_rows(operation: &'static str, tokens: usize, width: usize) -> Result<(), KernelError> {
    check_limit(operation, "a number of tokens", tokens, MAX_ROWS * MIN_ROWS_PER_CUBE)?;
    check_buffers(operation, [tokens * width])
}

pub fn check_limit(
    operation: &'static str,
    what: &'static str,
    got: usize,
    limit: usize,
) -> Result<(), KernelError> {
    let error = KernelError::TooLarge { operation, what, got, limit };
    if got <= limit { Ok(()) } else { Err(error) }
}

/// As [`check_limit`], of what a smaller batch does not lessen.
pub fn check_size(
    operation: &'static str,
    what: &'static str,
    got: usize,
    limit: usize,
) -> Result<(), KernelError> {
    let error = KernelError::Beyond { operation, what, got, limit };
    if got <= limit { Ok(()) } else { Err(error) }
}

/// An error about `tensor` unless `good`.
pub fn expect(
    operation: &'static str,
    tensor: &'static str,
    got: &[usize],
    good: bool,
    expected: String,
) -> Result<(), KernelError> {
    let got = got.to_vec();
    if good { Ok(()) } else { Err(KernelError::Shape { operation, tensor, got, expected }) }
}

/// Activations are f32, or all of them bf16 where the device has it; weights are f32.
pub fn check_dtypes(
    operation: &'static str,
    device: &Device,
    activations: &[(&'static str, DType)],
    weights: &[(&'static str, Option<DType>)],
) -> Result<(), KernelError> {
    let first = activations.first().map(|&(_, dtype)| dtype);
    let wanted = match first {
        Some(DType::BF16) if device.supports_dtype(DType::BF16) => DType::BF16,
        Some(_) | None => DType::F32,
    };
    let activations = activations.iter().map(|&(tensor, dtype)| (tensor, Some(dtype), wanted));
    let weights = weights.iter().map(|&(tensor, dtype)| (tensor, dtype, DType::F32));
    for (tensor, dtype, wanted) in activations.chain(weights) {
        if let Some(dtype) = dtype.filter(|&dtype| dtype != wanted) {
            return Err(KernelError::Dtype { operation, tensor, got: dtype.name().to_string() });
        }
    }
    Ok(())
}

/// Checks that activations of `dtype` are f32 or those of `precision`: a product's kernels read
/// both factors in the type that they multiply.
///
/// # Errors
///
/// [`KernelError::Dtype`].
pub fn check_precision(
    operation: &'static str,
    tensor: &'static str,
    dtype: DType,
    precision: Precision,
) -> Result<(), KernelError> {
    if dtype == DType::F32 || dtype == precision.activations() {
        return Ok(());
    }
    let got = format!("{} in precision {precision}", dtype.name());
    Err(KernelError::Dtype { operation, tensor, got })
}

/// Checks that 32 bits index each of an operation's buffers, of these lengths.
///
/// # Errors
///
/// [`KernelError::TooLarge`].
pub fn check_buffers(
    operation: &'static str,
    lengths: impl IntoIterator<Item = usize>,
) -> Result<(), KernelError> {
    let largest = lengths.into_iter().max().unwrap_or(0);
    check_limit(operation, "a buffer", largest, MAX_ELEMENTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_beyond_a_launch_are_named() {
        let rows = |tokens, width| match check_rows("linear", tokens, width) {
            Err(KernelError::TooLarge { what, .. }) => what,
            Ok(()) | Err(_) => "nothing",
        };
        assert_eq!(rows(512 * 197, 1536), "nothing");
        assert_eq!(rows(65_535 * 64 + 1, 16), "a number of tokens");
        assert_eq!(rows(4_000_000, 1536), "a buffer");
    }
}
