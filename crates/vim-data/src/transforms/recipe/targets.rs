//! Targets and losses on plain numbers, the reference for those of the device.

/// The targets of a mixed batch, `[B, K]`: of image `i`, `lambdas[i]` of its own smoothed label and
/// the rest of image `B − 1 − i`'s.
///
/// A label smoothed by `s` is `1 − s + s/K` at its class and `s/K` elsewhere.
///
/// # Source
/// `mixup_target` of timm 0.4.12.
///
/// # Panics
/// If there are not as many lambdas as labels, or a label is not below `classes`.
pub fn mixed_targets(
    labels: &[u32],
    classes: usize,
    lambdas: &[f64],
    smoothing: f64,
) -> Vec<Vec<f64>> {
    assert_eq!(labels.len(), lambdas.len(), "a lambda for each label");
    let smoothed = |label: u32| {
        let mut target = vec![smoothing / classes as f64; classes];
        target[label as usize] += 1.0 - smoothing;
        target
    };
    let pairs = labels.iter().zip(labels.iter().rev()).zip(lambdas);
    pairs
        .map(|((&own, &partner), lambda)| {
            let both = smoothed(own).into_iter().zip(smoothed(partner));
            both.map(|(own, partner)| own * lambda + partner * (1.0 - lambda)).collect()
        })
        .collect()
}

/// The mean over the batch of `−Σ target · log softmax(logits)`.
///
/// # Shapes
/// Both `[B, K]`.
///
/// # Source
/// `SoftTargetCrossEntropy` of timm 0.4.12.
pub fn soft_target_loss(logits: &[Vec<f64>], targets: &[Vec<f64>]) -> f64 {
    let losses = logits.iter().zip(targets).map(|(logits, targets)| {
        let log_p = log_softmax(logits);
        -targets.iter().zip(log_p).map(|(target, log_p)| target * log_p).sum::<f64>()
    });
    losses.sum::<f64>() / logits.len() as f64
}

/// The mean over the batch of `(1 − s) · nll(label) + s · mean over classes of nll`; 0 smoothing is
/// plain cross-entropy.
///
/// # Shapes
/// `logits` is `[B, K]`, `labels` `[B]`.
///
/// # Source
/// `LabelSmoothingCrossEntropy` of timm 0.4.12.
pub fn label_smoothing_loss(logits: &[Vec<f64>], labels: &[u32], smoothing: f64) -> f64 {
    let losses = logits.iter().zip(labels).map(|(logits, &label)| {
        let log_p = log_softmax(logits);
        let mean = log_p.iter().sum::<f64>() / log_p.len() as f64;
        -(1.0 - smoothing) * log_p[label as usize] - smoothing * mean
    });
    losses.sum::<f64>() / logits.len() as f64
}

fn log_softmax(logits: &[f64]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum = logits.iter().map(|logit| (logit - largest).exp()).sum::<f64>();
    logits.iter().map(|logit| logit - largest - sum.ln()).collect()
}
