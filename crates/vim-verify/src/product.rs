//! Products of matrices in f64, on all cores.

use rayon::prelude::*;

/// Rows that share a read of the right matrix.
const ROWS: usize = 16;

/// `[t, k] · [k, n]`, none of which is 0; each sum in order.
pub(crate) fn product(lhs: &[f64], rhs: &[f64], [t, k, n]: [usize; 3]) -> Vec<f64> {
    let mut out = vec![0.0; t * n];
    let blocks = out.par_chunks_mut(ROWS * n).zip(lhs.par_chunks(ROWS * k));
    blocks.for_each(|(out, lhs)| {
        for (term, rhs) in rhs.chunks_exact(n).enumerate() {
            for (out, lhs) in out.chunks_exact_mut(n).zip(lhs.chunks_exact(k)) {
                for (sum, rhs) in out.iter_mut().zip(rhs) {
                    *sum += lhs[term] * rhs;
                }
            }
        }
    });
    out
}

/// `[n, k]` of `[k, n]`.
pub(crate) fn turned(of: &[f64], [k, n]: [usize; 2]) -> Vec<f64> {
    (0..n * k).map(|i| of[i % k * n + i / k]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_of_more_rows_than_a_block() {
        // Row i is i, i + 1; the right matrix is [1 2 3; 10 20 30].
        let lhs: Vec<f64> = (0..35).flat_map(|i| [f64::from(i), f64::from(i + 1)]).collect();
        let got = product(&lhs, &[1.0, 2.0, 3.0, 10.0, 20.0, 30.0], [35, 2, 3]);
        let want = (0..35).flat_map(|i| [1, 2, 3].map(|j| f64::from(j * (11 * i + 10))));
        assert_eq!(got, want.collect::<Vec<_>>());
        assert_eq!(turned(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }
}
