//! How a matrix product is divided into cubes.

use cubecl::prelude::*;

use super::arithmetic::Arithmetic;

/// Terms of a long sum that a cube copies into shared memory at a time; parts of a sum are
/// multiples of it.
pub(crate) const DEPTH: usize = 64;

/// Most bytes of a right matrix, on its way to registers, that has shared memory of its own.
const APART: usize = 24 << 10;

/// Properties of a product that do not depend on its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MatmulForm {
    /// Whether the left matrix is stored by columns: its rows are adjacent.
    pub(crate) lhs_by_columns: bool,
    /// Whether the right matrix is stored by columns: the terms of a sum are adjacent.
    pub(crate) rhs_by_columns: bool,
    pub(crate) arithmetic: Arithmetic,
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
        self.stage(self.tile[0], self.form.lhs_by_columns)
    }

    pub(crate) fn rhs(&self) -> Stage {
        self.stage(self.tile[1], !self.form.rhs_by_columns)
    }

    /// A stage of a matrix with `count` rows or columns of the tile, which are adjacent, or whose
    /// terms are.
    fn stage(&self, count: usize, adjacent: bool) -> Stage {
        if adjacent {
            Stage { rows: self.depth, columns: count, padding: 8 }
        } else {
            let padding = if self.form.arithmetic.bytes() == 2 { 8 } else { 4 };
            Stage { rows: count, columns: self.depth, padding }
        }
    }

    /// Elements from a row to the next of the left matrix in shared memory, and from a term to the
    /// next.
    pub(crate) fn lhs_steps(&self) -> (usize, usize) {
        let stride = self.lhs().row_stride();
        if self.form.lhs_by_columns { (1, stride) } else { (stride, 1) }
    }

    /// Elements from a column to the next of the right matrix in shared memory, and from a term to
    /// the next.
    pub(crate) fn rhs_steps(&self) -> (usize, usize) {
        let stride = self.rhs().row_stride();
        if self.form.rhs_by_columns { (stride, 1) } else { (1, stride) }
    }

    /// Fragments of sixteen rows and eight columns per plane.
    pub(crate) fn fragments(&self) -> usize {
        let [rows, columns] = self.per_plane();
        rows / 16 * (columns / 8)
    }

    /// The part of a plane's result that is in shared memory at once, in f32.
    pub(crate) fn out(&self) -> Stage {
        Stage { rows: 8, columns: self.per_plane()[1], padding: 8 }
    }

    /// Bytes of shared memory with `right` buffers of the right matrix.
    pub(crate) fn shared_memory(&self, right: usize) -> usize {
        self.form.arithmetic.bytes() * (self.stages * self.lhs().len() + right * self.rhs().len())
            + 4 * self.threads() / 32 * self.out().len()
    }

    /// Registers of a unit that hold the right matrix, if they do.
    pub(crate) fn held_registers(&self) -> usize {
        self.depth / 16 * (self.per_plane()[1] / 8) * 2
    }

    /// Adjacent columns of which a unit has sums, with the right matrix in registers: 16 bytes of
    /// bf16, or 8 where a plane has 16 columns.
    pub(crate) fn adjacent(&self) -> usize {
        if self.per_plane()[1].is_multiple_of(32) { 8 } else { 4 }
    }

    /// Elements of shared memory before the right matrix on its way to registers: a small one lies
    /// behind the stages of the left one, so that all are copied at once; a large one where they
    /// are filled after it.
    pub(crate) fn rhs_begin(&self) -> usize {
        if 2 * self.rhs().len() <= APART { self.stages * self.lhs().len() } else { 0 }
    }

    /// Bytes of shared memory with the right matrix in registers.
    pub(crate) fn register_shared_memory(&self) -> usize {
        2 * (self.stages * self.lhs().len()).max(self.rhs_begin() + self.rhs().len())
    }

    /// Whether vectors of `lanes` are copied into shared memory without registers.
    pub(crate) fn copies(&self, lanes: usize) -> bool {
        // `cp.async` copies at least four bytes.
        let arithmetic = self.form.arithmetic;
        arithmetic.uses_tensor_cores() && lanes * arithmetic.bytes() >= 4
    }
}

/// The kernel of a product.
#[derive(Clone, Copy)]
pub(super) enum Way {
    Pipelined,
    /// The right matrix is stationary in shared memory; this number of cubes shares the rows.
    Stationary(usize),
    /// It is in registers; this number of cubes shares the rows.
    InRegisters(usize),
}

/// How a product is divided into cubes.
#[derive(Clone, Copy)]
pub(super) struct Tiling {
    pub(super) plan: MatmulPlan,
    pub(super) way: Way,
    /// Terms in a part of a sum.
    pub(super) part: usize,
    /// Parts of a sum; each has its own result, one after the other.
    pub(super) parts: usize,
}

/// A part of a matrix in shared memory, in the storage order of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stage {
    pub(crate) rows: usize,
    /// Adjacent elements.
    pub(crate) columns: usize,
    /// Elements between rows, so that the units of a plane read different banks: of bf16, eight
    /// 16-byte rows below each other; of f32, the elements of eight rows or columns and four terms.
    padding: usize,
}

impl Stage {
    pub(crate) fn row_stride(&self) -> usize {
        self.columns + self.padding
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

#[cfg(test)]
mod tests {
    use super::*;

    // A plane's units read eight rows or columns and four terms of f32 at once.
    #[test]
    fn units_read_different_banks() {
        for columns in [16, 32, 48, 64, 96, 128] {
            for by_columns in [false, true] {
                let form = MatmulForm {
                    lhs_by_columns: by_columns,
                    rhs_by_columns: by_columns,
                    arithmetic: Arithmetic::SplitF32,
                    has_bias: false,
                    accumulates: false,
                };
                for depth in [16, 32, 48, 192] {
                    let tile = [columns; 2];
                    let plan = MatmulPlan { form, tile, planes: [1; 2], depth, stages: 2 };
                    for (line, term) in [plan.lhs_steps(), plan.rhs_steps()] {
                        let bank = |lane: usize| (lane / 4 * line + lane % 4 * term) % 32;
                        let banks: std::collections::BTreeSet<_> = (0..32).map(bank).collect();
                        assert_eq!(banks.len(), 32, "{plan:?}");
                    }
                }
            }
        }
    }
}
