//! The numbers of a step that the host reads, and what ranks ask of each other with them.

use burn::tensor::Tensor;

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
    pub(super) fn behind(self, loss: Tensor<1>) -> Tensor<1> {
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
}

impl StepMetrics {
    /// Waits for the device, once.
    pub(super) fn read(
        Tail { values, parts }: Tail,
        square_norm: Option<Tensor<1>>,
        own: Requests,
    ) -> Self {
        let asked = 1 + parts..values.dims()[0];
        let numbers = Tensor::cat([Some(values), square_norm].into_iter().flatten().collect(), 0);
        let numbers: Vec<f32> = numbers.into_data().iter().collect();
        let number = |place: usize| numbers.get(place).map_or(0.0, |&number| f64::from(number));
        let requests =
            if asked.is_empty() { own } else { Requests::of_sum(&numbers[asked.clone()]) };
        let grad_norm = number(asked.end).sqrt();
        Self { loss: number(0), parts: (1..=parts).map(number).collect(), grad_norm, requests }
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
