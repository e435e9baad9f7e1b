//! Products of matrices on a CPU.
//!
//! The number of threads changes no bit of a result. The size of its blocks may.

use rayon::prelude::*;

/// A matrix in a slice, by rows or by columns.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    values: &'a [f32],
    size: [usize; 2],
    strides: [usize; 2],
}

impl<'a> Matrix<'a> {
    /// Rows that begin `pitch` apart.
    pub fn rows(values: &'a [f32], size: [usize; 2], pitch: usize) -> Self {
        Self { values, size, strides: [pitch, 1] }
    }

    /// Rows one behind the other.
    pub fn dense(values: &'a [f32], size: [usize; 2]) -> Self {
        Self::rows(values, size, size[1])
    }

    pub fn transposed(self) -> Self {
        let ([rows, columns], [down, right]) = (self.size, self.strides);
        Self { values: self.values, size: [columns, rows], strides: [right, down] }
    }

    pub fn size(&self) -> [usize; 2] {
        self.size
    }

    pub fn elements(&self) -> usize {
        self.size[0] * self.size[1]
    }

    /// `count` rows from `first` on.
    fn part(self, first: usize, count: usize) -> Self {
        let [_, columns] = self.size;
        let values = &self.values[first * self.strides[0]..];
        Self { values, size: [count, columns], strides: self.strides }
    }

    /// Elements up to the last.
    fn extent(&self) -> usize {
        (self.size[0] - 1) * self.strides[0] + (self.size[1] - 1) * self.strides[1] + 1
    }
}

/// Writes `lhs · rhs` to `out`, whose rows begin `pitch` apart, or adds it where `accumulate`, in
/// this thread.
///
/// # Panics
///
/// If the sizes disagree, one is 0, or a slice is too short.
pub fn multiply(lhs: Matrix<'_>, rhs: Matrix<'_>, out: &mut [f32], pitch: usize, accumulate: bool) {
    run(lhs, rhs, out, pitch, accumulate, gemm::Parallelism::None);
}

/// As [`multiply`], in all threads, which share each matrix: of large ones.
pub fn multiply_large(
    lhs: Matrix<'_>,
    rhs: Matrix<'_>,
    out: &mut [f32],
    pitch: usize,
    accumulate: bool,
) {
    run(lhs, rhs, out, pitch, accumulate, gemm::Parallelism::Rayon(0));
}

/// As [`multiply`], in all threads, each with `block` rows at a time and the whole of `rhs`.
pub fn multiply_in_blocks(
    block: usize,
    lhs: Matrix<'_>,
    rhs: Matrix<'_>,
    out: &mut [f32],
    pitch: usize,
    accumulate: bool,
) {
    let [rows, _] = lhs.size;
    out.par_chunks_mut(block * pitch).enumerate().for_each(|(i, out)| {
        let lhs = lhs.part(i * block, block.min(rows - i * block));
        multiply(lhs, rhs, out, pitch, accumulate);
    });
}

fn run(
    lhs: Matrix<'_>,
    rhs: Matrix<'_>,
    out: &mut [f32],
    pitch: usize,
    accumulate: bool,
    parallelism: gemm::Parallelism,
) {
    let ([m, k], [rows, n]) = (lhs.size, rhs.size);
    assert!(k == rows && m > 0 && k > 0 && n > 0 && n <= pitch, "invariant: sizes that agree");
    let inside = lhs.extent() <= lhs.values.len() && rhs.extent() <= rhs.values.len();
    assert!(inside && (m - 1) * pitch + n <= out.len(), "invariant: matrices within their slices");
    let signed = |stride: usize| isize::try_from(stride).expect("invariant: within a slice");
    #[expect(unsafe_code, reason = "gemm takes pointers")]
    // SAFETY: every element of the three matrices is within its slice, as asserted; `out` is
    // borrowed mutably, so that it overlaps neither of the others.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            signed(pitch),
            accumulate,
            lhs.values.as_ptr(),
            signed(lhs.strides[1]),
            signed(lhs.strides[0]),
            rhs.values.as_ptr(),
            signed(rhs.strides[1]),
            signed(rhs.strides[0]),
            1.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Small integers: every product and sum is exact.
    #[test]
    fn matrices_by_rows_and_columns_are_multiplied_in_place() {
        let (m, k, n, pitch) = (5, 7, 3, 4);
        let number = |i: usize| (i * 5 % 11) as f32 - 5.0;
        let lhs: Vec<f32> = (0..m * k).map(number).collect();
        let rhs: Vec<f32> = (0..n * k).map(|i| number(i + 3)).collect();
        let want =
            |i: usize, j: usize| -> f32 { (0..k).map(|p| lhs[i * k + p] * rhs[j * k + p]).sum() };
        let mut out = vec![1.0; m * pitch];
        let columns = Matrix::dense(&rhs, [n, k]).transposed();
        for pass in 0..2 {
            multiply(Matrix::dense(&lhs, [m, k]), columns, &mut out, pitch, pass == 1);
            for i in 0..m {
                for j in 0..n {
                    let times = (pass + 1) as f32;
                    assert_eq!(out[i * pitch + j], times * want(i, j), "{i}, {j}, pass {pass}");
                }
            }
            // What lies between the rows of the result stays.
            assert!((0..m - 1).all(|i| out[i * pitch + n] == 1.0));
        }
    }

    // Sizes of gemm's several kernels: of one row, one column, few terms and many.
    #[test]
    fn threads_and_blocks_change_no_bit() {
        for [m, k, n] in [[1, 64, 48], [70, 1, 33], [70, 2, 1], [65, 700, 40], [300, 130, 129]] {
            let number = |i: usize| ((i * 37 % 101) as f32 - 50.0) * 0.013;
            let lhs: Vec<f32> = (0..m * k).map(number).collect();
            let rhs: Vec<f32> = (0..n * k).map(|i| number(i + 5)).collect();
            let (lhs, rhs) = (Matrix::dense(&lhs, [m, k]), Matrix::dense(&rhs, [k, n]));
            let mut one = vec![0.0; m * n];
            multiply_large(lhs, rhs, &mut one, n, false);
            for i in 0..m {
                for j in 0..n {
                    let term = |p: usize| f64::from(lhs.values[i * k + p] * rhs.values[p * n + j]);
                    let want: f64 = (0..k).map(term).sum();
                    // Sums of up to 700 terms of at most 0.43.
                    assert!((f64::from(one[i * n + j]) - want).abs() < 2e-4, "{m} {k} {n}");
                }
            }
            for threads in 1..4 {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let mut large = vec![0.0; m * n];
                let mut blocks = [vec![0.0; m * n], vec![0.0; m * n]];
                pool.install(|| {
                    multiply_large(lhs, rhs, &mut large, n, false);
                    multiply_in_blocks(64, lhs, rhs, &mut blocks[0], n, false);
                });
                multiply_in_blocks(64, lhs, rhs, &mut blocks[1], n, false);
                assert_eq!(large, one, "{m} {k} {n}, {threads} threads");
                assert_eq!(blocks[0], blocks[1], "{m} {k} {n}, {threads} threads");
            }
        }
    }
}
