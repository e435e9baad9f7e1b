//! The selective scan on tensors: arguments, shape checks, and which implementation runs.

mod arguments;
mod attention;
mod bidirectional;
mod complex;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
#[doc(hidden)]
mod cube;
#[doc(hidden)]
pub(crate) mod native;
pub(crate) mod oracle;
pub mod raw;
pub(crate) mod reference;
#[doc(hidden)]
pub(crate) mod shapes;
mod watch;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::discretization::{Discretization, Form, Series};
use vim_kernels_core::op::{fused_op, tensors};
use vim_kernels_core::{Implementation, KernelChoice, KernelError, record_run, runs_cubecl};

pub(crate) use arguments::ScanCall;
pub use arguments::{ScanA, ScanBC};
pub use bidirectional::{has_bidirectional_scan, selective_scan_bidirectional};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub use cube::{Partial, ScanPasses, Wanted, gated_sum, scan_passes, scan_results};
pub use watch::{POLYNOMIAL_LIMIT, largest_argument, largest_polynomial_argument};

tensors! {
    /// The arguments of a scan on a backend, shapes as in [`selective_scan`].
    #[doc(hidden)]
    ScanArguments, 8: { u, delta, a, b, c, d, z, delta_bias }
}

tensors! {
    /// What a scan returns: `y [B, L, D]` and the last state `[B, D, N]`.
    ScanOutputs, 2: { y, last_state }
}

fused_op! {
    Flex and Cube:
    ScanBackend::selective_scan(ScanSpec, ScanArguments, 8) -> ScanOutputs { y, last_state }
}

/// How a scan runs; see [`selective_scan`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ScanOptions {
    /// The discretization.
    pub method: Discretization,
    /// How its φ functions are evaluated.
    pub series: Series,
    /// Whether delta (after its bias) goes through softplus.
    pub delta_softplus: bool,
    /// Scans from the last token to the first, by index: nothing is flipped.
    pub reverse: bool,
    /// Which implementation runs.
    pub choice: KernelChoice,
}

impl ScanOptions {
    /// Checks that the method has the series, for an operation.
    ///
    /// # Errors
    ///
    /// [`KernelError::Method`] if it has not.
    pub fn check_series(&self, operation: &'static str) -> Result<(), KernelError> {
        let known = self.method.series().contains(&self.series);
        if known { Ok(()) } else { Err(self.refused(operation, "the series `taylor`")) }
    }

    /// The error of a method that does not run with `what`.
    fn refused(&self, operation: &'static str, what: &'static str) -> KernelError {
        KernelError::Method { operation, method: self.method.into(), what }
    }
}

/// What a scan returns.
#[derive(Clone, Debug)]
pub struct ScanOutput {
    /// `[B, L, D]`.
    pub y: Tensor<3>,
    /// The state after the last token scanned, `[B, D, N]`, without gradient; of the first of the
    /// two scans of a two-way method. Its real part where A is complex.
    pub last_state: Tensor<3>,
    /// The imaginary part of the last state, where A is complex.
    pub last_state_im: Option<Tensor<3>>,
}

/// The checked call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScanSpec {
    /// How it was called.
    pub options: ScanOptions,
    /// Whether two directions run at once; see [`selective_scan_bidirectional`].
    pub bidirectional: bool,
    /// Whether there is a skip connection.
    pub has_d: bool,
    /// Whether there is a gate.
    pub has_z: bool,
    /// Whether the steps have a bias.
    pub has_delta_bias: bool,
    /// Whether B is the same for every token.
    pub b_constant: bool,
    /// Whether C is.
    pub c_constant: bool,
    /// Whether a GPU saves chunk states in the type of u rather than in f32.
    pub compact_states: bool,
}

impl ScanSpec {
    /// The spec of a call in one direction without optional inputs, whose B and C vary.
    pub(crate) fn plain(options: ScanOptions) -> Self {
        Self {
            options,
            bidirectional: false,
            has_d: false,
            has_z: false,
            has_delta_bias: false,
            b_constant: false,
            c_constant: false,
            compact_states: false,
        }
    }

    /// The spec of a call in one direction.
    pub(crate) fn new<const A: usize>(
        options: ScanOptions,
        inputs: &ScanCall<A>,
        b_constant: bool,
        c_constant: bool,
    ) -> Self {
        Self {
            has_d: inputs.d.is_some(),
            has_z: inputs.z.is_some(),
            has_delta_bias: inputs.delta_bias.is_some(),
            b_constant,
            c_constant,
            ..Self::plain(options)
        }
    }

    /// What its method is made of.
    pub(crate) fn form(&self) -> Form {
        self.options.method.form().under(self.options.series)
    }

    /// Number of scans over the sequence: one, or two for a two-way method.
    pub(crate) fn sweeps(&self) -> usize {
        if self.form().two_way { 2 } else { 1 }
    }

    /// Weight of each scan's output in their mean.
    pub(crate) fn sweep_weight(&self) -> f32 {
        1.0 / self.sweeps() as f32
    }

    /// The token before `token` in a scan of one way, unless it is the first.
    pub(crate) fn token_before(&self, len: usize, token: usize) -> Option<usize> {
        let before = if self.options.reverse { token + 1 } else { token.wrapping_sub(1) };
        (before < len).then_some(before)
    }

    /// The token of step `step` in scan number `sweep`.
    pub(crate) fn token(&self, len: usize, step: usize, sweep: usize) -> usize {
        if self.options.reverse ^ (sweep == 1) { len - 1 - step } else { step }
    }
}

/// Runs the selective scan from a zero state.
///
/// `h[t] = a_bar·h[t-1] + b_prev·b[t-1]·u[t-1] + b_bar·b[t]·u[t]`,
/// `y[t] = (c[t]·h[t] + d·u[t])·silu(z[t])`, with the coefficients of `options.method` at
/// `delta[t]` and `a`; most methods have no `b_prev`. The input before the first token is 0. A
/// method that is two-way scans once in each direction with the same coefficients and averages.
/// Differentiable in all eight inputs, with the exact adjoint of what is computed.
///
/// A may be complex, given as `(re, im)`; B and C then are too, the state is, and
/// `y[t] = (2·Re(c[t]·h[t]) + d·u[t])·silu(z[t])`: each state stands for a conjugate pair. The
/// gradients of a complex input's parts are those of the two tensors.
///
/// # Shapes
///
/// - `u`, `delta`, `z`, and the returned `y`: `[B, L, D]`
/// - `a`: `[D, N]`, negative for a stable system, see [`ScanA`]
/// - `b`, `c`: `[B, L, N]`, `[B, L, G, N]` or `[D, N]`, see [`ScanBC`]
/// - `d`, `delta_bias`: `[D]`
///
/// `u`, `delta`, `z` and B and C that vary are f32, or all of them bf16 where the device has it,
/// and `y` is as they are; the others are f32, and so are the state and every sum.
///
/// # Range
///
/// A rate (of a complex A, its real part) below −10¹², −∞ too, counts as −10¹². A GPU cuts a long
/// sequence: over a piece of 32 tokens or more, a growing system multiplies a state by what an f32
/// must hold; a state that is 0 stays so.
///
/// # Errors
///
/// [`KernelError::Shape`] names the argument whose shape disagrees with `u` and `a`;
/// [`KernelError::Dtype`] one of another type; [`KernelError::Complex`] one that is real where A is
/// complex, or the reverse; [`KernelError::Method`] a method that has no such series, or does not
/// run with complex A; [`KernelError::NoKernel`] if `options.choice` forces a kernel that the
/// device does not have; with complex A, Flex has none, and [`KernelChoice::Auto`] runs the
/// reference there.
///
/// # Source
///
/// Gu and Dao 2023, eq. 2 and algorithm 2; argument for argument `selective_scan_fn` of the
/// original, channels last.
#[expect(clippy::too_many_arguments, reason = "the operation has these inputs")]
pub fn selective_scan(
    u: Tensor<3>,
    delta: Tensor<3>,
    a: impl Into<ScanA>,
    b: impl Into<ScanBC>,
    c: impl Into<ScanBC>,
    d: Option<Tensor<1>>,
    z: Option<Tensor<3>>,
    delta_bias: Option<Tensor<1>>,
    options: ScanOptions,
) -> Result<ScanOutput, KernelError> {
    let (a, b, c) = (a.into(), b.into(), c.into());
    let inputs = ScanCall { u, delta, a: a.re, b: b.re, c: c.re, d, z, delta_bias };
    let spec = ScanSpec::new(options, &inputs, b.constant, c.constant);
    let shapes = inputs.shapes("selective_scan", b.constant, c.constant);
    let device = inputs.u.device();
    shapes.check(&device)?;
    options.check_series("selective_scan")?;
    let imaginary = complex::imaginary_parts(&inputs, a.im, b.im, c.im)?;
    if imaginary.is_some() && !options.method.form().published {
        return Err(options.refused("selective_scan", "complex A"));
    }
    let implementation = match &imaginary {
        None => options.choice.resolve(&device)?,
        Some(_) => complex::resolve(options.choice, &device)?,
    };
    if implementation == Implementation::Kernel && runs_cubecl(&device) {
        match &imaginary {
            None => shapes.check_scan_size(spec, 1)?,
            Some(_) => shapes.check_complex_size(spec)?,
        }
    }
    record_run("selective_scan", implementation);
    Ok(match (imaginary, implementation) {
        (Some(imaginary), _) => complex::scan(inputs, imaginary, spec, implementation),
        (None, Implementation::Reference) => reference::scan(inputs, spec),
        (None, Implementation::Kernel) => {
            Dispatch::selective_scan(inputs.into_arguments(), spec).into()
        }
    })
}

impl From<ScanOutputs<Dispatch>> for ScanOutput {
    fn from(out: ScanOutputs<Dispatch>) -> Self {
        Self {
            y: Tensor::from_dispatch(out.y),
            last_state: Tensor::from_dispatch(out.last_state),
            last_state_im: None,
        }
    }
}
