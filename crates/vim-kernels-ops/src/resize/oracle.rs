//! Bilinear interpolation in f64.

/// Images to interpolate; shapes as in [`crate::resize()`], row-major.
#[derive(Clone, Debug, Default)]
pub struct OracleResize {
    /// `[B, h, w, C]`.
    pub from: [usize; 4],
    /// `[H, W]`.
    pub to: [usize; 2],
    /// `[B, h, w, C]`.
    pub x: Vec<f64>,
}

impl OracleResize {
    /// The result, `[B, H, W, C]`.
    #[must_use]
    pub fn forward(&self) -> Vec<f64> {
        let mut y = vec![0.0; self.from[0] * self.to[0] * self.to[1] * self.from[3]];
        self.terms(|to, from, share| y[to] += self.x[from] * share);
        y
    }

    /// The gradient of `x` of `Σ grad_y·y`.
    #[must_use]
    pub fn backward(&self, grad_y: &[f64]) -> Vec<f64> {
        let mut x = vec![0.0; self.x.len()];
        self.terms(|to, from, share| x[from] += grad_y[to] * share);
        x
    }

    /// Calls `term` with an index of the result, one that it reads, and the share of that.
    fn terms(&self, mut term: impl FnMut(usize, usize, f64)) {
        let [batch, height, width, channels] = self.from;
        let [rows, columns] = self.to;
        for image in 0..batch {
            for (i, j) in (0..rows * columns).map(|at| (at / columns, at % columns)) {
                for (row, of_row) in neighbours(i, height, rows) {
                    for (column, of_column) in neighbours(j, width, columns) {
                        let to = ((image * rows + i) * columns + j) * channels;
                        let from = ((image * height + row) * width + column) * channels;
                        for c in 0..channels {
                            term(to + c, from + c, of_row * of_column);
                        }
                    }
                }
            }
        }
    }
}

/// The two pixels of `from`, which may be the same, that pixel `at` of `to` lies between, and their
/// shares.
fn neighbours(at: usize, from: usize, to: usize) -> [(usize, f64); 2] {
    let place = ((at as f64 + 0.5) * from as f64 / to as f64 - 0.5).max(0.0);
    let lower = (place.floor() as usize).min(from - 1);
    let share = place - lower as f64;
    [(lower, 1.0 - share), ((lower + 1).min(from - 1), share)]
}
