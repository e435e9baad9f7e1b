//! Cross-entropy with label smoothing, of whole and of mixed targets.

use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor};

use crate::batches::Targets;

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
    target_loss(logits, Targets { labels, shares: None }, smoothing)
}

/// The same where images are mixed: each image's `nll` is its share of its own label's and the rest of its partner's.
///
/// It is the cross-entropy with the mixed, smoothed targets, which is linear in them.
///
/// # Source
///
/// Zhang et al. 2018, "mixup", §2; timm 0.4.12's `Mixup` with `SoftTargetCrossEntropy`.
#[must_use]
pub fn target_loss(logits: Tensor<2>, targets: Targets, smoothing: f64) -> Tensor<1> {
    let Targets { labels, shares } = targets;
    let log_p = log_softmax(logits, 1); // [B, K]
    let of = |labels: Tensor<1, Int>| log_p.clone().gather(1, labels.unsqueeze_dim(1)); // [B, 1]
    let hit = match shares {
        None => of(labels),
        Some(shares) => {
            let shares = shares.unsqueeze_dim::<2>(1); // [B, 1]
            let partners = of(labels.clone().flip([0]));
            of(labels) * shares.clone() + partners * (-shares + 1.0)
        }
    };
    let loss = -hit.mean() * (1.0 - smoothing);
    if smoothing == 0.0 { loss } else { loss - log_p.mean() * smoothing }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use vim_data::{label_smoothing_loss, mixed_targets, soft_target_loss};

    use super::*;

    const LOGITS: [[f32; 3]; 4] =
        [[1.0, 2.0, 0.5], [0.0, -1.0, 3.0], [0.3, 0.2, -4.0], [-1.0, -1.0, 5.0]];
    const LABELS: [i32; 4] = [1, 0, 2, 2];

    fn logits() -> Vec<Vec<f64>> {
        LOGITS.iter().map(|row| row.iter().map(|&x| f64::from(x)).collect()).collect()
    }

    // f32 of numbers of the order of 1.
    fn close(got: Tensor<1>, want: f64) {
        let got = f64::from(got.into_scalar::<f32>());
        assert!((got - want).abs() < 1e-6, "{got} {want}");
    }

    #[test]
    fn matches_the_definition() {
        let device = Device::flex();
        for smoothing in [0.0, 0.1] {
            let labels = Tensor::<1, Int>::from_ints(LABELS, &device);
            let got = cross_entropy(Tensor::from_floats(LOGITS, &device), labels, smoothing);
            close(got, label_smoothing_loss(&logits(), &LABELS.map(|x| x as u32), smoothing));
        }
    }

    #[test]
    fn of_mixed_images_is_that_of_mixed_targets() {
        let device = Device::flex();
        let shares = [0.3, 1.0, 0.0, 0.85];
        for smoothing in [0.0, 0.1] {
            let targets = Targets {
                labels: Tensor::from_ints(LABELS, &device),
                shares: Some(Tensor::from_floats(shares, &device)),
            };
            let got = target_loss(Tensor::from_floats(LOGITS, &device), targets, smoothing);
            let shares = shares.map(|share: f32| f64::from(share));
            let targets = mixed_targets(&LABELS.map(|x| x as u32), 3, &shares, smoothing);
            close(got, soft_target_loss(&logits(), &targets));
        }
    }
}
