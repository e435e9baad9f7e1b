//! The linear map as a differentiable operation of Burn, on a GPU.

use burn::backend::TensorMetadata;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::cube::{Matrix, Output, activations, column_sums, multiply, weight_gradient};
use crate::cube::{dense, empty};
use crate::op::{Forward, FusedOp, Single, fused_op, tensors};
use crate::precision::Precision;

/// The checked call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinearSpec {
    pub(super) has_bias: bool,
    pub(super) precision: Precision,
}

tensors! {
    /// The arguments on a backend, shapes as in [`super::linear`].
    LinearArguments, 3: { x, weight, bias }
}

fused_op! {
    Cube:
    LinearBackend::linear_map(LinearSpec, LinearArguments, 3) -> Single { y }
}

impl FusedOp<CubeBackend, 3, 0> for LinearSpec {
    type Inputs = LinearArguments<CubeBackend>;
    /// x, and the weight in the precision of the product.
    type Saved = [CubeTensor; 2];

    fn forward(
        self,
        arguments: LinearArguments<CubeBackend>,
        save: bool,
    ) -> Forward<CubeBackend, Self::Saved, 0> {
        let weight = Matrix::rounded_weight(&arguments.weight, self.precision);
        let saved = save.then(|| [arguments.x.clone(), weight.clone()]);
        let [x, bias] = [arguments.x, arguments.bias].map(dense);
        let [batch, len, width] = x.shape().dims();
        let [_, columns] = weight.shape().dims();
        let out = activations(&x, [batch, len, columns], self.precision);
        multiply(
            &Matrix::dense(&x, [batch * len, width]),
            &Matrix::weight(&weight),
            self.has_bias.then_some(&bias),
            &Matrix::dense(&out, [batch * len, columns]),
            Output::Overwrite,
            self.precision,
        );
        (out, [], saved)
    }

    fn backward(
        self,
        grad: CubeTensor,
        [x, weight]: [CubeTensor; 2],
        [wants_x, ..]: [bool; 3],
    ) -> [Option<CubeTensor>; 3] {
        let dtype = x.dtype;
        let [grad, x] = [grad, x].map(dense);
        let [batch, len, columns] = grad.shape().dims();
        let [_, _, width] = x.shape().dims();
        let rows = Matrix::dense(&grad, [batch * len, columns]);
        let grad_x = wants_x.then(|| {
            let grad_x = empty(&grad, [batch, len, width], dtype);
            multiply(
                &rows,
                &Matrix::weight(&weight).transposed(),
                None,
                &Matrix::dense(&grad_x, [batch * len, width]),
                Output::Overwrite,
                self.precision,
            );
            grad_x
        });
        let x = Matrix::dense(&x, [batch * len, width]);
        let grad_bias = self.has_bias.then(|| column_sums(&rows));
        [grad_x, Some(weight_gradient(&x, &rows, self.precision)), grad_bias]
    }
}
