//! Peak rates of the device, measured in the same run as the operations.

use burn::tensor::{Device, Distribution, Tensor};
use serde::Serialize;

use super::timer::{Plan, measure};
use crate::device::{self, SelectedDevice};
use crate::error::Error;

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
    pub(crate) fn floor_ms(&self, work: &super::cost::Work) -> f64 {
        let bytes = work.bytes as f64 / self.copy_bytes;
        let multiply_adds = work.multiply_adds as f64 / self.multiply_adds;
        bytes.max(multiply_adds) * 1e3
    }

    /// One line of text.
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
