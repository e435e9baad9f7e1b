//! One (token, state) of the complex scan, forward and backward, in ordinary Rust over [`Traced`]
//! numbers: the method's formulas come from [`crate::discretization`].

use cubecl::ir::Scope;
use cubecl::prelude::*;

use super::plan::{ComplexPair, ComplexPairExpand, ComplexPlan};
use crate::complex::{Complex, Trig};
use crate::discretization::{discretize, linearize_at};
use vim_kernels_core::{Real, Traced};

/// A state after a token, and the decay of the step.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Stepped {
    pub(super) h: ComplexPair,
    pub(super) a_bar: ComplexPair,
}

/// Gradients of one (token, state).
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct StepGrads {
    /// The gradient of the state before.
    pub(super) h: ComplexPair,
    pub(super) a: ComplexPair,
    pub(super) b: ComplexPair,
    pub(super) c: ComplexPair,
    pub(super) u: f32,
    /// Of delta after its softplus.
    pub(super) delta: f32,
    /// The state's part of the output.
    pub(super) y: f32,
}

/// With the portable exponential and division: these kernels are not tuned.
fn real(scope: &Scope, value: NativeExpand<f32>) -> Traced<'_> {
    Traced::new(scope, false, value)
}

fn number(scope: &Scope, pair: ComplexPairExpand) -> Complex<Traced<'_>> {
    Complex::new(real(scope, pair.re), real(scope, pair.im))
}

fn pair(number: Complex<Traced<'_>>) -> ComplexPairExpand {
    ComplexPairExpand { re: number.re.value(), im: number.im.value() }
}

/// `a_bar·h + b_bar·b·u`.
#[cube]
pub(super) fn forward_step(
    h: ComplexPair,
    a: ComplexPair,
    b: ComplexPair,
    delta: f32,
    u: f32,
    #[comptime] plan: ComplexPlan,
) -> Stepped {
    intrinsic!(|scope| {
        let number = |value| number(scope, value);
        let real = |value| real(scope, value);
        let step = discretize(
            plan.spec.options.method,
            plan.spec.options.series,
            Complex::real(real(delta)),
            number(a),
        );
        let drive = (step.b_bar * number(b)).times(real(u));
        let next = step.a_bar.clone() * number(h) + drive;
        SteppedExpand { h: pair(next), a_bar: pair(step.a_bar) }
    })
}

/// `2·Re(c·h)`.
#[cube]
pub(super) fn output(c: ComplexPair, h: ComplexPair) -> f32 {
    2.0f32 * (c.re * h.re - c.im * h.im)
}

/// The adjoint of [`forward_step`] and [`output`] at one token: `grad_h` is the gradient of the
/// state `h` by later tokens, `grad_y` that of the scan's output, `before` the previous state,
/// `a_bar` the decay.
#[cube]
pub(super) fn backward_step(
    grad_h: ComplexPair,
    grad_y: f32,
    h: ComplexPair,
    before: ComplexPair,
    a_bar: ComplexPair,
    a: ComplexPair,
    b: ComplexPair,
    c: ComplexPair,
    delta: f32,
    u: f32,
    #[comptime] plan: ComplexPlan,
) -> StepGrads {
    intrinsic!(|scope| {
        let number = |value| number(scope, value);
        let real = |value| real(scope, value);
        let (h, b, c, u) = (number(h), number(b), number(c), real(u));
        let delta = Complex::real(real(delta));
        let lin = linearize_at(
            plan.spec.options.method,
            plan.spec.options.series,
            delta,
            number(a),
            number(a_bar),
        );
        let weight = real(grad_y).scale(2.0);
        let grad = number(grad_h) + c.clone().conj().times(weight.clone());
        let grad_a_bar = grad.clone() * number(before).conj();
        let grad_b_bar = (grad.clone() * b.clone().conj()).times(u.clone());
        let gain = lin.value.b_bar.clone();
        StepGradsExpand {
            a: pair(
                grad_a_bar.clone() * lin.d_a.a_bar.conj()
                    + grad_b_bar.clone() * lin.d_a.b_bar.conj(),
            ),
            b: pair((grad.clone() * gain.clone().conj()).times(u)),
            c: pair(h.clone().conj().times(weight)),
            u: (gain * b).dot(grad.clone()).value(),
            delta: (lin.d_delta.a_bar.dot(grad_a_bar) + lin.d_delta.b_bar.dot(grad_b_bar)).value(),
            y: c.conj().dot(h).scale(2.0).value(),
            h: pair(grad * lin.value.a_bar.conj()),
        }
    })
}

/// `ln(1 + eˣ)`: with e = exp(−|x|) and s = e/(2 + e), `ln(1 + e) = 2·atanh(s)`, whose series
/// converges fast as s ≤ ⅓.
#[cube]
fn softplus(x: f32) -> f32 {
    let e = (-x.abs()).exp();
    let s = e / (2.0f32 + e);
    let q = s * s;
    let series = 1.0f32
        + q * (0.333_333_34f32
            + q * (0.2f32
                + q * (0.142_857_15f32
                    + q * (0.111_111_11f32 + q * (0.090_909_09f32 + q * 0.076_923_08f32)))));
    max(x, 0.0f32) + 2.0f32 * s * series
}

/// `1/(1 + e⁻ˣ)`.
#[cube]
pub(super) fn sigmoid(x: f32) -> f32 {
    let e = (-x.abs()).exp();
    let small = e / (1.0f32 + e);
    select(x < 0.0f32, small, 1.0f32 - small)
}

/// Delta of a token after its bias and softplus, if there are any.
#[cube]
pub(super) fn step_size(raw: f32, bias: f32, #[comptime] plan: ComplexPlan) -> f32 {
    let x = raw + bias;
    if comptime!(plan.spec.options.delta_softplus) { softplus(x) } else { x }
}

/// The derivative of [`step_size`].
#[cube]
pub(super) fn step_slope(raw: f32, bias: f32, #[comptime] plan: ComplexPlan) -> f32 {
    if comptime!(plan.spec.options.delta_softplus) { sigmoid(raw + bias) } else { 1.0f32.runtime() }
}

#[derive(CubeType)]
#[expect(dead_code, reason = "kernels read the fields of its expansion")]
struct SineCosine {
    sin: f32,
    cos: f32,
}

/// Sine and cosine in arithmetic, as WGSL's own are only accurate to 5e-4: to 2e-7 for
/// |x| ≤ 1e4, and of modulus 1 within 1e-6 for every finite x.
///
/// x is reduced by quarter turns, subtracted in three parts (Cody and Waite), then the polynomials
/// of Cephes' `sinf` and `cosf` on [−π/4, π/4] apply. From |x| = 1e5 on an f32 does not determine
/// its phase to 0.004, and at 1e7 not at all; there the remainder is clamped to its range, so that
/// no decay grows.
#[cube]
fn sine_cosine(x: f32) -> SineCosine {
    let turns = (x * std::f32::consts::FRAC_2_PI).round();
    let rest = x - turns * 1.570_312_5f32;
    let rest = rest - turns * 4.837_513e-4f32;
    let rest = rest - turns * 7.549_79e-8f32;
    let r = max(min(rest, 0.79f32), -0.79f32);
    let q = r * r;
    let sin = r + r * q * (-1.666_665_5e-1f32 + q * (8.332_161e-3f32 - q * 1.951_529_6e-4f32));
    let cos = 1.0f32 - 0.5f32 * q
        + q * q * (4.166_664_6e-2f32 + q * (-1.388_731_6e-3f32 + q * 2.443_315_7e-5f32));
    let quadrant = turns - 4.0f32 * (turns * 0.25f32).floor();
    let odd = quadrant == 1.0f32 || quadrant == 3.0f32;
    let sin_abs = select(odd, cos, sin);
    let cos_abs = select(odd, sin, cos);
    SineCosine {
        sin: select(quadrant >= 2.0f32, -sin_abs, sin_abs),
        cos: select(quadrant == 1.0f32 || quadrant == 2.0f32, -cos_abs, cos_abs),
    }
}

#[cube]
fn larger(a: f32, b: f32) -> f32 {
    max(a.abs(), b.abs())
}

impl Trig for Traced<'_> {
    fn sin_cos(self) -> (Self, Self) {
        let both = sine_cosine::expand(self.scope, self.value);
        (self.with(both.sin), self.with(both.cos))
    }
    fn larger(a: &Self, b: &Self) -> Self {
        a.with(larger::expand(a.scope, a.value, b.value))
    }
}
