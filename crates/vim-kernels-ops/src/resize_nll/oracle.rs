//! The loss of interpolated logits in f64.

use crate::resize::oracle::OracleResize;

/// Logits and labels; shapes as in [`crate::resize_nll()`], row-major.
#[derive(Clone, Debug, Default)]
pub struct OracleResizeNll {
    /// The logits, and the labels' size.
    pub logits: OracleResize,
    /// `[B, H, W]`: classes, or 255.
    pub labels: Vec<i32>,
}

/// What the loss comes to.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "as in `ResizeNll`")]
pub struct OracleResizeNllResult {
    pub loss: f64,
    pub correct: usize,
    pub labelled: usize,
}

impl OracleResizeNll {
    /// The sum over labelled pixels, and the counts.
    #[must_use]
    pub fn forward(&self) -> OracleResizeNllResult {
        let mut result = OracleResizeNllResult::default();
        let logits = self.logits.forward();
        for (pixel, &label) in logits.chunks(self.classes()).zip(&self.labels) {
            let Some(class) = self.class(label) else { continue };
            let largest = pixel.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            result.loss += log_sum_exp(pixel) - pixel[class];
            result.correct += usize::from(pixel.iter().position(|&l| l == largest) == Some(class));
            result.labelled += 1;
        }
        result
    }

    /// The gradient of the logits `[B, h, w, K]` of the loss.
    #[must_use]
    pub fn backward(&self) -> Vec<f64> {
        let classes = self.classes();
        let mut grad = self.logits.forward();
        for (pixel, &label) in grad.chunks_mut(classes).zip(&self.labels) {
            let Some(class) = self.class(label) else {
                pixel.fill(0.0);
                continue;
            };
            let sum = log_sum_exp(pixel);
            pixel.iter_mut().for_each(|logit| *logit = (*logit - sum).exp());
            pixel[class] -= 1.0;
        }
        self.logits.backward(&grad)
    }

    fn classes(&self) -> usize {
        self.logits.from[3]
    }

    fn class(&self, label: i32) -> Option<usize> {
        usize::try_from(label).ok().filter(|&class| class < self.classes())
    }
}

fn log_sum_exp(logits: &[f64]) -> f64 {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    largest + logits.iter().map(|logit| (logit - largest).exp()).sum::<f64>().ln()
}
