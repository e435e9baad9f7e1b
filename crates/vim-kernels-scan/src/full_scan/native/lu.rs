//! Small dense systems: `I − delta/2·A` factored once, solved as it is and transposed.

/// The factors `P·(I − delta/2·A) = L·U` of one system, by partial pivoting. A singular system
/// gives infinities and NaN, which reach every solution.
pub(super) struct Factors {
    size: usize,
    /// L below the diagonal (its own diagonal is 1), U on and above it, `[N, N]`.
    lu: Vec<f32>,
    /// The row that row k was exchanged with.
    exchanged: Vec<usize>,
}

impl Factors {
    /// Room for a system of `size` unknowns.
    pub(super) fn new(size: usize) -> Self {
        Self { size, lu: vec![0.0; size * size], exchanged: vec![0; size] }
    }

    /// Factors `I − half_delta·a`, `a` being `[N, N]`.
    pub(super) fn factor(&mut self, a: &[f32], half_delta: f32) {
        let size = self.size;
        for (entry, a) in self.lu.iter_mut().zip(a) {
            *entry = -half_delta * a;
        }
        for k in 0..size {
            self.lu[k * size + k] += 1.0;
        }
        for k in 0..size {
            let mut pivot = k;
            for i in k + 1..size {
                // NaN never compares greater, and nothing compares greater than NaN: it stays in
                // its row and spreads.
                if self.lu[i * size + k].abs() > self.lu[pivot * size + k].abs() {
                    pivot = i;
                }
            }
            self.exchanged[k] = pivot;
            if pivot != k {
                let (upper, lower) = self.lu.split_at_mut(pivot * size);
                upper[k * size..(k + 1) * size].swap_with_slice(&mut lower[..size]);
            }
            let (upper, lower) = self.lu.split_at_mut((k + 1) * size);
            let top = &upper[k * size..];
            for row in lower.chunks_exact_mut(size) {
                let factor = row[k] / top[k];
                row[k] = factor;
                for (entry, top) in row[k + 1..].iter_mut().zip(&top[k + 1..]) {
                    *entry -= factor * top;
                }
            }
        }
    }

    /// Replaces `x` by the solution for it.
    pub(super) fn solve(&self, x: &mut [f32]) {
        let size = self.size;
        for (k, &with) in self.exchanged.iter().enumerate() {
            x.swap(k, with);
        }
        for i in 1..size {
            x[i] -= dot(&self.lu[i * size..i * size + i], x);
        }
        for i in (0..size).rev() {
            let row = &self.lu[i * size..(i + 1) * size];
            x[i] = (x[i] - dot(&row[i + 1..], &x[i + 1..])) / row[i];
        }
    }

    /// Replaces `x` by the solution for it of the transposed system.
    pub(super) fn solve_transposed(&self, x: &mut [f32]) {
        let size = self.size;
        for k in 0..size {
            let row = &self.lu[k * size..(k + 1) * size];
            x[k] /= row[k];
            let known = x[k];
            for (x, u) in x[k + 1..].iter_mut().zip(&row[k + 1..]) {
                *x -= known * u;
            }
        }
        for k in (1..size).rev() {
            let known = x[k];
            for (x, l) in x[..k].iter_mut().zip(&self.lu[k * size..]) {
                *x -= known * l;
            }
        }
        for (k, &with) in self.exchanged.iter().enumerate().rev() {
            x.swap(k, with);
        }
    }
}

/// `Σ a·b` over the shorter of the two.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
