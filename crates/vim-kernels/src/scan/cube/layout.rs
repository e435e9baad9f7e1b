//! How a scan is divided into cubes, passes and segments.

use burn::backend::TensorMetadata;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::coords::{RowsLaunch, SizesLaunch};
use super::plan::{CHUNK, ScanPlan};
use crate::cube::{has_planes, has_ptx};
use crate::discretization::factored::FactoredMethod;
use crate::scan::ScanSpec;
use crate::scan::autodiff::ScanArguments;

/// Most states that a unit holds in registers; more take further passes.
const MOST_STATES: usize = 16;

/// Channels of a cube where the device has the units and the shared memory for it. Three such cubes
/// fill a multiprocessor of an H200 as one of 384 would, without waiting for each other at
/// barriers.
const WIDE: usize = 128;

/// Channels of a cube of a forward scan with high register pressure. NVIDIA's compiler limits such
/// a cube to 168 registers per unit; in smaller cubes it uses a few more, and then too few cubes
/// run at once. (The backward scan stays at 168 by itself, except for methods with several φ
/// functions, where registers matter more than a third cube.)
const WIDEST: usize = 384;

/// Fewest tokens for which a segment pays.
const SHORTEST_SEGMENT: usize = 32;

/// Most units per multiprocessor over all segments: of a forward scan, and of a backward scan or
/// one with high register pressure.
const UNITS_PER_PROCESSOR: [usize; 2] = [512, 384];

/// Multiprocessors where the device does not report them.
const PROCESSORS: usize = 16;

/// Sizes of a call.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// Batch elements of all directions.
    pub(super) batch: usize,
    pub(super) directions: usize,
    pub(super) len: usize,
    pub(super) d_inner: usize,
    pub(super) d_state: usize,
    pub(super) groups: usize,
}

/// Division of a call into cubes and passes.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) shape: Shape,
    spec: ScanSpec,
    units: usize,
    /// Strips of `units` channels in a group.
    pub(super) strips: usize,
    /// States per pass, and passes over the states in a sweep.
    states: usize,
    state_passes: usize,
    /// Tokens of a segment.
    segment: usize,
    split: bool,
    copy_width: usize,
    ptx: bool,
    planes: bool,
    backward: bool,
    /// Batch and token strides of u, delta, z, the output's gradient, B and C.
    rows: [[usize; 2]; 6],
}

/// A pass over the sequence.
#[derive(Clone, Copy)]
pub(super) struct Pass {
    sweep: usize,
    part: usize,
    first: bool,
    last: bool,
}

impl Layout {
    pub(super) fn new(
        arguments: &ScanArguments<CubeBackend>,
        spec: ScanSpec,
        grad_y: Option<&CubeTensor>,
    ) -> Self {
        let backward = grad_y.is_some();
        let [batch, len, d_inner] = arguments.u.shape().dims();
        let [_, d_state] = arguments.a.shape().dims();
        let groups = |t: &CubeTensor, constant: bool| if constant { 1 } else { t.meta.shape()[2] };
        let groups =
            groups(&arguments.b, spec.b_constant).max(groups(&arguments.c, spec.c_constant));
        let directions = if spec.bidirectional { 2 } else { 1 };
        let shape = Shape { batch, directions, len, d_inner, d_state, groups };
        let properties = arguments.u.client.properties();
        let hardware = &properties.hardware;
        let state_passes = d_state.div_ceil(MOST_STATES);
        let states = d_state.div_ceil(state_passes);
        let per_group = d_inner / groups;
        let planes = has_planes(&arguments.u.client);
        // The backward pass stores a chunk's states in shared memory, four bytes each.
        let fits = |units: usize| {
            let saved = CHUNK * states * units * size_of::<f32>();
            let sums = if planes { 32 * units } else { 2 * states * (units + CHUNK) * 4 };
            let rows = 2 * CHUNK * states * size_of::<f32>();
            let steps = CHUNK * units * size_of::<f32>();
            saved + sums + rows + steps <= hardware.max_shared_memory_size
        };
        let factored = FactoredMethod::new(spec.options.method, spec.options.series);
        let heavy = !backward && !factored.evaluates_no_phi();
        let most = [if heavy { WIDEST } else { WIDE }, WIDE, 64]
            .into_iter()
            .find(|&units| {
                units <= hardware.max_units_per_cube as usize && (!backward || fits(units))
            })
            .unwrap_or(32);
        let units = per_group.next_multiple_of(32).min(most);
        let strips = per_group.div_ceil(units);
        let processors =
            hardware.num_streaming_multiprocessors.map_or(PROCESSORS, |count| count as usize);
        // The backward scan has no shared memory left for copies.
        let copies = planes && !backward && properties.features.copy_async;
        let room = UNITS_PER_PROCESSOR[usize::from(backward || heavy)] * processors;
        let segment = segment(len, room / (strips * groups * batch * units));
        Self {
            shape,
            spec,
            units,
            strips,
            states,
            state_passes,
            segment,
            split: arguments.u.dtype != DType::F32,
            copy_width: if copies { copy_width(arguments, per_group) } else { 0 },
            ptx: has_ptx(&arguments.u),
            planes,
            backward,
            rows: [
                &arguments.u,
                &arguments.delta,
                &arguments.z,
                grad_y.unwrap_or(&arguments.u),
                &arguments.b,
                &arguments.c,
            ]
            .map(|t| [t.meta.strides()[0], t.meta.strides()[1]]),
        }
    }

    pub(super) fn segments(&self) -> usize {
        self.shape.len.div_ceil(self.segment)
    }

    pub(super) fn chunks(&self) -> usize {
        self.shape.len.div_ceil(CHUNK)
    }

    pub(super) fn passes(&self) -> Vec<Pass> {
        let count = self.spec.sweeps() * self.state_passes;
        (0..count)
            .map(|i| Pass {
                sweep: i / self.state_passes,
                part: i % self.state_passes,
                first: i == 0,
                last: i + 1 == count,
            })
            .collect()
    }

    pub(super) fn plan(&self, pass: Pass, save: bool) -> ScanPlan {
        let spec = self.spec;
        ScanPlan {
            method: spec.options.method,
            series: spec.options.series,
            softplus: spec.options.delta_softplus,
            reverse: spec.options.reverse ^ (pass.sweep == 1),
            bidirectional: spec.bidirectional,
            has_d: spec.has_d,
            has_z: spec.has_z,
            has_bias: spec.has_delta_bias,
            b_constant: spec.b_constant,
            c_constant: spec.c_constant,
            states: self.states,
            ragged: self.states * self.state_passes != self.shape.d_state,
            units: self.units,
            tile: if self.backward { CHUNK } else { 4 * CHUNK },
            first: pass.first,
            last: pass.last,
            halved: spec.sweeps() == 2,
            segmented: self.segments() > 1,
            save,
            leaves_state: pass.sweep == 0,
            split: self.split,
            copy_width: self.copy_width,
            ptx: self.ptx,
            planes: self.planes,
        }
    }

    pub(super) fn sizes(&self, pass: Pass) -> SizesLaunch {
        let Shape { batch, directions, len, d_inner, d_state, groups } = self.shape;
        SizesLaunch::new(
            batch as u32,
            (batch / directions) as u32,
            len as u32,
            d_inner as u32,
            d_state as u32,
            groups as u32,
            (pass.part * self.states) as u32,
            self.segment as u32,
            pass.sweep as u32,
            rows(&self.rows[0]),
            rows(&self.rows[1]),
            rows(&self.rows[2]),
            rows(&self.rows[3]),
            rows(&self.rows[4]),
            rows(&self.rows[5]),
        )
    }

    pub(super) fn cubes(&self) -> CubeCount {
        CubeCount::Static(
            (self.shape.groups * self.strips) as u32,
            self.shape.batch as u32,
            self.segments() as u32,
        )
    }

    pub(super) fn units(&self) -> CubeDim {
        CubeDim::new_1d(self.units as u32)
    }
}

/// Channels in sixteen bytes, if u, delta and z are contiguous and aligned to sixteen bytes in all
/// rows; else 0.
fn copy_width(arguments: &ScanArguments<CubeBackend>, per_group: usize) -> usize {
    let width = 16 / arguments.u.dtype.size();
    let fits = |t: &CubeTensor| {
        let begin = t.handle.offset_start.unwrap_or(0) as usize;
        let [batch, token, _] = t.meta.strides()[..] else { return false };
        begin.is_multiple_of(16) && batch.is_multiple_of(width) && token.is_multiple_of(width)
    };
    // An absent z is one element, which nothing reads.
    let z = &arguments.z;
    let absent = z.meta.shape().num_elements() == 1;
    let all = fits(&arguments.u) && fits(&arguments.delta) && (absent || fits(z));
    if per_group.is_multiple_of(width) && all { width } else { 0 }
}

/// Tokens per segment if `segments` fit on the device: at least one segment, and none shorter than
/// [`SHORTEST_SEGMENT`] unless the sequence is.
fn segment(len: usize, segments: usize) -> usize {
    let segments = segments.min(len / SHORTEST_SEGMENT).max(1);
    len.div_ceil(segments).next_multiple_of(CHUNK)
}

fn rows([batch, token]: &[usize; 2]) -> RowsLaunch {
    RowsLaunch::new(*batch as u32, *token as u32)
}
