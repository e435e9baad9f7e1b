//! Helpers of the CubeCL kernels, for CUDA and for any GPU that wgpu reaches.
//!
//! All kernels write contiguous storage. CUDA pads the rows of tensors that Burn allocates
//! ("pitched"), so every input passes through [`dense`] first, except where a kernel reads it by
//! its strides.

pub mod halves;
pub mod math;
pub mod strides;
pub mod sum;
pub mod tables;

use std::cell::RefCell;

use burn::backend::cubecl::dtype_to_storage_type;
use burn::tensor::{DType, Shape, Tensor};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeDevice};
use cubecl::CubeCount;
use cubecl::client::Client;
use cubecl::ir::ElemType;

/// The tensor with unpadded rows; copied only if they are padded.
pub fn dense(tensor: CubeTensor) -> CubeTensor {
    into_contiguous(tensor)
}

/// The tensor on its backend.
///
/// # Panics
///
/// If it is not where kernels in CubeCL run, or its gradients are tracked.
pub fn primitive<const R: usize>(tensor: Tensor<R>) -> CubeTensor {
    let tensor = tensor.try_into_primitive::<CubeBackend>();
    tensor.expect("invariant: the tensor is where kernels in CubeCL run, without autodiff")
}

/// A new contiguous tensor on the device of `like`, uninitialized.
pub fn empty(like: &CubeTensor, shape: impl Into<Shape>, dtype: DType) -> CubeTensor {
    let shape = shape.into();
    let handle = like.client.empty(shape.num_elements() * dtype.size());
    let (client, device) = (like.client.clone(), like.device.clone());
    let tensor = CubeTensor::new_contiguous(client, device, shape, handle, dtype);
    MADE.with_borrow_mut(|made| {
        if let Some(made) = made {
            made.push(tensor.clone());
        }
    });
    tensor
}

thread_local! {
    /// What [`empty`] makes on this thread, while [`recorded`] runs.
    static MADE: RefCell<Option<Vec<CubeTensor>>> = const { RefCell::new(None) };
}

/// Runs `run`, whose launches are recorded, and returns the tensors that [`empty`] made on this
/// thread meanwhile, too: with its inputs all that kernels of these crates read and write, unless
/// they call operations of Burn, which a copy of an input that is not [`dense`] is.
pub fn recorded<R>(run: impl FnOnce() -> R) -> (R, Vec<CubeTensor>) {
    /// What was there before, also behind a panic.
    struct Before(Option<Vec<CubeTensor>>);
    impl Drop for Before {
        fn drop(&mut self) {
            MADE.set(self.0.take());
        }
    }
    let before = Before(MADE.replace(Some(Vec::new())));
    let result = run();
    let made = MADE.take().unwrap_or_default();
    drop(before);
    (result, made)
}

/// Whether [`recorded`] runs on this thread: what is launched again and again notes nothing for the
/// process.
#[must_use]
pub fn is_recorded() -> bool {
    MADE.with_borrow(Option::is_some)
}

/// The element type that a kernel is compiled for.
pub fn elem(tensor: &CubeTensor) -> ElemType {
    dtype_to_storage_type(tensor.dtype)
}

/// Whether kernels may exchange values between the units of a plane (a warp).
///
/// Only for planes of 32, which the reductions are written for.
pub fn has_planes(client: &Client) -> bool {
    let properties = client.properties();
    let hardware = &properties.hardware;
    properties.features.plane.contains(cubecl::ir::features::Plane::Ops)
        && hardware.plane_size_min == 32
        && hardware.plane_size_max == 32
}

/// Whether a kernel on this tensor's device may contain PTX instructions.
pub fn has_ptx(tensor: &CubeTensor) -> bool {
    matches!(tensor.device, CubeDevice::Cuda(_))
}

/// A grid of at least `count` cubes, spread over its axes where one is too short: a kernel reads
/// `CUBE_POS` and skips cubes from `count` on.
pub fn cubes(client: &Client, count: usize) -> CubeCount {
    cubecl::calculate_cube_count_elemwise(client, count, cubecl::CubeDim::new_1d(1))
}

/// The widest of 8, 4, 2 and 1 neighbouring channels, at most `most`, that divides rows of
/// `channels`.
pub fn lanes(channels: usize, most: usize) -> usize {
    [8, 4, 2].into_iter().find(|&n| n <= most && channels.is_multiple_of(n)).unwrap_or(1)
}
