//! The causal convolutions of both directions in one pass: a thread owns a few neighbouring
//! channels and walks a strip of tokens, as in [`super::kernel`], and reads each token once for
//! both.
//!
//! A window of W tokens gives the forward direction's output at its last token and the reverse
//! direction's output at its first token, so one window serves both directions, in the forward pass
//! and in the backward pass. Windows are numbered by their last token: window `at` ends with token
//! `at` and begins with `at − (W − 1)`, and those that overlap the sequence are cut into strips.
//!
//! Memory decides the time, so a thread always has loads in flight: it begins those of the next
//! step before the arithmetic of this one. They wait in registers as they are stored, because
//! nothing may depend on them yet; two bf16 share one, read as an u32.

#![expect(unsafe_code, reason = "launching kernels without bounds checks")]

mod kernel;
#[cfg(all(test, feature = "wgpu"))]
mod tests;

use burn::backend::TensorMetadata;
use burn::tensor::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::calculate_cube_count_elemwise;
use cubecl::ir::{ElemType, UIntKind};
use cubecl::prelude::*;
use cubecl::zspace::metadata::Metadata;

use super::kernel::STRIPS;
use super::strips::Strips;
use super::{BACKWARD_LANES, FORWARD_LANES};
use kernel::{BACKWARD_STEP, COLUMNS, bidirectional_backward, bidirectional_forward};
use vim_kernels_core::cube::{cubes, elem, empty, has_ptx, lanes};

/// Threads of a forward cube: few, so that a multiprocessor's share of them is even.
const FORWARD_CUBE: u32 = 64;
/// Threads that an H100 runs at once, which have up to 96 registers in both passes in bf16.
/// Constant, so that the order of a sum does not depend on the GPU.
const THREADS_AT_ONCE: usize = 132 * 640;

/// How a token's channels are read: `lanes` of them in vectors of `words` of `word`.
struct Storage {
    lanes: usize,
    words: usize,
    word: ElemType,
    /// Whether a word is a pair of bf16.
    packed: bool,
}

impl Storage {
    fn new(x: &CubeTensor, lanes: usize) -> Self {
        let packed = x.dtype == DType::BF16 && lanes.is_multiple_of(2);
        let (words, word) =
            if packed { (lanes / 2, ElemType::UInt(UIntKind::U32)) } else { (lanes, elem(x)) };
        Self { lanes, words, word, packed }
    }
}

/// Weight `[D, 1, W]` and bias `[D]` of a direction, dense.
pub type Taps = [CubeTensor; 2];

/// Writes silu of the convolutions of `x [B, L, D]` into the halves of `y [2·B, L, D]`: the first
/// direction's in token order (reversed if `reverse`), the second's in the opposite order.
pub fn conv_bidirectional(x: &CubeTensor, taps: [Taps; 2], reverse: bool, y: &CubeTensor) {
    let [[weight_ahead, bias_ahead], [weight_back, bias_back]] = in_order(taps, reverse);
    let client = x.client.clone();
    let [batch, len, d_inner] = x.shape().dims();
    let [_, _, width] = weight_ahead.shape().dims();
    let Storage { lanes, words, word, packed } = Storage::new(x, lanes(d_inner, FORWARD_LANES));
    let strips = Strips::of_windows(x, lanes, width - 1, THREADS_AT_ONCE, 1);
    let dim = CubeDim::new_1d(FORWARD_CUBE);
    let count = calculate_cube_count_elemwise(&client, strips.total * strips.groups, dim);
    let halves = in_order([0, batch * len * d_inner / lanes], reverse);
    // SAFETY: x has dense rows, y is dense and holds twice as many elements; a thread stays within
    // a strip, and checks that its tokens are within x.
    unsafe {
        bidirectional_forward::launch_unchecked(
            &client,
            count,
            dim,
            y.required_address_type(),
            words,
            lanes,
            x.clone().into_buffer_arg(),
            weight_ahead.into_buffer_arg(),
            bias_ahead.into_buffer_arg(),
            weight_back.into_buffer_arg(),
            bias_back.into_buffer_arg(),
            y.clone().into_buffer_arg(),
            halves[0],
            halves[1],
            strips.launch(),
            width,
            packed,
            has_ptx(x),
            [word, elem(x)],
        );
    }
}

/// Partial sums of the gradients of both directions' taps and biases, `[rows, columns]`.
pub struct TapParts {
    pub parts: CubeTensor,
    pub rows: usize,
    pub columns: usize,
}

/// Writes the gradient of `x` into `grad_x`, which has x's row stride, from both halves of
/// `grad_y [2·B, L, D]`; the sums over the rows of the result are what [`tap_gradients`] takes.
pub fn conv_bidirectional_backward(
    grad_y: &CubeTensor,
    x: &CubeTensor,
    taps: [Taps; 2],
    reverse: bool,
    grad_x: &CubeTensor,
) -> TapParts {
    let [[weight_ahead, bias_ahead], [weight_back, bias_back]] = in_order(taps, reverse);
    let client = x.client.clone();
    let [batch, len, d_inner] = x.shape().dims();
    let [_, _, width] = weight_ahead.shape().dims();
    let Storage { lanes, words, word, packed } = Storage::new(x, lanes(d_inner, BACKWARD_LANES));
    let strips = Strips::of_windows(x, lanes, width - 1, THREADS_AT_ONCE, BACKWARD_STEP);
    let rows = strips.total.div_ceil(STRIPS);
    let columns = 2 * d_inner * (width + 1);
    let parts = empty(x, [rows, columns], DType::F32);
    let halves = in_order([0, batch * len * d_inner / lanes], reverse);
    // SAFETY: as above; a cube writes one row of the partial sums.
    unsafe {
        bidirectional_backward::launch_unchecked(
            &client,
            cubes(&client, rows * strips.groups.div_ceil(COLUMNS)),
            CubeDim::new_2d(COLUMNS as u32, STRIPS as u32),
            grad_y.required_address_type(),
            words,
            lanes,
            grad_y.clone().into_buffer_arg(),
            x.clone().into_buffer_arg(),
            weight_ahead.into_buffer_arg(),
            bias_ahead.into_buffer_arg(),
            weight_back.into_buffer_arg(),
            bias_back.into_buffer_arg(),
            grad_x.clone().into_buffer_arg(),
            parts.clone().into_buffer_arg(),
            halves[0],
            halves[1],
            strips.launch(),
            columns,
            width,
            packed,
            has_ptx(x),
            [word, elem(x)],
        );
    }
    TapParts { parts, rows, columns }
}

/// The gradients of each direction's taps and bias, within the sums of a backward pass.
pub fn tap_gradients(sums: &CubeTensor, taps: [&Taps; 2], reverse: bool) -> [Taps; 2] {
    let mut first = 0;
    let mut next = |like: &CubeTensor| {
        let mut part = sums.clone();
        part.handle = part.handle.offset_start((first * size_of::<f32>()) as u64);
        let shape: Shape = like.shape();
        first += shape.num_elements();
        part.meta = Box::new(Metadata::new(shape, like.meta.strides().clone()));
        part
    };
    in_order(in_order(taps, reverse).map(|taps| taps.each_ref().map(&mut next)), reverse)
}

/// The direction that goes with the tokens first.
fn in_order<T>([first, second]: [T; 2], reverse: bool) -> [T; 2] {
    if reverse { [second, first] } else { [first, second] }
}
