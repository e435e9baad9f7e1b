//! Products of small matrices on a CPU, each in one thread.

/// A matrix in a slice, by rows or by columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix<'a> {
    values: &'a [f32],
    size: [usize; 2],
    strides: [usize; 2],
}

impl<'a> Matrix<'a> {
    /// Rows that begin `pitch` apart.
    pub(crate) fn rows(values: &'a [f32], size: [usize; 2], pitch: usize) -> Self {
        Self { values, size, strides: [pitch, 1] }
    }

    /// Rows one behind the other.
    pub(crate) fn dense(values: &'a [f32], size: [usize; 2]) -> Self {
        Self::rows(values, size, size[1])
    }

    pub(crate) fn transposed(self) -> Self {
        let ([rows, columns], [down, right]) = (self.size, self.strides);
        Self { values: self.values, size: [columns, rows], strides: [right, down] }
    }

    /// Elements up to the last.
    fn extent(&self) -> usize {
        (self.size[0] - 1) * self.strides[0] + (self.size[1] - 1) * self.strides[1] + 1
    }
}

/// Writes `lhs · rhs` to `out`, whose rows begin `pitch` apart, or adds it where `accumulate`.
///
/// # Panics
///
/// If the sizes disagree, one is 0, or a slice is too short.
pub(crate) fn multiply(
    lhs: Matrix<'_>,
    rhs: Matrix<'_>,
    out: &mut [f32],
    pitch: usize,
    accumulate: bool,
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
            gemm::Parallelism::None,
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
}
