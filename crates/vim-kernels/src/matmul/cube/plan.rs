//! How a matrix product is cut into cubes.

use cubecl::prelude::*;

/// Terms of a long sum that a cube brings into shared memory at a time; parts of a sum are multiples of it.
pub(crate) const DEPTH: usize = 64;

/// What a product is, before it is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MatmulForm {
    /// Whether the left matrix lies in memory by columns: its rows are neighbours.
    pub(crate) lhs_by_columns: bool,
    /// Whether the right matrix lies in memory by columns: the terms of a sum are neighbours.
    pub(crate) rhs_by_columns: bool,
    /// Whether tensor cores multiply.
    pub(crate) tensor_cores: bool,
    pub(crate) has_bias: bool,
    /// Whether the product is added to what is there.
    pub(crate) accumulates: bool,
}

/// What a product is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MatmulPlan {
    pub(crate) form: MatmulForm,
    /// Rows and columns of the result that a cube makes, multiples of 16 for every plane.
    pub(crate) tile: [usize; 2],
    /// Planes of a cube along them.
    pub(crate) planes: [usize; 2],
    /// Terms that a cube holds in shared memory at a time, a multiple of 16.
    pub(crate) depth: usize,
    /// How many times that in shared memory: one is multiplied, the others are on their way.
    pub(crate) stages: usize,
}

impl MatmulPlan {
    pub(crate) fn threads(&self) -> usize {
        32 * self.planes[0] * self.planes[1]
    }

    /// Rows and columns that a plane makes.
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

    /// Fragments of sixteen rows and eight columns that a plane makes.
    pub(crate) fn fragments(&self) -> usize {
        let [rows, columns] = self.per_plane();
        rows / 16 * (columns / 8)
    }

    /// What of a plane's result is in shared memory at once, in f32.
    pub(crate) fn out(&self) -> Stage {
        Stage { rows: 8, columns: self.per_plane()[1] }
    }

    /// Bytes of shared memory where `right` parts of the right matrix are in it.
    pub(crate) fn shared_memory(&self, right: usize) -> usize {
        let element = if self.form.tensor_cores { 2 } else { 4 };
        element * (self.stages * self.lhs().len() + right * self.rhs().len())
            + 4 * self.threads() / 32 * self.out().len()
    }

    /// Whether vectors of `lanes` go into shared memory without passing through registers.
    pub(crate) fn copies(&self, lanes: usize) -> bool {
        // At least four bytes.
        self.form.tensor_cores && lanes >= 2
    }
}

/// A matrix's part in shared memory, as it lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stage {
    pub(crate) rows: usize,
    /// Neighbours.
    pub(crate) columns: usize,
}

impl Stage {
    /// From a row to the next: eight more than its elements, so that rows of 16 bytes one below the other lie in
    /// different banks.
    pub(crate) fn row_stride(&self) -> usize {
        self.columns + 8
    }

    pub(crate) fn len(&self) -> usize {
        self.rows * self.row_stride()
    }

    /// What each of `threads` moves, in vectors of `lanes`.
    pub(crate) fn share(&self, lanes: usize, threads: usize) -> Share {
        let count = (self.rows * self.columns / lanes).div_ceil(threads);
        Share { count, threads }
    }
}

/// Which of a stage's vectors a thread moves: `count` of them, `threads` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Share {
    pub(crate) count: usize,
    pub(crate) threads: usize,
}

/// Sizes of a product that are known when it is launched. Places and pitches count vectors of the matrix that they are of.
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
    /// Parts of a sum, each with a result of its own: the launch is as deep as that, times the products in it.
    pub(crate) parts: u32,
    pub(crate) lhs_row_stride: u32,
    pub(crate) rhs_row_stride: u32,
    pub(crate) out_row_stride: u32,
    /// From one part's result to the next.
    pub(crate) out_part_stride: u32,
    /// From one product's matrices to the next one's.
    pub(crate) lhs_batch_stride: u32,
    pub(crate) rhs_batch_stride: u32,
    pub(crate) out_batch_stride: u32,
}
