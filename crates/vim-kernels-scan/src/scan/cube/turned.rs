//! Channels last, as the kernels read tokens, of tensors that have tokens last.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use vim_kernels_core::cube::{elem, empty};

/// Side of the tiles that a cube turns by way of shared memory: 64 numbers of bf16 are 128 bytes.
const SIDE: usize = 64;
/// Rows of a tile that a cube moves at once.
const LINES: usize = 4;

/// `to [B, columns, rows]` of `from [B, rows, columns]`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn turn_kernel<F: Float>(
    from: &[F],
    to: &mut [F],
    rows: usize,
    columns: usize,
    #[define(F)] _dtype: ElemType,
) {
    // Rows are a number longer than a tile, so that columns lie in different banks.
    let mut tile = Shared::<[F]>::new_slice(comptime!(SIDE * (SIDE + 1)));
    let (x, y) = (UNIT_POS_X as usize, UNIT_POS_Y as usize);
    let (first_row, first_column) = (CUBE_POS_Y as usize * SIDE, CUBE_POS_X as usize * SIDE);
    let image = CUBE_POS_Z as usize * rows * columns;
    let column = first_column + x;
    #[unroll]
    for i in 0..comptime!(SIDE / LINES) {
        let line = y + i * LINES;
        let row = first_row + line;
        if row < rows && column < columns {
            tile[line * comptime!(SIDE + 1) + x] = from[image + row * columns + column];
        }
    }
    sync_cube();
    let row = first_row + x;
    #[unroll]
    for i in 0..comptime!(SIDE / LINES) {
        let line = y + i * LINES;
        let column = first_column + line;
        if row < rows && column < columns {
            to[image + column * rows + row] = tile[x * comptime!(SIDE + 1) + line];
        }
    }
}

/// The most images that one launch turns.
pub const MOST_TURNED: usize = 65535;

/// `[B, L, C…]` of a contiguous `[B, C…, L]`, of at most [`MOST_TURNED`] images.
#[must_use]
#[expect(unsafe_code, reason = "launching a kernel without bounds checks")]
pub fn channels_last(of: &CubeTensor) -> CubeTensor {
    let shape = of.meta.shape().to_vec();
    let (batch, columns) = (shape[0], shape[shape.len() - 1]);
    let rows: usize = shape[1..shape.len() - 1].iter().product();
    let mut turned = vec![batch, columns];
    turned.extend(&shape[1..shape.len() - 1]);
    let to = empty(of, turned, of.dtype);
    let tiles = |count: usize| count.div_ceil(SIDE) as u32;
    // SAFETY: both have `batch · rows · columns` numbers, and units beyond do nothing.
    unsafe {
        turn_kernel::launch_unchecked(
            &of.client,
            CubeCount::Static(tiles(columns), tiles(rows), batch as u32),
            CubeDim::new_2d(SIDE as u32, LINES as u32),
            of.required_address_type(),
            of.clone().into_buffer_arg(),
            to.clone().into_buffer_arg(),
            rows,
            columns,
            elem(of),
        );
    }
    to
}
