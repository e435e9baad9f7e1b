//! The arithmetic of a plane for factors of f32 on tensor cores, which multiply TF32: 11 bits of
//! significand and f32's exponent.
//!
//! A factor is split into two such numbers, `x = high + low` to 2⁻²³, and a product is
//! `low·high + high·low + high·high`; `low·low`, at most 2⁻²², is dropped. Tensor cores truncate
//! when they add. So the products of sixteen terms are added on them from zero, the smallest first,
//! and these sums are added to a plane's by its units, which round.

#[cfg(all(test, feature = "wgpu"))]
#[expect(unsafe_code, reason = "launching a kernel without bounds checks")]
mod tests;

use cubecl::prelude::*;

use super::arithmetic::Arithmetic;
use super::mma::multiply_add;
use super::plan::MatmulPlan;
use super::tile::plane_begin;

/// Bits of f32 that TF32 lacks.
const LACKING: u32 = 13;
/// The bits that it has.
const KEPT: u32 = !((1 << LACKING) - 1);
/// Half a unit in its last place.
const HALF: u32 = 1 << (LACKING - 1);
/// The bits of f32 without the sign, of an infinity, and of a NaN that TF32 has too.
const MAGNITUDE: u32 = 0x7fff_ffff;
const INFINITY: u32 = 0x7f80_0000;
const NAN: u32 = 0x7fc0_0000;

/// The bits of the nearest number of TF32; of an infinity from 2¹²⁸·(1 − 2⁻¹²) on.
///
/// Adding may carry a NaN's bits over into those of a number. Where a low part is taken too, that
/// is a NaN still.
#[cube]
fn high_of(x: f32, #[comptime] splits: bool) -> u32 {
    let bits = u32::reinterpret(x);
    let mut nearest = (bits + HALF) & KEPT;
    if comptime!(!splits) {
        nearest = select((bits & MAGNITUDE) > INFINITY, NAN, nearest);
    }
    nearest
}

/// The bits of what is left of x, truncated; of a NaN if x is not finite.
#[cube]
fn low_of(x: f32, high: u32) -> u32 {
    u32::reinterpret(x - f32::reinterpret(high)) & KEPT
}

/// As [`super::tile::accumulate`], which calls it.
#[cube]
pub(super) fn accumulate_tf32<S: Float, NL: Size, NR: Size>(
    sums: &mut Array<Vector<f32, Const<4>>>,
    staged_lhs: &Shared<[Vector<S, NL>]>,
    staged_rhs: &Shared<[Vector<S, NR>]>,
    base_lhs: usize,
    base_rhs: usize,
    #[comptime] plan: MatmulPlan,
) {
    let splits = comptime!(plan.form.arithmetic == Arithmetic::SplitF32);
    let per_plane = comptime!(plan.per_plane());
    let (m_frags, n_frags) = (comptime!(per_plane[0] / 16), comptime!(per_plane[1] / 8));
    // From a row or column of the result to the next, and from a term to the next.
    let (row_step, lhs_step) = comptime!(plan.lhs_steps());
    let (column_step, rhs_step) = comptime!(plan.rhs_steps());
    // Elements from a unit's first to its last, of sixteen terms.
    let lhs_span = comptime!((per_plane[0] - 8) * row_step + 12 * lhs_step + 1);
    let rhs_span = comptime!((per_plane[1] - 8) * column_step + 12 * rhs_step + 1);
    let lane = UNIT_POS as usize % 32;
    let (plane_row, plane_column) = plane_begin(plan);
    let (lhs, rhs) =
        (staged_lhs.with_vector_size::<Const<1>>(), staged_rhs.with_vector_size::<Const<1>>());
    let first_lhs =
        base_lhs * NL::value() + (plane_row + lane / 4) * row_step + (lane % 4) * lhs_step;
    let first_rhs =
        base_rhs * NR::value() + (plane_column + lane / 4) * column_step + (lane % 4) * rhs_step;

    for sixteen in 0..comptime!(plan.depth / 16) {
        let from = first_lhs + sixteen * comptime!(16 * lhs_step);
        let left = &lhs[from..from + lhs_span];
        let from = first_rhs + sixteen * comptime!(16 * rhs_step);
        let right = &rhs[from..from + rhs_span];
        // Two fragments of eight terms for each sixteen rows.
        let mut left_high = Array::<Vector<u32, Const<4>>>::new(comptime!(2 * m_frags));
        let mut left_low = Array::<Vector<u32, Const<4>>>::new(comptime!(2 * m_frags));
        #[unroll]
        for i in 0..comptime!(2 * m_frags) {
            let mut high = Vector::<u32, Const<4>>::empty();
            let mut low = Vector::<u32, Const<4>>::empty();
            #[unroll]
            for r in 0..4usize {
                let row = comptime!(i / 2 * 16 + r % 2 * 8);
                let term = comptime!(i % 2 * 8 + r / 2 * 4);
                let vector = left[comptime!(row * row_step + term * lhs_step)];
                let x = f32::cast_from(vector.extract(0usize));
                let bits = high_of(x, splits);
                high.insert(r, bits);
                if comptime!(splits) {
                    low.insert(r, low_of(x, bits));
                }
            }
            left_high[i] = high;
            if comptime!(splits) {
                left_low[i] = low;
            }
        }
        #[unroll]
        for pair in 0..comptime!(n_frags / 2) {
            let mut right_high = Array::<Vector<u32, Const<2>>>::new(4usize);
            let mut right_low = Array::<Vector<u32, Const<2>>>::new(4usize);
            #[unroll]
            for j in 0..4usize {
                let mut high = Vector::<u32, Const<2>>::empty();
                let mut low = Vector::<u32, Const<2>>::empty();
                #[unroll]
                for r in 0..2usize {
                    let column = comptime!(pair * 16 + j / 2 * 8);
                    let term = comptime!(j % 2 * 8 + r * 4);
                    let vector = right[comptime!(column * column_step + term * rhs_step)];
                    let x = f32::cast_from(vector.extract(0usize));
                    let bits = high_of(x, splits);
                    high.insert(r, bits);
                    if comptime!(splits) {
                        low.insert(r, low_of(x, bits));
                    }
                }
                right_high[j] = high;
                if comptime!(splits) {
                    right_low[j] = low;
                }
            }
            let mut parts = Array::<Vector<f32, Const<4>>>::new(comptime!(2 * m_frags));
            #[unroll]
            for at in 0..comptime!(2 * m_frags) {
                parts[at] = Vector::new(0.0f32);
            }
            // Successive instructions add to different sums.
            #[unroll]
            for product in comptime!(if splits { 0usize } else { 2 })..3usize {
                #[unroll]
                for eight in 0..2usize {
                    #[unroll]
                    for at in 0..comptime!(2 * m_frags) {
                        let i = comptime!(at / 2 * 2 + eight);
                        let j = comptime!(at % 2 * 2 + eight);
                        let rows = if comptime!(product == 0) { left_low[i] } else { left_high[i] };
                        let columns =
                            if comptime!(product == 1) { right_low[j] } else { right_high[j] };
                        parts[at] = multiply_add(rows, columns, parts[at], Arithmetic::Tf32);
                    }
                }
            }
            #[unroll]
            for at in 0..comptime!(2 * m_frags) {
                sums[comptime!(at / 2 * n_frags + pair * 2 + at % 2)] += parts[at];
            }
        }
    }
}
