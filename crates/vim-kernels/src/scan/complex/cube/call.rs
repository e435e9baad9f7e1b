//! A call of the complex scan on the host: sizes, buffers, and the launches that sum.

use burn::backend::TensorMetadata;
use burn::backend::cubecl::dtype_to_storage_type;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::plan::{CHUNK, ComplexPlan, Sizes, SizesLaunch, UNITS};
use super::sums::{sum_parts, sum_states};
use crate::cube::{dense, empty};
use crate::op::Tensors;
use crate::scan::ScanSpec;
use crate::scan::complex::autodiff::ComplexScanArguments;

/// The arguments on the CubeCL backend.
pub(super) type Arguments = ComplexScanArguments<CubeBackend>;

impl Sizes {
    pub(super) fn launch(self) -> SizesLaunch {
        SizesLaunch::new(
            self.batch,
            self.len,
            self.d_inner,
            self.d_state,
            self.groups,
            self.slots_before,
        )
    }
}

/// Cubes of 256 units for `units` of them, in rows of 65535, the most that every device takes.
fn cubes_of_256(units: u32) -> CubeCount {
    let cubes = units.div_ceil(256);
    CubeCount::Static(cubes.min(65_535), cubes.div_ceil(65_535), 1)
}

/// A call with contiguous arguments.
pub(super) struct Call {
    pub(super) arguments: Arguments,
    spec: ScanSpec,
    pub(super) sizes: Sizes,
}

impl Call {
    pub(super) fn new(arguments: Arguments, spec: ScanSpec) -> Self {
        let [batch, len, d_inner] = arguments.u.shape().dims();
        let [_, d_state] = arguments.a_re.shape().dims();
        let groups = |t: &CubeTensor, constant: bool| if constant { 1 } else { t.shape()[2] };
        let groups =
            groups(&arguments.b_re, spec.b_constant).max(groups(&arguments.c_re, spec.c_constant));
        let sizes = Sizes {
            batch: batch as u32,
            len: len as u32,
            d_inner: d_inner as u32,
            d_state: d_state as u32,
            groups: groups as u32,
            slots_before: 0,
        };
        let arguments = arguments.map(dense);
        Self { arguments, spec, sizes }
    }

    /// `[B, L, D, N]`.
    pub(super) fn dims(&self) -> [usize; 4] {
        let Sizes { batch, len, d_inner, d_state, .. } = self.sizes;
        [batch, len, d_inner, d_state].map(|size| size as usize)
    }

    /// Chunk states that a sweep saves.
    pub(super) fn slots(&self) -> usize {
        (self.sizes.len as usize).div_ceil(CHUNK) - 1
    }

    /// Strips of channels in a group.
    pub(super) fn strips(&self) -> usize {
        ((self.sizes.d_inner / self.sizes.groups) as usize).div_ceil(UNITS)
    }

    pub(super) fn cubes(&self) -> CubeCount {
        CubeCount::Static(self.sizes.groups * self.strips() as u32, self.sizes.batch, 1)
    }

    pub(super) fn plan(&self, sweep: usize, save: bool) -> ComplexPlan {
        let spec = self.spec;
        ComplexPlan {
            method: spec.options.method,
            series: spec.options.series,
            softplus: spec.options.delta_softplus,
            reverse: spec.options.reverse ^ (sweep == 1),
            has_d: spec.has_d,
            has_z: spec.has_z,
            has_bias: spec.has_delta_bias,
            b_constant: spec.b_constant,
            c_constant: spec.c_constant,
            first: sweep == 0,
            last: sweep + 1 == spec.sweeps(),
            save,
            // The portable exponential and division: this kernel is not tuned.
            ptx: false,
        }
    }

    /// A buffer of `len` numbers, at least one: a kernel takes no empty buffer.
    pub(super) fn floats(&self, len: usize) -> CubeTensor {
        empty(&self.arguments.u, [len.max(1)], DType::F32)
    }

    pub(super) fn sum_parts(
        &self,
        from: &CubeTensor,
        offset: usize,
        stride: usize,
        parts: usize,
        out: &CubeTensor,
    ) {
        // SAFETY: units past `stride` do nothing, and the caller's `from` holds what it names.
        #[expect(unsafe_code, reason = "the launch without bounds checks is unsafe")]
        unsafe {
            sum_parts::launch_unchecked(
                &out.client,
                cubes_of_256(stride as u32),
                CubeDim::new_1d(256),
                from.clone().into_buffer_arg(),
                out.clone().into_buffer_arg(),
                offset as u32,
                stride as u32,
                parts as u32,
                dtype_to_storage_type(out.dtype),
            );
        }
    }

    pub(super) fn sum_states(&self, from: &CubeTensor, offset: usize, out: &CubeTensor) {
        let Sizes { batch, d_inner, d_state, .. } = self.sizes;
        // SAFETY: units past `[D, N]` do nothing, and the caller's `from` holds what it names.
        #[expect(unsafe_code, reason = "the launch without bounds checks is unsafe")]
        unsafe {
            sum_states::launch_unchecked(
                &out.client,
                cubes_of_256(d_inner * d_state),
                CubeDim::new_1d(256),
                from.clone().into_buffer_arg(),
                out.clone().into_buffer_arg(),
                offset as u32,
                batch,
                d_state,
                d_inner,
            );
        }
    }
}
