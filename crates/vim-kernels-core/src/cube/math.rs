//! Arithmetic that the kernels share.
//!
//! CubeCL lowers `exp` and a division to CUDA's precise versions, tens of instructions each, and
//! has no fast mode on CUDA: with them the convolution would be bound by arithmetic rather than by
//! memory. `ptx` chooses the hardware's own approximations, which err by 2 units in the last place.

use cubecl::prelude::*;

/// eˣ.
#[cube]
pub fn exp(x: f32, #[comptime] ptx: bool) -> f32 {
    if comptime!(ptx) {
        let log2 = x * std::f32::consts::LOG2_E;
        let y: f32;
        gpu_asm!("ex2.approx.ftz.f32 {y}, {x};", x = in(_) log2, y = out(_) y, options(nomem));
        y
    } else {
        x.exp()
    }
}

/// 1/x.
#[cube]
pub fn recip(x: f32, #[comptime] ptx: bool) -> f32 {
    if comptime!(ptx) {
        let y: f32;
        gpu_asm!("rcp.approx.ftz.f32 {y}, {x};", x = in(_) x, y = out(_) y, options(nomem));
        y
    } else {
        1.0f32 / x
    }
}

/// 1/(1 + e⁻ˣ).
#[cube]
pub fn sigmoid(x: f32, #[comptime] ptx: bool) -> f32 {
    recip(1.0f32 + exp(-x, ptx), ptx)
}

/// The least |z| of a gate whose gradients are taken from y = s·silu(z); y errs by less than it
/// times s, which no sum of f32 shows.
const LEAST_GATE: f32 = 1e-12;

/// The gate `z`, or 10⁻¹² where it is nearer to 0.
#[cube]
pub fn away_from_zero(z: f32) -> f32 {
    select(z.abs() < LEAST_GATE, LEAST_GATE, z)
}

/// x·sigmoid(x), lane by lane.
#[cube]
pub fn silu<N: Size>(x: Vector<f32, N>, #[comptime] ptx: bool) -> Vector<f32, N> {
    let mut y = Vector::<f32, N>::empty();
    #[unroll]
    for lane in 0..N::value() {
        let value = x.extract(lane);
        y.insert(lane, value * sigmoid(value, ptx));
    }
    y
}

/// The derivative of `silu`, σ·(1 + x·(1 − σ)).
#[cube]
pub fn silu_slope<N: Size>(x: Vector<f32, N>, #[comptime] ptx: bool) -> Vector<f32, N> {
    let mut y = Vector::<f32, N>::empty();
    #[unroll]
    for lane in 0..N::value() {
        let value = x.extract(lane);
        let s = sigmoid(value, ptx);
        y.insert(lane, s * (1.0f32 + value * (1.0f32 - s)));
    }
    y
}
