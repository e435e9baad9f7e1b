//! Sums of rows of numbers in the tree's order.

use bytemuck::Pod;
use half::bf16;

use crate::tree::TreeSum;

/// Numbers of a block: all rows' blocks together fit a processor's cache.
const BLOCK: usize = 8192;

/// Numbers that are summed.
pub(super) trait Number: Pod {
    fn plus(self, other: Self) -> Self;
}

impl Number for f32 {
    fn plus(self, other: Self) -> Self {
        self + other
    }
}

impl Number for f64 {
    fn plus(self, other: Self) -> Self {
        self + other
    }
}

/// Every sum of two is rounded, as on a GPU.
impl Number for bf16 {
    fn plus(self, other: Self) -> Self {
        self + other
    }
}

/// Appends the sums of the rows' numbers, place by place. Rows are equally long.
pub(super) fn sum_rows<T: Number>(rows: &[&[u8]], sums: &mut Vec<u8>) {
    let bytes = rows.first().map_or(0, |row| row.len());
    let block = BLOCK * size_of::<T>();
    sums.reserve(bytes);
    for begin in (0..bytes).step_by(block) {
        let end = bytes.min(begin + block);
        let mut tree = TreeSum::new();
        for row in rows {
            // A copy, because bytes of a message need not be aligned.
            tree.push(bytemuck::pod_collect_to_vec::<u8, T>(&row[begin..end]), add);
        }
        sums.extend_from_slice(bytemuck::cast_slice(&tree.finish(add).unwrap_or_default()));
    }
}

fn add<T: Number>(mut left: Vec<T>, right: Vec<T>) -> Vec<T> {
    for (left, right) in left.iter_mut().zip(right) {
        *left = left.plus(right);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summed<T: Number>(rows: &[Vec<T>]) -> Vec<T> {
        let rows: Vec<&[u8]> = rows.iter().map(|row| bytemuck::cast_slice(row)).collect();
        let mut sums = Vec::new();
        sum_rows::<T>(&rows, &mut sums);
        bytemuck::pod_collect_to_vec(&sums)
    }

    #[test]
    fn every_number_is_summed_in_the_order_of_the_tree() {
        let count = 2 * BLOCK + 5;
        let number =
            |row: usize, i: usize| ((i * 31 + row * 17) as f32).sin() * 10_f32.powi(row as i32);
        let rows: Vec<Vec<f32>> =
            (0..5).map(|row| (0..count).map(|i| number(row, i)).collect()).collect();
        let sums = summed(&rows);
        assert_eq!(sums.len(), count);
        for i in 0..count {
            let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|row| number(row, i));
            assert_eq!(sums[i].to_bits(), (((a + b) + (c + d)) + e).to_bits());
        }
    }

    #[test]
    fn sums_of_bf16_are_rounded_at_each_step() {
        let rows = [1.0, 2.0_f32.powi(-8), 2.0_f32.powi(-8)].map(|x| vec![bf16::from_f32(x)]);
        // 1 + 2⁻⁸ lies between two numbers, and goes to the even one.
        assert_eq!(summed(&rows), [bf16::ONE]);
    }
}
