//! The convolution, kernel and reference, against the oracle.

use burn::tensor::{Device, FloatDType, Tensor};
use vim_kernels::{ConvOptions, Implementation, KernelError, causal_conv1d};
use vim_verify::conv::{FORMS, Form, inputs, run};
use vim_verify::rows_of;

use crate::support::{BOTH, Dtype, bf16_devices, devices, pass};

/// Half of what the suite allows a GPU's exponential: max |difference| / max |reference| is 5e-6.
const FACTOR: f64 = 0.5;

/// One channel and many, vectors of 1, 2 and 4 channels, more channels than a cube is wide, strips
/// of one token and of many, more strips than a cube holds.
const SIZES: [[usize; 3]; 8] = [
    [1, 1, 1],
    [2, 2, 5],
    [1, 5, 64],
    [3, 37, 9],
    [2, 197, 17],
    [2, 50, 134],
    [1, 197, 140],
    [1, 1025, 8],
];

fn check(sizes: [usize; 3], width: usize, form: Form, dtype: Dtype, factor: f64, device: &Device) {
    let conv = inputs(sizes, width, form, dtype);
    for implementation in BOTH {
        let case = format!("{device:?} {implementation} {dtype} {sizes:?} width {width} {form:?}");
        let arrays = run(&conv, implementation, dtype, device).unwrap();
        pass(rows_of(arrays, 1e-30, factor, &case));
    }
}

#[test]
fn kernel_and_reference_match_the_oracle() {
    for device in devices() {
        for sizes in SIZES {
            for width in 2..=4 {
                for form in FORMS {
                    check(sizes, width, form, Dtype::F32, FACTOR, &device);
                }
            }
        }
    }
}

#[test]
fn bf16_matches_the_oracle() {
    for device in bf16_devices() {
        for sizes in SIZES {
            for form in FORMS {
                check(sizes, 4, form, Dtype::Bf16, 1.0, &device);
            }
        }
    }
}

#[test]
fn the_same_bits_twice() {
    for device in devices() {
        let conv = inputs([3, 197, 24], 4, (true, false, true), Dtype::F32);
        let run = || run(&conv, Implementation::Kernel, Dtype::F32, &device).unwrap();
        assert_eq!(run(), run(), "{device:?}");
    }
}

#[test]
fn wrong_shapes_name_the_argument() {
    let device = Device::flex();
    let call = |weight: [usize; 3], bias: usize| {
        let bias = Tensor::zeros([bias], &device);
        let (x, weight) = (Tensor::zeros([2, 3, 4], &device), Tensor::zeros(weight, &device));
        causal_conv1d(x, weight, Some(bias), ConvOptions::default())
    };
    assert!(call([4, 1, 4], 4).is_ok());
    let weight = call([4, 1, 5], 4).unwrap_err();
    assert!(matches!(weight, KernelError::Shape { tensor: "weight", .. }), "{weight}");
    let bias = call([4, 1, 4], 5).unwrap_err();
    assert!(matches!(bias, KernelError::Shape { tensor: "bias", .. }), "{bias}");
}

#[test]
fn a_type_that_is_not_taken_names_the_argument() {
    let device = Device::flex();
    let call = |x: FloatDType, weight: FloatDType| {
        let x = Tensor::<3>::zeros([2, 3, 4], &device).cast(x);
        let weight = Tensor::<3>::zeros([4, 1, 4], &device).cast(weight);
        causal_conv1d(x, weight, None, ConvOptions::default())
    };
    let x = call(FloatDType::F64, FloatDType::F32).unwrap_err();
    assert!(matches!(x, KernelError::Dtype { tensor: "x", .. }), "{x}");
    let weight = call(FloatDType::F32, FloatDType::BF16).unwrap_err();
    assert!(matches!(weight, KernelError::Dtype { tensor: "weight", .. }), "{weight}");
}
