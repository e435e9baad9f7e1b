//! The matrices that are multiplied.

use burn::backend::TensorMetadata;
use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;

use super::round::{rounded, scaled};
use vim_kernels_core::cube::dense;
use vim_kernels_core::cube::strides::fits_u32_index;
use vim_kernels_core::{Precision, constant_by_address};

/// The name of a weight in bf16 among what is made of weights.
pub const ROUNDED: &str = "rounded";

/// The name of half a weight there.
pub fn halved(precision: Precision) -> &'static str {
    match precision {
        Precision::Bf16 => "half, rounded",
        Precision::F32 | Precision::Tf32 => "half",
    }
}

/// A matrix in a buffer, stored by rows or by columns; or `count` matrices of the same size.
#[derive(Clone, Debug)]
pub struct Matrix {
    pub buffer: CubeTensor,
    /// Rows and columns.
    pub size: [usize; 2],
    /// From a row, or column, to the next.
    pub(super) row_stride: usize,
    pub(super) by_columns: bool,
    /// Number of matrices, and the distance between their first elements.
    pub(super) count: usize,
    pub(super) batch_stride: usize,
}

impl Matrix {
    /// The first `size` elements of a buffer of dense rows.
    pub fn dense(buffer: &CubeTensor, size: [usize; 2]) -> Self {
        Self::within(buffer, size, 0, size[1])
    }

    /// A weight with any row stride; copied only where the elements of a row are not adjacent or 32
    /// bits do not index it.
    pub fn weight(tensor: &CubeTensor) -> Self {
        let [rows, columns] = tensor.shape().dims();
        match tensor.meta.strides()[..] {
            [row_stride, 1] if row_stride >= columns && fits_u32_index(tensor) => {
                Self::within(tensor, [rows, columns], 0, row_stride)
            }
            _ => Self::dense(&dense(tensor.clone()), [rows, columns]),
        }
    }

    /// The weight in the type that is multiplied in this precision.
    pub fn rounded_weight(tensor: &CubeTensor, precision: Precision) -> CubeTensor {
        match precision {
            Precision::F32 | Precision::Tf32 => tensor.clone(),
            Precision::Bf16 => {
                let [rounded] = constant_by_address(ROUNDED, &[tensor], || {
                    [rounded(&Self::weight(tensor)).buffer]
                });
                rounded
            }
        }
    }

    /// Half of the weight, in the same type.
    pub fn halved_weight(tensor: &CubeTensor, precision: Precision) -> CubeTensor {
        let dtype = precision.activations();
        let [half] = constant_by_address(halved(precision), &[tensor], || {
            [scaled(&Self::weight(tensor), 0.5, dtype).buffer]
        });
        half
    }

    /// The columns from `first` on of rows with stride `row_stride`.
    pub fn within(buffer: &CubeTensor, size: [usize; 2], first: usize, row_stride: usize) -> Self {
        let mut buffer = buffer.clone();
        buffer.handle = buffer.handle.offset_start((first * buffer.dtype.size()) as u64);
        Self { buffer, size, row_stride, by_columns: false, count: 1, batch_stride: 0 }
    }

    /// This matrix and another that begins `batch_stride` elements after it.
    pub fn pair(self, batch_stride: usize) -> Self {
        Self { count: 2, batch_stride, ..self }
    }

    /// Each matrix by itself.
    pub(super) fn each(&self) -> impl Iterator<Item = Self> + '_ {
        (0..self.count).map(|i| Self {
            by_columns: self.by_columns,
            ..Self::within(&self.buffer, self.size, i * self.batch_stride, self.row_stride)
        })
    }

    /// The transposed matrix.
    pub fn transposed(&self) -> Self {
        let [rows, columns] = self.size;
        Self { size: [columns, rows], by_columns: !self.by_columns, ..self.clone() }
    }

    /// The widest load, at most `most` elements, whose width divides the rows, the strides and the
    /// offset.
    fn lanes(&self, most: usize) -> usize {
        let along = self.size[if self.by_columns { 0 } else { 1 }];
        let begin =
            self.buffer.handle.offset_start.unwrap_or(0) as usize / self.buffer.dtype.size();
        let multiples = [along, self.row_stride, begin, self.batch_stride];
        [8, 4, 2]
            .into_iter()
            .find(|&n| n <= most && multiples.iter().all(|x| x.is_multiple_of(n)))
            .unwrap_or(1)
    }

    /// Elements of a load or store of at most 16 bytes.
    pub fn load_lanes(&self) -> usize {
        self.lanes(if self.buffer.dtype == DType::F32 { 4 } else { 8 })
    }
}
