//! The launches: one per group of tensors; flat buffers are bound whole.

#![expect(unsafe_code, reason = "launching kernels without bounds checks")]

mod kernel;

use std::ops::Range;

use burn::backend::TensorMetadata;
use burn::tensor::{DType, Shape, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::zspace::metadata::Metadata;

use super::{AdamWHyper, BLOCK, ParamStep};
use crate::cube::{cubes, dense, empty};
use kernel::{
    RuleLaunch, UNITS, adamw_kernel, average_kernel, pack_kernel, squares_kernel, sum_kernel,
};

/// Most tensors per launch: a kernel has code for each of them, and many take long to compile.
const MOST: usize = 48;
/// Most buffers that a launch binds per tensor: value and gradient.
const EACH: usize = 2;
/// Bindings of a launch beside the tensors.
const OTHERS: usize = 9;
/// Elements that a unit averages.
const LANES: usize = 4;

fn cube(tensor: Tensor<1>) -> CubeTensor {
    let tensor = tensor.try_into_primitive::<CubeBackend>();
    dense(tensor.expect("invariant: the tensors are where kernels in CubeCL run, without autodiff"))
}

/// A buffer with the contents of `values`.
fn upload<E: CubeElement>(like: &CubeTensor, values: &[E], dtype: DType) -> CubeTensor {
    let handle = like.client.create_from_slice(E::as_bytes(values));
    let shape = Shape::from([values.len()]);
    CubeTensor::new_contiguous(like.client.clone(), like.device.clone(), shape, handle, dtype)
}

/// See [`FlatParams`](super::FlatParams).
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Elements of each tensor.
    lengths: Vec<usize>,
    /// The first block of each tensor.
    begins: Vec<usize>,
    /// Blocks of all tensors.
    blocks: usize,
    groups: Vec<Group>,
}

/// Tensors of the launch.
#[derive(Clone, Debug)]
struct Group {
    tensors: Range<usize>,
    /// Their blocks.
    blocks: Range<usize>,
    /// The first block of each, relative to the group, on the device.
    begins: CubeTensor,
    lengths: CubeTensor,
}

impl Group {
    fn cubes(&self) -> CubeCount {
        CubeCount::Static(self.blocks.len() as u32, 1, 1)
    }
}

impl Layout {
    pub(super) fn of(tensors: &[Tensor<1>]) -> Self {
        let like = cube(tensors.first().expect("invariant: a model has parameters").clone());
        let lengths: Vec<usize> = tensors.iter().map(|t| t.shape().num_elements()).collect();
        let mut blocks = 0;
        let begins = lengths.iter().map(|length| {
            let begin = blocks;
            blocks += length.div_ceil(BLOCK);
            begin
        });
        let begins: Vec<usize> = begins.collect();
        let bindings = like.client.properties().hardware.max_bindings as usize;
        let most = (bindings.saturating_sub(OTHERS) / EACH).clamp(1, MOST);
        let end = |tensor: usize| begins.get(tensor).copied().unwrap_or(blocks);
        let group = |first: usize| {
            let tensors = first..lengths.len().min(first + most);
            let own = tensors.clone().map(|i| (begins[i] - begins[first]) as u32);
            let sizes: Vec<u32> = tensors.clone().map(|i| lengths[i] as u32).collect();
            Group {
                blocks: begins[first]..end(tensors.end),
                begins: upload(&like, &own.collect::<Vec<_>>(), DType::U32),
                lengths: upload(&like, &sizes, DType::U32),
                tensors,
            }
        };
        let groups = (0..lengths.len()).step_by(most).map(group).collect();
        Self { begins, blocks, groups, lengths }
    }

    fn len(&self) -> usize {
        self.blocks * BLOCK
    }

    /// Kernels read a tensor's size from here.
    fn check(&self, tensors: &[Tensor<1>]) {
        assert_eq!(tensors.len(), self.lengths.len(), "a tensor for each place");
        for (tensor, &length) in tensors.iter().zip(&self.lengths) {
            assert_eq!(tensor.dims(), [length], "a tensor of its place's size");
        }
    }

    pub(super) fn pack(&self, tensors: Vec<Tensor<1>>) -> Tensor<1> {
        self.check(&tensors);
        let like = self.groups[0].begins.clone();
        let client = like.client.clone();
        let out = empty(&like, [self.len()], DType::F32);
        let mut tensors = tensors.into_iter().map(cube);
        for group in &self.groups {
            let tensors = tensors.by_ref().take(group.tensors.len());
            // SAFETY: a cube reads below its tensor's length, and writes its block.
            unsafe {
                pack_kernel::launch_unchecked(
                    &client,
                    group.cubes(),
                    CubeDim::new_1d(UNITS as u32),
                    tensors.map(|tensor| tensor.into_buffer_arg()).collect(),
                    group.begins.clone().into_buffer_arg(),
                    group.lengths.clone().into_buffer_arg(),
                    out.clone().into_buffer_arg(),
                    group.blocks.start as u32,
                );
            }
        }
        Tensor::from_primitive::<CubeBackend>(out)
    }

    pub(super) fn parts(&self, packed: &Tensor<1>) -> Vec<Tensor<1>> {
        let packed = cube(packed.clone());
        let part = |(&begin, &length): (&usize, &usize)| {
            let mut part = packed.clone();
            part.handle = part.handle.offset_start((begin * BLOCK * size_of::<f32>()) as u64);
            part.meta = Box::new(Metadata::new(Shape::from([length]), [1]));
            Tensor::from_primitive::<CubeBackend>(part)
        };
        self.begins.iter().zip(&self.lengths).map(part).collect()
    }

    pub(super) fn sum_of_squares(&self, tensors: &[Tensor<1>]) -> Tensor<1> {
        self.check(tensors);
        let like = self.groups[0].begins.clone();
        let client = like.client.clone();
        let sums = empty(&like, [self.blocks], DType::F32);
        for group in &self.groups {
            let tensors = tensors[group.tensors.clone()].iter().cloned().map(cube);
            // SAFETY: a cube reads below its tensor's length, and writes one sum for its block.
            unsafe {
                squares_kernel::launch_unchecked(
                    &client,
                    group.cubes(),
                    CubeDim::new_1d(UNITS as u32),
                    tensors.map(|tensor| tensor.into_buffer_arg()).collect(),
                    group.begins.clone().into_buffer_arg(),
                    group.lengths.clone().into_buffer_arg(),
                    sums.clone().into_buffer_arg(),
                    group.blocks.start as u32,
                );
            }
        }
        let out = empty(&like, [1], DType::F32);
        // SAFETY: there are as many sums as blocks; one cube writes one number.
        unsafe {
            sum_kernel::launch_unchecked(
                &client,
                CubeCount::Static(1, 1, 1),
                CubeDim::new_1d(UNITS as u32),
                sums.into_buffer_arg(),
                out.clone().into_buffer_arg(),
                self.blocks as u32,
            );
        }
        Tensor::from_primitive::<CubeBackend>(out)
    }

    pub(super) fn adamw(
        &self,
        values: Vec<Tensor<1>>,
        gradients: Vec<Tensor<1>>,
        moments: [Tensor<1>; 2],
        rates: &[ParamStep],
        square_norm: Tensor<1>,
        rule: AdamWHyper,
    ) -> [Tensor<1>; 3] {
        self.check(&values);
        self.check(&gradients);
        assert_eq!(rates.len(), self.lengths.len(), "a rate for each place");
        let [first, second] = moments.map(cube);
        let lengths = [&first, &second].map(|moment| moment.shape().num_elements());
        assert_eq!(lengths, [self.len(); 2], "both moments are packed so");
        let square_norm = cube(square_norm);
        let client = first.client.clone();
        let rates: Vec<f32> =
            rates.iter().flat_map(|own| [own.rate as f32, own.keep as f32]).collect();
        let rates = upload(&first, &rates, DType::F32);
        let out = || empty(&first, [self.len()], DType::F32);
        let outs = [out(), out(), out()];
        let AdamWHyper { betas: [beta1, beta2], eps, limit, root_scale } = rule;
        let (mut values, mut gradients) = (values.into_iter(), gradients.into_iter());
        for group in &self.groups {
            let count = group.tensors.len();
            let values = values.by_ref().take(count).map(|t| cube(t).into_buffer_arg()).collect();
            let gradients = gradients.by_ref().take(count);
            // SAFETY: a unit reads and writes below its tensor's length, within the tensor's
            // blocks.
            unsafe {
                adamw_kernel::launch_unchecked(
                    &client,
                    group.cubes(),
                    CubeDim::new_1d(UNITS as u32),
                    values,
                    gradients.map(|t| cube(t).into_buffer_arg()).collect(),
                    first.clone().into_buffer_arg(),
                    second.clone().into_buffer_arg(),
                    group.begins.clone().into_buffer_arg(),
                    group.lengths.clone().into_buffer_arg(),
                    rates.clone().into_buffer_arg(),
                    square_norm.clone().into_buffer_arg(),
                    outs[0].clone().into_buffer_arg(),
                    outs[1].clone().into_buffer_arg(),
                    outs[2].clone().into_buffer_arg(),
                    group.tensors.start as u32,
                    group.blocks.start as u32,
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
        }
        outs.map(Tensor::from_primitive::<CubeBackend>)
    }
}

pub(super) fn moving_average(
    average: Tensor<1>,
    value: Tensor<1>,
    square_norm: Tensor<1>,
    decay: f64,
) -> Tensor<1> {
    let [average, value, square_norm] = [average, value, square_norm].map(cube);
    let count = average.shape().num_elements();
    let alike = value.shape().num_elements() == count && count.is_multiple_of(BLOCK);
    assert!(alike, "both are packed alike");
    let client = average.client.clone();
    let out = empty(&average, [count], DType::F32);
    // SAFETY: all three have `count` numbers, a multiple of a vector's; units beyond do nothing.
    unsafe {
        average_kernel::launch_unchecked(
            &client,
            cubes(&client, (count / LANES).div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            LANES,
            average.into_buffer_arg(),
            value.into_buffer_arg(),
            square_norm.into_buffer_arg(),
            out.clone().into_buffer_arg(),
            decay as f32,
            (1.0 - decay) as f32,
            (count / LANES) as u32,
        );
    }
    Tensor::from_primitive::<CubeBackend>(out)
}
