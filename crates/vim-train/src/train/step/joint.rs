//! The passes of a step whose shards must be seen together, as batch normalization does.

use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::Tensor;

use super::{Phase, Split};
use crate::error::Error;
use crate::task::{Draw, Objective};

/// What each of a rank's shards adds to the loss of its batch, `[1]`, and to its gradients, as
/// [`forward_backward`](super::forward_backward) for one.
///
/// The shards go through each micro-batch side by side, each by a replica of the model: so every
/// shard has gradients of its own, which are then added in the same order as on other ranks.
pub(super) fn forward_backward<O: Objective>(
    objective: &O,
    model: &O::Model,
    shards: Vec<O::Inputs>,
    Split { count, shards: all_shards, parts }: Split,
    draws: &[Draw],
    after: &mut impl FnMut(Phase) -> Result<(), Error>,
) -> Result<Vec<(Tensor<1>, GradientsParams)>, Error> {
    let (largest, all) = (count.div_ceil(parts), count * all_shards);
    let mut sums: Vec<Option<Tensor<1>>> = shards.iter().map(|_| None).collect();
    let mut accumulators: Vec<GradientsAccumulator<O::Model>> =
        shards.iter().map(|_| GradientsAccumulator::new()).collect();
    // Moved into the last micro-batch, so that their memory is freed during its forward pass.
    let mut shards = Some(shards);
    for first in (0..count).step_by(largest) {
        let end = (first + largest).min(count);
        let whole = if end == count { shards.take() } else { shards.clone() };
        let whole = whole.expect("invariant: only the last micro-batch takes them");
        let models = objective.replicas(model, whole.len());
        let mut losses = objective.losses(&models, whole, first..end, draws)?;
        if end - first < all {
            let share = (end - first) as f64 / all as f64;
            losses = losses.into_iter().map(|loss| loss * share).collect();
        }
        after(Phase::Forward)?;
        for (sum, loss) in sums.iter_mut().zip(&losses) {
            let value = loss.clone().inner();
            *sum = Some(match sum.take() {
                Some(sum) => sum + value,
                None => value,
            });
        }
        let together = losses.into_iter().reduce(|sum, loss| sum + loss);
        let together = together.ok_or_else(|| Error::internal("a rank without shards"))?;
        let mut gradients = together.backward();
        for (model, accumulator) in models.iter().zip(&mut accumulators) {
            accumulator.accumulate(model, GradientsParams::from_module(&mut gradients, model));
        }
        after(Phase::Backward)?;
    }
    let sums = sums.into_iter().map(|sum| sum.expect("invariant: a batch has images"));
    Ok(sums.zip(accumulators.into_iter().map(|mut accumulator| accumulator.grads())).collect())
}
