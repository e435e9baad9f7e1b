//! The tiles of a product by the shape of its result: measured, not tuned at run time.

/// Columns of a tile, the widest first.
const COLUMNS: [usize; 6] = [128, 96, 64, 48, 32, 16];
/// Rows of a tile of a small result.
const ROWS: [usize; 4] = [128, 64, 32, 16];
/// Rows from which on a result is long.
const LONG: usize = 1024;
/// Cubes that a weight's gradient is cut for: about as many as the largest GPUs run at once. A constant, so that the order
/// of a sum does not depend on the GPU.
const CUBES: usize = 264;
/// Fewest terms of a part of a sum.
const SHORTEST_PART: usize = 256;

/// The tile and the planes along it of a product of `m` rows and `n` columns.
pub(super) fn forward(m: usize, n: usize) -> ([usize; 2], [usize; 2]) {
    let columns = fitting(n, &COLUMNS);
    let rows = match m {
        LONG.. if columns > 48 => 128,
        LONG.. => 64,
        _ => fitting(m, &ROWS),
    };
    ([rows, columns], planes([rows, columns]))
}

/// The same of a weight's gradient, `m` by `n`, and in how many parts its sums of `k` terms are taken.
pub(super) fn gradient(m: usize, n: usize, k: usize) -> ([usize; 2], [usize; 2], usize) {
    let tile = [fitting(m, &ROWS), fitting(n, &COLUMNS)];
    let tiles = m.div_ceil(tile[0]) * n.div_ceil(tile[1]);
    let parts = CUBES.div_ceil(tiles).min(k / SHORTEST_PART).max(1);
    (tile, planes(tile), parts)
}

/// The one of `sizes` that covers `count` with the least beyond it, the first of several.
fn fitting(count: usize, sizes: &[usize]) -> usize {
    let covered = |size: usize| count.div_ceil(size) * size;
    sizes.iter().copied().min_by_key(|&size| covered(size)).unwrap_or(16)
}

/// Planes that share a tile: each a multiple of 16 both ways.
fn planes([rows, columns]: [usize; 2]) -> [usize; 2] {
    match (rows, columns) {
        (128, 128 | 96 | 64) | (64, 96) => [4, 2],
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

    #[test]
    fn tiles_of_a_layer() {
        assert_eq!(forward(25_216, 768).0, [128, 128]);
        assert_eq!(forward(25_216, 192).0, [128, 96]);
        assert_eq!(forward(25_216, 44).0, [64, 48]);
        assert_eq!(forward(25_216, 12).0, [64, 16]);
        assert_eq!(gradient(192, 768, 25_216).0, [64, 128]);
        assert_eq!(gradient(12, 384, 25_216).0, [16, 128]);
        assert_eq!(gradient(384, 44, 100).2, 1);
    }
}
