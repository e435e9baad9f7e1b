//! Which views the kernels read in place.

use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;

use super::dense;
use crate::check::MAX_ELEMENTS;

/// The tensor `[B, L, D]` itself if its rows are contiguous, with any stride between rows; else a
/// copy.
pub fn in_rows(tensor: CubeTensor) -> CubeTensor {
    let in_place = tensor.meta.strides()[2] == 1 && fits_u32_index(&tensor);
    if in_place { tensor } else { dense(tensor) }
}

/// Whether 32 bits count the elements of the memory that the view spans, from its first element to
/// its last. Kernels that take strides index with 32 bits; of a view that spans more, a slice of a
/// larger tensor, they need a dense copy.
pub fn fits_u32_index(tensor: &CubeTensor) -> bool {
    let shape: Vec<usize> = tensor.shape().iter().copied().collect();
    span(&shape, tensor.meta.strides()) <= MAX_ELEMENTS
}

/// Elements from the first of a view to its last.
fn span(shape: &[usize], strides: &[usize]) -> usize {
    if shape.contains(&0) {
        return 0;
    }
    let last = |(&size, &stride): (&usize, &usize)| (size - 1).saturating_mul(stride);
    shape.iter().zip(strides).map(last).fold(1, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_spans_what_lies_between_its_elements() {
        assert_eq!(span(&[2, 3, 4], &[12, 4, 1]), 24);
        // Every second row.
        assert_eq!(span(&[2, 3, 4], &[24, 8, 1]), 24 + 16 + 4);
        // A broadcast axis spans nothing.
        assert_eq!(span(&[7, 3, 4], &[0, 4, 1]), 12);
        assert_eq!(span(&[0, 3, 4], &[12, 4, 1]), 0);
    }

    // A slice of a tensor with 128 times as many columns.
    #[test]
    fn a_slice_of_a_larger_tensor_spans_more_than_its_elements() {
        let shape = [512, 197, 384];
        assert!(span(&shape, &[197 * 384, 384, 1]) <= MAX_ELEMENTS);
        let columns = 128 * 384;
        assert!(span(&shape, &[197 * columns, columns, 1]) > MAX_ELEMENTS);
        assert_eq!(span(&[3, 2], &[usize::MAX, 1]), usize::MAX);
    }
}
