//! The complex scan in tensor operations, on pairs of tensors.

use burn::tensor::activation::{log_sigmoid, silu};
use burn::tensor::{FloatDType, Tensor};

use super::ComplexInputs;
use crate::complex::Complex;
use crate::discretization::discretize;
use crate::scan::polynomial_range;
use crate::scan::reference::{at, per_channel, row};
use crate::scan::{ScanOutput, ScanSpec};

pub(super) fn scan(
    u: Tensor<3>,
    delta: Tensor<3>,
    inputs: ComplexInputs,
    d: Tensor<1>,
    z: Tensor<3>,
    delta_bias: Tensor<1>,
    spec: ScanSpec,
) -> ScanOutput {
    let [batch, len, d_inner] = u.dims();
    let [_, d_state] = inputs.a.dims();
    let dtype = u.dtype();
    let (u, z) = (u.cast(FloatDType::F32), z.cast(FloatDType::F32));
    let delta = step_size(delta, delta_bias, spec);
    let pair = |re: Tensor<4>, im: Tensor<4>, constant| {
        let part = |t: Tensor<4>| per_channel(t.cast(FloatDType::F32), d_inner, constant);
        Complex::new(part(re), part(im))
    };
    let b = pair(inputs.b, inputs.imaginary.b, spec.b_constant);
    let c = pair(inputs.c, inputs.imaginary.c, spec.c_constant);
    let token = |x: &Complex<Tensor<4>>, t| Complex::new(row(&x.re, t), row(&x.im, t));
    let a = Complex::new(inputs.a.unsqueeze::<3>(), inputs.imaginary.a.unsqueeze()); // [1, D, N]

    let steps: Vec<_> = (0..len)
        .map(|t| {
            let delta = Complex::real(at(&delta, t).reshape([batch, d_inner, 1]));
            let step = discretize(spec.options.method, spec.options.series, delta, a.clone());
            let u = at(&u, t).reshape([batch, d_inner, 1]);
            (step.a_bar, (step.b_bar * token(&b, t)).times(u)) // [B, D, N]
        })
        .collect();
    let mut y = vec![None; len];
    let mut last_state = None;
    for sweep in 0..spec.sweeps() {
        let zero = Tensor::<3>::zeros([batch, d_inner, d_state], &u.device());
        let mut h = Complex::real(zero);
        for t in (0..len).map(|step| spec.token(len, step, sweep)) {
            let (a_bar, drive) = steps[t].clone();
            h = a_bar * h + drive;
            // Re(c·h), doubled: a state stands for a conjugate pair.
            let out = token(&c, t).conj().dot(h.clone()) * 2.0;
            let out = out.sum_dim(2).reshape([batch, 1, d_inner]);
            y[t] = Some(match y[t].take() {
                Some(sum) => sum + out,
                None => out,
            });
        }
        last_state.get_or_insert(h);
    }
    let y = Tensor::cat(y.into_iter().flatten().collect(), 1) / spec.sweeps() as f64; // [B, L, D]
    let last_state = last_state.expect("invariant: a method scans at least once");

    let y = if spec.has_d { y + d.unsqueeze::<3>() * u } else { y };
    let y = if spec.has_z { y * silu(z) } else { y };
    ScanOutput {
        y: y.cast(dtype),
        last_state: last_state.re.detach(),
        last_state_im: Some(last_state.im.detach()),
    }
}

/// Delta after its bias and softplus, `[B, L, D]`, in f32.
fn step_size(delta: Tensor<3>, delta_bias: Tensor<1>, spec: ScanSpec) -> Tensor<3> {
    let delta = delta.cast(FloatDType::F32);
    let delta = if spec.has_delta_bias { delta + delta_bias.unsqueeze() } else { delta };
    // softplus(x) = −ln sigmoid(−x), which overflows nowhere.
    if spec.options.delta_softplus { -log_sigmoid(-delta) } else { delta }
}

/// Records the largest delta times the largest |a| where the method is a bare polynomial in
/// delta·a. Transfers from the device on each call until the limit has been exceeded once.
pub(super) fn note_argument(
    delta: &Tensor<3>,
    inputs: &ComplexInputs,
    delta_bias: &Tensor<1>,
    spec: ScanSpec,
) {
    if spec.options.method.bounded(spec.options.series)
        || polynomial_range::largest_polynomial_argument() > polynomial_range::POLYNOMIAL_LIMIT
    {
        return;
    }
    let delta = step_size(delta.clone().detach(), delta_bias.clone().detach(), spec);
    let square = |t: &Tensor<2>| t.clone().detach().powi_scalar(2);
    let a = (square(&inputs.a) + square(&inputs.imaginary.a)).max().sqrt();
    let largest: f32 = (delta.abs().max() * a).into_scalar();
    polynomial_range::note(largest);
}
