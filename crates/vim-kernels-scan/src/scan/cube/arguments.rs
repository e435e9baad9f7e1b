//! The arguments of a scan as its kernels take them.

use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::coords::{RowsLaunch, ScanTensorsLaunch};
use crate::scan::ScanArguments;
use vim_kernels_core::cube::dense;
use vim_kernels_core::cube::strides::{fits_u32_index, in_rows};

/// As [`in_rows`] for B and C, whose rows are groups of states.
fn in_groups(tensor: CubeTensor) -> CubeTensor {
    let (shape, strides) = (tensor.meta.shape(), tensor.meta.strides());
    let follow = strides[3] == 1 && (shape[2] == 1 || strides[2] == shape[3]);
    if follow && fits_u32_index(&tensor) { tensor } else { dense(tensor) }
}

impl ScanArguments<CubeBackend> {
    pub(super) fn dense(self) -> Self {
        Self {
            u: in_rows(self.u),
            delta: in_rows(self.delta),
            a: dense(self.a),
            b: in_groups(self.b),
            c: in_groups(self.c),
            d: dense(self.d),
            z: in_rows(self.z),
            delta_bias: dense(self.delta_bias),
        }
    }

    pub(super) fn launch<F: Float, FB: Float, FC: Float>(&self) -> ScanTensorsLaunch<F, FB, FC> {
        ScanTensorsLaunch::new(
            rows_launch(&self.u),
            rows_launch(&self.delta),
            self.a.clone().into_buffer_arg(),
            rows_launch(&self.b),
            rows_launch(&self.c),
            self.d.clone().into_buffer_arg(),
            rows_launch(&self.z),
            self.delta_bias.clone().into_buffer_arg(),
        )
    }
}

pub(super) fn rows_launch<F: Float>(of: &CubeTensor) -> RowsLaunch<F> {
    let strides = of.meta.strides();
    RowsLaunch::new(of.clone().into_buffer_arg(), strides[0] as u32, strides[1] as u32)
}
