//! What `linear` and `halved_linear` refuse; vim-verify compares their results.

use burn::tensor::{FloatDType, Tensor};
use vim_kernels::{Precision, halved_linear, linear};

use crate::support::{at_fault, bf16_devices, devices};

#[test]
fn an_x_of_another_type_than_the_precision_multiplies_is_named() {
    for device in bf16_devices() {
        for precision in [Precision::F32, Precision::Tf32] {
            let x = || Tensor::<3>::ones([1, 4, 8], &device).cast(FloatDType::BF16);
            let weight = || Tensor::<2>::ones([8, 3], &device);
            assert_eq!(at_fault(linear(x(), weight(), None, precision)), "x");
            assert_eq!(at_fault(halved_linear(x(), weight(), precision)), "x");
        }
    }
}

#[test]
fn no_tokens_are_an_error() {
    for device in devices() {
        for shape in [[0, 4, 8], [2, 0, 8]] {
            let x = || Tensor::<3>::ones(shape, &device);
            let weight = || Tensor::<2>::ones([8, 3], &device);
            assert_eq!(at_fault(linear(x(), weight(), None, Precision::F32)), "x");
            assert_eq!(at_fault(halved_linear(x(), weight(), Precision::F32)), "x");
        }
    }
}
