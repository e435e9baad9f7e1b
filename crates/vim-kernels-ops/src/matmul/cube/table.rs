//! Tiles of a product by the shape of its result; there is no autotuning.

use super::arithmetic::Arithmetic;
use super::plan::{DEPTH, MatmulForm, MatmulPlan};

/// Columns of a tile, the widest first.
const COLUMNS: [usize; 6] = [128, 96, 64, 48, 32, 16];
/// Rows of a tile of a small result.
const ROWS: [usize; 4] = [128, 64, 32, 16];
/// Rows from which on a result counts as long.
const LONG: usize = 1024;
/// Most bytes of a sum's factors for which the right matrix is stationary in shared memory.
const FEW: usize = 768;
/// Terms from which on stationary columns are narrow.
const MANY: usize = 192;
/// Rows of a tile with a stationary matrix: the most that leave shared memory for a second cube.
const STATIONARY_ROWS: [usize; 2] = [64, 32];
/// Most stationary cubes per multiprocessor.
const MAX_CUBES: usize = 4;
/// Bytes of shared memory that a multiprocessor reserves for each cube.
const RESERVED: usize = 1024;
/// Rows from which on the right matrix is held in registers: of fewer, planes wait too often.
const LONG_FOR_REGISTERS: usize = 4096;
/// Most registers of a unit that hold the right matrix.
const HELD: usize = 96;
/// Columns of a tile with the right matrix in registers: where a plane has 32, and where it has 16.
const HELD_COLUMNS: [&[usize]; 2] = [&[192, 128, 96, 64, 48, 32, 16], &[96, 64, 48, 32, 16]];
/// Stages of rows in shared memory, most first, where the right matrix is in registers.
const ROW_STAGES: [usize; 3] = [4, 3, 2];
/// Stages and terms per stage of a pipeline; the first that fits the device's shared memory is
/// used. GPUs that multiply bf16 have at least 99 KiB per cube, of which the last takes at most 58.
const PIPELINES: [[usize; 2]; 3] = [[3, DEPTH], [2, DEPTH], [2, 32]];
/// Tiles of products of bf16 that have a multiprocessor to themselves, with planes that multiply
/// more often for each read of shared memory: rows of those of 192 columns, and those of a weight's
/// gradient.
const WIDE_ROWS: [usize; 4] = [192, 128, 96, 64];
const WIDE: usize = 192;
const WIDE_GRADIENTS: [[usize; 2]; 2] = [[192, 128], [128, 192]];
/// Their stages and terms per stage.
const WIDE_PIPELINES: [[usize; 2]; 4] = [[4, DEPTH], [3, DEPTH], [2, DEPTH], [2, 32]];
/// The same for factors of f32, which are multiplied for longer than they are copied: at most
/// 90 KiB.
const F32_PIPELINE: [usize; 2] = [2, 32];
/// Most cubes for a weight's gradient: two for each multiprocessor of the largest GPUs. Constant,
/// so that the order of a sum does not depend on the GPU.
const CUBES: usize = 264;
/// The same of wide tiles: one for each multiprocessor.
const WIDE_CUBES: usize = 132;
/// Fewest terms of a part of a sum.
const SHORTEST_PART: usize = 256;

/// The plan of a product of `m` rows and `n` columns with any number of terms.
pub(super) fn forward(
    form: MatmulForm,
    m: usize,
    n: usize,
    processors: usize,
    shared_memory: usize,
) -> MatmulPlan {
    if form.arithmetic == Arithmetic::Bf16 && m >= LONG && n.is_multiple_of(WIDE) {
        // The rows that the busiest multiprocessor has.
        let most = |rows: usize| (m.div_ceil(rows) * n / WIDE).div_ceil(processors) * rows;
        let rows = WIDE_ROWS.into_iter().min_by_key(|&rows| most(rows)).unwrap_or(64);
        return wide(form, [rows, WIDE], shared_memory);
    }
    let columns = fitting(n, &COLUMNS);
    let rows = match m {
        LONG.. if columns > 48 => 128,
        LONG.. => 64,
        _ => fitting(m, &ROWS),
    };
    pipelined(form, [rows, columns], shared_memory)
}

/// A pipelined plan.
fn pipelined(form: MatmulForm, tile: [usize; 2], shared_memory: usize) -> MatmulPlan {
    let pipelines = if form.arithmetic.bytes() == 4 { &[F32_PIPELINE][..] } else { &PIPELINES };
    first_that_fits(form, tile, pipelines, shared_memory)
}

/// The same with a wide tile.
fn wide(form: MatmulForm, tile: [usize; 2], shared_memory: usize) -> MatmulPlan {
    first_that_fits(form, tile, &WIDE_PIPELINES, shared_memory)
}

/// With the first of `pipelines` that fits the shared memory, or the last.
fn first_that_fits(
    form: MatmulForm,
    tile: [usize; 2],
    pipelines: &[[usize; 2]],
    shared_memory: usize,
) -> MatmulPlan {
    let planes = planes(tile);
    let plan = |&[stages, depth]: &[usize; 2]| MatmulPlan { form, tile, planes, depth, stages };
    let least = plan(pipelines.last().unwrap_or(&F32_PIPELINE));
    let fits = |plan: &MatmulPlan| plan.shared_memory(plan.stages) <= shared_memory;
    pipelines.iter().map(plan).find(fits).unwrap_or(least)
}

/// The plan of `count` products of `m` rows, `n` columns and `k` terms with a stationary right
/// matrix, and the number of cubes that share the rows of each; `None` if there are too many terms
/// or too few rows.
pub(super) fn weight_stationary(
    form: MatmulForm,
    [m, n, k]: [usize; 3],
    count: usize,
    processors: usize,
    shared_memory: usize,
) -> Option<(MatmulPlan, usize)> {
    if m < LONG || k * form.arithmetic.bytes() > FEW || form.lhs_by_columns {
        return None;
    }
    let depth = k.next_multiple_of(16);
    let columns = fitting(n, if depth > MANY { &COLUMNS[2..] } else { &COLUMNS });
    let plans = STATIONARY_ROWS.map(|rows| {
        // Sixteen columns per plane, or 32 of many; with few columns, more planes share the rows.
        let across = columns / if columns >= 96 { 32 } else { 16 };
        let along = if across <= 2 { rows / 16 } else { 2 };
        MatmulPlan { form, tile: [rows, columns], planes: [along, across], depth, stages: 2 }
    });
    // A multiprocessor has shared memory for the largest cube and its reserve.
    let cubes = |plan: &MatmulPlan| (shared_memory + RESERVED) / (plan.shared_memory(1) + RESERVED);
    let plan = plans.into_iter().find(|plan| cubes(plan) >= 2);
    let plan = plan.or_else(|| plans.into_iter().find(|plan| cubes(plan) >= 1))?;
    let most = (processors * cubes(&plan).min(MAX_CUBES) / (n.div_ceil(columns) * count)).max(1);
    Some((plan, workers(m.div_ceil(plan.tile[0]), most)))
}

/// The same with the right matrix in registers, for factors of bf16.
pub(super) fn weight_in_registers(
    form: MatmulForm,
    [m, n, k]: [usize; 3],
    count: usize,
    processors: usize,
    shared_memory: usize,
) -> Option<(MatmulPlan, usize)> {
    if form.arithmetic != Arithmetic::Bf16 || m < LONG_FOR_REGISTERS || form.lhs_by_columns {
        return None;
    }
    let depth = k.next_multiple_of(16);
    let rows = if depth > DEPTH { 32 } else { 64 };
    let plan = |columns: usize, per_plane: usize, stages: usize| {
        let across = columns / per_plane;
        let along = if across <= 2 { 2 } else { 1 };
        MatmulPlan { form, tile: [rows, columns], planes: [along, across], depth, stages }
    };
    // The widest planes that hold their columns, of those that divide a tile.
    let wide = plan(32, 32, 2).held_registers() <= HELD;
    let columns = fitting(n, HELD_COLUMNS[if wide { 0 } else { 1 }]);
    // With many terms, few columns wait for rows: panels have more planes to wait with.
    if !wide && columns < 96 {
        return None;
    }
    let per_plane = if wide && columns.is_multiple_of(32) { 32 } else { 16 };
    let plan = |stages: usize| plan(columns, per_plane, stages);
    let held = plan(2).held_registers();
    if held > HELD {
        return None;
    }
    let planes = plan(2).threads() / 32;
    let resident = resident_planes(&plan(2)) / planes;
    // A multiprocessor has shared memory for the largest cube and its reserve.
    let room = |cubes: usize| (shared_memory + RESERVED) / cubes - RESERVED;
    let fitting_plan = |cubes: usize| {
        let mut plans = ROW_STAGES.map(plan).into_iter();
        plans.find(|plan| plan.register_shared_memory() <= room(cubes)).map(|plan| (plan, cubes))
    };
    let (plan, cubes) = (1..=resident.min(MAX_CUBES)).rev().find_map(fitting_plan)?;
    let most = (processors * cubes / (n.div_ceil(columns) * count)).max(1);
    Some((plan, workers(m.div_ceil(rows), most)))
}

/// Planes for which a multiprocessor has registers. `ptxas` gives a unit about 50 beside those that
/// hold the right matrix, 70 for many terms, and as many as the values that the result is added to.
fn resident_planes(plan: &MatmulPlan) -> usize {
    let few = 2 * plan.held_registers() <= HELD;
    match (few, plan.form.accumulates) {
        (false, _) => 12,
        (true, true) => 18,
        (true, false) => 24,
    }
}

/// The fewest cubes that go through `tiles` in no more turns than `most` would.
fn workers(tiles: usize, most: usize) -> usize {
    tiles.div_ceil(tiles.div_ceil(most))
}

/// The plan of the gradients of `count` weights, `m` by `n`, and the number of parts of their sums
/// of `k` terms.
pub(super) fn gradient(
    form: MatmulForm,
    [m, n, k]: [usize; 3],
    count: usize,
    shared_memory: usize,
) -> (MatmulPlan, usize) {
    let exact = |tile: &[usize; 2]| m.is_multiple_of(tile[0]) && n.is_multiple_of(tile[1]);
    if form.arithmetic == Arithmetic::Bf16
        && let Some(tile) = WIDE_GRADIENTS.into_iter().find(exact)
    {
        let parts = WIDE_CUBES / (m / tile[0] * (n / tile[1]) * count);
        // Where there are enough terms for that many.
        if parts >= 1 && parts * SHORTEST_PART <= k {
            return (wide(form, tile, shared_memory), parts);
        }
    }
    let tile = [fitting(m, &ROWS), fitting(n, &COLUMNS)];
    let tiles = m.div_ceil(tile[0]) * n.div_ceil(tile[1]) * count;
    let parts = (CUBES / tiles).min(k / SHORTEST_PART).max(1);
    (pipelined(form, tile, shared_memory), parts)
}

/// The size that covers `count` with the least excess; the first of several.
pub(crate) fn fitting(count: usize, sizes: &[usize]) -> usize {
    let covered = |size: usize| count.div_ceil(size) * size;
    sizes.iter().copied().min_by_key(|&size| covered(size)).unwrap_or(16)
}

/// Planes that share a tile: each has a multiple of 16 rows and columns.
pub(crate) fn planes([rows, columns]: [usize; 2]) -> [usize; 2] {
    match (rows, columns) {
        (192, 128) | (128, 128 | 96 | 64) | (64, 96) => [4, 2],
        (192 | 128 | 96 | 64, 192) => [2, 4],
        (128 | 64, 48 | 32 | 16) => [4, 1],
        (64, 128) => [2, 4],
        (64, 64) | (32, 96) => [2, 2],
        (32, 128 | 64) | (16, 128 | 64) => [1, 4],
        (32, _) => [2, 1],
        (16, 96) => [1, 2],
        (_, _) => [1, 1],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_share_whole_fragments() {
        for rows in ROWS {
            for columns in COLUMNS {
                let [along, across] = planes([rows, columns]);
                assert_eq!([rows % (16 * along), columns % (16 * across)], [0, 0]);
                assert!(along * across >= 1);
            }
        }
    }

    const FORM: MatmulForm = MatmulForm {
        lhs_by_columns: false,
        rhs_by_columns: false,
        arithmetic: Arithmetic::Bf16,
        has_bias: false,
        accumulates: false,
    };

    /// Shared memory of a cube on an H200, and on a consumer GPU.
    const LARGE: usize = 227 << 10;
    const SMALL: usize = 99 << 10;

    #[test]
    fn rings_fit() {
        for (lhs_by_columns, rhs_by_columns) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let form = MatmulForm { lhs_by_columns, rhs_by_columns, ..FORM };
            for tile in WIDE_ROWS.map(|rows| [rows, WIDE]).into_iter().chain(WIDE_GRADIENTS) {
                for most in [SMALL, LARGE] {
                    let plan = wide(form, tile, most);
                    assert!(plan.shared_memory(plan.stages) <= most, "{plan:?}");
                    assert!(plan.stages >= 2 && DEPTH.is_multiple_of(plan.depth));
                    let [rows, columns] = plan.per_plane();
                    assert_eq!([rows * plan.planes[0], columns * plan.planes[1]], tile);
                    assert_eq!([rows % 16, columns % 16], [0, 0]);
                }
            }
            for rows in ROWS {
                for columns in COLUMNS {
                    for most in [SMALL, LARGE] {
                        let plan = pipelined(form, [rows, columns], most);
                        assert!(plan.shared_memory(plan.stages) <= most, "{plan:?}");
                        assert!(plan.stages >= 2 && DEPTH.is_multiple_of(plan.depth));
                        let split = MatmulForm { arithmetic: Arithmetic::SplitF32, ..form };
                        let plan = pipelined(split, [rows, columns], most);
                        assert!(plan.shared_memory(plan.stages) <= most, "{plan:?}");
                        assert!(plan.stages >= 2 && DEPTH.is_multiple_of(plan.depth));
                    }
                    assert_eq!(pipelined(form, [rows, columns], LARGE).depth, DEPTH);
                }
            }
        }
    }

    // What the kernel assumes of a plan, and that as many cubes as are launched fit the 228 KiB and
    // the registers of a multiprocessor.
    #[test]
    fn registers_hold_the_right_matrix() {
        let plan = |n, k, count, by_columns| {
            let form = MatmulForm { rhs_by_columns: by_columns, ..FORM };
            weight_in_registers(form, [25_216, n, k], count, 132, LARGE).expect("few terms")
        };
        for (n, k, count) in [
            (768, 192, 1),
            (384, 12, 2),
            (192, 384, 1),
            (384, 192, 1),
            (384, 44, 2),
            (1000, 192, 1),
            (17, 33, 1),
        ] {
            for by_columns in [false, true] {
                let (plan, workers) = plan(n, k, count, by_columns);
                assert!(plan.depth >= k && plan.depth.is_multiple_of(16));
                assert!(plan.held_registers() <= HELD && plan.stages >= 2, "{n} {k}");
                let [rows, columns] = plan.per_plane();
                assert_eq!([rows % 16, columns % (4 * plan.adjacent())], [0, 0], "{n} {k}");
                assert_eq!([rows * plan.planes[0], columns * plan.planes[1]], plan.tile);
                let launched = workers * n.div_ceil(plan.tile[1]) * count;
                let cubes = launched.div_ceil(132);
                assert!(cubes * (plan.register_shared_memory() + RESERVED) <= 228 << 10);
                assert!(cubes * plan.threads() / 32 <= resident_planes(&plan), "{n} {k}");
            }
        }
        let of = |n, k, count| {
            let (plan, workers) = plan(n, k, count, false);
            (plan.tile, plan.planes, plan.stages, workers)
        };
        assert_eq!(of(768, 192, 1), ([32, 192], [1, 6], 4, 66));
        assert_eq!(of(192, 384, 1), ([32, 96], [1, 6], 4, 132));
        assert!(weight_in_registers(FORM, [25_216, 44, 384], 2, 132, LARGE).is_none());
        assert!(weight_in_registers(FORM, [25_216, 192, 768], 1, 132, LARGE).is_none());
        assert!(weight_in_registers(FORM, [1576, 768, 192], 1, 132, LARGE).is_none());
        assert!(weight_in_registers(FORM, [25_216, 768, 192], 1, 132, 32 << 10).is_none());
        let split = MatmulForm { arithmetic: Arithmetic::SplitF32, ..FORM };
        assert!(weight_in_registers(split, [25_216, 768, 192], 1, 132, LARGE).is_none());
    }

    #[test]
    fn tiles_of_a_layer() {
        let tile = |form, m, n| forward(form, m, n, 132, LARGE).tile;
        assert_eq!(tile(FORM, 25_216, 192), [192, 192]);
        assert_eq!(tile(FORM, 6_304, 192), [64, 192]);
        assert_eq!(tile(FORM, 25_216, 44), [64, 48]);
        assert_eq!(tile(FORM, 25_216, 12), [64, 16]);
        let split = MatmulForm { arithmetic: Arithmetic::SplitF32, ..FORM };
        assert_eq!(tile(split, 25_216, 768), [128, 128]);
        assert_eq!(tile(split, 25_216, 192), [128, 96]);
        let gradients = |size| gradient(FORM, size, 1, LARGE);
        assert_eq!(gradients([192, 768, 25_216]).0.tile, [192, 128]);
        assert_eq!(gradients([192, 768, 25_216]).1, 22);
        assert_eq!(gradients([384, 192, 25_216]).0.tile, [128, 192]);
        assert_eq!(gradients([192, 768, 1_576]).0.tile, [64, 128]);
        assert_eq!(gradient(FORM, [12, 384, 25_216], 1, LARGE).0.tile, [16, 128]);
        assert_eq!(gradient(FORM, [384, 44, 100], 1, LARGE).1, 1);
    }

    // What the kernel assumes of a plan, and that two cubes fit a multiprocessor of 227 KiB for
    // every product of Vim-Ti's layers.
    #[test]
    fn panels_hold_what_they_multiply() {
        for (n, k) in
            [(768, 192), (44, 384), (384, 12), (192, 384), (384, 192), (384, 44), (12, 384)]
        {
            for by_columns in [false, true] {
                let form = MatmulForm { rhs_by_columns: by_columns, ..FORM };
                let (plan, workers) =
                    weight_stationary(form, [25_216, n, k], 1, 132, LARGE).expect("few terms");
                assert!(plan.depth >= k && plan.depth.is_multiple_of(16));
                let [rows, columns] = plan.per_plane();
                assert_eq!([rows % 16, columns % 16], [0, 0], "{n} {k}");
                assert_eq!([rows * plan.planes[0], columns * plan.planes[1]], plan.tile);
                assert!(2 * (plan.shared_memory(1) + 1024) <= 228 << 10, "{n} {k}");
                assert!((1..=25_216 / 32).contains(&workers));
            }
        }
        assert!(weight_stationary(FORM, [25_216, 192, 768], 1, 132, LARGE).is_none());
        assert!(weight_stationary(FORM, [128, 1000, 192], 1, 132, LARGE).is_none());
        assert!(weight_stationary(FORM, [25_216, 768, 192], 1, 132, 32 << 10).is_none());
    }
}
