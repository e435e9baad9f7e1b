//! Whose states a unit of the backward scan has: all of its channel's, or half of
//! [two channels'](super::pairs).

use cubecl::prelude::*;

use super::coords::UnitCoords;
use super::layout::ScanPlan;

/// What the unit's states belong to.
#[derive(CubeType)]
pub(super) struct Shares {
    own: UnitCoords,
    other: UnitCoords,
    /// The `p`-th state of a channel is state `p ^ order`.
    pub(super) order: usize,
}

#[cube]
impl Shares {
    pub(super) fn new(own: UnitCoords) -> Shares {
        Shares { own, other: neighbour(&own), order: order(own.plan) }
    }

    /// Coordinates of the channel of the `n`-th state.
    pub(super) fn coords(&self, #[comptime] n: usize) -> UnitCoords {
        if comptime!(n < self.own.plan.states_per_channel()) { self.own } else { self.other }
    }

    /// The number of the `n`-th state in its channel.
    pub(super) fn state(&self, #[comptime] n: usize) -> usize {
        comptime!(n % self.own.plan.states_per_channel()) ^ self.order
    }
}

/// The coordinates of the adjacent unit.
#[cube]
fn neighbour(of: &UnitCoords) -> UnitCoords {
    let within = of.within ^ 1;
    let per_group = of.sizes.d_inner as usize / of.sizes.groups as usize;
    let channel = of.group * per_group + min(within, per_group - 1);
    UnitCoords {
        sizes: of.sizes,
        plan: of.plan,
        batch: of.batch,
        element: of.element,
        reversed: of.reversed,
        group: of.group,
        channel,
        within,
        weights: of.weights + channel - of.channel,
        active: within < per_group,
        segment: of.segment,
        begin: of.begin,
        end: of.end,
    }
}

/// Permutation of a unit's states where it has half of two channels'. By the lane's lowest bit they
/// are the first or the last eight; by the next one, the first or the last four of these come
/// first: of two units that exchange sums, each gives those behind.
#[cube]
fn order(#[comptime] plan: ScanPlan) -> usize {
    if comptime!(plan.pairs_channels()) {
        ((UNIT_POS_X & 1) * 8 + (UNIT_POS_X & 2) * 2) as usize
    } else {
        0usize.runtime()
    }
}
