//! Cross-entropy with label smoothing.

use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor};

/// The mean over the batch of `(1 − s)·nll(label) + s·mean over classes of nll`, s the smoothing.
///
/// # Shapes
///
/// - `logits`: `[B, K]`
/// - `labels`: `[B]`, each below K
/// - returns one number, `[1]`
///
/// # Source
///
/// Szegedy et al. 2016, §7; timm's `LabelSmoothingCrossEntropy`.
#[must_use]
pub fn cross_entropy(logits: Tensor<2>, labels: Tensor<1, Int>, smoothing: f64) -> Tensor<1> {
    let log_p = log_softmax(logits, 1); // [B, K]
    let hit = log_p.clone().gather(1, labels.unsqueeze_dim(1)); // [B, 1]
    let loss = -hit.mean() * (1.0 - smoothing);
    if smoothing == 0.0 { loss } else { loss - log_p.mean() * smoothing }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    fn loss(smoothing: f64) -> f64 {
        let device = Device::flex();
        let logits = Tensor::from_floats([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]], &device);
        let labels = Tensor::<1, Int>::from_ints([1, 0], &device);
        f64::from(cross_entropy(logits, labels, smoothing).into_scalar::<f32>())
    }

    #[test]
    fn matches_the_definition() {
        let nll = |row: [f64; 3]| {
            let sum = row.iter().map(|x| x.exp()).sum::<f64>().ln();
            row.map(|x| sum - x)
        };
        let (a, b) = (nll([1.0, 2.0, 0.5]), nll([0.0, -1.0, 3.0]));
        let hard = f64::midpoint(a[1], b[0]);
        let soft = (a.iter().sum::<f64>() + b.iter().sum::<f64>()) / 6.0;
        // f32 of numbers of the order of 1.
        assert!((loss(0.0) - hard).abs() < 1e-6);
        assert!((loss(0.1) - (0.9 * hard + 0.1 * soft)).abs() < 1e-6);
    }
}
