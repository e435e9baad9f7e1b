//! What a scan kernel is compiled for, and the sizes it is launched with.

use crate::discretization::factored::FactoredMethod;
use crate::discretization::{Discretization, Series};

/// Tokens between saved states, and tokens whose states the backward pass holds at once.
pub(crate) const CHUNK: usize = 8;

/// A scan kernel's compile-time choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ScanPlan {
    pub(crate) method: Discretization,
    pub(crate) series: Series,
    pub(crate) softplus: bool,
    /// Whether this pass walks the tokens from the last to the first.
    pub(crate) reverse: bool,
    /// Whether the second half of the batch has weights of its own and runs in the other direction.
    pub(crate) bidirectional: bool,
    pub(crate) has_d: bool,
    pub(crate) has_z: bool,
    pub(crate) has_bias: bool,
    pub(crate) b_constant: bool,
    pub(crate) c_constant: bool,
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
    /// Whether the outputs of two sweeps are averaged.
    pub(crate) halved: bool,
    /// Whether segments of the sequence run in separate cubes, from carried states.
    pub(crate) segmented: bool,
    /// Whether chunk states are saved for the backward pass.
    pub(crate) save: bool,
    /// Whether this pass writes the last state.
    pub(crate) leaves_state: bool,
    /// Whether the sums that a pass leaves for the next are stored in two parts, as 16 bits would
    /// round them.
    pub(crate) split: bool,
    /// Channels per asynchronous copy of sixteen bytes; 0 where tokens pass through registers.
    pub(crate) copy_width: usize,
    pub(crate) ptx: bool,
    pub(crate) planes: bool,
}

impl ScanPlan {
    /// The method's coefficients.
    pub(crate) fn factored(self) -> FactoredMethod {
        FactoredMethod::new(self.method, self.series)
    }

    /// Whether the method leaves registers to read further ahead and to overlap two tokens: methods
    /// that evaluate φ functions exactly do not. (Above 168 registers an H200 runs two cubes of 128
    /// units at once instead of three.)
    pub(crate) fn has_spare_registers(self) -> bool {
        self.factored().evaluates_no_phi()
    }

    /// Whether a unit of the backward scan permutes its states by [`order`](super::coords::order),
    /// where that makes the sums over a plane cheaper. In a ragged pass the missing states would no
    /// longer be the last ones.
    pub(crate) fn permutes_states(self) -> bool {
        let full = self.states == PLANE / 2 && !self.ragged;
        self.planes && full && !self.b_constant && !self.c_constant
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

    /// Tokens that the backward loop loads ahead of their use: as many as registers allow.
    pub(crate) fn read_ahead(self) -> usize {
        if self.factored().b_bar_is_per_token() { 2 } else { 1 }
    }

    /// Tokens per iteration of the backward loop; [`Self::read_ahead`] divides it.
    pub(crate) fn tokens_per_turn(self) -> usize {
        if self.has_spare_registers() { 2 } else { 1 }
    }
}

/// Widest vector of states.
pub(crate) const MAX_STATE_VECTOR: usize = 4;

/// Units of a plane where planes are used.
pub(crate) const PLANE: usize = 32;
