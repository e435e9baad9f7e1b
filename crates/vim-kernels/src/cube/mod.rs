//! Kernels in CubeCL, for CUDA and for any GPU that wgpu reaches.
//!
//! All of them take contiguous storage and write contiguous storage. CUDA pads the rows of tensors
//! that Burn makes itself ("pitched"), so every input passes through [`dense`] first.

mod full_scan;

use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;

/// The tensor with rows that follow each other without padding; copies only where they do not.
pub(crate) fn dense(tensor: CubeTensor) -> CubeTensor {
    into_contiguous(tensor)
}

/// A new contiguous tensor beside `like`, its contents not yet written.
pub(crate) fn empty(like: &CubeTensor, shape: impl Into<Shape>, dtype: DType) -> CubeTensor {
    let shape = shape.into();
    let handle = like.client.empty(shape.num_elements() * dtype.size());
    CubeTensor::new_contiguous(like.client.clone(), like.device.clone(), shape, handle, dtype)
}

/// Whether kernels may exchange values between the units of a plane (a warp).
///
/// Only for planes of 32, which the reductions are written for.
pub(crate) fn has_planes(client: &Client) -> bool {
    let properties = client.properties();
    let hardware = &properties.hardware;
    properties.features.plane.contains(cubecl::ir::features::Plane::Ops)
        && hardware.plane_size_min == 32
        && hardware.plane_size_max == 32
}
