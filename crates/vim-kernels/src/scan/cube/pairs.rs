//! The states of a unit of the backward scan: all of its channel's, or half of two channels'.
//!
//! Adjacent units share their two channels where [`ScanPlan::pairs_channels`]: each holds the same
//! states of both, first of its own channel. The gradients of B and C, sums over channels, are then
//! added over the two in registers, half as many values of B and C are read, and half as many sums
//! are exchanged within the plane. What belongs to a token but not to a state is computed for the
//! unit's own channel; numbers that the other channel's states need, and the sums over states, pass
//! from one unit to the other.

use cubecl::ir::Scope;
use cubecl::prelude::*;

use super::coords::UnitCoords;
use super::forward_step::Sum;
use super::layout::ScanPlan;
use crate::real::Traced;

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

#[cube]
fn from_neighbour(value: f32) -> f32 {
    plane_shuffle_xor(value, 1u32)
}

/// Channel, place in it and number of each state of a unit with `states` of so many channels. What
/// reads the same B and C follows each other.
pub(super) fn places(states: usize, channels: usize) -> impl Iterator<Item = [usize; 3]> {
    let per_channel = states / channels;
    (0..states).map(move |i| {
        let (channel, place) = (i % channels, i / channels);
        [channel, place, channel * per_channel + place]
    })
}

/// A number of the unit's channel, and that of the other if it has states of two `channels`.
pub(super) fn of_channels<'a>(
    scope: &'a Scope,
    own: Traced<'a>,
    channels: usize,
) -> Vec<Traced<'a>> {
    let other = (channels == 2).then(|| {
        let value = from_neighbour::expand(scope, own.clone().value());
        own.with(value)
    });
    [own].into_iter().chain(other).collect()
}

/// Adds to a sum over the unit's states of its own channel what the adjacent unit has of that
/// channel; `given` is the sum over the unit's states of the other channel.
pub(super) fn add_neighbours<'a>(scope: &'a Scope, sum: &mut Sum<'a>, given: Sum<'a>) {
    if let Some(given) = given.value() {
        let taken = from_neighbour::expand(scope, given.clone().value());
        sum.add(given.with(taken));
    }
}
