//! The selective scan with a full A, discretized bilinearly: one small linear system per token and
//! channel.
//!
//! With `M = delta/2·A`, the bilinear step `(I − M)·h[t] = (I + M)·h[t-1] + delta·b[t]·u[t]` is
//!
//! > `(I − M)·s = h[t-1] + ½·delta·b[t]·u[t]`, `h[t] = 2·s − h[t-1]`
//!
//! because `(I − M)⁻¹(I + M) = 2(I − M)⁻¹ − I`: one solve and no product with A. `s` is the
//! midpoint of the two states. docs/discretizations.md has the derivation and the adjoint.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;
mod native;
pub(crate) mod oracle;
mod reference;

use burn::backend::Dispatch;
use burn::tensor::{DType, Device, Tensor};

use crate::dispatch::{Implementation, KernelChoice, record_run, runs_cubecl};
use crate::error::KernelError;
use crate::op::fused_op;
use crate::scan::shapes::ScanShapes;
use crate::scan::{
    ScanArguments, ScanBC, ScanCall, ScanOptions, ScanOutput, ScanOutputs, ScanSpec,
};

fused_op! {
    Flex and Cube:
    FullScanBackend::full_scan(FullScanSpec, ScanArguments, 8) -> ScanOutputs { y, last_state }
}

/// The most states that a full A may have: a channel's matrix stays in a GPU block's shared memory.
pub const MAX_FULL_STATES: usize = 32;

/// Tokens between the states that a forward pass saves for the backward pass.
pub(crate) const CHUNK: usize = 8;

/// How a scan with a full A runs; see [`full_scan`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FullScanOptions {
    /// Whether delta (after its bias) goes through softplus.
    pub delta_softplus: bool,
    /// Scans from the last token to the first, by index: nothing is flipped.
    pub reverse: bool,
    /// Which implementation runs.
    pub choice: KernelChoice,
}

/// The checked call: one of [`crate::selective_scan()`], but with a full A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FullScanSpec(pub(crate) ScanSpec);

/// Runs the bilinear scan with a full A from a zero state.
///
/// With `M = delta[t]/2·A` of the channel:
/// `h[t] = (I − M)⁻¹(I + M)·h[t-1] + (I − M)⁻¹·delta[t]·b[t]·u[t]`,
/// `y[t] = (c[t]·h[t] + d·u[t])·silu(z[t])`. Where A is diagonal this is
/// [`selective_scan`](crate::selective_scan()) with the bilinear method. Differentiable in all
/// eight inputs, with the exact adjoint of what is computed.
///
/// # Shapes
///
/// - `u`, `delta`, `z`, and the returned `y`: `[B, L, D]`
/// - `a`: `[D, N, N]`, N at most [`MAX_FULL_STATES`]; row n holds what feeds state n
/// - `b`, `c`: `[B, L, N]`, `[B, L, G, N]` or `[D, N]`, see [`ScanBC`]
/// - `d`, `delta_bias`: `[D]`
///
/// # Stability
///
/// For any A, the systems are solved with partial pivoting. Where `A + Aᵀ` has no positive
/// eigenvalue and delta ≥ 0, none is singular and no step lets the norm of a free state grow. Where
/// A has a real eigenvalue of exactly 2/delta, the step does not exist and the channel's output is
/// NaN from that token on.
///
/// # Errors
///
/// [`KernelError::Shape`] names the argument whose shape disagrees with `u` and `a`;
/// [`KernelError::Dtype`] one of a type that does not run: `a`, `d`, `delta_bias` and constant `b`
/// and `c` are f32, the others all f32 or, in the kernels of a GPU that has it, all bf16;
/// [`KernelError::NoKernel`] if `options.choice` forces a kernel that the device does not have;
/// [`KernelError::TooLarge`] on a GPU.
///
/// # Source
///
/// Gu, Goel and Ré 2022 (S4), eq. 3, with the input as in the diagonal method of this crate.
#[expect(clippy::too_many_arguments, reason = "the operation has these inputs")]
pub fn full_scan(
    u: Tensor<3>,
    delta: Tensor<3>,
    a: Tensor<3>,
    b: impl Into<ScanBC>,
    c: impl Into<ScanBC>,
    d: Option<Tensor<1>>,
    z: Option<Tensor<3>>,
    delta_bias: Option<Tensor<1>>,
    options: FullScanOptions,
) -> Result<ScanOutput, KernelError> {
    let (b, c): (ScanBC, ScanBC) = (b.into(), c.into());
    for (tensor, im) in [("b", b.im), ("c", c.im)] {
        if im.is_some() {
            return Err(KernelError::Complex { operation: "full_scan", tensor, got: "complex" });
        }
    }
    let inputs = ScanCall { u, delta, a, b: b.re, c: c.re, d, z, delta_bias };
    let FullScanOptions { delta_softplus, reverse, choice } = options;
    let options = ScanOptions { delta_softplus, reverse, ..ScanOptions::default() };
    let spec = ScanSpec::new(options, &inputs, b.constant, c.constant);
    let device = inputs.u.device();
    let implementation = choice.resolve(&device)?;
    let shapes = inputs.shapes("full_scan", b.constant, c.constant);
    shapes.check(implementation, &device)?;
    record_run("full_scan", implementation);
    Ok(match implementation {
        Implementation::Reference => reference::scan(inputs, spec),
        Implementation::Kernel => {
            Dispatch::full_scan(inputs.into_arguments(), FullScanSpec(spec)).into()
        }
    })
}

impl ScanShapes<3> {
    /// Checks every shape and type, and the size where a GPU's kernel runs.
    ///
    /// # Errors
    ///
    /// [`KernelError::Dtype`], [`KernelError::Shape`] or [`KernelError::TooLarge`].
    fn check(&self, implementation: Implementation, device: &Device) -> Result<(), KernelError> {
        let on_gpu = implementation == Implementation::Kernel && runs_cubecl(device);
        self.check_types(on_gpu && device.supports_dtype(DType::BF16))?;
        let [channels, d_state, columns] = self.a.0;
        self.check_shapes(|d_inner| {
            let square = channels == d_inner && d_state == columns;
            let good = square && (1..=MAX_FULL_STATES).contains(&d_state);
            (good, format!("[D, N, N] with D = {d_inner} and N from 1 to {MAX_FULL_STATES}"))
        })?;
        if on_gpu { self.check_size(1, 1) } else { Ok(()) }
    }

    fn check_types(&self, has_bf16: bool) -> Result<(), KernelError> {
        let activation = self.u.1;
        let weight = DType::F32;
        let projection = |constant| if constant { weight } else { activation };
        let known = activation == DType::F32 || (activation == DType::BF16 && has_bf16);
        let checks = [
            ("u", Some(activation).filter(|_| !known), weight),
            ("delta", Some(self.delta.1), activation),
            ("a", Some(self.a.1), weight),
            ("b", Some(self.b.1), projection(self.b_constant)),
            ("c", Some(self.c.1), projection(self.c_constant)),
            ("d", self.d.map(|(_, dtype)| dtype), weight),
            ("z", self.z.map(|(_, dtype)| dtype), activation),
            ("delta_bias", self.delta_bias.map(|(_, dtype)| dtype), weight),
        ];
        for (tensor, got, want) in checks {
            if let Some(got) = got.filter(|&got| got != want) {
                let got = got.name().to_string();
                return Err(KernelError::Dtype { operation: self.operation, tensor, got });
            }
        }
        Ok(())
    }
}
