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
    /// Whether the second half of the batch has weights of its own and walks the other way.
    pub(crate) bidirectional: bool,
    pub(crate) has_d: bool,
    pub(crate) has_z: bool,
    pub(crate) has_bias: bool,
    pub(crate) b_constant: bool,
    pub(crate) c_constant: bool,
    /// States that a unit holds: all of them, or a part where there are more than it can.
    pub(crate) states: usize,
    /// Whether `states` times the passes may exceed N.
    pub(crate) ragged: bool,
    /// Units of a cube: channels.
    pub(crate) units: usize,
    /// Tokens of B and C in shared memory at once; a multiple of [`CHUNK`].
    pub(crate) tile: usize,
    /// Whether this is the first pass over the sequence, and the last.
    pub(crate) first: bool,
    pub(crate) last: bool,
    /// Whether each scan of a two-way method counts half.
    pub(crate) halved: bool,
    /// Whether segments of the sequence run in cubes of their own, from carried states.
    pub(crate) segmented: bool,
    /// Whether chunk starts are kept for the backward pass.
    pub(crate) save: bool,
    /// Whether this pass leaves the last state.
    pub(crate) leaves_state: bool,
    /// Whether what a pass leaves for the next is kept in two parts, as one of 16 bits would round it.
    pub(crate) split: bool,
    /// Channels that are copied into shared memory at once, sixteen bytes; 0 where they pass through registers.
    pub(crate) copy_width: usize,
    pub(crate) ptx: bool,
    pub(crate) planes: bool,
}

impl ScanPlan {
    /// The method's coefficients.
    pub(crate) fn factored(self) -> FactoredMethod {
        FactoredMethod::new(self.method, self.series)
    }

    /// Whether the method's arithmetic leaves registers to read further ahead and to overlap two tokens: those
    /// that evaluate φ functions exactly do not. (Beyond 168 registers an H200 runs two cubes of 128 units at once
    /// instead of three.)
    pub(crate) fn has_spare_registers(self) -> bool {
        self.factored().evaluates_no_phi()
    }

    /// Whether a unit of the backward scan holds its states in its own order, [`place::order`](super::coords::order): where the
    /// sums over a plane gain by it. What is absent of a ragged pass would not be its last states then.
    pub(crate) fn permutes_states(self) -> bool {
        let full = self.states == PLANE / 2 && !self.ragged;
        self.planes && full && !self.b_constant && !self.c_constant
    }

    /// How many neighbouring states of a unit lie beside each other where a chunk keeps them: a vector, which a unit moves at
    /// once. Declared so, as a compiler that must prove it of sums of indices does not.
    pub(crate) fn shared_vector_width(self) -> usize {
        if self.states.is_multiple_of(MAX_STATE_VECTOR) { MAX_STATE_VECTOR } else { 1 }
    }

    /// The same in memory, where chunks begin: of a pass with states to spare one by one.
    pub(crate) fn state_vector_width(self) -> usize {
        if self.ragged { 1 } else { self.shared_vector_width() }
    }

    /// How many tokens ahead of their use the backward loop reads: as many as registers are left for.
    pub(crate) fn read_ahead(self) -> usize {
        if self.factored().b_bar_is_per_token() { 2 } else { 1 }
    }

    /// Tokens of a turn of the backward loop; [`Self::ahead`] divides it.
    pub(crate) fn tokens_per_turn(self) -> usize {
        if self.has_spare_registers() { 2 } else { 1 }
    }
}

/// The most states of a unit that it moves at once.
pub(crate) const MAX_STATE_VECTOR: usize = 4;

/// Units of a plane where planes are used.
pub(crate) const PLANE: usize = 32;
