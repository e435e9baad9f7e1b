//! Two units to a channel, side by side in a plane: each holds half of the states, and does what belongs to
//! a token alone for every second token.

use cubecl::prelude::*;

use super::place::Place;

/// What both units have for their own token of two: of the first, of the second.
#[cube]
pub(super) fn of_both(own: f32, at: &Place) -> Array<f32> {
    let other = plane_shuffle_xor(own, 1u32);
    let first = at.part == 0;
    let mut two = Array::<f32>::new(2usize);
    two[0] = select(first, own, other);
    two[1] = select(first, other, own);
    two
}

/// The sum over both units' states for the own token of two, from the unit's part of it for each.
#[cube]
pub(super) fn sum_of_own(first: f32, second: f32, at: &Place) -> f32 {
    let of_first = at.part == 0;
    let keep = select(of_first, first, second);
    let send = select(of_first, second, first);
    keep + plane_shuffle_xor(send, 1u32)
}
