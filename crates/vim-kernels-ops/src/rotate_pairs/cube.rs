//! The rotation of pairs of channels on a GPU: a unit has some channels of a token in several
//! images, whose cosines and sines it reads once.

#![expect(unsafe_code, reason = "launching a kernel without bounds checks")]

use burn::backend::TensorMetadata;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{RotatePairsArguments, RotatePairsSpec};
use vim_kernels_core::cube::strides::in_rows;
use vim_kernels_core::cube::{cubes, dense, elem, empty, lanes};
use vim_kernels_core::op::{Forward, FusedOp};

/// Units of a cube.
const UNITS: u32 = 256;
/// Images of a unit: their loads are in flight together.
const IMAGES: usize = 4;

/// Sizes, and from a row to the next; all channels counted in vectors.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Rows {
    batch: usize,
    len: usize,
    width: usize,
    /// From an image of x to the next, and from a token.
    x_image: usize,
    x_token: usize,
    cos_token: usize,
    sin_token: usize,
}

/// The channels in the places of their partners.
#[cube]
fn partners<N: Size>(of: Vector<f32, N>) -> Vector<f32, N> {
    let mut swapped = Vector::<f32, N>::empty();
    #[unroll]
    for lane in 0..N::value() {
        swapped.insert(lane, of.extract(comptime!(lane ^ 1)));
    }
    swapped
}

/// `y = x·cos + partner·sin`, or the gradient of x from that of y, to which a channel's partner
/// brings its own sine.
#[cube(launch_unchecked, address_type = "dynamic")]
fn rotate_kernel<F: Float, N: Size>(
    x: &[Vector<F, N>],
    cos: &[Vector<f32, N>],
    sin: &[Vector<f32, N>],
    y: &mut [Vector<F, N>],
    rows: Rows,
    #[comptime] backward: bool,
    #[define(F)] _dtype: ElemType,
) {
    let image_size = rows.len * rows.width;
    let (place, first) = (ABSOLUTE_POS % image_size, ABSOLUTE_POS / image_size * IMAGES);
    if first < rows.batch {
        let (token, column) = (place / rows.width, place % rows.width);
        let by = cos[token * rows.cos_token + column];
        let mut by_partner = sin[token * rows.sin_token + column];
        if comptime!(backward) {
            by_partner = partners::<N>(by_partner);
        }
        // Past the end, the last image again: no load waits for a condition.
        let last = rows.batch - 1;
        let mut values = Array::<Vector<f32, N>>::new(IMAGES);
        #[unroll]
        for i in 0..IMAGES {
            let image = min(first + i, last);
            let at = image * rows.x_image + token * rows.x_token + column;
            values[i] = Vector::cast_from(x[at]);
        }
        #[unroll]
        for i in 0..IMAGES {
            let rotated = values[i] * by + partners::<N>(values[i]) * by_partner;
            y[min(first + i, last) * image_size + place] = Vector::cast_from(rotated);
        }
    }
}

impl FusedOp<CubeBackend, 3, 0> for RotatePairsSpec {
    type Inputs = RotatePairsArguments<CubeBackend>;
    /// Cosines and sines.
    type Saved = [CubeTensor; 2];

    fn forward(
        self,
        RotatePairsArguments { x, cos, sin }: RotatePairsArguments<CubeBackend>,
        save: bool,
    ) -> Forward<CubeBackend, Self::Saved, 0> {
        let y = launch(x, [&cos, &sin], false);
        (y, [], save.then_some([cos, sin]))
    }

    fn backward(
        self,
        grad_y: CubeTensor,
        [cos, sin]: Self::Saved,
        _wanted: [bool; 3],
    ) -> [Option<CubeTensor>; 3] {
        [Some(launch(grad_y, [&cos, &sin], true)), None, None]
    }
}

/// The widest vector that divides rows and the distances between them, which holds whole pairs.
fn width_of(tensors: &[CubeTensor; 3], d_model: usize) -> Option<usize> {
    let divides = |n: usize, t: &CubeTensor| {
        let begin = t.handle.offset_start.unwrap_or(0) as usize;
        let strides = &t.meta.strides()[..2];
        begin.is_multiple_of(n * t.dtype.size()) && strides.iter().all(|s| s.is_multiple_of(n))
    };
    let all = |n: &usize| d_model.is_multiple_of(*n) && tensors.iter().all(|t| divides(*n, t));
    [4, 2].into_iter().find(all)
}

/// The rotated rows of x; with `backward` the gradient of what was rotated, from that of y, `x`.
fn launch(x: CubeTensor, [cos, sin]: [&CubeTensor; 2], backward: bool) -> CubeTensor {
    let [batch, len, d_model] = x.shape().dims();
    let rows = [x, cos.clone(), sin.clone()].map(in_rows);
    let (rows, lanes) = match width_of(&rows, d_model) {
        Some(width) => (rows, width),
        None => (rows.map(dense), lanes(d_model, 4)),
    };
    let [x, cos, sin] = rows;
    let y = empty(&x, [batch, len, d_model], x.dtype);
    let count = batch.div_ceil(IMAGES) * len * d_model / lanes;
    let client = x.client.clone();
    let stride = |of: &CubeTensor, axis: usize| of.meta.strides()[axis] / lanes;
    let sizes = RowsLaunch::new(
        batch,
        len,
        d_model / lanes,
        stride(&x, 0),
        stride(&x, 1),
        stride(&cos, 1),
        stride(&sin, 1),
    );
    let address = [&x, &cos, &sin, &y].map(CubeTensor::required_address_type);
    let address = address.into_iter().max().expect("invariant: four tensors");
    let elem = elem(&x);
    // SAFETY: the elements of a row are adjacent, a unit reads and writes images below `batch` and
    // places below those of an image, and units beyond do nothing.
    unsafe {
        rotate_kernel::launch_unchecked(
            &client,
            cubes(&client, count.div_ceil(UNITS as usize)),
            CubeDim::new_1d(UNITS),
            address,
            lanes,
            x.into_buffer_arg(),
            cos.into_buffer_arg(),
            sin.into_buffer_arg(),
            y.clone().into_buffer_arg(),
            sizes,
            backward,
            elem,
        );
    }
    y
}
