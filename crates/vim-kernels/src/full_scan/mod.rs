//! The selective scan with a full A, discretized bilinearly: one small linear system per token and
//! channel.
//!
//! With `M = delta/2·A`, the bilinear step `(I − M)·h[t] = (I + M)·h[t-1] + delta·b[t]·u[t]` is
//!
//! > `(I − M)·s = h[t-1] + ½·delta·b[t]·u[t]`, `h[t] = 2·s − h[t-1]`
//!
//! because `(I − M)⁻¹(I + M) = 2(I − M)⁻¹ − I`: one solve and no product with A. `s` is the
//! midpoint of the two states. docs/discretizations.md has the derivation and the adjoint.

mod autodiff;
mod check;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;
mod native;
pub(crate) mod oracle;
mod reference;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::check::shape_of;
use crate::dispatch::{Implementation, KernelChoice, record_run};
use crate::error::KernelError;
use crate::scan::shapes::ScanShapes;
use crate::scan::{ScanArguments, ScanBC, ScanOutput};

use autodiff::FullScanBackend;

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

/// The checked call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FullScanSpec {
    pub(crate) delta_softplus: bool,
    pub(crate) reverse: bool,
    pub(crate) has_d: bool,
    pub(crate) has_z: bool,
    pub(crate) has_delta_bias: bool,
    pub(crate) b_constant: bool,
    pub(crate) c_constant: bool,
}

impl FullScanSpec {
    /// The token that comes `step`-th.
    pub(crate) fn token(&self, len: usize, step: usize) -> usize {
        if self.reverse { len - 1 - step } else { step }
    }
}

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
    let (b, b_im, b_constant) = b.into().into_parts();
    let (c, c_im, c_constant) = c.into().into_parts();
    for (tensor, im) in [("b", b_im), ("c", c_im)] {
        if im.is_some() {
            return Err(KernelError::Complex { operation: "full_scan", tensor, got: "complex" });
        }
    }
    let spec = FullScanSpec {
        delta_softplus: options.delta_softplus,
        reverse: options.reverse,
        has_d: d.is_some(),
        has_z: z.is_some(),
        has_delta_bias: delta_bias.is_some(),
        b_constant,
        c_constant,
    };
    let device = u.device();
    let implementation = check::implementation(options.choice, &device)?;
    let shapes = ScanShapes {
        operation: "full_scan",
        u: shape_of(&u),
        delta: shape_of(&delta),
        a: shape_of(&a),
        b: shape_of(&b),
        c: shape_of(&c),
        d: d.as_ref().map(shape_of),
        z: z.as_ref().map(shape_of),
        delta_bias: delta_bias.as_ref().map(shape_of),
        b_constant,
        c_constant,
    };
    shapes.check(implementation, &device)?;
    record_run("full_scan", implementation);
    // A backend extension has no optional tensors: an absent input is passed as one zero, and the
    // spec says that it is absent.
    let like_u = u.dtype();
    let d = d.unwrap_or_else(|| Tensor::zeros([1], &device));
    let z = z.unwrap_or_else(|| Tensor::zeros([1, 1, 1], (&device, like_u)));
    let delta_bias = delta_bias.unwrap_or_else(|| Tensor::zeros([1], &device));
    Ok(match implementation {
        Implementation::Reference => reference::scan(u, delta, a, b, c, d, z, delta_bias, spec),
        Implementation::Kernel => {
            let arguments = ScanArguments {
                u: u.into_dispatch(),
                delta: delta.into_dispatch(),
                a: a.into_dispatch(),
                b: b.into_dispatch(),
                c: c.into_dispatch(),
                d: d.into_dispatch(),
                z: z.into_dispatch(),
                delta_bias: delta_bias.into_dispatch(),
            };
            let out = Dispatch::full_scan(arguments, spec);
            ScanOutput {
                y: Tensor::from_dispatch(out.y),
                last_state: Tensor::from_dispatch(out.last_state),
                last_state_im: None,
            }
        }
    })
}
