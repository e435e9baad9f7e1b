//! Sine and cosine in arithmetic: WGSL's own are only accurate to 5e-4.

use cubecl::prelude::*;

use super::Traced;
use crate::complex::Trig;

#[derive(CubeType)]
#[expect(dead_code, reason = "kernels read the fields of its expansion")]
struct SineCosine {
    sin: f32,
    cos: f32,
}

/// Sine and cosine, to 2e-7 for |x| ≤ 1e4, and of modulus 1 within 1e-6 for every finite x.
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
