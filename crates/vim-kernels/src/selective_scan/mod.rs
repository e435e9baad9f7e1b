//! The selective scan on tensors: arguments, shape checks, and which implementation runs.

mod autodiff;
mod flex;
pub(crate) mod reference;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::choice::{Implementation, ScanChoice, record};
use crate::discretization::{Discretization, Series};
use crate::error::{KernelError, check_dtype};

use autodiff::ScanBackend;

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
    pub choice: ScanChoice,
}

/// B or C of a scan.
#[derive(Clone, Debug)]
pub enum Projection {
    /// One per token, `[B, L, N]`.
    Variable(Tensor<3>),
    /// One per token and group of channels, `[B, L, G, N]`; channel `i` is in group `i·G/D`.
    Grouped(Tensor<4>),
    /// One per channel, the same at every token, `[D, N]`.
    Constant(Tensor<2>),
}

impl From<Tensor<3>> for Projection {
    fn from(tensor: Tensor<3>) -> Self {
        Self::Variable(tensor)
    }
}
impl From<Tensor<4>> for Projection {
    fn from(tensor: Tensor<4>) -> Self {
        Self::Grouped(tensor)
    }
}
impl From<Tensor<2>> for Projection {
    fn from(tensor: Tensor<2>) -> Self {
        Self::Constant(tensor)
    }
}

impl Projection {
    /// `[B, L, G, N]`, or `[1, 1, D, N]` where constant.
    pub(crate) fn into_four(self) -> (Tensor<4>, bool) {
        match self {
            Self::Variable(t) => (t.unsqueeze_dim(2), false),
            Self::Grouped(t) => (t, false),
            Self::Constant(t) => (t.unsqueeze(), true),
        }
    }
}

/// What a scan returns.
#[derive(Clone, Debug)]
pub struct ScanOutput {
    /// `[B, L, D]`.
    pub y: Tensor<3>,
    /// The state after the last token scanned, `[B, D, N]`, without gradient; of the first of the
    /// two scans where the method runs two.
    pub last_state: Tensor<3>,
}

/// A checked call in the form that the implementations take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScanSpec {
    pub(crate) method: Discretization,
    pub(crate) series: Series,
    pub(crate) delta_softplus: bool,
    pub(crate) reverse: bool,
    pub(crate) has_d: bool,
    pub(crate) has_z: bool,
    pub(crate) has_delta_bias: bool,
    pub(crate) b_constant: bool,
    pub(crate) c_constant: bool,
}

impl ScanSpec {
    /// Scans over the sequence: one, or one each way.
    pub(crate) fn ways(&self) -> usize {
        if self.method.form().two_way { 2 } else { 1 }
    }

    /// The weight of each scan's output in their mean.
    pub(crate) fn way_weight(&self) -> f32 {
        1.0 / self.ways() as f32
    }

    /// The token that comes `step`-th in scan number `way`.
    pub(crate) fn token(&self, len: usize, step: usize, way: usize) -> usize {
        if self.reverse ^ (way == 1) { len - 1 - step } else { step }
    }
}

/// Runs the selective scan from a zero state.
///
/// `h[t] = a_bar·h[t-1] + b_bar·b[t]·u[t]`, `y[t] = (c[t]·h[t] + d·u[t])·silu(z[t])`, with `a_bar`
/// and `b_bar` of `options.method` at `delta[t]` and `a`. A method that is two-way scans once in
/// each direction with the same coefficients and averages. Differentiable in all eight inputs,
/// with the exact adjoint of what is computed.
///
/// # Shapes
///
/// - `u`, `delta`, `z`, and the returned `y`: `[B, L, D]`
/// - `a`: `[D, N]`, negative for a stable system
/// - `b`, `c`: `[B, L, N]`, `[B, L, G, N]` or `[D, N]`, see [`Projection`]
/// - `d`, `delta_bias`: `[D]`
///
/// # Errors
///
/// [`KernelError::Shape`] names the argument whose shape disagrees with `u` and `a`;
/// [`KernelError::Dtype`] one that is not f32;
/// [`KernelError::NoKernel`] if `options.choice` forces a kernel that the device does not have.
///
/// # Source
///
/// Gu and Dao 2023, eq. 2 and algorithm 2; argument for argument `selective_scan_fn` of the
/// original, channels last.
#[expect(clippy::too_many_arguments, reason = "the operation has these inputs")]
pub fn selective_scan(
    u: Tensor<3>,
    delta: Tensor<3>,
    a: Tensor<2>,
    b: impl Into<Projection>,
    c: impl Into<Projection>,
    d: Option<Tensor<1>>,
    z: Option<Tensor<3>>,
    delta_bias: Option<Tensor<1>>,
    options: ScanOptions,
) -> Result<ScanOutput, KernelError> {
    let (b, b_constant) = b.into().into_four();
    let (c, c_constant) = c.into().into_four();
    let spec = ScanSpec {
        method: options.method,
        series: options.series,
        delta_softplus: options.delta_softplus,
        reverse: options.reverse,
        has_d: d.is_some(),
        has_z: z.is_some(),
        has_delta_bias: delta_bias.is_some(),
        b_constant,
        c_constant,
    };
    check(&u, &delta, &a, &b, &c, d.as_ref(), z.as_ref(), delta_bias.as_ref(), spec)?;
    let device = u.device();
    let implementation = options.choice.resolve(&device)?;
    record("selective_scan", implementation);
    // A backend extension has no optional tensors: what is absent is one zero, and the spec says so.
    let d = d.unwrap_or_else(|| Tensor::zeros([1], &device));
    let z = z.unwrap_or_else(|| Tensor::zeros([1, 1, 1], &device));
    let delta_bias = delta_bias.unwrap_or_else(|| Tensor::zeros([1], &device));
    Ok(match implementation {
        Implementation::Reference => reference::scan(u, delta, a, b, c, d, z, delta_bias, spec),
        Implementation::Kernel => {
            let out = Dispatch::selective_scan(
                u.into_dispatch(),
                delta.into_dispatch(),
                a.into_dispatch(),
                b.into_dispatch(),
                c.into_dispatch(),
                d.into_dispatch(),
                z.into_dispatch(),
                delta_bias.into_dispatch(),
                spec,
            );
            ScanOutput {
                y: Tensor::from_dispatch(out.y),
                last_state: Tensor::from_dispatch(out.last_state),
            }
        }
    })
}

#[expect(clippy::too_many_arguments, reason = "every input is checked, here and nowhere else")]
fn check(
    u: &Tensor<3>,
    delta: &Tensor<3>,
    a: &Tensor<2>,
    b: &Tensor<4>,
    c: &Tensor<4>,
    d: Option<&Tensor<1>>,
    z: Option<&Tensor<3>>,
    delta_bias: Option<&Tensor<1>>,
    spec: ScanSpec,
) -> Result<(), KernelError> {
    check_dtype(
        "selective_scan",
        [
            ("u", Some(u.dtype())),
            ("delta", Some(delta.dtype())),
            ("a", Some(a.dtype())),
            ("b", Some(b.dtype())),
            ("c", Some(c.dtype())),
            ("d", d.map(Tensor::dtype)),
            ("z", z.map(Tensor::dtype)),
            ("delta_bias", delta_bias.map(Tensor::dtype)),
        ],
    )?;
    let [batch, len, d_inner] = u.dims();
    let [_, d_state] = a.dims();
    let expect = |tensor: &'static str, got: &[usize], good: bool, expected: String| {
        let got = got.to_vec();
        let operation = "selective_scan";
        if good { Ok(()) } else { Err(KernelError::Shape { operation, tensor, got, expected }) }
    };
    let like_u = |tensor, dims: [usize; 3]| {
        let expected = format!("[B, L, D] = [{batch}, {len}, {d_inner}] as `u`");
        expect(tensor, &dims, dims == [batch, len, d_inner], expected)
    };
    let channels = |tensor, dims: [usize; 1]| {
        expect(tensor, &dims, dims == [d_inner], format!("[D] = [{d_inner}]"))
    };
    let nonempty = batch > 0 && len > 0 && d_inner > 0;
    expect("u", &u.dims(), nonempty, "[B, L, D], none of them 0".to_string())?;
    like_u("delta", delta.dims())?;
    let expected = format!("[D, N] with D = {d_inner} and N ≥ 1");
    expect("a", &a.dims(), a.dims()[0] == d_inner && d_state > 0, expected)?;
    for (name, tensor, constant) in [("b", b, spec.b_constant), ("c", c, spec.c_constant)] {
        let dims @ [lead_batch, lead_len, groups, states] = tensor.dims();
        if constant {
            let expected = format!("[D, N] = [{d_inner}, {d_state}]");
            expect(name, &dims[2..], [groups, states] == [d_inner, d_state], expected)?;
        } else {
            let good = [lead_batch, lead_len, states] == [batch, len, d_state]
                && groups > 0
                && d_inner % groups == 0;
            let expected =
                format!("[B, L, G, N] = [{batch}, {len}, G, {d_state}] with G dividing {d_inner}");
            expect(name, &dims, good, expected)?;
        }
    }
    if !spec.b_constant && !spec.c_constant {
        let (expected, dims) = (format!("the {} groups of `b`", b.dims()[2]), c.dims());
        expect("c", &dims, dims[2] == b.dims()[2], expected)?;
    }
    if let Some(d) = d {
        channels("d", d.dims())?;
    }
    if let Some(z) = z {
        like_u("z", z.dims())?;
    }
    if let Some(delta_bias) = delta_bias {
        channels("delta_bias", delta_bias.dims())?;
    }
    Ok(())
}
