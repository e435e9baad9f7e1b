//! Products of bf16 on tensor cores.

use cubecl::cmma::{self, MatrixIdent};
use cubecl::prelude::*;

use super::arithmetic::Arithmetic;
use super::mma::{multiply_add, packed};
use super::plan::MatmulPlan;
use super::tile::plane_begin;

/// As [`super::tile::accumulate`], which calls it, sixteen terms at a time; the next fragments are
/// loaded while one is multiplied.
#[cube]
pub(super) fn accumulate_bf16<S: Float, NL: Size, NR: Size>(
    sums: &mut Array<Vector<f32, Const<4>>>,
    staged_lhs: &Shared<[Vector<S, NL>]>,
    staged_rhs: &Shared<[Vector<S, NR>]>,
    base_lhs: usize,
    base_rhs: usize,
    #[comptime] plan: MatmulPlan,
) {
    let (lhs_lanes, rhs_lanes) = (NL::value().comptime(), NR::value().comptime());
    let lhs_row_stride = comptime!(plan.lhs().row_stride() / lhs_lanes);
    let rhs_row_stride = comptime!(plan.rhs().row_stride() / rhs_lanes);
    let per_plane = comptime!(plan.per_plane());
    let m_frags = comptime!(per_plane[0] / 16);
    let n_frags = comptime!(per_plane[1] / 8);
    let steps = comptime!(plan.depth / 16);
    let def = cmma::MmaDefinition::<S, S, f32>::new(16usize, 8usize, 16usize);
    let size!(NA) = def.vector_size(MatrixIdent::A);
    let size!(NB) = def.vector_size(MatrixIdent::B);
    let lane = UNIT_POS as usize % 32;
    let (plane_row, plane_column) = plane_begin(plan);
    // The vector of each side's first fragment that this unit reads; the others are at constant
    // distances.
    let first_lhs = if comptime!(plan.form.lhs_by_columns) {
        (lane % 8 + (lane / 16) * 8) * lhs_row_stride
            + (plane_row + ((lane / 8) % 2) * 8) / lhs_lanes
    } else {
        (plane_row + lane % 16) * lhs_row_stride + (lane / 16) * comptime!(8 / lhs_lanes)
    };
    let first_rhs = if comptime!(plan.form.rhs_by_columns) {
        (plane_column + (lane / 16) * 8 + lane % 8) * rhs_row_stride
            + ((lane / 8) % 2) * comptime!(8 / rhs_lanes)
    } else {
        (((lane / 8) % 2) * 8 + lane % 8) * rhs_row_stride
            + (plane_column + (lane / 16) * 8) / rhs_lanes
    };
    let (first_lhs, first_rhs) = (base_lhs + first_lhs, base_rhs + first_rhs);
    // Two sets: the current sixteen terms and the next.
    let mut left = Array::<Vector<u32, Const<4>>>::new(comptime!(2 * m_frags));
    let mut right = Array::<Vector<u32, Const<2>>>::new(comptime!(2 * n_frags));
    #[unroll]
    for turn in 0..comptime!(steps + 1) {
        if comptime!(turn < steps) {
            let set = comptime!(turn % 2);
            #[unroll]
            for i in 0..m_frags {
                let away = if comptime!(plan.form.lhs_by_columns) {
                    comptime!(turn * 16 * lhs_row_stride + i * 16 / lhs_lanes)
                } else {
                    comptime!(i * 16 * lhs_row_stride + turn * 16 / lhs_lanes)
                };
                let from = first_lhs + away;
                let loaded = def.load_matrix::<_, NA>(
                    &staged_lhs[from..from + comptime!(8 / lhs_lanes)],
                    MatrixIdent::A,
                    4usize,
                    comptime!(plan.form.lhs_by_columns),
                );
                left[comptime!(set * m_frags + i)] = packed::<S, NA, Const<4>>(&loaded, 0usize);
            }
            #[unroll]
            for j in 0..comptime!(n_frags / 2) {
                let away = if comptime!(plan.form.rhs_by_columns) {
                    comptime!(j * 16 * rhs_row_stride + turn * 16 / rhs_lanes)
                } else {
                    comptime!(turn * 16 * rhs_row_stride + j * 16 / rhs_lanes)
                };
                let from = first_rhs + away;
                let loaded = def.load_matrix::<_, NB>(
                    &staged_rhs[from..from + comptime!(8 / rhs_lanes)],
                    MatrixIdent::B,
                    4usize,
                    comptime!(!plan.form.rhs_by_columns),
                );
                #[unroll]
                for of in 0..2usize {
                    let fragment = packed::<S, NB, Const<2>>(&loaded, comptime!(of * 2));
                    right[comptime!(set * n_frags + j * 2 + of)] = fragment;
                }
            }
        }
        if comptime!(turn > 0) {
            let set = comptime!((turn + 1) % 2);
            #[unroll]
            for j in 0..n_frags {
                #[unroll]
                for i in 0..m_frags {
                    let at = comptime!(i * n_frags + j);
                    let rows = left[comptime!(set * m_frags + i)];
                    let columns = right[comptime!(set * n_frags + j)];
                    sums[at] = multiply_add(rows, columns, sums[at], Arithmetic::Bf16);
                }
            }
        }
    }
}
