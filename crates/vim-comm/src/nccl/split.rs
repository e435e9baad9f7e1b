//! How numbers are cut into equal parts, one for each rank.

/// Equal parts of numbers, the last ones shorter or empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    count: usize,
    /// Numbers of a part with its padding.
    pub(super) length: usize,
}

impl Split {
    /// Parts whose length is a multiple of `alignment`.
    pub(super) fn new(count: usize, ranks: usize, alignment: usize) -> Self {
        Self { count, length: count.div_ceil(ranks).next_multiple_of(alignment) }
    }

    /// Where a part begins.
    pub(super) fn begin(self, rank: usize) -> usize {
        (rank * self.length).min(self.count)
    }

    /// Numbers of a part without its padding.
    pub(super) fn used(self, rank: usize) -> usize {
        self.begin(rank + 1) - self.begin(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_numbers_once() {
        for count in [1, 63, 64, 65, 511, 512, 7_200_256] {
            for ranks in 1..=9 {
                for alignment in [1, 64, 192] {
                    let parts = Split::new(count, ranks, alignment);
                    assert!(parts.length.is_multiple_of(alignment));
                    assert_eq!(parts.begin(0), 0);
                    assert_eq!((0..ranks).map(|rank| parts.used(rank)).sum::<usize>(), count);
                    assert!((0..ranks).all(|rank| parts.used(rank) <= parts.length));
                    let padding = ranks * parts.length - count;
                    assert!(padding < ranks * alignment, "no more than needed");
                }
            }
        }
    }
}
