//! Conversions between Flex tensors and the slices that the native kernels take.

use burn::backend::{Flex, ops::FloatTensorOps, tensor::FloatTensor};
use burn::tensor::{DType, FloatDType, TensorData};

/// The tensor in contiguous row-major order, in f32.
pub fn contiguous(tensor: &FloatTensor<Flex>) -> FloatTensor<Flex> {
    if tensor.dtype() == DType::F32 {
        tensor.to_contiguous()
    } else {
        Flex::float_cast(tensor.clone(), FloatDType::F32).to_contiguous()
    }
}

/// The elements of a contiguous tensor.
///
/// # Panics
///
/// If the tensor did not come from [`contiguous`].
pub fn slice(tensor: &FloatTensor<Flex>) -> &[f32] {
    tensor.as_slice().expect("invariant: made contiguous")
}

/// A tensor of `values`.
pub fn tensor(values: Vec<f32>, shape: &[usize]) -> FloatTensor<Flex> {
    FloatTensor::<Flex>::from_data(TensorData::new(values, shape))
}

/// The same, rounded to `dtype`.
pub fn tensor_as(values: Vec<f32>, shape: &[usize], dtype: DType) -> FloatTensor<Flex> {
    let values = tensor(values, shape);
    if dtype == DType::F32 { values } else { Flex::float_cast(values, dtype.into()) }
}

/// Adds `from` to `to` from its element `first` on, and nothing to a `to` that ends before.
pub fn add_at(to: &mut [f32], first: usize, from: &[f32]) {
    if let Some(to) = to.get_mut(first..) {
        add(to, from);
    }
}

/// Adds `from` to the start of `to`.
pub fn add(to: &mut [f32], from: &[f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += from;
    }
}
