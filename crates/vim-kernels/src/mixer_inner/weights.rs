//! Checks of a direction's weights.

use burn::tensor::DType;

use super::{DirectionWeights, MixerSpec, OPERATION};
use crate::check::{check_rows, expect};
use crate::error::KernelError;
use crate::scan::shapes::ScanShapes;

impl DirectionWeights {
    /// Checks every shape against the mixer's sizes.
    pub(super) fn check(
        &self,
        d_inner: usize,
        d_state: usize,
        dt_rank: usize,
    ) -> Result<(), KernelError> {
        let shape = |tensor, got: &[usize], want: &[usize]| {
            expect(OPERATION, tensor, got, got == want, format!("{want:?}"))
        };
        let taps = self.conv_weight.dims();
        expect(
            OPERATION,
            "conv_weight",
            &taps,
            taps[0] == d_inner && taps[1] == 1 && (2..=4).contains(&taps[2]),
            format!("[D, 1, W] = [{d_inner}, 1, 2 to 4]"),
        )?;
        shape("conv_bias", &self.conv_bias.dims(), &[d_inner])?;
        shape("x_proj", &self.x_proj.dims(), &[d_inner, dt_rank + 2 * d_state])?;
        shape("dt_proj", &self.dt_proj.dims(), &[dt_rank, d_inner])?;
        shape("delta_bias", &self.delta_bias.dims(), &[d_inner])?;
        shape("a_log", &self.a_log.dims(), &[d_inner, d_state])?;
        shape("d", &self.d.dims(), &[d_inner])
    }
}

/// Checks that 32 bits index what the scan reads and writes.
pub(super) fn check_size(
    batch: usize,
    len: usize,
    d_inner: usize,
    d_state: usize,
    spec: MixerSpec,
) -> Result<(), KernelError> {
    let f32 = DType::F32;
    let tokens = ([batch, len, d_inner], f32);
    let projected = ([batch, len, 1, d_state], f32);
    let shapes = ScanShapes {
        operation: OPERATION,
        u: tokens,
        delta: tokens,
        a: ([d_inner, d_state], f32),
        b: projected,
        c: projected,
        d: None,
        z: Some(tokens),
        delta_bias: None,
        b_constant: false,
        c_constant: false,
    };
    shapes.check_scan_size(spec.scan(), 2)?;
    check_rows(OPERATION, batch * len, 2 * d_inner)
}
