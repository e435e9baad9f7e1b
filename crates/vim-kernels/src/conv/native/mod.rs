//! The native convolution behind Burn's Flex backend.

mod kernel;

use burn::backend::ops::FloatTensorOps;
use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::Slice;

use super::autodiff::{BidirectionalConvArguments, ConvArguments};
use super::{BidirectionalConvSpec, ConvSpec};
use crate::native::slices::{contiguous, slice, tensor, tensor_as};
use crate::op::{Forward, FusedOp, Tensors};
use kernel::ConvInputs;

type Flexible = FloatTensor<Flex>;

impl FusedOp<Flex, 3, 0> for ConvSpec {
    type Inputs = ConvArguments<Flex>;
    type Saved = ConvArguments<Flex>;

    fn forward(self, arguments: ConvArguments<Flex>, save: bool) -> Forward<Flex, Self::Saved, 0> {
        let y = forward(arguments.clone(), self);
        (y, [], save.then_some(arguments))
    }

    fn backward(
        self,
        grad_y: Flexible,
        arguments: ConvArguments<Flex>,
        _wanted: [bool; 3],
    ) -> [Option<Flexible>; 3] {
        backward(grad_y, arguments, self).map(Some)
    }
}

impl FusedOp<Flex, 5, 0> for BidirectionalConvSpec {
    type Inputs = BidirectionalConvArguments<Flex>;
    type Saved = BidirectionalConvArguments<Flex>;

    fn forward(
        self,
        arguments: BidirectionalConvArguments<Flex>,
        save: bool,
    ) -> Forward<Flex, Self::Saved, 0> {
        let [fwd, rev] = directions(arguments.clone());
        let (fwd, rev) = (forward(fwd, self.0), forward(rev, self.0.reversed()));
        (Flex::float_cat(vec![fwd, rev], 0), [], save.then_some(arguments))
    }

    fn backward(
        self,
        grad_y: Flexible,
        arguments: BidirectionalConvArguments<Flex>,
        _wanted: [bool; 5],
    ) -> [Option<Flexible>; 5] {
        let [batch, len, d_inner] = arguments.x.shape().dims();
        let half = |first: usize| {
            let slices = [first..first + batch, 0..len, 0..d_inner].map(Slice::from);
            Flex::float_slice(grad_y.clone(), &slices)
        };
        let [fwd, rev] = directions(arguments);
        let [x_fwd, weight_fwd, bias_fwd] = backward(half(0), fwd, self.0);
        let [x_rev, weight_rev, bias_rev] = backward(half(batch), rev, self.0.reversed());
        let grad_x = Flex::float_add(x_fwd, x_rev);
        [grad_x, weight_fwd, bias_fwd, weight_rev, bias_rev].map(Some)
    }
}

/// The arguments of each direction.
fn directions(arguments: BidirectionalConvArguments<Flex>) -> [ConvArguments<Flex>; 2] {
    let BidirectionalConvArguments { x, weight_fwd, bias_fwd, weight_rev, bias_rev } = arguments;
    [
        ConvArguments { x: x.clone(), weight: weight_fwd, bias: bias_fwd },
        ConvArguments { x, weight: weight_rev, bias: bias_rev },
    ]
}

fn forward(arguments: ConvArguments<Flex>, spec: ConvSpec) -> Flexible {
    let dtype = arguments.x.dtype();
    let arguments = arguments.map(|t| contiguous(&t));
    let y = kernel::forward(inputs(&arguments, spec));
    tensor_as(y, &arguments.x.shape().dims::<3>(), dtype)
}

fn backward(grad_y: Flexible, arguments: ConvArguments<Flex>, spec: ConvSpec) -> [Flexible; 3] {
    let dtype = arguments.x.dtype();
    let arguments = arguments.map(|t| contiguous(&t));
    let grad_y = contiguous(&grad_y);
    let grads = kernel::backward(inputs(&arguments, spec), slice(&grad_y));
    let ConvArguments { x, weight, bias } = arguments;
    [
        tensor_as(grads.x, &x.shape().dims::<3>(), dtype),
        tensor(grads.weight, &weight.shape().dims::<3>()),
        tensor(if spec.has_bias { grads.bias } else { vec![0.0] }, &bias.shape().dims::<1>()),
    ]
}

fn inputs(arguments: &ConvArguments<Flex>, spec: ConvSpec) -> ConvInputs<'_> {
    let ConvArguments { x, weight, bias } = arguments;
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
