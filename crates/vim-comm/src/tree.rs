//! The one order in which anything is summed.

/// A sum of leaves in the order of a binary tree whose left side has the largest power of two of
/// leaves below their number; of both sides likewise.
///
/// Leaves come in order. Kept are the sums of complete subtrees, one for each binary digit 1 of
/// the number of leaves so far. The sums of equal, aligned parts of the leaves, summed in this
/// order, give the same bits as all leaves: see [`same_order`].
///
/// # Source
///
/// The tree of BLAKE3 (O'Connor et al. 2020, section 2.1).
#[derive(Clone, Debug)]
pub struct TreeSum<T> {
    /// Sums of complete subtrees, the largest first.
    sums: Vec<T>,
    leaves: usize,
}

impl<T> Default for TreeSum<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> TreeSum<T> {
    /// A sum of nothing.
    pub fn new() -> Self {
        Self { sums: Vec::new(), leaves: 0 }
    }

    /// Number of leaves so far.
    pub fn leaves(&self) -> usize {
        self.leaves
    }

    /// Adds the next leaf by `add(left, right)`, which must always be the same operation.
    pub fn push(&mut self, leaf: T, mut add: impl FnMut(T, T) -> T) {
        self.leaves += 1;
        let mut sum = leaf;
        for _ in 0..self.leaves.trailing_zeros() {
            let Some(left) = self.sums.pop() else { break };
            sum = add(left, sum);
        }
        self.sums.push(sum);
    }

    /// The sum; `None` of no leaves.
    pub fn finish(mut self, mut add: impl FnMut(T, T) -> T) -> Option<T> {
        let mut sum = self.sums.pop()?;
        while let Some(left) = self.sums.pop() {
            sum = add(left, sum);
        }
        Some(sum)
    }
}

/// Whether sums of `shards` equal shards, spread evenly over `ranks`, have the same bits as on one
/// rank: the sum over a rank's shards must be a subtree of the sum over all.
pub fn same_order(shards: usize, ranks: usize) -> bool {
    ranks > 0 && shards.is_multiple_of(ranks) && (shards / ranks).is_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By definition.
    fn recursive(leaves: &[f32]) -> f32 {
        match leaves {
            [] => unreachable!("no leaves"),
            [leaf] => *leaf,
            _ => {
                let left = leaves.len().next_power_of_two() / 2;
                recursive(&leaves[..left]) + recursive(&leaves[left..])
            }
        }
    }

    fn summed(leaves: impl IntoIterator<Item = f32>) -> Option<f32> {
        let mut sum = TreeSum::new();
        for leaf in leaves {
            sum.push(leaf, |a, b| a + b);
        }
        sum.finish(|a, b| a + b)
    }

    /// Numbers whose sum depends on the order.
    fn leaf(i: usize) -> f32 {
        (i as f32 * 1.7 + 0.3).sin() * 3_f32.powi((i * 5 % 7) as i32 - 3)
    }

    #[test]
    fn the_order_is_that_of_the_tree() {
        let mut differ_from_left_to_right = 0;
        for count in 1..=17 {
            let leaves: Vec<f32> = (0..count).map(leaf).collect();
            let sum = summed(leaves.iter().copied()).unwrap();
            assert_eq!(sum.to_bits(), recursive(&leaves).to_bits(), "{count} leaves");
            let plain: f32 = leaves.iter().sum();
            differ_from_left_to_right += u32::from(plain.to_bits() != sum.to_bits());
        }
        assert!(differ_from_left_to_right > 3, "the numbers show an order");
        assert_eq!(summed([]), None);
    }

    #[test]
    fn the_order_has_names() {
        let text = |count: u8| {
            let mut sum = TreeSum::new();
            let add = |a: String, b: String| format!("({a}{b})");
            for i in 0..count {
                sum.push(char::from(b'a' + i).to_string(), add);
            }
            assert_eq!(sum.leaves(), usize::from(count));
            sum.finish(add).unwrap()
        };
        assert_eq!(text(3), "((ab)c)");
        assert_eq!(text(6), "(((ab)(cd))(ef))");
        assert_eq!(text(7), "(((ab)(cd))((ef)g))");
    }

    #[test]
    fn ranks_keep_the_order_where_it_is_said() {
        for shards in 1..=24 {
            let all: Vec<f32> = (0..shards).map(leaf).collect();
            for ranks in (1..=shards).filter(|&ranks| same_order(shards, ranks)) {
                let parts = all.chunks(shards / ranks);
                let sum = summed(parts.map(|part| summed(part.iter().copied()).unwrap()));
                assert_eq!(sum, summed(all.iter().copied()), "{shards} shards, {ranks} ranks");
            }
        }
        let ranks = |shards| (0..=9).filter(|&ranks| same_order(shards, ranks)).collect::<Vec<_>>();
        assert_eq!(ranks(8), [1, 2, 4, 8]);
        assert_eq!(ranks(6), [3, 6]);
        assert_eq!(ranks(7), [7]);
        assert_eq!(ranks(0), [0; 0]);
    }
}
