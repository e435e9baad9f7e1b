//! How a matrix product is divided into cubes.

use cubecl::prelude::*;

/// Terms of a long sum that a cube copies into shared memory at a time; parts of a sum are
/// multiples of it.
pub(crate) const DEPTH: usize = 64;

/// Properties of a product that do not depend on its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MatmulForm {
    /// Whether the left matrix is stored by columns: its rows are adjacent.
    pub(crate) lhs_by_columns: bool,
    /// Whether the right matrix is stored by columns: the terms of a sum are adjacent.
    pub(crate) rhs_by_columns: bool,
    /// Whether tensor cores multiply.
    pub(crate) tensor_cores: bool,
    pub(crate) has_bias: bool,
    /// Whether the result is added to the destination.
    pub(crate) accumulates: bool,
}

/// Compile-time configuration of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MatmulPlan {
    pub(crate) form: MatmulForm,
    /// Rows and columns of a cube's tile of the result; each plane has multiples of 16.
    pub(crate) tile: [usize; 2],
    /// Planes of a cube along rows and columns.
    pub(crate) planes: [usize; 2],
    /// Terms in shared memory at a time, a multiple of 16.
    pub(crate) depth: usize,
    /// Buffers of that many terms: one is multiplied while the others are filled.
    pub(crate) stages: usize,
}

impl MatmulPlan {
    pub(crate) fn threads(&self) -> usize {
        32 * self.planes[0] * self.planes[1]
    }

    /// Rows and columns per plane.
    pub(crate) fn per_plane(&self) -> [usize; 2] {
        [self.tile[0] / self.planes[0], self.tile[1] / self.planes[1]]
    }

    pub(crate) fn lhs(&self) -> Stage {
        if self.form.lhs_by_columns {
            Stage { rows: self.depth, columns: self.tile[0] }
        } else {
            Stage { rows: self.tile[0], columns: self.depth }
        }
    }

    pub(crate) fn rhs(&self) -> Stage {
        if self.form.rhs_by_columns {
            Stage { rows: self.tile[1], columns: self.depth }
        } else {
            Stage { rows: self.depth, columns: self.tile[1] }
        }
    }

    /// Fragments of sixteen rows and eight columns per plane.
    pub(crate) fn fragments(&self) -> usize {
        let [rows, columns] = self.per_plane();
        rows / 16 * (columns / 8)
    }

    /// The part of a plane's result that is in shared memory at once, in f32.
    pub(crate) fn out(&self) -> Stage {
        Stage { rows: 8, columns: self.per_plane()[1] }
    }

    /// Bytes of shared memory with `right` buffers of the right matrix.
    pub(crate) fn shared_memory(&self, right: usize) -> usize {
        let element = if self.form.tensor_cores { 2 } else { 4 };
        element * (self.stages * self.lhs().len() + right * self.rhs().len())
            + 4 * self.threads() / 32 * self.out().len()
    }

    /// Whether vectors of `lanes` are copied into shared memory without registers.
    pub(crate) fn copies(&self, lanes: usize) -> bool {
        // `cp.async` copies at least four bytes.
        self.form.tensor_cores && lanes >= 2
    }
}

/// A part of a matrix in shared memory, in the storage order of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stage {
    pub(crate) rows: usize,
    /// Adjacent elements.
    pub(crate) columns: usize,
}

impl Stage {
    /// Row stride: eight more than the elements of a row, so that vertically adjacent 16-byte rows
    /// lie in different banks.
    pub(crate) fn row_stride(&self) -> usize {
        self.columns + 8
    }

    pub(crate) fn len(&self) -> usize {
        self.rows * self.row_stride()
    }
}

/// Sizes that are known at the launch. Positions and strides count vectors of their matrix.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Extents {
    /// Rows of the result.
    pub(crate) m: u32,
    /// Columns of the result.
    pub(crate) n: u32,
    /// Terms of a sum.
    pub(crate) k: u32,
    /// Terms of one part of a sum.
    pub(crate) part: u32,
    /// Parts of a sum, each with its own result: the depth of the launch is this times the number
    /// of products.
    pub(crate) parts: u32,
    pub(crate) lhs_row_stride: u32,
    pub(crate) rhs_row_stride: u32,
    pub(crate) out_row_stride: u32,
    /// From the result of a part to the next.
    pub(crate) out_part_stride: u32,
    /// From the matrices of a product to the next.
    pub(crate) lhs_batch_stride: u32,
    pub(crate) rhs_batch_stride: u32,
    pub(crate) out_batch_stride: u32,
}
