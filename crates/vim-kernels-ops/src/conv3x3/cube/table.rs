//! Tiles of a convolution by its sizes; there is no autotuning.

use crate::matmul::cube::plan::{DEPTH, MatmulForm, MatmulPlan};
use crate::matmul::cube::table::{self, fitting};

use super::super::TAPS;

/// Columns of a tile, the first of those that cover the result with the least excess: 192 is the
/// width of a head, and with 64 rows and 48 columns a plane reads shared memory less often than
/// its tensor cores multiply.
const COLUMNS: [usize; 7] = [192, 128, 96, 64, 48, 32, 16];
/// Rows of a tile where the result has many.
const ROWS: [usize; 4] = [128, 64, 32, 16];
/// Channels of a tile of the weight's gradient.
const CHANNELS: [usize; 5] = [128, 96, 64, 32, 16];
/// Fewest cubes of a result that is not small: about one for each multiprocessor of the largest
/// GPUs.
const FEWEST: usize = 120;
/// Stages and terms per stage; the first that fits the device's shared memory is used.
const PIPELINES: [[usize; 2]; 4] = [[4, DEPTH], [3, DEPTH], [2, DEPTH], [2, 32]];
/// Most cubes of the weight's gradient: four for each multiprocessor of the largest GPUs, as only
/// one is resident at a time. Constant, so that the order of a sum does not depend on the GPU.
const CUBES: usize = 528;
/// Fewest pixels of a part of a sum.
const SHORTEST_PART: usize = 512;

/// The plan of a convolution of `m` pixels to `n` channels.
pub(super) fn convolution(
    form: MatmulForm,
    m: usize,
    n: usize,
    shared_memory: usize,
) -> MatmulPlan {
    let [wide, narrow] = [&COLUMNS[..], &COLUMNS[2..]].map(|columns| fitting(n, columns));
    let cubes = |[rows, columns]: [usize; 2]| m.div_ceil(rows) * n.div_ceil(columns);
    let tiles = [[128, wide], [64, wide], [64, narrow], [32, narrow]];
    let enough = tiles.into_iter().find(|&tile| m >= tile[0] && cubes(tile) >= FEWEST);
    let tile = enough.unwrap_or_else(|| [fitting(m, &ROWS).min(32), narrow]);
    pipelined(form, tile, shared_memory)
}

/// The plan of the weight's gradient, `[9·c, o]`, over `t` pixels, and the parts of its sums.
pub(super) fn gradient(
    form: MatmulForm,
    [c, o, t]: [usize; 3],
    shared_memory: usize,
) -> (MatmulPlan, usize) {
    let tile = [fitting(c, &CHANNELS), fitting(o, &COLUMNS)];
    let tiles = TAPS * c.div_ceil(tile[0]) * o.div_ceil(tile[1]);
    let parts = (CUBES / tiles).min(t / SHORTEST_PART).max(1);
    (pipelined(form, tile, shared_memory), parts)
}

fn pipelined(form: MatmulForm, tile: [usize; 2], shared_memory: usize) -> MatmulPlan {
    let planes = planes(tile);
    let plan = |[stages, depth]: [usize; 2]| MatmulPlan { form, tile, planes, depth, stages };
    let fits = |plan: &MatmulPlan| plan.shared_memory(plan.stages) <= shared_memory;
    let [.., least] = PIPELINES;
    PIPELINES.map(plan).into_iter().find(fits).unwrap_or_else(|| plan(least))
}

/// Planes that share a tile: each has a multiple of 16 rows and columns.
fn planes([rows, columns]: [usize; 2]) -> [usize; 2] {
    match (rows, columns) {
        (128 | 96 | 64, 192) | (96, 128) => [2, 4],
        (32 | 16, 192) => [1, 4],
        (96, 96 | 64) => [2, 2],
        (96, _) => [2, 1],
        _ => table::planes([rows, columns]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::cube::arithmetic::Arithmetic;

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
    fn planes_share_whole_fragments_and_rings_fit() {
        let by_columns = MatmulForm { lhs_by_columns: true, ..FORM };
        for rows in CHANNELS {
            for columns in COLUMNS {
                let [along, across] = planes([rows, columns]);
                assert_eq!([rows % (16 * along), columns % (16 * across)], [0, 0]);
                for (form, most) in
                    [(FORM, SMALL), (FORM, LARGE), (by_columns, SMALL), (by_columns, LARGE)]
                {
                    let plan = pipelined(form, [rows, columns], most);
                    assert!(plan.shared_memory(plan.stages) <= most, "{plan:?}");
                }
            }
        }
    }

    #[test]
    fn tiles_of_the_heads() {
        let tile = |m, n| convolution(FORM, m, n, LARGE).tile;
        let pixels = |side: usize| 8 * side * side;
        assert_eq!(tile(pixels(128), 192), [128, 192]);
        assert_eq!(tile(pixels(128), 768), [128, 192]);
        assert_eq!(tile(pixels(64), 192), [128, 192]);
        assert_eq!(tile(pixels(32), 192), [64, 192]);
        assert_eq!(tile(pixels(32), 256), [128, 128]);
        assert_eq!(tile(pixels(16), 192), [32, 96]);
        assert_eq!(tile(9, 3), [16, 16]);
        let gradient = |c, o, side| gradient(FORM, [c, o, pixels(side)], LARGE);
        assert_eq!(gradient(768, 192, 128).0.tile, [128, 192]);
        assert_eq!(gradient(768, 192, 128).1, 9);
        assert_eq!(gradient(192, 192, 64).0.tile, [96, 192]);
        assert_eq!(gradient(192, 192, 64).1, 29);
        assert_eq!(gradient(960, 192, 16).1, 4);
        assert_eq!(gradient(3, 3, 1).1, 1);
    }
}
