//! Softmax regression on pixels: the linear baseline that `shapes` is measured against.
//!
//! Shared by the test and by `examples/linear_baseline.rs`.

use vim_data::{DataError, Normalize, Split};

/// How long and how strongly to fit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    pub(crate) epochs: usize,
    pub(crate) batch_size: usize,
    pub(crate) learning_rate: f32,
    /// Decoupled, per step, times the learning rate.
    pub(crate) weight_decay: f32,
}

/// Normalised pixels, one row per image.
pub(crate) struct Pixels {
    rows: Vec<f32>, // [N, F]
    labels: Vec<usize>,
    features: usize,
}

impl Pixels {
    /// Reads and normalises a whole split, in its order.
    pub(crate) fn of(split: &Split) -> Result<Self, DataError> {
        let statistics = split.statistics(Normalize::Dataset);
        let mut rows = Vec::new();
        for position in 0..split.len() {
            let image = split.image(position)?;
            rows.extend(image.iter().enumerate().map(|(at, &value)| {
                (f32::from(value) / 255.0 - statistics.mean[at % 3]) / statistics.std[at % 3]
            }));
        }
        let features = rows.len() / split.len();
        let labels = (0..split.len()).map(|position| split.label(position) as usize).collect();
        Ok(Self { rows, labels, features })
    }

    fn row(&self, index: usize) -> &[f32] {
        &self.rows[index * self.features..(index + 1) * self.features]
    }
}

/// One weight vector and one bias per class.
pub(crate) struct Softmax {
    weights: Vec<f32>, // [K, F]
    biases: Vec<f32>,
    features: usize,
}

impl Softmax {
    /// Fits by stochastic gradient descent, from zero, the rate falling linearly to zero.
    ///
    /// The batches go through `pixels` in an order that interleaves distant images; nothing is
    /// random.
    pub(crate) fn fit(pixels: &Pixels, classes: usize, fit: Fit) -> Self {
        let (count, features) = (pixels.labels.len(), pixels.features);
        let mut model =
            Self { weights: vec![0.0; classes * features], biases: vec![0.0; classes], features };
        // A stride without a common divisor with `count` visits every image once.
        let stride = (count * 2 / 3..).find(|&stride| gcd(stride, count) == 1).unwrap_or(1);
        let steps = fit.epochs * count.div_ceil(fit.batch_size);
        for step in 0..steps {
            let rate = fit.learning_rate * (1.0 - step as f32 / steps as f32);
            let batch: Vec<usize> = (0..fit.batch_size)
                .map(|slot| (step * fit.batch_size + slot) % count * stride % count)
                .collect();
            let errors: Vec<Vec<f32>> = batch
                .iter()
                .map(|&index| {
                    let mut error = softmax(&model.logits(pixels.row(index)));
                    error[pixels.labels[index]] -= 1.0;
                    error
                })
                .collect();
            let scale = rate / batch.len() as f32;
            model.weights.iter_mut().for_each(|weight| *weight *= 1.0 - rate * fit.weight_decay);
            for (&index, error) in batch.iter().zip(&errors) {
                let row = pixels.row(index);
                for (class, &error) in error.iter().enumerate() {
                    let weights = &mut model.weights[class * features..(class + 1) * features];
                    for (weight, &x) in weights.iter_mut().zip(row) {
                        *weight -= scale * error * x;
                    }
                    model.biases[class] -= scale * error;
                }
            }
        }
        model
    }

    /// Share of images whose class has the largest logit, 0..=1.
    pub(crate) fn accuracy(&self, pixels: &Pixels) -> f64 {
        let right = pixels.labels.iter().enumerate().filter(|&(index, &label)| {
            let logits = self.logits(pixels.row(index));
            (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])) == Some(label)
        });
        right.count() as f64 / pixels.labels.len() as f64
    }

    fn logits(&self, row: &[f32]) -> Vec<f32> {
        let weights = self.weights.chunks_exact(self.features);
        weights.zip(&self.biases).map(|(weights, bias)| dot(weights, row) + bias).collect()
    }
}

/// In eight partial sums, which the compiler may compute at once.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; 8];
    for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum()
}

fn softmax(logits: &[f32]) -> Vec<f32> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exps: Vec<f32> = logits.iter().map(|logit| (logit - largest).exp()).collect();
    let sum: f32 = exps.iter().sum();
    exps.iter().map(|exp| exp / sum).collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
