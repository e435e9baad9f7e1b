//! The minimum work of a scan, and the peak rates of the device, measured in the same run.

use burn::tensor::{Device, Distribution, Tensor};
use serde::Serialize;
use vim_verify::Dtype;

use super::Shape;
use super::timer::{Plan, measure};
use crate::device::{self, SelectedDevice};
use crate::error::Error;

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
    let Elements { tokens, projection, weights, states, inner } = Elements::of(shape, d_state);
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
    let Elements { tokens, projection, weights, states: _, inner } = Elements::of(shape, d_state);
    Work {
        bytes: dtype.bytes() * (7 * tokens + 4 * projection) + 4 * 2 * weights,
        exponentials: inner,
        multiply_adds: 12 * inner,
    }
}

/// Numbers of elements.
struct Elements {
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

impl Elements {
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

/// Rates per second.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Peaks {
    /// Bytes read and written by an elementwise `x + 1` over more than any cache holds.
    pub(crate) copy_bytes: f64,
    /// Exponentials of the tensor operation; absent where it was bound by the copy. Informational:
    /// a kernel that evaluates several at once exceeds it.
    pub(crate) exponentials: Option<f64>,
    /// Multiply-adds in f32.
    pub(crate) multiply_adds: f64,
    /// How the multiply-adds were measured.
    pub(crate) multiply_adds_by: &'static str,
}

/// An exponential that takes no longer than this many copies is bound by memory.
const BOUND_BY_MEMORY: f64 = 1.25;

impl Peaks {
    pub(crate) fn measure(chosen: &SelectedDevice, plan: Plan) -> Result<Self, Error> {
        let device = &chosen.device;
        // 256 MiB on CUDA, else 64: larger than the caches, within the binding limit of any WebGPU.
        let elements = if chosen.name.starts_with("cuda") { 1 << 26 } else { 1 << 24 };
        let x = Tensor::<1>::random([elements], Distribution::Uniform(-1.0, 0.0), device);
        let over = |call: fn(Tensor<1>) -> Tensor<1>| {
            let x = x.clone();
            measure(device, plan, move || Ok(x.clone()), move |x| Ok(call(x)))
        };
        let copy = over(|x| x.add_scalar(1.0))?.best_ms() / 1e3;
        let exp = over(Tensor::exp)?.best_ms() / 1e3;
        let count = elements as f64;
        let (multiply_adds, multiply_adds_by) = match device::multiply_adds_per_second(device) {
            Some(rate) => (rate, "CubeCL's probe"),
            None => (by_matrix_product(device, plan)?, "a matrix product of 1024^3"),
        };
        Ok(Self {
            copy_bytes: 8.0 * count / copy,
            exponentials: (exp > BOUND_BY_MEMORY * copy).then_some(count / exp),
            multiply_adds,
            multiply_adds_by,
        })
    }

    /// The minimum time in milliseconds for overlapped bytes and multiply-adds.
    pub(crate) fn floor_ms(&self, work: &Work) -> f64 {
        let bytes = work.bytes as f64 / self.copy_bytes;
        let multiply_adds = work.multiply_adds as f64 / self.multiply_adds;
        bytes.max(multiply_adds) * 1e3
    }

    pub(crate) fn line(&self) -> String {
        let exponentials = self.exponentials.map_or_else(
            || "exp no slower than the copy".to_owned(),
            |rate| format!("exp {:.2} G/s as a tensor operation", rate / 1e9),
        );
        format!(
            "peaks: copy {:.1} GB/s, {exponentials}, {:.1} G multiply-adds/s by {}",
            self.copy_bytes / 1e9,
            self.multiply_adds / 1e9,
            self.multiply_adds_by
        )
    }
}

fn by_matrix_product(device: &Device, plan: Plan) -> Result<f64, Error> {
    let n = 1024;
    let x = Tensor::<2>::random([n, n], Distribution::Default, device);
    let prepare = || Ok(x.clone());
    let times = measure(device, plan, prepare, |x| Ok(x.clone().matmul(x)))?;
    Ok((n * n * n) as f64 / times.best_ms() * 1e3)
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
