//! The selective scan on tensors: arguments, shape checks, and which implementation runs.

mod arguments;
mod autodiff;
mod bidirectional;
mod complex;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;
mod native;
pub(crate) mod oracle;
mod polynomial_range;
pub(crate) mod reference;
pub(crate) mod shapes;

use burn::backend::Dispatch;
use burn::tensor::{DType, FloatDType, Tensor};

use crate::check::shape_of;
use crate::discretization::{Discretization, Series};
use crate::dispatch::{Implementation, KernelChoice, record_run, runs_cubecl};
use crate::error::KernelError;
use shapes::ScanShapes;

pub use arguments::{ScanA, ScanBC};
use autodiff::ScanBackend;
pub(crate) use autodiff::{ScanArguments, ScanOutputs};
pub use bidirectional::{has_bidirectional_scan, selective_scan_bidirectional};
use complex::ComplexInputs;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) use cube::{scan_gradients, scan_results};
pub use polynomial_range::{POLYNOMIAL_LIMIT, largest_polynomial_argument};

/// How a scan runs; see [`selective_scan`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScanSpec {
    pub(crate) options: ScanOptions,
    /// Whether two directions run at once; see [`selective_scan_bidirectional`].
    pub(crate) bidirectional: bool,
    pub(crate) has_d: bool,
    pub(crate) has_z: bool,
    pub(crate) has_delta_bias: bool,
    pub(crate) b_constant: bool,
    pub(crate) c_constant: bool,
    /// Whether a GPU saves chunk states in the type of u rather than in f32.
    pub(crate) compact_states: bool,
}

impl ScanSpec {
    /// Number of scans over the sequence: one, or two for a two-way method.
    pub(crate) fn sweeps(&self) -> usize {
        if self.options.method.form().two_way { 2 } else { 1 }
    }

    /// Weight of each scan's output in their mean.
    pub(crate) fn sweep_weight(&self) -> f32 {
        1.0 / self.sweeps() as f32
    }

    /// The token of step `step` in scan number `sweep`.
    pub(crate) fn token(&self, len: usize, step: usize, sweep: usize) -> usize {
        if self.options.reverse ^ (sweep == 1) { len - 1 - step } else { step }
    }
}

/// Runs the selective scan from a zero state.
///
/// `h[t] = a_bar·h[t-1] + b_bar·b[t]·u[t]`, `y[t] = (c[t]·h[t] + d·u[t])·silu(z[t])`, with `a_bar`
/// and `b_bar` of `options.method` at `delta[t]` and `a`. A method that is two-way scans once in
/// each direction with the same coefficients and averages. Differentiable in all eight inputs,
/// with the exact adjoint of what is computed.
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
/// # Errors
///
/// [`KernelError::Shape`] names the argument whose shape disagrees with `u` and `a`;
/// [`KernelError::Dtype`] one of another type; [`KernelError::Complex`] one that is real where A is
/// complex, or the reverse; [`KernelError::NoKernel`] if `options.choice` forces a kernel that the
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
    let (a, a_im) = a.into().into_parts();
    let (b, b_im, b_constant) = b.into().into_parts();
    let (c, c_im, c_constant) = c.into().into_parts();
    let spec = ScanSpec {
        options,
        bidirectional: false,
        has_d: d.is_some(),
        has_z: z.is_some(),
        has_delta_bias: delta_bias.is_some(),
        b_constant,
        c_constant,
        compact_states: false,
    };
    let shapes = ScanShapes {
        operation: "selective_scan",
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
    shapes.check(&u.device())?;
    let imaginary = complex::imaginary_parts((&a, a_im), (&b, b_im), (&c, c_im))?;
    let device = u.device();
    let implementation = match &imaginary {
        None => options.choice.resolve(&device)?,
        Some(_) => complex::resolve(options.choice, &device)?,
    };
    if implementation == Implementation::Kernel && runs_cubecl(&device) {
        shapes.check_scan_size(spec, 1)?;
    }
    record_run("selective_scan", implementation);
    // A backend extension has no optional tensors: an absent input is passed as one zero, and the
    // spec says that it is absent.
    let dtype = u.dtype();
    let d = d.unwrap_or_else(|| Tensor::zeros([1], (&device, DType::F32)));
    let z = z.unwrap_or_else(|| Tensor::zeros([1, 1, 1], (&device, dtype)));
    let delta_bias = delta_bias.unwrap_or_else(|| Tensor::zeros([1], (&device, DType::F32)));
    if let Some(imaginary) = imaginary {
        let inputs = ComplexInputs { a, b, c, imaginary };
        return Ok(complex::scan(u, delta, inputs, d, z, delta_bias, spec, implementation));
    }
    Ok(match implementation {
        Implementation::Reference => {
            // The state and every sum are f32, whatever the activations are.
            let wide = |t: Tensor<3>| t.cast(FloatDType::F32);
            let [u, delta, z] = [u, delta, z].map(wide);
            let [b, c] = [b, c].map(|t| t.cast(FloatDType::F32));
            let out = reference::scan(u, delta, a, b, c, d, z, delta_bias, spec);
            ScanOutput { y: out.y.cast(dtype), ..out }
        }
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
            let out = Dispatch::selective_scan(arguments, spec);
            ScanOutput {
                y: Tensor::from_dispatch(out.y),
                last_state: Tensor::from_dispatch(out.last_state),
                last_state_im: None,
            }
        }
    })
}
