//! The 3×3 convolution in f64.

/// A convolution to run; shapes as in [`crate::conv3x3()`], row-major.
#[derive(Clone, Debug, Default)]
pub struct OracleConv3x3 {
    /// `[B, H, W]`.
    pub size: [usize; 3],
    /// `C`.
    pub inputs: usize,
    /// `O`.
    pub outputs: usize,
    /// `[B, H, W, C]`.
    pub x: Vec<f64>,
    /// `[O, C, 3, 3]`.
    pub weight: Vec<f64>,
    /// `[O]`.
    pub bias: Option<Vec<f64>>,
}

/// Gradients of a convolution, shaped as its inputs; empty where an input is absent.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "each is the gradient of the input of its name")]
pub struct OracleConv3x3Grads {
    pub x: Vec<f64>,
    pub weight: Vec<f64>,
    pub bias: Vec<f64>,
}

impl OracleConv3x3 {
    /// `y [B, H, W, O]`.
    #[must_use]
    pub fn forward(&self) -> Vec<f64> {
        let [batch, height, width] = self.size;
        let mut y: Vec<f64> = match &self.bias {
            Some(bias) => bias.repeat(batch * height * width),
            None => vec![0.0; batch * height * width * self.outputs],
        };
        self.terms(|of_y, of_x, of_weight| y[of_y] += self.x[of_x] * self.weight[of_weight]);
        y
    }

    /// The gradients of `Σ grad_y·y`.
    #[must_use]
    pub fn backward(&self, grad_y: &[f64]) -> OracleConv3x3Grads {
        let (mut x, mut weight) = (vec![0.0; self.x.len()], vec![0.0; self.weight.len()]);
        self.terms(|of_y, of_x, of_weight| {
            x[of_x] += grad_y[of_y] * self.weight[of_weight];
            weight[of_weight] += grad_y[of_y] * self.x[of_x];
        });
        let mut bias = vec![0.0; self.bias.as_ref().map_or(0, Vec::len)];
        if self.bias.is_some() {
            for pixel in grad_y.chunks(self.outputs) {
                bias.iter_mut().zip(pixel).for_each(|(sum, grad)| *sum += grad);
            }
        }
        OracleConv3x3Grads { x, weight, bias }
    }

    /// Calls `term` with the indices in y, x and the weight of every product of the sums.
    fn terms(&self, mut term: impl FnMut(usize, usize, usize)) {
        let [batch, height, width] = self.size;
        let (inputs, outputs) = (self.inputs, self.outputs);
        for image in 0..batch {
            for (i, j) in (0..height * width).map(|pixel| (pixel / width, pixel % width)) {
                for (k, l) in (0..9).map(|tap| (tap / 3, tap % 3)) {
                    // The pixel above, left of, below or right of the image is 0.
                    let (Some(row), Some(column)) =
                        ((i + k).checked_sub(1), (j + l).checked_sub(1))
                    else {
                        continue;
                    };
                    if row >= height || column >= width {
                        continue;
                    }
                    let to = ((image * height + i) * width + j) * outputs;
                    let from = ((image * height + row) * width + column) * inputs;
                    for (o, c) in (0..outputs * inputs).map(|at| (at / inputs, at % inputs)) {
                        term(to + o, from + c, ((o * inputs + c) * 3 + k) * 3 + l);
                    }
                }
            }
        }
    }
}
