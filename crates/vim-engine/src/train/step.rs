//! A training step: forward, backward, sum over shards and ranks, update of the weights and of
//! their moving average.
//!
//! A batch is cut into shards. Each rank computes some of them, and their gradients are added in
//! the order of a tree over all shards: so the bytes of a run with one number of shards do not
//! depend on the number of ranks.

use std::slice;

use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::Tensor;
use vim_comm::{Comm, TreeSum};
use vim_dense::replicas;
use vim_kernels::{Recompute, largest_polynomial_argument, runs_cuda, supports_multi_tensor};
use vim_run::checkpoint::Window;

mod graph;

use super::optim::{Clip, clip_factor, flat_gradients};
use super::state::{Packing, TrainState, running_statistics};
use crate::config::RecomputeChoice;
use crate::device::memory::has_room;
use crate::error::Error;
use crate::task::{Draw, Objective};
pub use graph::StepGraph;
use graph::Sums;

/// How the passes of a step run.
pub enum Passes<'a, I> {
    /// Launched one by one, with a call after each [`Phase`].
    Watched(&'a mut dyn FnMut(Phase) -> Result<(), Error>),
    /// By a graph, once it is recorded.
    Graph(&'a mut StepGraph<I>),
}

impl<M: Module> TrainState<M> {
    /// Runs one step on this rank's shards of the batch, of which each rank has the same number.
    /// The update does nothing if loss or gradient are not finite. The next call must be
    /// [`Self::finish`].
    ///
    /// A GPU step reads nothing back, so that the host can prepare the next batch meanwhile.
    ///
    /// # Errors
    ///
    /// Those of the loss and of the sum over the ranks, or if a parameter has no gradient.
    pub fn step<O: Objective<Model = M>>(
        &mut self,
        objective: &O,
        shards: Vec<O::Inputs>,
        lr: f64,
        comm: &Comm,
        requests: Requests,
        passes: Passes<'_, O::Inputs>,
    ) -> Result<PendingStep, Error> {
        let seed = step_seed(self.seed, self.counters.step);
        let mut packing = self.packing.take();
        let mut pass = |shards, after: &mut dyn FnMut(Phase) -> Result<(), Error>| {
            self.sums(objective, shards, seed, (comm, requests), &mut packing, after)
        };
        let sums = match passes {
            Passes::Watched(after) => pass(shards, after),
            Passes::Graph(graph) => {
                let changed = || {
                    let model = self.model();
                    let statistics = running_statistics(model).into_iter().map(|(_, value)| value);
                    let argument = largest_polynomial_argument(&model.devices()[0]);
                    statistics.chain(argument).collect()
                };
                graph.run(shards, seed, changed, &mut |shards| pass(shards, &mut |_| Ok(())))
            }
        };
        self.packing = packing;
        let Sums { mut tensors, square_norm } = sums?;
        let values = tensors.pop().expect("invariant: as many sums as tensors");
        let tail = Tail { values, parts: objective.parts().len() };
        Ok(self.update(tail, requests, (tensors, square_norm), lr))
    }

    /// The sums over all shards and ranks.
    fn sums<O: Objective<Model = M>>(
        &self,
        objective: &O,
        shards: Vec<O::Inputs>,
        seed: u64,
        (comm, requests): (&Comm, Requests),
        packing: &mut Option<Packing>,
        after: &mut dyn FnMut(Phase) -> Result<(), Error>,
    ) -> Result<Sums, Error> {
        let model = self.model();
        let (own, parameters) = (shards.len(), self.optimizer.parameters().len());
        let pack = |(loss, gradients)| {
            let mut tensors = flat_gradients(model, gradients);
            if tensors.len() != parameters {
                let got = tensors.len();
                return Err(Error::internal(format!(
                    "{got} gradients for {parameters} parameters"
                )));
            }
            tensors.push(if comm.size() == 1 { loss } else { requests.behind(loss) });
            Ok(tensors)
        };
        // Shards that need not be seen together are computed one at a time, as the sum asks for
        // them: so the graph of one at most is in memory.
        let together = if O::JOINT { own } else { 1 };
        let (mut shards, mut done) = (shards.into_iter(), Vec::new().into_iter());
        let summands = (0..own).map(|number| {
            if number % together == 0 {
                let inputs: Vec<O::Inputs> = shards.by_ref().take(together).collect();
                let count = inputs.first().map_or(0, O::count);
                let split = Split { count, shards: own * comm.size(), parts: self.micro_batches };
                let first = comm.rank() * own + number;
                let draws =
                    (first..first + together).map(|shard| Draw { seed, first: shard * count });
                let draws: Vec<Draw> = draws.collect();
                let all = forward_backward(objective, model, inputs, split, &draws, &mut *after)?;
                done = all.into_iter();
            }
            done.next().ok_or_else(|| Error::internal("a shard without a loss")).and_then(pack)
        });
        let sum = sum_of_rank(summands, comm, packing)?;
        let is_shared = comm.size() > 1;
        if is_shared {
            after(Phase::Pack)?;
        }
        let tensors = sum_of_ranks(sum, comm, packing.as_ref())?;
        if is_shared {
            after(Phase::Exchange)?;
        }
        let square_norm = self.optimizer.square_norm(&tensors[..parameters]);
        Ok(Sums { tensors, square_norm })
    }

    fn update(
        &mut self,
        tail: Tail,
        requests: Requests,
        (gradients, square): (Vec<Tensor<1>>, Option<Tensor<1>>),
        lr: f64,
    ) -> PendingStep {
        let loss = tail.values.clone().narrow(0, 0, 1);
        let (clip, guard, pending) = match square {
            Some(square) if supports_multi_tensor(&square.device()) => {
                // Not finite if the loss is not.
                let guard = square.clone() + (loss.clone() - loss.clone());
                let clip = Clip::To { square_norm: guard.clone(), limit: self.clip };
                let square_norm = square;
                (clip, Some(guard), PendingStep::Unread { tail, square_norm, requests })
            }
            square => {
                let metrics = StepMetrics::read(tail, square, requests);
                if metrics.fault().is_some() {
                    return PendingStep::Read(metrics);
                }
                let clip = Clip::By(clip_factor(metrics.grad_norm, self.clip));
                (clip, None, PendingStep::Read(metrics))
            }
        };
        let model = self.model.take().expect("invariant: taken only here");
        let model = self.optimizer.step(model, gradients, clip, lr);
        if let Some(ema) = &mut self.ema {
            match self.optimizer.packed().zip(guard) {
                Some((weights, guard)) => {
                    ema.update_packed(&model, weights, self.optimizer.steps, guard);
                }
                None => ema.update(&model, self.optimizer.steps),
            }
        }
        self.model = Some(model);
        pending
    }

    /// Waits for the device, and counts the step unless it changed nothing.
    pub fn finish(&mut self, pending: PendingStep) -> StepMetrics {
        let metrics = match pending {
            PendingStep::Read(metrics) => metrics,
            PendingStep::Unread { tail, square_norm, requests } => {
                let metrics = StepMetrics::read(tail, Some(square_norm), requests);
                if metrics.fault().is_some() {
                    self.optimizer.steps -= 1;
                }
                metrics
            }
        };
        if metrics.fault().is_none() {
            self.counters.step += 1;
            self.counters.skipped_in_a_row = 0;
            self.counters.window.add(metrics.loss);
            self.counters.parts.resize(metrics.parts.len(), Window::default());
            let windows = self.counters.parts.iter_mut();
            windows.zip(&metrics.parts).for_each(|(window, &part)| window.add(part));
        }
        self.keep_if_there_is_room();
        metrics
    }

    /// After the first step: lets the next ones keep what their backward passes read, with the same
    /// numbers, where that is chosen or the memory that this one took leaves room for it.
    fn keep_if_there_is_room(&mut self) {
        let Some((with, choice)) = self.may_keep.take() else { return };
        let device = self.model().devices().into_iter().find(runs_cuda);
        let Some(device) = device else { return };
        let keeps = choice == RecomputeChoice::Nothing || has_room(&device);
        if keeps {
            self.model = self.model.take().map(|model| with(model, Recompute::Nothing));
        }
        self.keeps = (choice == RecomputeChoice::Auto).then_some(keeps);
    }

    /// Counts a step that changed nothing.
    pub fn skip(&mut self) {
        self.counters.step += 1;
        self.counters.skipped += 1;
        self.counters.skipped_in_a_row += 1;
    }
}

/// What a rank asks of all ranks after a step: each learns what any has asked, so that none stops,
/// evaluates or saves alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// To save and stop, because of a signal.
    pub stop: bool,
    /// To evaluate.
    pub evaluate: bool,
    /// To save a checkpoint.
    pub save: bool,
}

impl Requests {
    /// The loss with its parts, `[1 + P]`, and behind them the requests as numbers, `[P + 4]`.
    fn behind(self, loss: Tensor<1>) -> Tensor<1> {
        let asked = [self.stop, self.evaluate, self.save];
        let asked =
            Tensor::from_floats(asked.map(|asked| f32::from(u8::from(asked))), &loss.device());
        Tensor::cat(vec![loss, asked], 0)
    }

    /// Those of all ranks, of the sum of their numbers.
    fn of_sum(numbers: &[f32]) -> Self {
        let asked = |place: usize| numbers.get(place).is_some_and(|&number| number > 0.0);
        Self { stop: asked(0), evaluate: asked(1), save: asked(2) }
    }
}

/// The last of the tensors that a step adds up over shards and ranks.
#[derive(Debug)]
pub struct Tail {
    /// The mean loss over the batch, its parts and, with several ranks, what they asked: `[1 + P]`
    /// or `[P + 4]`.
    pub values: Tensor<1>,
    /// `P`.
    pub parts: usize,
}

/// The numbers of a step that the host reads.
#[derive(Clone, Debug)]
pub struct StepMetrics {
    /// Mean over the batch.
    pub loss: f64,
    /// Of the objective's parts of the loss, likewise.
    pub parts: Vec<f64>,
    /// Over all parameters, before clipping.
    pub grad_norm: f64,
    /// What any rank asked.
    pub requests: Requests,
    /// See [`largest_polynomial_argument`]; 0 if there is none.
    pub polynomial_argument: f64,
}

impl StepMetrics {
    /// Waits for the device, once.
    fn read(Tail { values, parts }: Tail, square_norm: Option<Tensor<1>>, own: Requests) -> Self {
        let asked = 1 + parts..values.dims()[0];
        let argument = largest_polynomial_argument(&values.device());
        let norm_at = asked.end;
        let argument_at = norm_at + usize::from(square_norm.is_some());
        let numbers = [Some(values), square_norm, argument];
        let numbers = Tensor::cat(numbers.into_iter().flatten().collect(), 0);
        let numbers: Vec<f32> = numbers.into_data().iter().collect();
        let number = |place: usize| numbers.get(place).map_or(0.0, |&number| f64::from(number));
        let requests = if asked.is_empty() { own } else { Requests::of_sum(&numbers[asked]) };
        Self {
            loss: number(0),
            parts: (1..=parts).map(number).collect(),
            grad_norm: number(norm_at).sqrt(),
            requests,
            polynomial_argument: number(argument_at),
        }
    }

    /// Which number is not finite, if any.
    pub fn fault(&self) -> Option<String> {
        [("loss", self.loss), ("gradient norm", self.grad_norm)]
            .into_iter()
            .find(|(_, number)| !number.is_finite())
            .map(|(what, number)| format!("the {what} is {number}"))
    }
}

/// A queued step: loss and norm are still on the device (GPU), or already read (CPU).
#[derive(Debug)]
#[must_use = "a step that is not finished is not counted, and its numbers are not checked"]
#[expect(clippy::large_enum_variant, reason = "one exists at a time, for the length of a step")]
pub enum PendingStep {
    /// Nothing is read yet.
    Unread {
        /// The loss, and what is behind it.
        tail: Tail,
        /// Square of the gradient's norm before clipping, `[1]`.
        square_norm: Tensor<1>,
        /// This rank's.
        requests: Requests,
    },
    /// The numbers had to be read before the update.
    Read(StepMetrics),
}

/// A queued phase of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The loss of a micro-batch.
    Forward,
    /// Its gradients.
    Backward,
    /// With several ranks, this rank's gradients behind each other.
    Pack,
    /// Their sum over the ranks.
    Exchange,
}

/// How a batch is cut.
#[derive(Clone, Copy)]
struct Split {
    /// Images of a shard.
    count: usize,
    /// Shards of the batch.
    shards: usize,
    /// Micro-batches of a shard.
    parts: usize,
}

/// What each of `shards`, of one size, adds to the unread loss of its batch with its parts,
/// `[1 + P]`, and to its gradients.
///
/// The shards go through each micro-batch side by side. Several have a replica of the model each,
/// and so gradients of their own, which are then added in the same order as on other ranks.
/// Micro-batches run one after the other; each loss is weighted by its share of the batch's images,
/// so that the sum over all shards equals the batch's up to rounding. `after` is called after each
/// pass.
fn forward_backward<O: Objective>(
    objective: &O,
    model: &O::Model,
    shards: Vec<O::Inputs>,
    Split { count, shards: all_shards, parts }: Split,
    draws: &[Draw],
    after: &mut dyn FnMut(Phase) -> Result<(), Error>,
) -> Result<Vec<(Tensor<1>, GradientsParams)>, Error> {
    let (largest, all) = (count.div_ceil(parts), count * all_shards);
    let mut sums: Vec<Tensor<1>> = Vec::new();
    let mut accumulators: Vec<_> = shards.iter().map(|_| GradientsAccumulator::new()).collect();
    // Moved into the last micro-batch, so that their memory is freed during its forward pass.
    let mut shards = Some(shards);
    for first in (0..count).step_by(largest) {
        let end = (first + largest).min(count);
        let whole = if end == count { shards.take() } else { shards.clone() };
        let whole = whole.expect("invariant: only the last micro-batch takes them");
        let copies = (whole.len() > 1).then(|| replicas(model, whole.len()));
        let models = copies.as_deref().unwrap_or(slice::from_ref(model));
        let mut losses = objective.losses(models, whole, first..end, draws)?;
        if end - first < all {
            let share = (end - first) as f64 / all as f64;
            losses = losses.into_iter().map(|loss| loss * share).collect();
        }
        after(Phase::Forward)?;
        let values = losses.iter().map(|loss| loss.clone().inner());
        sums = match first {
            0 => values.collect(),
            _ => sums.into_iter().zip(values).map(|(sum, value)| sum + value).collect(),
        };
        let own = gradients(models, losses)?;
        after(Phase::Backward)?;
        // An accumulator visits every parameter again.
        if end - first == count {
            return Ok(sums.into_iter().zip(own).collect());
        }
        for ((model, accumulator), own) in models.iter().zip(&mut accumulators).zip(own) {
            accumulator.accumulate(model, own);
        }
    }
    let gradients = accumulators.into_iter().map(|mut accumulator| accumulator.grads());
    Ok(sums.into_iter().zip(gradients).collect())
}

/// The gradients of each of `models` of the sum of `losses`, `[1 + P]`, without their parts.
fn gradients<M: Module>(
    models: &[M],
    losses: Vec<Tensor<1>>,
) -> Result<Vec<GradientsParams>, Error> {
    let alone = |loss: Tensor<1>| if loss.dims() == [1] { loss } else { loss.narrow(0, 0, 1) };
    let sum = losses.into_iter().map(alone).reduce(|sum, loss| sum + loss);
    let sum = sum.ok_or_else(|| Error::internal("a rank without shards"))?;
    let mut all = sum.backward();
    Ok(models.iter().map(|model| GradientsParams::from_module(&mut all, model)).collect())
}

/// What the shards of one rank come to.
#[expect(clippy::large_enum_variant, reason = "one exists at a time, for the length of a sum")]
enum RankSum {
    /// The tensors of the only shard of all.
    Whole(Vec<Tensor<1>>),
    /// The sum of the rank's shards, packed.
    Packed(Tensor<1>),
}

/// Sums the tensors of each shard of this rank in the order of a tree. `packing` is made when it is
/// first needed.
fn sum_of_rank(
    mut shards: impl ExactSizeIterator<Item = Result<Vec<Tensor<1>>, Error>>,
    comm: &Comm,
    packing: &mut Option<Packing>,
) -> Result<RankSum, Error> {
    let first = shards.next().ok_or_else(|| Error::internal("a rank without shards"))??;
    if shards.len() == 0 && comm.size() == 1 {
        return Ok(RankSum::Whole(first));
    }
    let packing = packing.get_or_insert_with(|| Packing::of(&first));
    let mut sums = TreeSum::new();
    sums.push(packing.pack(first), |left, right| left + right);
    for shard in shards {
        sums.push(packing.pack(shard?), |left, right| left + right);
    }
    let own = sums.finish(|left, right| left + right).expect("invariant: one was pushed");
    Ok(RankSum::Packed(own))
}

/// The sums over all shards, in the order of one tree over them.
fn sum_of_ranks(
    own: RankSum,
    comm: &Comm,
    packing: Option<&Packing>,
) -> Result<Vec<Tensor<1>>, Error> {
    match own {
        RankSum::Whole(tensors) => Ok(tensors),
        RankSum::Packed(own) => {
            let packing = packing.expect("invariant: it was packed");
            Ok(packing.parts(&comm.sum(own)?))
        }
    }
}

/// The seed of a step's random draws, different for every run and step.
fn step_seed(seed: u64, step: u64) -> u64 {
    // The last eight bytes were the device's number; they keep the draws of earlier runs.
    let mut key = [0; 24];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&step.to_le_bytes());
    let hash = blake3::hash(&key);
    hash.as_bytes().iter().take(8).fold(0, |seed, &byte| seed << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests;
