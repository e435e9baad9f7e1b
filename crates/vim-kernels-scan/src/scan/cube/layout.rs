//! How a scan is divided into cubes, passes and segments, and what a kernel is compiled for.

use burn::backend::TensorMetadata;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::coords::SizesLaunch;
use crate::discretization::Form;
use crate::scan::watch::is_watched;
use crate::scan::{ScanArguments, ScanSpec};
use vim_kernels_core::cube::{has_planes, has_ptx, is_recorded};

/// Tokens that are loaded together. A one-way method saves the state before every such chunk, and
/// its backward pass holds the states of one.
pub(crate) const CHUNK: usize = 8;

/// Widest vector of states.
pub(crate) const MAX_STATE_VECTOR: usize = 4;

/// Units of a plane where planes are used.
pub(crate) const PLANE: usize = 32;

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

/// Fewest tokens for which a segment pays: none is shorter unless the sequence is.
const SHORTEST_SEGMENT: usize = 32;

/// Most units per multiprocessor over all segments: of a forward scan, and of a backward scan or
/// one with high register pressure.
const UNITS_PER_PROCESSOR: [usize; 2] = [512, 384];

/// Multiprocessors where the device does not report them.
const PROCESSORS: usize = 16;

/// B or C, of whose rows a cube shares a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Projected {
    B,
    C,
}

/// A scan kernel's compile-time choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ScanPlan {
    pub(crate) spec: ScanSpec,
    /// Whether this pass walks the tokens from the last to the first.
    pub(crate) reverse: bool,
    /// Whether each segment's steps are counted from its last token: a walk the other way through
    /// the same segments.
    pub(crate) mirrored: bool,
    /// The first segment that runs: 1 where nothing reads the first one's end.
    pub(crate) first_segment: usize,
    /// States per unit: all of them, or a part if there are more than it can hold.
    pub(crate) states: usize,
    /// Whether the passes together have more states than N.
    pub(crate) ragged: bool,
    /// Units of a cube: channels.
    pub(crate) units: usize,
    /// Tokens of B and C in shared memory at once; a multiple of [`CHUNK`].
    pub(crate) tile: usize,
    /// Whether this is the first pass over the sequence, and the last.
    pub(crate) first: bool,
    pub(crate) last: bool,
    /// Whether y has the other direction's output, which is added before the gate.
    pub(crate) joins: bool,
    /// Whether segments of the sequence run in separate cubes, from carried states.
    pub(crate) segmented: bool,
    /// Whether chunk states are saved for the backward pass.
    pub(crate) save: bool,
    /// Whether this pass writes the last state.
    pub(crate) leaves_state: bool,
    /// Whether the largest |delta·a| is noted.
    pub(crate) watches: bool,
    /// Whether the sums that a pass leaves for the next are stored in two parts, as 16 bits would
    /// round them.
    pub(crate) split: bool,
    /// Channels per asynchronous copy of sixteen bytes; 0 where tokens pass through registers.
    pub(crate) copy_width: usize,
    pub(crate) ptx: bool,
    pub(crate) planes: bool,
    /// Whether u, delta, z and the channels of a group lie at multiples of sixteen bytes.
    pub(crate) aligned: bool,
    /// Which gradients a backward scan writes, in the order of the operation's inputs.
    pub(crate) wanted: [bool; 8],
}

impl ScanPlan {
    /// The method's coefficients.
    pub(crate) fn factored(self) -> Form {
        Form { coarse: self.split && self.spec.compact_states, ..self.spec.form() }
    }

    /// Whether the method reads the token before.
    pub(crate) fn two_taps(self) -> bool {
        self.factored().two_taps()
    }

    /// One more than `count` where the method reads the token before, whose u a unit then holds
    /// behind `count` other inputs.
    pub(crate) fn inputs_len(self, count: usize) -> usize {
        count + usize::from(self.two_taps())
    }

    /// Whether B or C is the same for every token.
    pub(crate) fn constant(self, of: Projected) -> bool {
        match of {
            Projected::B => self.spec.b_constant,
            Projected::C => self.spec.c_constant,
        }
    }

    /// Rows of B that a tile begins with, of tokens before its first.
    pub(crate) fn rows_before(self, of: Projected) -> usize {
        usize::from(of == Projected::B && self.two_taps())
    }

    /// Elements of a tile.
    pub(crate) fn tile_len(self, of: Projected) -> usize {
        (self.rows_before(of) + self.tile) * self.states
    }

    /// Whether the outputs of two sweeps are averaged.
    pub(crate) fn two_way(self) -> bool {
        self.spec.sweeps() == 2
    }

    /// Tokens between saved states, and of a chunk of the backward scan; see [`chunk`].
    pub(crate) fn chunk(self) -> usize {
        chunk(self.spec)
    }

    /// Vectors of states that the backward scan stores in shared memory for a token and way.
    pub(crate) fn saved_vectors(self) -> usize {
        self.states / self.shared_vector_width()
    }

    /// The plan of a kernel that walks segments only for their ends, in tiles of `tile` tokens: all
    /// but the last, or, where each one's end begins the one before, all but the first.
    pub(super) fn of_ends(self, tile: usize, mirrored: bool, backwards: bool) -> Self {
        let first_segment = usize::from(backwards);
        Self { tile, mirrored, first_segment, save: false, watches: false, ..self }
    }

    /// Whether this pass multiplies its output by the gate.
    pub(crate) fn gated(self) -> bool {
        self.spec.has_z && self.last
    }

    /// Whether this pass adds the skip connection.
    pub(crate) fn skips(self) -> bool {
        self.spec.has_d && self.last
    }

    /// Whether the method leaves registers to read ahead and to overlap two tokens, as those that
    /// evaluate φ functions do not. (Above 168, two cubes of 128 units run at once, not three.)
    pub(crate) fn has_spare_registers(self) -> bool {
        let factored = self.factored();
        factored.evaluates_no_phi() && (!self.two_taps() || factored.tap_before_decay().is_some())
    }

    /// Whether the gradient of delta is needed: by itself, or for that of its bias.
    pub(crate) fn wants_delta(self) -> bool {
        self.wanted[1] || self.wanted[7]
    }

    /// Whether the gradients of B and C are summed over channels: one that varies is wanted.
    pub(crate) fn sums_channels(self) -> bool {
        let [_, _, _, b, c, ..] = self.wanted;
        (b && !self.spec.b_constant) || (c && !self.spec.c_constant)
    }

    /// Whether a unit of the backward scan has half of the states of
    /// [two channels](super::reading).
    pub(crate) fn pairs_channels(self) -> bool {
        let full = self.states == PLANE / 2 && !self.ragged;
        self.ptx && self.planes && full && !self.spec.b_constant && !self.spec.c_constant
    }

    /// Whether the backward scan has u and delta of a chunk in [shared memory](super::reading),
    /// and prepares it before its states: where there is room, and registers. Methods whose
    /// coefficients are polynomials or φ functions of x lose by it.
    pub(crate) fn tiles_tokens(self) -> bool {
        let factored = self.factored();
        let few_terms =
            factored.b_bar_is_per_token() || factored.is_bilinear() || factored.is_tustin();
        self.aligned && self.split && self.pairs_channels() && few_terms
    }

    /// Channels of which a unit of the backward scan has states, and how many of each.
    pub(crate) fn channels(self) -> usize {
        if self.pairs_channels() { 2 } else { 1 }
    }

    pub(crate) fn states_per_channel(self) -> usize {
        self.states / self.channels()
    }

    /// Width of the vectors that hold states in shared memory. Explicit because the compiler does
    /// not vectorize the computed indices.
    pub(crate) fn shared_vector_width(self) -> usize {
        if self.states.is_multiple_of(MAX_STATE_VECTOR) { MAX_STATE_VECTOR } else { 1 }
    }

    /// Width of the vectors that hold chunk states in memory: 1 in a ragged pass.
    pub(crate) fn state_vector_width(self) -> usize {
        if self.ragged { 1 } else { self.shared_vector_width() }
    }

    /// Registers per state for the terms of a scan.
    pub(crate) fn state_terms_len(self, backward: bool) -> usize {
        let factored = self.factored();
        if backward { factored.backward_state_len() } else { factored.state_len() }
    }

    /// Elements of B or C that a unit copies for a tile.
    pub(crate) fn tile_elems_per_unit(self, of: Projected) -> usize {
        self.tile_len(of).div_ceil(self.units)
    }

    /// Elements of two chunks of a tensor's channels, `[2, CHUNK, units]`: the current one and the
    /// one in flight. A plane copies and reads its own channels only. One element where nothing is
    /// copied.
    pub(crate) fn chunk_buffer_len(self, used: bool) -> usize {
        if used && self.copy_width > 0 { 2 * CHUNK * self.units } else { 1 }
    }

    /// Tokens that the backward loop loads ahead of their use.
    pub(crate) fn read_ahead(self) -> usize {
        if self.factored().b_bar_is_per_token() { 2 } else { 1 }
    }

    /// Tokens per iteration of the backward loop; [`Self::read_ahead`] divides it.
    pub(crate) fn tokens_per_turn(self) -> usize {
        if self.has_spare_registers() { 2 } else { 1 }
    }
}

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
    /// Strips of channels in a group, a cube's each.
    pub(super) strips: usize,
    /// Sweeps, each a pass; the backward scan takes both ways of a two-way method in one.
    sweeps: usize,
    /// Passes over the states in a sweep.
    state_passes: usize,
    /// Tokens of a segment.
    segment: usize,
    /// Units of the call, and those that the device has room for.
    units: [usize; 2],
    /// The choices that are the same in all passes.
    pub(super) plan: ScanPlan,
}

/// What a forward scan writes besides y: the states at the end, those at the start of chunks.
#[derive(Clone, Copy, Default)]
pub struct Wanted {
    pub last_state: bool,
    pub chunk_states: bool,
}

/// A pass over the sequence.
#[derive(Clone, Copy)]
pub(super) struct Pass {
    sweep: usize,
    /// Its states.
    pub(super) first_state: usize,
    pub(super) end_state: usize,
    first: bool,
    last: bool,
}

impl Layout {
    pub(super) fn new(
        arguments: &ScanArguments<CubeBackend>,
        spec: ScanSpec,
        backward: bool,
    ) -> Self {
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
        let chunk = chunk(spec);
        let sweeps = if backward { 1 } else { spec.sweeps() };
        let form = spec.form();
        // The backward pass stores a chunk's states in shared memory, four bytes each.
        let fits = |units: usize| {
            let saved = CHUNK * states * units * size_of::<f32>();
            let sums = if planes { 32 * units } else { 2 * states * (units + CHUNK) * 4 };
            let rows = 2 * CHUNK + usize::from(form.two_taps());
            let rows = rows * states * size_of::<f32>();
            let steps = CHUNK * units * size_of::<f32>();
            saved + sums + rows + steps <= hardware.max_shared_memory_size
        };
        let heavy = !backward && !form.evaluates_no_phi();
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
        let width = copy_width(arguments, per_group);
        let all_units = strips * groups * batch * units;
        let segment = segment(len, room / all_units);
        let plan = ScanPlan {
            spec,
            reverse: spec.options.reverse,
            mirrored: false,
            first_segment: 0,
            states,
            ragged: states * state_passes != d_state,
            units,
            tile: if backward { chunk } else { 4 * CHUNK },
            first: true,
            last: true,
            joins: false,
            segmented: segment < len,
            save: false,
            leaves_state: false,
            watches: !backward && is_watched(spec) && !is_recorded(),
            split: arguments.u.dtype != DType::F32,
            copy_width: if copies { width } else { 0 },
            ptx: has_ptx(&arguments.u),
            planes,
            aligned: width > 0,
            wanted: [backward; 8],
        };
        Self { shape, strips, sweeps, state_passes, segment, units: [all_units, room], plan }
    }

    pub(super) fn segments(&self) -> usize {
        self.shape.len.div_ceil(self.segment)
    }

    /// Whether the call fills the device twice: of half as many units both directions at once took
    /// less time than one behind the other.
    pub(super) fn fills(&self) -> bool {
        let [units, room] = self.units;
        units >= 2 * room
    }

    pub(super) fn chunks(&self) -> usize {
        self.shape.len.div_ceil(self.plan.chunk())
    }

    pub(super) fn passes(&self) -> Vec<Pass> {
        let count = self.sweeps * self.state_passes;
        (0..count)
            .map(|i| Pass {
                sweep: i / self.state_passes,
                first_state: i % self.state_passes * self.plan.states,
                end_state: self.shape.d_state.min((i % self.state_passes + 1) * self.plan.states),
                first: i == 0,
                last: i + 1 == count,
            })
            .collect()
    }

    pub(super) fn plan(&self, pass: Pass, wanted: Wanted) -> ScanPlan {
        ScanPlan {
            reverse: self.plan.reverse ^ (pass.sweep == 1),
            first: pass.first,
            last: pass.last,
            save: wanted.chunk_states && pass.sweep == 0,
            leaves_state: wanted.last_state && pass.sweep == 0,
            ..self.plan
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
            pass.first_state as u32,
            self.segment as u32,
        )
    }

    pub(super) fn cubes(&self) -> CubeCount {
        self.cubes_of(self.segments())
    }

    /// The cubes of a kernel with a plan [of ends](ScanPlan::of_ends).
    pub(super) fn cubes_of_ends(&self) -> CubeCount {
        self.cubes_of(self.segments() - 1)
    }

    fn cubes_of(&self, segments: usize) -> CubeCount {
        let Shape { batch, groups, .. } = self.shape;
        CubeCount::Static((groups * self.strips) as u32, batch as u32, segments as u32)
    }

    pub(super) fn units(&self) -> CubeDim {
        CubeDim::new_1d(self.plan.units as u32)
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
    // Nothing reads the one element of an absent z.
    let absent = arguments.z.meta.shape().num_elements() == 1;
    let all = fits(&arguments.u) && fits(&arguments.delta) && (absent || fits(&arguments.z));
    if per_group.is_multiple_of(width) && all { width } else { 0 }
}

/// Tokens between saved states, and of a chunk of the backward scan. A two-way method stores two
/// states for each of them.
pub(crate) fn chunk(spec: ScanSpec) -> usize {
    CHUNK / spec.sweeps()
}

/// Tokens per segment if `segments` fit on the device; see [`SHORTEST_SEGMENT`].
fn segment(len: usize, segments: usize) -> usize {
    let segments = segments.min(len / SHORTEST_SEGMENT).max(1);
    len.div_ceil(segments).next_multiple_of(CHUNK)
}
