//! The two parts of batch norm on a GPU. Sums over pixels are of strips of rows, a row of partial
//! sums to each, which one launch adds.

#![expect(unsafe_code, reason = "launching kernels without bounds checks")]

use burn::backend::TensorMetadata;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{ChannelSumsArguments, ChannelSumsSpec, ScaleShiftArguments, ScaleShiftSpec};
use vim_kernels_core::cube::sum::sum_rows;
use vim_kernels_core::cube::{cubes, dense, elem, empty, lanes};
use vim_kernels_core::op::{Forward, FusedOp, Tensors};

/// Units of a cube of elementwise kernels.
const UNITS: u32 = 256;
/// Vectors of channels of a cube that sums, and the units that share the rows of each.
const ACROSS: usize = 16;
const SHARES: usize = 16;
/// Most strips of rows: constant, so that the order of a sum does not depend on the GPU.
const STRIPS: usize = 512;
/// Fewest rows of a strip.
const SHORTEST: usize = 64;

/// How rows of channels are summed.
#[derive(Clone, Copy)]
struct Strips {
    rows: usize,
    channels: usize,
    /// Channels of a vector.
    lanes: usize,
    /// Rows of a strip, and the strips.
    each: usize,
    count: usize,
}

impl Strips {
    fn new(x: &CubeTensor) -> Self {
        let (shape, channels) = (x.shape(), x.shape().last().copied().unwrap_or_default());
        let rows = shape.num_elements() / channels;
        let each = rows.div_ceil(STRIPS).max(SHORTEST);
        Self { rows, channels, lanes: lanes(channels, 4), each, count: rows.div_ceil(each) }
    }

    /// Vectors of a row.
    fn width(&self) -> usize {
        self.channels / self.lanes
    }

    /// Blocks of vectors, one after the other in the first axis of the grid, and strips.
    fn grid(&self) -> CubeCount {
        CubeCount::Static(self.width().div_ceil(ACROSS) as u32, self.count as u32, 1)
    }

    fn partials(&self, like: &CubeTensor) -> CubeTensor {
        empty(like, [self.count, 2 * self.channels], DType::F32)
    }

    fn vectors(&self) -> usize {
        self.rows * self.width()
    }
}

/// Adds the two sums of the units that share the rows of a cube's vectors, in order, and writes
/// them into row `strip` of `partials`, of `2·width` vectors.
#[cube]
fn write_partials<N: Size>(
    one: Vector<f32, N>,
    two: Vector<f32, N>,
    partials: &mut [Vector<f32, N>],
    column: usize,
    width: usize,
) {
    let mut first = Shared::<[Vector<f32, N>]>::new_slice(comptime!(ACROSS * SHARES));
    let mut second = Shared::<[Vector<f32, N>]>::new_slice(comptime!(ACROSS * SHARES));
    let (x, y) = (UNIT_POS_X as usize, UNIT_POS_Y as usize);
    first[y * ACROSS + x] = one;
    second[y * ACROSS + x] = two;
    sync_cube();
    if y == 0 && column < width {
        let mut sum = first[x];
        let mut other = second[x];
        #[unroll]
        for share in 1..SHARES {
            sum += first[share * ACROSS + x];
            other += second[share * ACROSS + x];
        }
        let row = CUBE_POS_Y as usize * 2 * width;
        partials[row + column] = sum;
        partials[row + width + column] = other;
    }
}

/// `[Σ x, Σ x²]` of every strip of `each` rows of `width` vectors.
#[cube(launch_unchecked, address_type = "dynamic")]
fn sums_forward<F: Float, N: Size>(
    x: &[Vector<F, N>],
    partials: &mut [Vector<f32, N>],
    rows: usize,
    width: usize,
    each: usize,
    #[define(F)] _dtype: ElemType,
) {
    let column = CUBE_POS_X as usize * ACROSS + UNIT_POS_X as usize;
    let first = CUBE_POS_Y as usize * each;
    let end = min(first + each, rows);
    let mut one = Vector::<f32, N>::new(0.0f32);
    let mut two = Vector::<f32, N>::new(0.0f32);
    if column < width {
        let mut row = first + UNIT_POS_Y as usize;
        while row < end {
            let value = Vector::<f32, N>::cast_from(x[row * width + column]);
            one += value;
            two += value * value;
            row += SHARES;
        }
    }
    write_partials::<N>(one, two, partials, column, width);
}

/// `grad_x = grad[0] + 2·x·grad[1]`, `count` vectors.
#[cube(launch_unchecked, address_type = "dynamic")]
fn sums_backward<F: Float, N: Size>(
    x: &[Vector<F, N>],
    grad: &[Vector<f32, N>],
    grad_x: &mut [Vector<F, N>],
    count: usize,
    width: usize,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < count {
        let column = at % width;
        let value = Vector::<f32, N>::cast_from(x[at]) * Vector::new(2.0f32);
        grad_x[at] = Vector::cast_from(grad[column] + value * grad[width + column]);
    }
}

/// `y = x·scale + shift`, with `relu` no less than 0; `count` vectors.
#[cube(launch_unchecked, address_type = "dynamic")]
fn scale_forward<F: Float, N: Size>(
    x: &[Vector<F, N>],
    scale: &[Vector<f32, N>],
    shift: &[Vector<f32, N>],
    y: &mut [Vector<F, N>],
    count: usize,
    width: usize,
    #[comptime] relu: bool,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < count {
        let column = at % width;
        let mut value = Vector::<f32, N>::cast_from(x[at]) * scale[column] + shift[column];
        if comptime!(relu) {
            #[unroll]
            for lane in 0..N::value() {
                let one = value.extract(lane);
                // Not `max`, which would hide a NaN.
                value.insert(lane, select(one < 0.0f32, 0.0f32, one));
            }
        }
        y[at] = Vector::cast_from(value);
    }
}

/// The gradient of x, and of scale and shift those of every strip of rows.
#[cube(launch_unchecked, address_type = "dynamic")]
#[expect(clippy::too_many_arguments, reason = "inputs, gradients and sizes")]
fn scale_backward<F: Float, N: Size>(
    grad_y: &[Vector<F, N>],
    x: &[Vector<F, N>],
    scale: &[Vector<f32, N>],
    shift: &[Vector<f32, N>],
    grad_x: &mut [Vector<F, N>],
    partials: &mut [Vector<f32, N>],
    rows: usize,
    width: usize,
    each: usize,
    #[comptime] relu: bool,
    #[define(F)] _dtype: ElemType,
) {
    let column = CUBE_POS_X as usize * ACROSS + UNIT_POS_X as usize;
    let first = CUBE_POS_Y as usize * each;
    let end = min(first + each, rows);
    let mut one = Vector::<f32, N>::new(0.0f32);
    let mut two = Vector::<f32, N>::new(0.0f32);
    if column < width {
        let (gain, offset) = (scale[column], shift[column]);
        let mut row = first + UNIT_POS_Y as usize;
        while row < end {
            let at = row * width + column;
            let value = Vector::<f32, N>::cast_from(x[at]);
            let mut grad = Vector::<f32, N>::cast_from(grad_y[at]);
            if comptime!(relu) {
                let linear = value * gain + offset;
                #[unroll]
                for lane in 0..N::value() {
                    let stopped = linear.extract(lane) <= 0.0f32;
                    grad.insert(lane, select(stopped, 0.0f32, grad.extract(lane)));
                }
            }
            one += grad * value;
            two += grad;
            grad_x[at] = Vector::cast_from(grad * gain);
            row += SHARES;
        }
    }
    write_partials::<N>(one, two, partials, column, width);
}

impl FusedOp<CubeBackend, 1, 0> for ChannelSumsSpec {
    type Inputs = ChannelSumsArguments<CubeBackend>;
    type Saved = CubeTensor;

    fn forward(
        self,
        arguments: ChannelSumsArguments<CubeBackend>,
        save: bool,
    ) -> Forward<CubeBackend, Self::Saved, 0> {
        let x = dense(arguments.x);
        let strips = Strips::new(&x);
        let partials = strips.partials(&x);
        // SAFETY: x is dense and has the sizes passed; a cube writes its columns of a row of the
        // partial sums.
        unsafe {
            sums_forward::launch_unchecked(
                &x.client,
                strips.grid(),
                CubeDim::new_2d(ACROSS as u32, SHARES as u32),
                x.required_address_type().max(partials.required_address_type()),
                strips.lanes,
                x.clone().into_buffer_arg(),
                partials.clone().into_buffer_arg(),
                strips.rows,
                strips.width(),
                strips.each,
                elem(&x),
            );
        }
        let sums = empty(&x, [2, strips.channels], DType::F32);
        let (columns, nothing) = (2 * strips.channels, empty(&x, [1], DType::F32));
        sum_rows(partials, strips.count, columns, columns, &sums, &nothing);
        (sums, [], save.then_some(x))
    }

    fn backward(
        self,
        grad: CubeTensor,
        x: CubeTensor,
        _wanted: [bool; 1],
    ) -> [Option<CubeTensor>; 1] {
        let grad = dense(grad);
        let strips = Strips::new(&x);
        let grad_x = empty(&x, x.shape(), x.dtype);
        let client = x.client.clone();
        // SAFETY: both tensors are dense and have the sizes passed; units beyond do nothing.
        unsafe {
            sums_backward::launch_unchecked(
                &client,
                cubes(&client, strips.vectors().div_ceil(UNITS as usize)),
                CubeDim::new_1d(UNITS),
                x.required_address_type(),
                strips.lanes,
                x.clone().into_buffer_arg(),
                grad.into_buffer_arg(),
                grad_x.clone().into_buffer_arg(),
                strips.vectors(),
                strips.width(),
                elem(&x),
            );
        }
        [Some(grad_x)]
    }
}

impl FusedOp<CubeBackend, 3, 0> for ScaleShiftSpec {
    type Inputs = ScaleShiftArguments<CubeBackend>;
    type Saved = [CubeTensor; 3];

    fn forward(
        self,
        arguments: ScaleShiftArguments<CubeBackend>,
        save: bool,
    ) -> Forward<CubeBackend, Self::Saved, 0> {
        let [x, scale, shift] = arguments.into_array().map(dense);
        let strips = Strips::new(&x);
        let y = empty(&x, x.shape(), x.dtype);
        let client = x.client.clone();
        // SAFETY: all tensors are dense and have the sizes passed; units beyond do nothing.
        unsafe {
            scale_forward::launch_unchecked(
                &client,
                cubes(&client, strips.vectors().div_ceil(UNITS as usize)),
                CubeDim::new_1d(UNITS),
                x.required_address_type(),
                strips.lanes,
                x.clone().into_buffer_arg(),
                scale.clone().into_buffer_arg(),
                shift.clone().into_buffer_arg(),
                y.clone().into_buffer_arg(),
                strips.vectors(),
                strips.width(),
                self.relu,
                elem(&x),
            );
        }
        (y, [], save.then_some([x, scale, shift]))
    }

    fn backward(
        self,
        grad: CubeTensor,
        [x, scale, shift]: [CubeTensor; 3],
        [_, wants_scale, wants_shift]: [bool; 3],
    ) -> [Option<CubeTensor>; 3] {
        let grad = dense(grad);
        let strips = Strips::new(&x);
        let grad_x = empty(&x, x.shape(), x.dtype);
        let partials = strips.partials(&x);
        // SAFETY: as above.
        unsafe {
            scale_backward::launch_unchecked(
                &x.client,
                strips.grid(),
                CubeDim::new_2d(ACROSS as u32, SHARES as u32),
                x.required_address_type().max(partials.required_address_type()),
                strips.lanes,
                grad.into_buffer_arg(),
                x.clone().into_buffer_arg(),
                scale.into_buffer_arg(),
                shift.into_buffer_arg(),
                grad_x.clone().into_buffer_arg(),
                partials.clone().into_buffer_arg(),
                strips.rows,
                strips.width(),
                strips.each,
                self.relu,
                elem(&x),
            );
        }
        if !(wants_scale || wants_shift) {
            return [Some(grad_x), None, None];
        }
        let channels = strips.channels;
        let [of_scale, of_shift] = [(); 2].map(|()| empty(&x, [channels], DType::F32));
        sum_rows(partials, strips.count, 2 * channels, channels, &of_scale, &of_shift);
        [Some(grad_x), Some(of_scale), Some(of_shift)]
    }
}
