//! The loss of interpolated logits on a GPU: a unit has a pixel of the labels forward, and some
//! classes of a pixel of the logits backward.

#![expect(unsafe_code, reason = "launching kernels without bounds checks")]

use burn::backend::TensorMetadata;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{COUNTS, ResizeNllArguments, ResizeNllSpec};
use crate::resize::axis::{end_of_readers, first_reader, lower_and_share, position, share_in};
use crate::resize::cube::{Sizes, SizesLaunch};
use vim_kernels_core::cube::math::exp;
use vim_kernels_core::cube::sum::sum_rows;
use vim_kernels_core::cube::{cubes, dense, elem, empty, has_ptx, lanes};
use vim_kernels_core::op::{Forward, FusedOp};

/// Units of a cube: a square of pixels forward, in which a plane has [`PLANE`] columns, so that its
/// units read few pixels of the logits.
const UNITS: usize = 256;
const SIDE: usize = 16;
const PLANE: u32 = 8;
/// Sums of a cube: the loss and the counts.
const TOTALS: usize = 1 + COUNTS;

/// The logarithm of each pixel's denominator, `log_sums [B, H, W]`, and the sums over each cube's
/// pixels, `totals [cubes, 3]`. A pixel of the logits has `classes` vectors, and `count` cubes have
/// one after the other the squares of `across` columns of them.
#[cube(launch_unchecked, address_type = "dynamic")]
fn nll_forward<F: Float, N: Size>(
    logits: &[Vector<F, N>],
    labels: &[f32],
    log_sums: &mut [f32],
    totals: &mut [f32],
    count: usize,
    across: u32,
    down: u32,
    classes: usize,
    sizes: Sizes,
    #[comptime] ptx: bool,
    #[define(F)] _dtype: ElemType,
) {
    let mut shared = Shared::<[f32]>::new_slice(comptime!(TOTALS * UNITS));
    let unit = UNIT_POS as usize;
    let square = CUBE_POS as u32;
    let image = square / (across * down);
    let (plane, lane) = (UNIT_POS / 32, UNIT_POS % 32);
    let row = square / across % down * comptime!(SIDE as u32) + plane / 2 * 4 + lane / PLANE;
    let column = square % across * comptime!(SIDE as u32) + plane % 2 * PLANE + lane % PLANE;
    let mut sums = Array::<f32>::new(TOTALS);
    #[unroll]
    for which in 0..TOTALS {
        sums[which] = 0.0f32;
    }
    if CUBE_POS < count && row < sizes.rows && column < sizes.columns {
        let pixel = ((image * sizes.rows + row) * sizes.columns + column) as usize;
        let label = labels[pixel];
        let (top, share_down) = lower_and_share(row, sizes.height, sizes.rows);
        let (left, share_right) = lower_and_share(column, sizes.width, sizes.columns);
        let bottom = min(top + 1, sizes.height - 1);
        let right = min(left + 1, sizes.width - 1);
        let upper = (image * sizes.height + top) * sizes.width;
        let lower = (image * sizes.height + bottom) * sizes.width;
        let one = (upper + left) as usize * classes;
        let two = (upper + right) as usize * classes;
        let three = (lower + left) as usize * classes;
        let four = (lower + right) as usize * classes;
        let to_right = Vector::<f32, N>::new(share_right);
        let to_bottom = Vector::<f32, N>::new(share_down);
        let mut largest = f32::MIN.runtime();
        let mut sum = 0.0f32.runtime();
        let mut best = 0.0f32.runtime();
        let mut own = 0.0f32.runtime();
        for vector in 0..classes {
            let a = Vector::<f32, N>::cast_from(logits[one + vector]);
            let b = Vector::<f32, N>::cast_from(logits[two + vector]);
            let c = Vector::<f32, N>::cast_from(logits[three + vector]);
            let d = Vector::<f32, N>::cast_from(logits[four + vector]);
            let above = a + (b - a) * to_right;
            let below = c + (d - c) * to_right;
            let values = above + (below - above) * to_bottom;
            #[unroll]
            for lane in 0..N::value() {
                let class = f32::cast_from(vector * N::value() + lane);
                let value = values.extract(lane);
                let is_larger = value > largest;
                // The smaller of both terms over the larger one.
                let ratio = exp(-f32::abs(value - largest), ptx);
                sum = select(is_larger, sum * ratio + 1.0f32, sum + ratio);
                largest = select(is_larger, value, largest);
                best = select(is_larger, class, best);
                own = select(class == label, value, own);
            }
        }
        let log_sum = largest + sum.ln();
        log_sums[pixel] = log_sum;
        let is_class = label >= 0.0f32 && label < f32::cast_from(classes * N::value());
        if is_class {
            sums[0] = log_sum - own;
            sums[1] = select(best == label, 1.0f32, 0.0f32);
            sums[2] = 1.0f32;
        }
    }
    #[unroll]
    for which in 0..TOTALS {
        shared[which * UNITS + unit] = sums[which];
    }
    sync_cube();
    #[unroll]
    for step in 0..comptime!(UNITS.ilog2() as usize) {
        let half = comptime!(UNITS >> (step + 1));
        if unit < half {
            #[unroll]
            for which in 0..TOTALS {
                shared[which * UNITS + unit] += shared[which * UNITS + unit + half];
            }
        }
        sync_cube();
    }
    if unit < TOTALS && CUBE_POS < count {
        totals[CUBE_POS * TOTALS + unit] = shared[unit * UNITS];
    }
}

/// The gradient of the logits, times `grad[0]`: `count` vectors, `classes` to a pixel. The logits
/// of the pixels that read one are interpolated again, from it and the eight around it.
#[cube(launch_unchecked, address_type = "dynamic")]
fn nll_backward<F: Float, N: Size>(
    logits: &[Vector<F, N>],
    labels: &[f32],
    log_sums: &[f32],
    grad: &[f32],
    grad_logits: &mut [Vector<F, N>],
    count: usize,
    classes: usize,
    sizes: Sizes,
    #[comptime] ptx: bool,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < count {
        let (pixel, vector) = ((at / classes) as u32, at % classes);
        let j = pixel % sizes.width;
        let i = pixel / sizes.width % sizes.height;
        let image = pixel / sizes.width / sizes.height;
        let first_class = f32::cast_from(vector * N::value());
        let mut around = Array::<Vector<f32, N>>::new(9usize);
        #[unroll]
        for k in 0..3u32 {
            let row = min(max(i + k, 1u32) - 1, sizes.height - 1);
            #[unroll]
            for l in 0..3u32 {
                let column = min(max(j + l, 1u32) - 1, sizes.width - 1);
                let from = (image * sizes.height + row) * sizes.width + column;
                around[comptime!((k * 3 + l) as usize)] =
                    Vector::cast_from(logits[from as usize * classes + vector]);
            }
        }
        let first_column = first_reader(j, sizes.width, sizes.columns);
        let end_column = end_of_readers(j, sizes.width, sizes.columns);
        let end_row = end_of_readers(i, sizes.height, sizes.rows);
        // Positions between columns of the logits, in units of half a column of the labels.
        let unit = 2 * sizes.columns;
        let middle = j * unit;
        let inverse = 1.0f32 / f32::cast_from(unit);
        let is_last = j + 1 == sizes.width;
        let mut sum = Vector::<f32, N>::new(0.0f32);
        for row in first_reader(i, sizes.height, sizes.rows)..end_row {
            let (top, down) = lower_and_share(row, sizes.height, sizes.rows);
            let of_row = share_in(i, sizes.height, top, down);
            let is_above = top < i;
            let mut line = Array::<Vector<f32, N>>::new(3usize);
            #[unroll]
            for l in 0..3usize {
                let mut upper = around[comptime!(3 + l)];
                let mut lower = around[comptime!(6 + l)];
                if is_above {
                    upper = around[l];
                    lower = around[comptime!(3 + l)];
                }
                line[l] = upper + (lower - upper) * Vector::new(down);
            }
            let first = (image * sizes.rows + row) * sizes.columns;
            for column in first_column..end_column {
                let label = labels[(first + column) as usize];
                let log_sum = log_sums[(first + column) as usize];
                let place = position(column, sizes.width, sizes.columns);
                let is_left = place < middle;
                let from = select(is_left, middle - unit, middle);
                let across = f32::cast_from(place - from) * inverse;
                let of_column = select(is_left, across, select(is_last, 1.0f32, 1.0f32 - across));
                let is_class = label >= 0.0f32 && label < f32::cast_from(classes * N::value());
                let share = select(is_class, of_row * of_column, 0.0f32);
                let mut left = line[1];
                let mut right = line[2];
                if is_left {
                    left = line[0];
                    right = line[1];
                }
                let values = left + (right - left) * Vector::new(across);
                #[unroll]
                for lane in 0..N::value() {
                    let probability = exp(values.extract(lane) - log_sum, ptx);
                    let is_own = first_class + f32::cast_from(lane) == label;
                    let slope = probability - select(is_own, 1.0f32, 0.0f32);
                    sum.insert(lane, sum.extract(lane) + share * slope);
                }
            }
        }
        grad_logits[at] = Vector::cast_from(sum * Vector::new(grad[0]));
    }
}

impl FusedOp<CubeBackend, 2, 1> for ResizeNllSpec {
    type Inputs = ResizeNllArguments<CubeBackend>;
    /// The logits, the labels, and the logarithm of each pixel's denominator.
    type Saved = [CubeTensor; 3];

    fn forward(
        self,
        arguments: ResizeNllArguments<CubeBackend>,
        save: bool,
    ) -> Forward<CubeBackend, Self::Saved, 1> {
        let [logits, labels] = [arguments.logits, arguments.labels].map(dense);
        let from: [usize; 4] = logits.shape().dims();
        let [batch, .., classes] = from;
        let [rows, columns] = self.to;
        let lanes = lanes(classes, 4);
        let [down, across] = self.to.map(|side| side.div_ceil(SIDE));
        let count = batch * down * across;
        let log_sums = empty(&logits, [batch, rows, columns], DType::F32);
        let totals = empty(&logits, [count, TOTALS], DType::F32);
        let client = logits.client.clone();
        // SAFETY: the buffers are dense and have the sizes passed; a unit writes its pixel if it is
        // within the labels, and a cube its sums if it is one of `count`.
        unsafe {
            nll_forward::launch_unchecked(
                &client,
                cubes(&client, count),
                CubeDim::new_1d(UNITS as u32),
                logits.required_address_type().max(log_sums.required_address_type()),
                lanes,
                logits.clone().into_buffer_arg(),
                labels.clone().into_buffer_arg(),
                log_sums.clone().into_buffer_arg(),
                totals.clone().into_buffer_arg(),
                count,
                across as u32,
                down as u32,
                classes / lanes,
                self.sizes(from),
                has_ptx(&logits),
                elem(&logits),
            );
        }
        let loss = empty(&logits, [1], DType::F32);
        let counts = empty(&logits, [COUNTS], DType::F32);
        sum_rows(totals, count, TOTALS, 1, &loss, &counts);
        (loss, [counts], save.then_some([logits, labels, log_sums]))
    }

    fn backward(
        self,
        grad: CubeTensor,
        [logits, labels, log_sums]: Self::Saved,
        _wanted: [bool; 2],
    ) -> [Option<CubeTensor>; 2] {
        let grad = dense(grad);
        let from: [usize; 4] = logits.shape().dims();
        let [.., classes] = from;
        // Two classes to a unit share the geometry; more would take more registers than they save.
        let lanes = lanes(classes, 2);
        let grad_logits = empty(&logits, from, logits.dtype);
        let count = logits.meta.shape().num_elements() / lanes;
        let client = logits.client.clone();
        // SAFETY: as above; units from `count` on do nothing.
        unsafe {
            nll_backward::launch_unchecked(
                &client,
                cubes(&client, count.div_ceil(UNITS)),
                CubeDim::new_1d(UNITS as u32),
                logits.required_address_type().max(log_sums.required_address_type()),
                lanes,
                logits.clone().into_buffer_arg(),
                labels.into_buffer_arg(),
                log_sums.into_buffer_arg(),
                grad.into_buffer_arg(),
                grad_logits.clone().into_buffer_arg(),
                count,
                classes / lanes,
                self.sizes(from),
                has_ptx(&logits),
                elem(&logits),
            );
        }
        [Some(grad_logits), None]
    }
}

impl ResizeNllSpec {
    fn sizes(self, [_, height, width, _]: [usize; 4]) -> SizesLaunch {
        let [height, width, rows, columns] =
            [height, width, self.to[0], self.to[1]].map(|n| n as u32);
        SizesLaunch::new(height, width, rows, columns)
    }
}
