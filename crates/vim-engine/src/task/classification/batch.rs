//! The targets of a batch on the device, plain or mixed, and the loss on them: cross-entropy or
//! binary cross-entropy.

use burn::tensor::activation::{log_sigmoid, log_softmax};
use burn::tensor::{Device, Int, Tensor, TensorData};
use vim_data::{Batch, Statistics};
use vim_kernels::{KernelError, in_own_buffer, in_own_buffer_int, overwrite, overwrite_int};

use crate::config::{ConfigError, TrainConfig};
use crate::error::Error;
use crate::task::batches::images;

/// The targets of a batch.
#[derive(Clone, Debug)]
pub struct Targets {
    /// Classes, `[B]`.
    pub labels: Tensor<1, Int>,
    /// Mixing partners and weights, if images are mixed.
    pub mixed: Option<Mixed>,
}

/// The partners that the images of a batch are mixed with.
#[derive(Clone, Debug)]
pub struct Mixed {
    /// Classes of the partners, `[B]`: the partner of image `i` is image `B − 1 − i`.
    pub partners: Tensor<1, Int>,
    /// Weight of each image's own target, `[B]`; the rest of 1 is its partner's.
    pub shares: Tensor<1>,
}

impl Targets {
    /// Targets of the classes `labels`, mixed in reverse order where there are `shares`.
    pub fn new(labels: Tensor<1, Int>, shares: Option<Tensor<1>>) -> Self {
        let partners = || labels.clone().flip([0]);
        Self { mixed: shares.map(|shares| Mixed { partners: partners(), shares }), labels }
    }

    /// Copies in buffers of their own.
    pub(super) fn held(&self) -> Self {
        let mixed = self.mixed.as_ref().map(|Mixed { partners, shares }| Mixed {
            partners: in_own_buffer_int(partners),
            shares: in_own_buffer(shares),
        });
        Self { labels: in_own_buffer_int(&self.labels), mixed }
    }

    /// Writes others where these are.
    ///
    /// # Panics
    ///
    /// If one is mixed and the other is not: all batches of a recipe are or none.
    pub(super) fn overwrite(&self, by: Self) -> Result<(), KernelError> {
        overwrite_int(&self.labels, by.labels)?;
        match (&self.mixed, by.mixed) {
            (None, None) => Ok(()),
            (Some(held), Some(by)) => {
                overwrite_int(&held.partners, by.partners)?;
                overwrite(&held.shares, by.shares)
            }
            (_, by) => panic!("invariant: all batches are mixed or none: {}", by.is_some()),
        }
    }

    /// The targets of `len` images from `first` on; partners may be outside the range.
    pub fn narrow(&self, first: usize, len: usize) -> Self {
        let mixed = self.mixed.clone().map(|Mixed { partners, shares }| Mixed {
            partners: partners.narrow(0, first, len),
            shares: shares.narrow(0, first, len),
        });
        Self { labels: self.labels.clone().narrow(0, first, len), mixed }
    }
}

/// `[B, 3, H, W]` images, normalized, erased and mixed, and their targets.
pub(super) fn to_tensors(
    batch: &Batch,
    by: Statistics,
    device: &Device,
) -> Result<(Tensor<4>, Targets), Error> {
    let images = images(batch, by, device)?;
    let count = batch.len();
    let labels: Vec<i32> = batch.labels.iter().map(|&label| label as i32).collect();
    let labels = Tensor::from_data(TensorData::new(labels, [count]), device);
    let shares: Vec<f32> = batch.mixed.iter().map(|mixed| mixed.lambda() as f32).collect();
    let shares =
        (!shares.is_empty()).then(|| Tensor::from_data(TensorData::new(shares, [count]), device));
    Ok((images, Targets::new(labels, shares)))
}

/// Checks that `train.bce_threshold` is not below the smoothed target of absent classes, which
/// would make every class a target.
pub(super) fn check_threshold(train: &TrainConfig, classes: usize) -> Result<(), ConfigError> {
    let (smoothing, threshold) = (train.label_smoothing, train.bce_threshold);
    let spread = smoothing / classes as f64;
    let Some(threshold) = threshold.filter(|&threshold| spread > threshold) else { return Ok(()) };
    let expected = format!(
        "at least {spread}, which train.label_smoothing = {smoothing} gives each of \
             {classes} classes (or train.label_smoothing = 0): below it every class is a target"
    );
    Err(ConfigError::range("train.bce_threshold", threshold, expected))
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
pub(super) fn target_loss(logits: Tensor<2>, targets: Targets, smoothing: f64) -> Tensor<1> {
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
pub(super) fn bce(
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
    use vim_data::{EraseBox, EraseFill, MixPlan, Region};
    use vim_data::{label_smoothing_loss, mixed_targets, soft_target_loss};
    use vim_model::VimConfig;

    use super::super::Classifier;
    use super::*;
    use crate::config::{Config, LossKind};

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
        let new = |train| {
            let model = VimConfig::default().with_classes(10).unwrap();
            Classifier::new(&Config { train, ..Config::default() }, model)
        };
        assert!(new(train(0.0, 0.0)).is_ok());
        assert!(new(train(0.1, 0.2)).is_ok());
        let error = new(train(0.1, 0.0)).unwrap_err().to_string();
        assert!(error.contains("train.bce_threshold") && error.contains("0.01"), "{error}");
    }

    const BY: Statistics = Statistics { mean: [0.5, 0.0, 0.25], std: [0.5, 2.0, 0.25] };

    #[test]
    fn channels_come_first_and_are_normalised() {
        let batch = Batch::plain(vec![0, 51, 255, 10, 20, 30], vec![7], [1, 2]);
        let (images, targets) = to_tensors(&batch, BY, &Device::flex()).unwrap();
        assert_eq!(images.dims(), [1, 3, 1, 2]);
        let got: Vec<f32> = images.into_data().iter().collect();
        let want = [-1.0, 10.0 / 127.5 - 1.0, 0.1, 20.0 / 510.0, 3.0, 30.0 / 63.75 - 1.0];
        for (got, want) in got.into_iter().zip(want) {
            assert!((got - want).abs() < 1e-6, "{got} {want}");
        }
        assert_eq!(targets.labels.into_scalar::<i32>(), 7);
        assert!(targets.mixed.is_none());
    }

    #[test]
    fn plans_reach_the_device() {
        let region = Region { top: 0, left: 1, height: 1, width: 1 };
        let mut batch = Batch::plain(vec![0; 12], vec![1, 2], [1, 2]);
        batch.erased = vec![(0, EraseBox { region, fill: EraseFill::Colour([9.0, 8.0, 7.0]) })];
        batch.mixed =
            vec![MixPlan::Mixup { lambda: 0.25 }, MixPlan::Cutmix { region, lambda: 0.5 }];
        let (images, targets) = to_tensors(&batch, BY, &Device::flex()).unwrap();
        let got: Vec<f32> = images.into_data().iter().collect();
        // Black is −1, 0, −1. The second pixel of the first image is erased and pasted into the
        // second image.
        let want = [
            -1.0,
            0.25 * 9.0 - 0.75,
            0.0,
            2.0,
            -1.0,
            0.25 * 7.0 - 0.75, // mixed
            -1.0,
            9.0,
            0.0,
            8.0,
            -1.0,
            7.0, // pasted
        ];
        for (got, want) in got.into_iter().zip(want) {
            assert!((got - want).abs() < 1e-6, "{got} {want}");
        }
        let numbers = |mixed: Mixed| -> (Vec<i32>, Vec<f32>) {
            let (partners, shares) = (mixed.partners.into_data(), mixed.shares.into_data());
            (partners.iter().collect(), shares.iter().collect())
        };
        // The partner of the range's only image is outside the range.
        let part = targets.narrow(1, 1);
        assert_eq!(numbers(targets.mixed.unwrap()), (vec![2, 1], vec![0.25, 0.5]));
        assert_eq!(part.labels.into_scalar::<i32>(), 2);
        assert_eq!(numbers(part.mixed.unwrap()), (vec![1], vec![0.5]));
    }
}
