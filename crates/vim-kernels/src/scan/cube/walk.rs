//! Where the backward scan's steps lie in memory.

use cubecl::prelude::*;

use super::coords::{Rows, ScanTensors, UnitCoords, token_at};
use super::layout::ScanPlan;

/// Step `s` lies at `first + s·stride`: one multiplication where [`token_at`] has to tell the
/// directions apart. In a walk from the last token on the stride is negative; the arithmetic wraps.
#[derive(CubeType)]
pub(super) struct Walk {
    first: usize,
    stride: usize,
}

#[cube]
impl Walk {
    /// The walk where token `t` lies at `start + t·stride`.
    fn new(start: usize, stride: usize, pos: &UnitCoords) -> Walk {
        let plan = comptime!(pos.plan);
        let turned = comptime!(plan.mirrored != plan.reverse);
        let down = if comptime!(plan.spec.bidirectional) {
            if comptime!(turned) { !pos.reversed } else { pos.reversed }
        } else {
            turned.runtime()
        };
        Walk {
            first: start + token_at(0usize, pos) * stride,
            stride: select(down, 0usize - stride, stride),
        }
    }

    /// The unit's channel of batch element `element` of a tensor.
    fn of_rows<F: Float>(rows: &Rows<F>, element: usize, pos: &UnitCoords) -> Walk {
        Walk::new(element * rows.batch as usize + pos.channel, rows.token as usize, pos)
    }

    pub(super) fn at(&self, step: usize) -> usize {
        self.first + step * self.stride
    }
}

/// The walks through what a backward scan reads for each token, and through what it writes.
#[derive(CubeType)]
pub(super) struct Walks {
    u: Walk,
    delta: Walk,
    dy: Walk,
    z: Walk,
    /// Dense `[B, L, D]`, in the unit's channel.
    pub(super) out: Walk,
    /// Rows of partial gradients of B and C, `[strips, B, L, G, N]`, from the pass's first state.
    pub(super) partial: Walk,
}

#[cube]
pub(super) fn walks<F: Float, FB: Float, FC: Float>(
    tensors: &ScanTensors<F, FB, FC>,
    grad_y: &Rows<F>,
    pos: &UnitCoords,
) -> Walks {
    let plan = comptime!(pos.plan);
    let sizes = &pos.sizes;
    let (len, d_inner) = (sizes.len as usize, sizes.d_inner as usize);
    let (groups, d_state) = (sizes.groups as usize, sizes.d_state as usize);
    let strips = (d_inner / groups + comptime!(plan.units - 1)) / plan.units;
    let strip = CUBE_POS_X as usize % strips;
    let part = (strip * sizes.batch as usize + pos.batch) * len * groups + pos.group;
    Walks {
        u: Walk::of_rows::<F>(&tensors.u, pos.batch, pos),
        delta: Walk::of_rows::<F>(&tensors.delta, pos.batch, pos),
        dy: Walk::of_rows::<F>(grad_y, pos.element, pos),
        z: Walk::of_rows::<F>(&tensors.z, pos.element, pos),
        out: Walk::new(pos.batch * len * d_inner + pos.channel, d_inner, pos),
        partial: Walk::new(part * d_state + sizes.first_state as usize, groups * d_state, pos),
    }
}

/// Loads the inputs of a token in the unit's channel: u and delta, unless they are in shared
/// memory, the output's gradient, z; the `place`-th four elements of `to`.
#[cube]
pub(super) fn read_token<F: Float, FB: Float, FC: Float>(
    to: &mut Array<F>,
    #[comptime] place: usize,
    tensors: &ScanTensors<F, FB, FC>,
    grad_y: &Rows<F>,
    step: usize,
    walks: &Walks,
    #[comptime] plan: ScanPlan,
) {
    if comptime!(!plan.tiles_tokens()) {
        to[comptime!(4 * place)] = tensors.u.data[walks.u.at(step)];
        to[comptime!(4 * place + 1)] = tensors.delta.data[walks.delta.at(step)];
    }
    to[comptime!(4 * place + 2)] = grad_y.data[walks.dy.at(step)];
    if comptime!(plan.spec.has_z) {
        to[comptime!(4 * place + 3)] = tensors.z.data[walks.z.at(step)];
    }
}
