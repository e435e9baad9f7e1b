//! The native convolution behind Burn's Flex backend.

mod kernel;

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};

use super::ConvSpec;
use super::autodiff::ConvKernels;
use crate::native::slices::{contiguous, slice, tensor, tensor_as};
use kernel::ConvInputs;

impl ConvKernels for Flex {
    fn forward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        spec: ConvSpec,
    ) -> FloatTensor<Self> {
        let dtype = x.dtype();
        let [x, weight, bias] = [x, weight, bias].map(|t| contiguous(&t));
        let y = kernel::forward(inputs(&x, &weight, &bias, spec));
        tensor_as(y, &x.shape().dims::<3>(), dtype)
    }

    fn backward(
        grad_y: FloatTensor<Self>,
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        spec: ConvSpec,
    ) -> [FloatTensor<Self>; 3] {
        let dtype = x.dtype();
        let [x, weight, bias, grad_y] = [x, weight, bias, grad_y].map(|t| contiguous(&t));
        let grads = kernel::backward(inputs(&x, &weight, &bias, spec), slice(&grad_y));
        [
            tensor_as(grads.x, &x.shape().dims::<3>(), dtype),
            tensor(grads.weight, &weight.shape().dims::<3>()),
            tensor(if spec.has_bias { grads.bias } else { vec![0.0] }, &bias.shape().dims::<1>()),
        ]
    }
}

fn inputs<'a>(
    x: &'a FloatTensor<Flex>,
    weight: &'a FloatTensor<Flex>,
    bias: &'a FloatTensor<Flex>,
    spec: ConvSpec,
) -> ConvInputs<'a> {
    let [_, len, d_inner] = x.shape().dims();
    let [_, _, width] = weight.shape().dims();
    ConvInputs {
        len,
        d_inner,
        width,
        spec,
        x: slice(x),
        weight: slice(weight),
        bias: spec.has_bias.then(|| slice(bias)),
    }
}
