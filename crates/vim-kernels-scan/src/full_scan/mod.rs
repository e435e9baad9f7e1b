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

use crate::scan::shapes::ScanShapes;
use crate::scan::{
    ScanArguments, ScanBC, ScanCall, ScanOptions, ScanOutput, ScanOutputs, ScanSpec,
};
use vim_kernels_core::op::fused_op;
use vim_kernels_core::{Implementation, KernelChoice, KernelError, record_run, runs_cubecl};

fused_op! {
    Flex and Cube:
    FullScanBackend::full_scan(FullScanSpec, ScanArguments, 8) -> ScanOutputs { y, last_state }
}

/// The most states that a full A may have: a channel's matrix stays in a GPU block's shared memory.
pub const MAX_FULL_STATES: usize = 32;

/// Tokens between the states that a forward pass saves for the backward pass.
pub(crate) const CHUNK: usize = 8;

/// Units (threads) of a GPU's block. With N = 32 its shared memory is 31.5 KiB in the backward
/// pass; every device has 32 KiB.
const UNITS: usize = 128;

/// Units of a team, which has a channel: one for each of N states, rounded up to a power of two.
const fn team(states: usize) -> usize {
    states.next_power_of_two()
}

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
        if on_gpu { self.check_full_size() } else { Ok(()) }
    }

    /// Checks that a GPU's kernels can run the scan.
    ///
    /// # Errors
    ///
    /// [`KernelError::TooLarge`] names what is too large.
    fn check_full_size(&self) -> Result<(), KernelError> {
        let ([batch, len, _], d_state) = (self.u.0, self.a.0[1]);
        let [tokens, states] = self.elements();
        let channels = UNITS / team(d_state);
        let [of_b, of_c] = self.projection_sums(channels);
        // The states that are saved, and the sums of the gradient of A.
        let (saved, of_a) = (len.div_ceil(CHUNK) * states, states * d_state);
        self.check_size([batch, channels], [tokens, saved, of_a, of_b, of_c])
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::shapes::named;

    // Nothing of these sizes is allocated.
    #[test]
    fn every_buffer_of_a_gpu_is_counted() {
        let sized = |batch: usize, len: usize, d_inner: usize, d_state: usize, groups: usize| {
            let tokens = ([batch, len, d_inner], DType::F32);
            let projected = ([batch, len, groups, d_state], DType::F32);
            let shapes = ScanShapes {
                operation: "full_scan",
                u: tokens,
                delta: tokens,
                a: ([d_inner, d_state, d_state], DType::F32),
                b: projected,
                c: projected,
                d: None,
                z: None,
                delta_bias: None,
                b_constant: false,
                c_constant: false,
            };
            named(shapes.check_full_size())
        };
        assert_eq!(sized(128, 197, 384, 16, 1), "nothing");
        // The sums of A: 4100 · 1024 · 32² is over 2³², and 4000 of them are under it.
        assert_eq!([4000, 4100].map(|batch| sized(batch, 8, 1024, 32, 1)), ["nothing", "a buffer"]);
        // Those of B: 4 channels a block, 96 blocks of 32 states; 7200 · 197 · 96 · 32.
        assert_eq!(
            [7000, 7200].map(|batch| sized(batch, 197, 384, 32, 1)),
            ["nothing", "a buffer"]
        );
        // A block for each group.
        let blocks = "a number of blocks of channels";
        assert_eq!([65_535, 65_536].map(|d| sized(1, 1, d, 1, d)), ["nothing", blocks]);
    }

    #[cfg(feature = "wgpu")]
    #[test]
    fn what_is_frozen_is_not_summed() {
        use burn_cubecl::CubeBackend;

        use vim_kernels_core::op::{computed_for_the_first, ones};

        let spec = FullScanSpec(ScanSpec {
            options: ScanOptions::default(),
            bidirectional: false,
            has_d: true,
            has_z: true,
            has_delta_bias: true,
            b_constant: false,
            c_constant: false,
            compact_states: false,
        });
        let (tokens, projected) = ([2, 5, 8], [2, 5, 1, 4]);
        let inputs = [
            ones(tokens),
            ones(tokens),
            ones([8, 4, 4]),
            ones(projected),
            ones(projected),
            ones([8]),
            ones(tokens),
            ones([8]),
        ];
        let computed = computed_for_the_first::<CubeBackend, FullScanSpec, 8, 1>(spec, inputs);
        assert_eq!(computed, std::array::from_fn(|i| i == 0));
    }
}
