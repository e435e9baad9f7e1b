//! The 3×3 convolution, kernel and reference, against the oracle.

use burn::tensor::{Device, FloatDType, Tensor};
use vim_kernels::oracle::OracleConv3x3;
use vim_kernels::{Implementation, KernelChoice, Precision, conv3x3};
use vim_verify::conv3x3::{inputs, run};
use vim_verify::rows_of;

use crate::support::{BOTH, at_fault, bf16_multipliers, devices, pass};

/// Images of one row or column and of more pixels than a tile has; channels of every width of a
/// load, and more than a tile has.
const SIZES: [([usize; 3], usize, usize); 9] = [
    ([1, 1, 1], 1, 1),
    ([3, 1, 1], 3, 17),
    ([1, 2, 5], 17, 3),
    ([3, 5, 7], 1, 32),
    ([1, 7, 2], 32, 1),
    ([3, 16, 16], 3, 17),
    ([1, 16, 7], 32, 32),
    ([1, 5, 16], 17, 17),
    ([2, 9, 33], 20, 200),
];

fn check(conv: &OracleConv3x3, precision: Precision, device: &Device) {
    for implementation in BOTH {
        let arrays = run(conv, implementation, precision, device).unwrap();
        let (size, inputs, outputs) = (conv.size, conv.inputs, conv.outputs);
        let case = format!("{device:?} {implementation} {precision} {size:?} {inputs} {outputs}");
        pass(rows_of(arrays, 1e-30, 1.0, &case));
    }
}

#[test]
fn kernel_and_reference_match_the_oracle() {
    for device in devices() {
        for (size, channels, outputs) in SIZES {
            check(&inputs(size, channels, outputs, Precision::F32), Precision::F32, &device);
        }
        let biased = inputs([2, 3, 4], 5, 6, Precision::F32);
        check(&OracleConv3x3 { bias: None, ..biased }, Precision::F32, &device);
    }
}

#[test]
#[cfg_attr(not(feature = "cuda"), ignore = "skipped: no device of this build multiplies bf16")]
fn bf16_matches_the_oracle() {
    for device in bf16_multipliers() {
        for (size, channels, outputs) in SIZES {
            check(&inputs(size, channels, outputs, Precision::Bf16), Precision::Bf16, &device);
        }
    }
}

#[test]
fn the_same_bits_twice() {
    let conv = inputs([2, 16, 16], 24, 40, Precision::F32);
    for device in devices() {
        let kernel = Implementation::Kernel;
        let run = || run(&conv, kernel, Precision::F32, &device).unwrap();
        assert_eq!(run(), run(), "{device:?}");
    }
}

#[test]
fn wrong_arguments_are_named() {
    let device = Device::flex();
    let call = |x: [usize; 4], weight: [usize; 4], bias: usize, dtype: FloatDType| {
        let x = Tensor::<4>::zeros(x, &device).cast(dtype);
        let (weight, bias) = (Tensor::zeros(weight, &device), Tensor::zeros([bias], &device));
        conv3x3(x, weight, Some(bias), Precision::F32, KernelChoice::Auto)
    };
    let (x, weight) = ([1, 2, 3, 4], [5, 4, 3, 3]);
    assert_eq!(call(x, weight, 5, FloatDType::F32).unwrap().dims(), [1, 2, 3, 5]);
    assert_eq!(at_fault(call([1, 0, 3, 4], weight, 5, FloatDType::F32)), "x");
    assert_eq!(at_fault(call(x, [5, 3, 3, 3], 5, FloatDType::F32)), "weight");
    assert_eq!(at_fault(call(x, [5, 4, 3, 1], 5, FloatDType::F32)), "weight");
    assert_eq!(at_fault(call(x, weight, 4, FloatDType::F32)), "bias");
    assert_eq!(at_fault(call(x, weight, 5, FloatDType::F64)), "x");
}
