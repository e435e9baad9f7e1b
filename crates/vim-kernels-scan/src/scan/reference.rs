//! The scan in tensor operations: any backend, differentiated by autodiff, written for readability.

use burn::tensor::activation::{log_sigmoid, silu};
use burn::tensor::{FloatDType, Tensor};

use super::watch::note;
use super::{ScanCall, ScanOutput, ScanSpec};
use crate::discretization::{LEAST_RATE, discretize};
use vim_kernels_core::Real;

pub(super) fn scan(inputs: ScanCall<2>, spec: ScanSpec) -> ScanOutput {
    let dtype = inputs.u.dtype();
    let ScanCall { u, delta, a, b, c, d, z, delta_bias } = inputs.wide();
    let [batch, len, d_inner] = u.dims();
    let delta = step_size(delta, delta_bias, spec.options.delta_softplus);
    let b = per_channel(b, d_inner, spec.b_constant);
    let c = per_channel(c, d_inner, spec.c_constant);
    note(spec, || largest(&delta) * largest(&a));
    let zero = Tensor::<3>::zeros([batch, d_inner, a.dims()[1]], &u.device());
    let a = a.at_least(f64::from(LEAST_RATE)).unsqueeze::<3>(); // [1, D, N]

    // Token by token from the small arrays: the gradient of a slice of a `[B, L, D, N]` would cost
    // its whole size.
    let steps: Vec<_> = (0..len)
        .map(|t| {
            let delta = at(&delta, t).reshape([batch, d_inner, 1]);
            let step = discretize(spec.options.method, spec.options.series, delta, a.clone());
            let u = |t| at(&u, t).reshape([batch, d_inner, 1]);
            let drive = step.b_bar * row(&b, t) * u(t);
            let drive = match (step.b_prev, spec.token_before(len, t)) {
                (Some(b_prev), Some(before)) => drive + b_prev * row(&b, before) * u(before),
                _ => drive,
            };
            (step.a_bar, drive) // [B, D, N]
        })
        .collect();
    let (y, last_state) = recur(&steps, &zero, spec, |h, t| h * row(&c, t));
    let y = skip_and_gate(y, u, d, z);
    ScanOutput { y: y.cast(dtype), last_state: last_state.detach(), last_state_im: None }
}

/// The mean over the sweeps of `Σ output(h[t], t)` with `h[t] = a_bar[t]·h[t-1] + drive[t]`, and
/// the last state of the first sweep. `output` is `[B, D, N]`, the mean `[B, L, D]`.
pub(super) fn recur<H: Real>(
    steps: &[(H, H)],
    zero: &H,
    spec: ScanSpec,
    output: impl Fn(H, usize) -> Tensor<3>,
) -> (Tensor<3>, H) {
    let mut y = vec![None; steps.len()];
    let mut last_state = None;
    for sweep in 0..spec.sweeps() {
        let mut h = zero.clone();
        for t in (0..steps.len()).map(|step| spec.token(steps.len(), step, sweep)) {
            let (a_bar, drive) = steps[t].clone();
            h = a_bar * h + drive;
            let out = output(h.clone(), t);
            let [batch, d_inner, _] = out.dims();
            let out = out.sum_dim(2).reshape([batch, 1, d_inner]);
            y[t] = Some(match y[t].take() {
                Some(sum) => sum + out,
                None => out,
            });
        }
        last_state.get_or_insert(h);
    }
    let y = Tensor::cat(y.into_iter().flatten().collect(), 1) / spec.sweeps() as f64;
    (y, last_state.expect("invariant: a method scans at least once"))
}

impl<const A: usize> ScanCall<A> {
    /// With activations in f32: the state and every sum are f32, whatever the activations are.
    pub(super) fn wide(self) -> Self {
        let wide = |t: Tensor<3>| t.cast(FloatDType::F32);
        let [b, c] = [self.b, self.c].map(|t| t.cast(FloatDType::F32));
        Self { u: wide(self.u), delta: wide(self.delta), z: self.z.map(wide), b, c, ..self }
    }
}

/// Delta after its bias and softplus.
pub(crate) fn step_size(delta: Tensor<3>, bias: Option<Tensor<1>>, softplus: bool) -> Tensor<3> {
    let delta = match bias {
        Some(bias) => delta + bias.unsqueeze(),
        None => delta,
    };
    // softplus(x) = −ln sigmoid(−x), which overflows nowhere.
    if softplus { -log_sigmoid(-delta) } else { delta }
}

/// `(y + d·u)·silu(z)`.
pub(crate) fn skip_and_gate(
    y: Tensor<3>,
    u: Tensor<3>,
    d: Option<Tensor<1>>,
    z: Option<Tensor<3>>,
) -> Tensor<3> {
    let y = match d {
        Some(d) => y + d.unsqueeze::<3>() * u,
        None => y,
    };
    match z {
        Some(z) => y * silu(z),
        None => y,
    }
}

/// The largest absolute value.
pub(super) fn largest<const R: usize>(x: &Tensor<R>) -> Tensor<1> {
    x.clone().detach().abs().max()
}

/// `[B, L, D]` at a token, `[B, 1, D]`.
pub(crate) fn at(x: &Tensor<3>, t: usize) -> Tensor<3> {
    x.clone().narrow(1, t, 1)
}

/// B or C at a token, `[B, D, N]` or broadcastable to it.
pub(crate) fn row(x: &Tensor<4>, t: usize) -> Tensor<3> {
    let [batch, len, channels, d_state] = x.dims();
    let t = if len == 1 { 0 } else { t };
    x.clone().narrow(1, t, 1).reshape([batch, channels, d_state])
}

/// `[B, L, G, N]` → `[B, L, D, N]`, or broadcastable to it.
pub(crate) fn per_channel(x: Tensor<4>, d_inner: usize, constant: bool) -> Tensor<4> {
    let [batch, len, groups, d_state] = x.dims();
    if constant || groups == 1 {
        return x;
    }
    let per_group = d_inner / groups;
    x.unsqueeze_dim::<5>(3)
        .expand([batch, len, groups, per_group, d_state])
        .reshape([batch, len, d_inner, d_state])
}
