//! The operation's inputs by name, and what belongs to each of them: gradients, shapes.

/// Weights of a direction.
const WEIGHTS: usize = 7;
/// Inputs of the operation: `xz`, and the weights of both directions.
pub(crate) const INPUTS: usize = 1 + 2 * WEIGHTS;

/// What belongs to each weight of a direction; see [`DirectionWeights`](super::DirectionWeights).
#[derive(Clone, Debug)]
pub(crate) struct OfWeights<T> {
    pub(crate) conv_weight: T,
    pub(crate) conv_bias: T,
    pub(crate) x_proj: T,
    pub(crate) dt_proj: T,
    pub(crate) delta_bias: T,
    pub(crate) a_log: T,
    pub(crate) d: T,
}

/// What belongs to each input.
#[derive(Clone, Debug)]
pub(crate) struct OfInputs<T> {
    pub(crate) xz: T,
    pub(crate) directions: [OfWeights<T>; 2],
}

impl<T> OfWeights<T> {
    fn from_array(all: [T; WEIGHTS]) -> Self {
        let [conv_weight, conv_bias, x_proj, dt_proj, delta_bias, a_log, d] = all;
        Self { conv_weight, conv_bias, x_proj, dt_proj, delta_bias, a_log, d }
    }

    fn into_array(self) -> [T; WEIGHTS] {
        let Self { conv_weight, conv_bias, x_proj, dt_proj, delta_bias, a_log, d } = self;
        [conv_weight, conv_bias, x_proj, dt_proj, delta_bias, a_log, d]
    }
}

impl<T> OfInputs<T> {
    /// From the order of [`MixerArguments`](super::MixerArguments).
    pub(crate) fn from_array(all: [T; INPUTS]) -> Self {
        let [xz, a, b, c, d, e, f, g, h, i, j, k, l, m, n] = all;
        let directions = [[a, b, c, d, e, f, g], [h, i, j, k, l, m, n]];
        Self { xz, directions: directions.map(OfWeights::from_array) }
    }

    /// In the order of [`MixerArguments`](super::MixerArguments).
    pub(crate) fn into_array(self) -> [T; INPUTS] {
        let [[a, b, c, d, e, f, g], [h, i, j, k, l, m, n]] =
            self.directions.map(OfWeights::into_array);
        [self.xz, a, b, c, d, e, f, g, h, i, j, k, l, m, n]
    }

    /// The gradients where those of the weights are not wanted.
    pub(crate) fn xz_alone(xz: T) -> [Option<T>; INPUTS] {
        let mut xz = Some(xz);
        std::array::from_fn(|_| xz.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_the_arguments() {
        let all = std::array::from_fn(|i| i);
        let inputs = OfInputs::from_array(all);
        assert_eq!((inputs.xz, inputs.directions[0].d), (0, 7));
        assert_eq!(inputs.directions.each_ref().map(|of| of.x_proj), [3, 10]);
        assert_eq!(inputs.into_array(), all);
    }
}
