//! The states of a unit of the backward scan: all of its channel's, or half of two channels'.
//!
//! Adjacent units share their two channels where
//! [`ScanPlan::pairs_channels`](super::layout::ScanPlan::pairs_channels): each holds the same
//! states of both, first of its own channel. The gradients of B and C, sums over channels, are
//! then added over the two in registers, half as many values of B and C are read, and half as
//! many sums are exchanged within the plane. What belongs to a token but not to a state is computed
//! for the unit's own channel; numbers that the other channel's states need, and the sums over
//! states, pass from one unit to the other.

use cubecl::ir::Scope;
use cubecl::prelude::*;

use crate::real::Traced;

#[cube]
pub(super) fn from_neighbour(value: f32) -> f32 {
    plane_shuffle_xor(value, 1u32)
}

/// Channel, place in the channel and number of each of a unit's `states`, which are of one channel
/// or, half each, of two. States that read the same B and C follow each other.
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
