//! The launches: tensors in groups, a group's results side by side in one buffer.

#![expect(unsafe_code, reason = "launching kernels without bounds checks")]

use burn::backend::TensorMetadata;
use burn::tensor::{DType, Shape, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::zspace::metadata::Metadata;

use super::{AdamWRule, AdamWTensor};
use crate::cube::many::{
    BLOCK, RuleLaunch, UNITS, adamw_kernel, average_kernel, squares_kernel, sum_kernel,
};
use crate::cube::{dense, empty};

/// Tensors of a launch, at most: a kernel has code for each of them, and takes long to compile for many.
const MOST: usize = 48;
/// Bindings that a launch needs beside the tensors.
const OTHERS: usize = 8;

/// Tensors of a launch that binds `each` buffers for one.
fn per_launch(like: &CubeTensor, each: usize) -> usize {
    let most = like.client.properties().hardware.max_bindings as usize;
    (most.saturating_sub(OTHERS) / each).clamp(1, MOST)
}

fn cube(tensor: Tensor<1>) -> CubeTensor {
    let tensor = tensor.try_into_primitive::<CubeBackend>();
    dense(tensor.expect("invariant: the tensors are where kernels in CubeCL run, without autodiff"))
}

fn length(tensor: &CubeTensor) -> usize {
    tensor.shape().num_elements()
}

/// Where each tensor of a group begins, in blocks, and how many blocks there are.
fn blocks(lengths: &[usize]) -> (Vec<u32>, usize) {
    let mut total = 0;
    let begins = lengths.iter().map(|length| {
        let begin = total;
        total += length.div_ceil(BLOCK);
        begin as u32
    });
    (begins.collect(), total)
}

/// A buffer with what `values` holds.
fn upload<E: CubeElement>(like: &CubeTensor, values: &[E], dtype: DType) -> CubeTensor {
    let handle = like.client.create_from_slice(E::as_bytes(values));
    let shape = Shape::from([values.len()]);
    CubeTensor::new_contiguous(like.client.clone(), like.device.clone(), shape, handle, dtype)
}

/// The parts of a group's buffer, one for each tensor, which begin at whole blocks.
fn parts(buffer: &CubeTensor, begins: &[u32], lengths: &[usize]) -> Vec<Tensor<1>> {
    let part = |(&begin, &length): (&u32, &usize)| {
        let mut part = buffer.clone();
        let bytes = begin as usize * BLOCK * size_of::<f32>();
        part.handle = part.handle.offset_start(bytes as u64);
        part.meta = Box::new(Metadata::new(Shape::from([length]), [1]));
        Tensor::from_primitive::<CubeBackend>(part)
    };
    begins.iter().zip(lengths).map(part).collect()
}

pub(super) fn sum_of_squares(tensors: &[Tensor<1>]) -> Tensor<1> {
    let tensors: Vec<CubeTensor> = tensors.iter().cloned().map(cube).collect();
    let like = tensors.first().expect("invariant: a model has parameters").clone();
    let client = like.client.clone();
    let all: usize = tensors.iter().map(|tensor| length(tensor).div_ceil(BLOCK)).sum();
    let sums = empty(&like, [all], DType::F32);
    let mut done = 0;
    for group in tensors.chunks(per_launch(&like, 1)) {
        let lengths: Vec<usize> = group.iter().map(length).collect();
        let (begins, total) = blocks(&lengths);
        let lengths: Vec<u32> = lengths.iter().map(|&length| length as u32).collect();
        // SAFETY: a cube reads below its tensor's length, and writes one sum for its block.
        unsafe {
            squares_kernel::launch_unchecked(
                &client,
                CubeCount::Static(total as u32, 1, 1),
                CubeDim::new_1d(UNITS as u32),
                group.iter().map(|tensor| tensor.clone().into_buffer_arg()).collect(),
                upload(&like, &begins, DType::U32).into_buffer_arg(),
                upload(&like, &lengths, DType::U32).into_buffer_arg(),
                sums.clone().into_buffer_arg(),
                done as u32,
            );
        }
        done += total;
    }
    let out = empty(&like, [1], DType::F32);
    // SAFETY: there are `all` sums; one cube writes one number.
    unsafe {
        sum_kernel::launch_unchecked(
            &client,
            CubeCount::Static(1, 1, 1),
            CubeDim::new_1d(UNITS as u32),
            sums.into_buffer_arg(),
            out.clone().into_buffer_arg(),
            all as u32,
        );
    }
    Tensor::from_primitive::<CubeBackend>(out)
}

pub(super) fn adamw(
    tensors: Vec<AdamWTensor>,
    square_norm: Tensor<1>,
    rule: AdamWRule,
) -> Vec<[Tensor<1>; 3]> {
    let square_norm = cube(square_norm);
    let mut results = Vec::with_capacity(tensors.len());
    let mut tensors = tensors.into_iter().peekable();
    let Some(first) = tensors.peek() else { return results };
    let like = cube(first.value.clone());
    let client = like.client.clone();
    let most = per_launch(&like, 4);
    loop {
        let group: Vec<AdamWTensor> = tensors.by_ref().take(most).collect();
        if group.is_empty() {
            return results;
        }
        let rates: Vec<f32> = group.iter().flat_map(|t| [t.rate as f32, t.keep as f32]).collect();
        let (mut values, mut gradients) = (Vec::new(), Vec::new());
        let (mut firsts, mut seconds) = (Vec::new(), Vec::new());
        for tensor in group {
            values.push(cube(tensor.value));
            gradients.push(cube(tensor.gradient));
            firsts.push(cube(tensor.first));
            seconds.push(cube(tensor.second));
        }
        let lengths: Vec<usize> = values.iter().map(length).collect();
        let (begins, total) = blocks(&lengths);
        let sizes: Vec<u32> = lengths.iter().map(|&length| length as u32).collect();
        let out = || empty(&like, [total * BLOCK], DType::F32);
        let [value, first, second] = [out(), out(), out()];
        let args =
            |group: Vec<CubeTensor>| group.into_iter().map(|t| t.into_buffer_arg()).collect();
        let AdamWRule { betas: [beta1, beta2], eps, limit, root_scale } = rule;
        // SAFETY: a unit reads and writes below its tensor's length, within the tensor's blocks.
        unsafe {
            adamw_kernel::launch_unchecked(
                &client,
                CubeCount::Static(total as u32, 1, 1),
                CubeDim::new_1d(UNITS as u32),
                args(values),
                args(gradients),
                args(firsts),
                args(seconds),
                upload(&like, &begins, DType::U32).into_buffer_arg(),
                upload(&like, &sizes, DType::U32).into_buffer_arg(),
                upload(&like, &rates, DType::F32).into_buffer_arg(),
                square_norm.clone().into_buffer_arg(),
                value.clone().into_buffer_arg(),
                first.clone().into_buffer_arg(),
                second.clone().into_buffer_arg(),
                RuleLaunch::new(
                    beta1 as f32,
                    (1.0 - beta1) as f32,
                    beta2 as f32,
                    (1.0 - beta2) as f32,
                    eps as f32,
                    limit.unwrap_or(0.0) as f32,
                    root_scale as f32,
                ),
            );
        }
        let [value, first, second] = [value, first, second].map(|t| parts(&t, &begins, &lengths));
        let moments = first.into_iter().zip(second);
        results.extend(value.into_iter().zip(moments).map(|(v, (m, s))| [v, m, s]));
    }
}

pub(super) fn moving_average(
    pairs: Vec<[Tensor<1>; 2]>,
    square_norm: Tensor<1>,
    decay: f64,
) -> Vec<Tensor<1>> {
    let square_norm = cube(square_norm);
    let mut results = Vec::with_capacity(pairs.len());
    let mut pairs = pairs.into_iter().peekable();
    let Some([first, _]) = pairs.peek() else { return results };
    let like = cube(first.clone());
    let client = like.client.clone();
    let most = per_launch(&like, 2);
    loop {
        let group: Vec<[Tensor<1>; 2]> = pairs.by_ref().take(most).collect();
        if group.is_empty() {
            return results;
        }
        let (averages, values): (Vec<_>, Vec<_>) =
            group.into_iter().map(|[average, value]| (cube(average), cube(value))).unzip();
        let lengths: Vec<usize> = values.iter().map(length).collect();
        let (begins, total) = blocks(&lengths);
        let sizes: Vec<u32> = lengths.iter().map(|&length| length as u32).collect();
        let out = empty(&like, [total * BLOCK], DType::F32);
        let args =
            |group: Vec<CubeTensor>| group.into_iter().map(|t| t.into_buffer_arg()).collect();
        // SAFETY: as in `adamw`.
        unsafe {
            average_kernel::launch_unchecked(
                &client,
                CubeCount::Static(total as u32, 1, 1),
                CubeDim::new_1d(UNITS as u32),
                args(averages),
                args(values),
                upload(&like, &begins, DType::U32).into_buffer_arg(),
                upload(&like, &sizes, DType::U32).into_buffer_arg(),
                square_norm.clone().into_buffer_arg(),
                out.clone().into_buffer_arg(),
                decay as f32,
                (1.0 - decay) as f32,
            );
        }
        results.extend(parts(&out, &begins, &lengths));
    }
}
