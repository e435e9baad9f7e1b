//! The native kernel behind Burn's Flex backend.

mod kernel;

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::DType;

use super::NormSpec;
use super::autodiff::{NormGrads, NormKernels, NormPrimitives};
use crate::native::slices::{contiguous, slice, tensor, tensor_as};
use kernel::Norm;

impl NormKernels for Flex {
    fn forward(
        x: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        spec: NormSpec,
    ) -> NormPrimitives<Self> {
        let dtype = x.dtype();
        let [x, residual, weight] = [x, residual, weight].map(|t| contiguous(&t));
        let shape: Vec<usize> = x.shape().iter().copied().collect();
        let sum = if spec.has_residual {
            tensor(kernel::add(slice(&x), slice(&residual)), &shape)
        } else {
            x
        };
        let norm = Norm { weight: slice(&weight), epsilon: spec.epsilon };
        let normed = kernel::forward(norm, slice(&sum));
        NormPrimitives { normed: tensor_as(normed, &shape, dtype), sum }
    }

    fn backward(
        grad_normed: FloatTensor<Self>,
        grad_sum: Option<FloatTensor<Self>>,
        sum: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        spec: NormSpec,
        dtype: DType,
    ) -> NormGrads<Self> {
        let [grad_normed, sum, weight] = [grad_normed, sum, weight].map(|t| contiguous(&t));
        let grad_sum = grad_sum.map(|t| contiguous(&t));
        let norm = Norm { weight: slice(&weight), epsilon: spec.epsilon };
        let (grad, grad_weight) =
            kernel::backward(norm, slice(&sum), slice(&grad_normed), grad_sum.as_ref().map(slice));
        let shape: Vec<usize> = sum.shape().iter().copied().collect();
        let x = (dtype != DType::F32).then(|| tensor_as(grad.clone(), &shape, dtype));
        let sum = tensor(grad, &shape);
        let grad_weight = tensor(grad_weight, &weight.shape().dims::<1>());
        NormGrads { x: x.unwrap_or_else(|| sum.clone()), sum, weight: grad_weight }
    }
}
