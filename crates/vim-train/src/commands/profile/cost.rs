//! The minimum work of a scan.

use serde::Serialize;
use vim_verify::Dtype;

use super::args::Shape;

/// Counts of one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Work {
    /// Every input read once and every output written once.
    pub(crate) bytes: u64,
    /// One for each token, channel and state.
    pub(crate) exponentials: u64,
    /// Operations of zoh.
    pub(crate) multiply_adds: u64,
}

/// A scan with z, D and the bias of delta, and with B and C variable.
///
/// Forward reads u, delta, z, B, C, A, D and the bias, and writes y and the last state. For each
/// token, channel and state: x = delta·a, its exponential, the drive, the state and the output,
/// four multiply-adds.
pub(crate) fn forward(shape: Shape, d_state: usize, dtype: Dtype) -> Work {
    let Sizes { tokens, projection, weights, states, inner } = Sizes::of(shape, d_state);
    Work {
        bytes: dtype.bytes() * (4 * tokens + 2 * projection) + 4 * (weights + states),
        exponentials: inner,
        multiply_adds: 4 * inner,
    }
}

/// Backward reads the gradient of y and the inputs again, and writes their gradients. The states
/// are computed once more (x, the drive, the state: three) and pulled back: the gradients of the
/// state, C, B and u (four), of the decay and x (two), of delta and A (two), and the state's step
/// back (one).
pub(crate) fn backward(shape: Shape, d_state: usize, dtype: Dtype) -> Work {
    let Sizes { tokens, projection, weights, states: _, inner } = Sizes::of(shape, d_state);
    Work {
        bytes: dtype.bytes() * (7 * tokens + 4 * projection) + 4 * 2 * weights,
        exponentials: inner,
        multiply_adds: 12 * inner,
    }
}

/// Numbers of elements.
struct Sizes {
    /// `[B, L, D]`.
    tokens: u64,
    /// `[B, L, N]`.
    projection: u64,
    /// `[D, N]` and two of `[D]`.
    weights: u64,
    /// `[B, D, N]`.
    states: u64,
    /// `[B, L, D, N]`, which is never stored.
    inner: u64,
}

impl Sizes {
    fn of(shape: Shape, d_state: usize) -> Self {
        let [batch, len, dim, d_state] =
            [shape.batch, shape.seqlen, shape.dim, d_state].map(|size| size as u64);
        Self {
            tokens: batch * len * dim,
            projection: batch * len * d_state,
            weights: dim * d_state + 2 * dim,
            states: batch * dim * d_state,
            inner: batch * len * dim * d_state,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_hand() {
        let shape = Shape { batch: 2, dim: 5, seqlen: 3 };
        let (forward, backward) = (forward(shape, 4, Dtype::F32), backward(shape, 4, Dtype::Bf16));
        // 30 tokens·channels, 24 of B or C, 30 weights, 40 states, 120 inner.
        assert_eq!(forward.bytes, 4 * (120 + 48 + 30 + 40));
        assert_eq!(backward.bytes, 2 * (210 + 96) + 4 * 60);
        assert_eq!((forward.exponentials, backward.multiply_adds), (120, 1440));
    }
}
