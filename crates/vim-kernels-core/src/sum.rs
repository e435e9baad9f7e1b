//! Sums whose last bits are no chance.

use burn::tensor::Tensor;

/// The sum of all elements, `[1]`, differentiable, and of the same bits every time.
///
/// `Tensor::sum` of Burn 0.22 is not: on a GPU that adds floats atomically, four blocks add their
/// sums in the order in which they end (`SumStrategy::OneShot`), and on a processor the threads
/// that are free share out 2²² elements and more.
#[must_use]
pub fn sum_in_order<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    let elements = x.shape().num_elements();
    if elements == 0 {
        return x.sum();
    }
    // A thread adds a column, and one thread their sums.
    let columns = elements.isqrt().next_power_of_two();
    let rows = elements.div_ceil(columns);
    let mut x = x.reshape([elements]);
    if rows * columns > elements {
        let zeros = Tensor::zeros([rows * columns], (&x.device(), x.dtype()));
        let own = 0..elements;
        x = zeros.slice_assign([own], x);
    }
    x.reshape([rows, columns]).sum_dim(0).sum_dim(1).reshape([1])
}
