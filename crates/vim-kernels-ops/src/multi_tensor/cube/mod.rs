//! The launches: one per group of tensors; flat buffers are bound whole.

#![expect(unsafe_code, reason = "launching kernels without bounds checks")]

mod kernel;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::TensorMetadata;
use burn::tensor::{DType, Shape, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::zspace::metadata::Metadata;

use super::{AdamWHyper, BLOCK, ParamStep};
use kernel::{
    RuleLaunch, UNITS, adamw_kernel, average_kernel, pack_kernel, squares_kernel, sum_kernel,
};
use vim_kernels_core::buffer;
use vim_kernels_core::cube::{cubes, dense, empty, primitive};

/// Most buffers per launch: a kernel has code for each of them, and many take long to compile.
const MOST: usize = 48;
/// Bindings of a launch beside the buffers.
const OTHERS: usize = 8;
/// Elements that a unit averages.
const LANES: usize = 4;

fn cube(tensor: Tensor<1>) -> CubeTensor {
    dense(primitive(tensor))
}

/// All of a tensor's buffer.
fn whole(mut tensor: CubeTensor) -> CubeTensor {
    (tensor.handle.offset_start, tensor.handle.offset_end) = (None, None);
    let elements = tensor.handle.size_in_used() as usize / size_of::<f32>();
    tensor.meta = Box::new(Metadata::new(Shape::from([elements]), [1]));
    tensor
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
    /// The tensor of each block, on the device.
    of_block: CubeTensor,
    /// Those of the last call: gradients of one step lie in their buffers as those of the step
    /// before.
    known: Arc<Mutex<Option<Known>>>,
}

/// Where tensors are read, and the table of it on the device.
type Known = (Vec<Source>, CubeTensor);

/// Where a tensor is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Source {
    /// Number of its buffer among those of its launch.
    buffer: u32,
    /// Its first element there.
    begin: u32,
}

/// Tensors as kernels read them.
struct Placed {
    launches: Vec<Launch>,
    /// See [`kernel::PLACE`].
    places: CubeTensor,
}

/// Adjacent tensors.
struct Launch {
    /// Those that they lie in, whole.
    buffers: Vec<CubeTensor>,
    blocks: Range<usize>,
}

impl Launch {
    fn cubes(&self) -> CubeCount {
        CubeCount::Static(self.blocks.len() as u32, 1, 1)
    }

    /// The same in launches of at most `most` cubes.
    fn cut(self, most: usize) -> impl Iterator<Item = Self> {
        cut(self.blocks, most).map(move |blocks| Self { buffers: self.buffers.clone(), blocks })
    }
}

/// `blocks` in ranges of at most `most`.
fn cut(blocks: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    let end = blocks.end;
    blocks.step_by(most).map(move |begin| begin..end.min(begin + most))
}

impl Layout {
    pub(super) fn of(tensors: &[Tensor<1>]) -> Self {
        let like = cube(tensors.first().expect("invariant: a model has parameters").clone());
        let lengths: Vec<usize> = tensors.iter().map(|t| t.shape().num_elements()).collect();
        let mut of_block = Vec::new();
        let begins = lengths.iter().enumerate().map(|(tensor, length)| {
            let begin = of_block.len();
            of_block.resize(begin + length.div_ceil(BLOCK), tensor as u32);
            begin
        });
        let begins = begins.collect();
        let (blocks, of_block) = (of_block.len(), upload(&like, &of_block, DType::U32));
        Self { lengths, begins, blocks, of_block, known: Arc::default() }
    }

    /// Tensors of one buffer bind it once.
    fn placed(&self, tensors: impl IntoIterator<Item = Tensor<1>>) -> Placed {
        let properties = self.of_block.client.properties();
        let bindings = properties.hardware.max_bindings as usize;
        let most = bindings.saturating_sub(OTHERS).clamp(1, MOST);
        let mut launches: Vec<Launch> = Vec::new();
        let mut numbers = HashMap::new();
        let mut sources = Vec::with_capacity(self.lengths.len());
        for (tensor, &block) in tensors.into_iter().map(cube).zip(&self.begins) {
            let id = buffer(&tensor);
            let begin = tensor.handle.offset_start.unwrap_or(0) / size_of::<f32>() as u64;
            if !numbers.contains_key(&id) && (numbers.len() == most || launches.is_empty()) {
                numbers.clear();
                launches.push(Launch { buffers: Vec::new(), blocks: block..block });
            }
            let launch = launches.last_mut().expect("invariant: one was pushed");
            let number = *numbers.entry(id).or_insert_with(|| {
                launch.buffers.push(whole(tensor));
                launch.buffers.len() - 1
            });
            let length = self.lengths[sources.len()];
            launch.blocks.end = block + length.div_ceil(BLOCK);
            sources.push(Source { buffer: number as u32, begin: begin as u32 });
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let places = match &*known {
            Some((last, places)) if *last == sources => places.clone(),
            _ => {
                let of = self.begins.iter().zip(&self.lengths).zip(&sources);
                let rows = of.flat_map(|((&begin, &length), source)| {
                    [begin as u32, length as u32, source.buffer, source.begin]
                });
                let rows: Vec<u32> = rows.collect();
                known.insert((sources, upload(&self.of_block, &rows, DType::U32))).1.clone()
            }
        };
        let most = properties.hardware.max_cube_count.0 as usize;
        let launches = launches.into_iter().flat_map(|launch| launch.cut(most)).collect();
        Placed { launches, places }
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
        let client = self.of_block.client.clone();
        let out = empty(&self.of_block, [self.len()], DType::F32);
        let Placed { launches, places } = self.placed(tensors);
        for launch in launches {
            // SAFETY: a cube reads below its tensor's length, and writes its block.
            unsafe {
                pack_kernel::launch_unchecked(
                    &client,
                    launch.cubes(),
                    CubeDim::new_1d(UNITS as u32),
                    launch.buffers.into_iter().map(CubeTensor::into_buffer_arg).collect(),
                    self.of_block.clone().into_buffer_arg(),
                    places.clone().into_buffer_arg(),
                    out.clone().into_buffer_arg(),
                    launch.blocks.start as u32,
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
        let like = &self.of_block;
        let client = like.client.clone();
        let sums = empty(like, [self.blocks], DType::F32);
        let Placed { launches, places } = self.placed(tensors.iter().cloned());
        for launch in launches {
            // SAFETY: a cube reads below its tensor's length, and writes one sum for its block.
            unsafe {
                squares_kernel::launch_unchecked(
                    &client,
                    launch.cubes(),
                    CubeDim::new_1d(UNITS as u32),
                    launch.buffers.into_iter().map(CubeTensor::into_buffer_arg).collect(),
                    like.clone().into_buffer_arg(),
                    places.clone().into_buffer_arg(),
                    sums.clone().into_buffer_arg(),
                    launch.blocks.start as u32,
                );
            }
        }
        let out = empty(like, [1], DType::F32);
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
        updated: [&Tensor<1>; 3],
        gradients: Vec<Tensor<1>>,
        rates: &[ParamStep],
        square_norm: Tensor<1>,
        rule: AdamWHyper,
    ) {
        self.check(&gradients);
        assert_eq!(rates.len(), self.lengths.len(), "a rate for each place");
        let updated = updated.map(|tensor| cube(tensor.clone()));
        let lengths = updated.each_ref().map(|packed| packed.shape().num_elements());
        assert_eq!(lengths, [self.len(); 3], "value and moments are packed so");
        let square_norm = cube(square_norm);
        let client = square_norm.client.clone();
        let rates: Vec<f32> =
            rates.iter().flat_map(|own| [own.rate as f32, own.keep as f32]).collect();
        let rates = upload(&square_norm, &rates, DType::F32);
        let AdamWHyper { betas: [beta1, beta2], eps, limit, root_scale } = rule;
        let [values, means, squares] = updated;
        let Placed { launches, places } = self.placed(gradients);
        for launch in launches {
            // SAFETY: a unit reads below its tensor's length, and writes what it alone reads.
            unsafe {
                adamw_kernel::launch_unchecked(
                    &client,
                    launch.cubes(),
                    CubeDim::new_1d(UNITS as u32),
                    launch.buffers.into_iter().map(CubeTensor::into_buffer_arg).collect(),
                    self.of_block.clone().into_buffer_arg(),
                    places.clone().into_buffer_arg(),
                    values.clone().into_buffer_arg(),
                    means.clone().into_buffer_arg(),
                    squares.clone().into_buffer_arg(),
                    rates.clone().into_buffer_arg(),
                    square_norm.clone().into_buffer_arg(),
                    launch.blocks.start as u32,
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
    }
}

pub(super) fn moving_average(
    average: &Tensor<1>,
    value: Tensor<1>,
    square_norm: Tensor<1>,
    decay: f64,
) {
    let [average, value, square_norm] = [average.clone(), value, square_norm].map(cube);
    let count = average.shape().num_elements();
    let alike = value.shape().num_elements() == count && count.is_multiple_of(BLOCK);
    assert!(alike, "both are packed alike");
    let client = average.client.clone();
    // SAFETY: both have `count` numbers, a multiple of a vector's; units beyond do nothing.
    unsafe {
        average_kernel::launch_unchecked(
            &client,
            cubes(&client, (count / LANES).div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            LANES,
            average.into_buffer_arg(),
            value.into_buffer_arg(),
            square_norm.into_buffer_arg(),
            decay as f32,
            (1.0 - decay) as f32,
            (count / LANES) as u32,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_has_no_more_cubes_than_a_device_launches() {
        let of = |blocks, most| cut(blocks, most).collect::<Vec<_>>();
        assert_eq!(of(7..107, 65_535), vec![7..107; 1]);
        // As many parameters as Vim-B has, in blocks of 512, on WebGPU.
        let parts = [10..65_545, 65_545..131_080, 131_080..191_010];
        assert_eq!(of(10..191_010, 65_535), parts);
    }
}
