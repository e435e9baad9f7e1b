//! The training loss on plain or mixed targets: cross-entropy, or binary cross-entropy.

use burn::tensor::activation::{log_sigmoid, log_softmax};
use burn::tensor::{Int, Tensor};

use super::to_device::{Mixed, Targets};
use crate::config::{ConfigError, LossKind, TrainConfig};

/// The loss of a run.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    kind: LossKind,
    smoothing: f64,
    threshold: Option<f64>,
}

impl Loss {
    /// The loss of `train`, over `classes` classes.
    ///
    /// # Errors
    ///
    /// If `train.bce_threshold` is below the smoothed target of absent classes, which would make
    /// every class a target.
    pub fn new(train: &TrainConfig, classes: usize) -> Result<Self, ConfigError> {
        let (smoothing, threshold) = (train.label_smoothing, train.bce_threshold);
        let spread = smoothing / classes as f64;
        if let Some(threshold) = threshold.filter(|&threshold| spread > threshold) {
            let expected = format!(
                "at least {spread}, which train.label_smoothing = {smoothing} gives each of \
                 {classes} classes (or train.label_smoothing = 0): below it every class is a target"
            );
            return Err(ConfigError::range("train.bce_threshold", threshold, expected));
        }
        Ok(Self { kind: train.loss, smoothing, threshold })
    }

    /// The mean over the images of `logits`, `[B, K]`; one number, `[1]`.
    pub fn of(&self, logits: Tensor<2>, targets: Targets) -> Tensor<1> {
        match self.kind {
            LossKind::CrossEntropy => target_loss(logits, targets, self.smoothing),
            LossKind::Bce => bce(logits, targets, self.smoothing, self.threshold),
        }
    }
}

/// Batch mean of `(1 − s)·nll(label) + s·mean over classes of nll`, s the smoothing.
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
pub fn cross_entropy(logits: Tensor<2>, labels: Tensor<1, Int>, smoothing: f64) -> Tensor<1> {
    target_loss(logits, Targets::new(labels, None), smoothing)
}

/// [`cross_entropy`] of mixed images: the `nll` of the image's label and of its partner's, weighted
/// by the share. Cross-entropy is linear in the targets, so this equals the cross-entropy with the
/// mixed, smoothed targets.
///
/// # Source
///
/// Zhang et al. 2018, "mixup", §2; timm 0.4.12's `Mixup` with `SoftTargetCrossEntropy`.
pub fn target_loss(logits: Tensor<2>, targets: Targets, smoothing: f64) -> Tensor<1> {
    let log_p = log_softmax(logits, 1); // [B, K]
    let of = |labels: Tensor<1, Int>| log_p.clone().gather(1, labels.unsqueeze_dim(1)); // [B, 1]
    let hit = match targets.mixed {
        None => of(targets.labels),
        Some(Mixed { partners, shares }) => {
            let shares = shares.unsqueeze_dim::<2>(1); // [B, 1]
            of(targets.labels) * shares.clone() + of(partners) * (-shares + 1.0)
        }
    };
    let loss = -hit.mean() * (1.0 - smoothing);
    if smoothing == 0.0 { loss } else { loss - log_p.mean() * smoothing }
}

/// Mean over images and classes of `−t·log σ(x) − (1 − t)·log(1 − σ(x))`, t the mixed, smoothed
/// target of the class; with `threshold`, t is 1 for targets above it and 0 elsewhere.
///
/// # Shapes
///
/// As [`cross_entropy`].
///
/// # Source
///
/// timm's `BinaryCrossEntropy` with its `target_threshold`; the original's `--bce-loss`, whose
/// threshold is 0.
pub fn bce(
    logits: Tensor<2>,
    targets: Targets,
    smoothing: f64,
    threshold: Option<f64>,
) -> Tensor<1> {
    let [batch, classes] = logits.dims();
    let all = Tensor::<1, Int>::arange(0..classes as i64, &logits.device());
    let all = all.unsqueeze_dim::<2>(0).expand([batch, classes]);
    // `Tensor::one_hot` reads from the device.
    let whole = |labels: Tensor<1, Int>| {
        labels.unsqueeze_dim::<2>(1).expand([batch, classes]).equal(all.clone()).float()
    }; // [B, K]
    let target = match targets.mixed {
        None => whole(targets.labels),
        Some(Mixed { partners, shares }) => {
            let shares = shares.unsqueeze_dim::<2>(1); // [B, 1]
            whole(targets.labels) * shares.clone() + whole(partners) * (-shares + 1.0)
        }
    };
    let target = target * (1.0 - smoothing) + smoothing / classes as f64;
    let target = match threshold {
        None => target,
        Some(threshold) => target.greater_elem(threshold).float(),
    };
    // −log(1 − σ(x)) = −log σ(−x) = x − log σ(x): one logarithm, stable for every x.
    (logits.clone() * (-target + 1.0) - log_sigmoid(logits)).mean()
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use vim_data::{label_smoothing_loss, mixed_targets, soft_target_loss};

    use super::*;

    const LOGITS: [[f32; 3]; 4] =
        [[1.0, 2.0, 0.5], [0.0, -1.0, 3.0], [0.3, 0.2, -4.0], [-1.0, -1.0, 5.0]];
    const LABELS: [i32; 4] = [1, 0, 2, 2];
    const SHARES: [f32; 4] = [0.3, 1.0, 0.0, 0.85];

    fn logits() -> Vec<Vec<f64>> {
        LOGITS.iter().map(|row| row.iter().map(|&x| f64::from(x)).collect()).collect()
    }

    fn targets(device: &Device, shares: Option<[f32; 4]>) -> Targets {
        let shares = shares.map(|shares| Tensor::from_floats(shares, device));
        Targets::new(Tensor::from_ints(LABELS, device), shares)
    }

    /// The targets in f64.
    fn wanted(shares: [f32; 4], smoothing: f64) -> Vec<Vec<f64>> {
        mixed_targets(&LABELS.map(|x| x as u32), 3, &shares.map(f64::from), smoothing)
    }

    // f32 rounding of numbers of order 1.
    fn close(got: Tensor<1>, want: f64) {
        let got = f64::from(got.into_scalar::<f32>());
        assert!((got - want).abs() < 1e-6, "{got} {want}");
    }

    /// The definition of `torch.nn.BCEWithLogitsLoss`.
    fn plain_bce(logits: &[Vec<f64>], targets: &[Vec<f64>]) -> f64 {
        let pairs = || logits.iter().flatten().zip(targets.iter().flatten());
        let loss = |(x, t): (&f64, &f64)| {
            let p = 1.0 / (1.0 + (-x).exp());
            -(t * p.ln() + (1.0 - t) * (1.0 - p).ln())
        };
        pairs().map(loss).sum::<f64>() / pairs().count() as f64
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
        for smoothing in [0.0, 0.1] {
            let targets = targets(&device, Some(SHARES));
            let got = target_loss(Tensor::from_floats(LOGITS, &device), targets, smoothing);
            close(got, soft_target_loss(&logits(), &wanted(SHARES, smoothing)));
        }
    }

    #[test]
    fn bce_is_that_of_every_class_with_soft_or_with_hard_targets() {
        let device = Device::flex();
        let logits_of = || Tensor::from_floats(LOGITS, &device);
        for (shares, plain) in [(None, [1.0; 4]), (Some(SHARES), SHARES)] {
            for smoothing in [0.0, 0.1] {
                let got = bce(logits_of(), targets(&device, shares), smoothing, None);
                close(got, plain_bce(&logits(), &wanted(plain, smoothing)));
            }
            // Thresholds between the shares, and the original's.
            for threshold in [0.0, 0.2, 0.5] {
                let mut hard = wanted(plain, 0.0);
                for target in hard.iter_mut().flatten() {
                    *target = f64::from(u8::from(*target > threshold));
                }
                let got = bce(logits_of(), targets(&device, shares), 0.0, Some(threshold));
                close(got, plain_bce(&logits(), &hard));
            }
        }
    }

    /// Logits of 0, as of a head initialized with zeros, and logits for which `exp` overflows.
    #[test]
    fn bce_has_its_gradient_everywhere() {
        let device = Device::flex().autodiff();
        let logits = Tensor::<2>::from_floats([[0.0, 200.0, -200.0]], &device).require_grad();
        let targets = Targets::new(Tensor::from_ints([0], &device), None);
        let loss = bce(logits.clone(), targets, 0.0, None);
        let gradients = loss.backward();
        let got: Vec<f32> = logits.grad(&gradients).unwrap().into_data().iter().collect();
        // (σ(x) − t) / 3.
        for (got, want) in got.into_iter().zip([-0.5 / 3.0, 1.0 / 3.0, 0.0]) {
            assert!((got - want).abs() < 1e-6, "{got} {want}");
        }
        // ln 2 for the class, 200 for the wrong one, nothing for the last.
        let value = f64::from(loss.into_scalar::<f32>());
        assert!((value - (2f64.ln() + 200.0) / 3.0).abs() < 1e-4, "{value}");
    }

    #[test]
    fn a_threshold_under_what_smoothing_spreads_is_refused() {
        let train = |smoothing, threshold| TrainConfig {
            loss: LossKind::Bce,
            label_smoothing: smoothing,
            bce_threshold: Some(threshold),
            ..TrainConfig::default()
        };
        assert!(Loss::new(&train(0.0, 0.0), 10).is_ok());
        assert!(Loss::new(&train(0.1, 0.2), 10).is_ok());
        let error = Loss::new(&train(0.1, 0.0), 10).unwrap_err().to_string();
        assert!(error.contains("train.bce_threshold") && error.contains("0.01"), "{error}");
    }
}
