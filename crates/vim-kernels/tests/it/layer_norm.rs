//! Layer normalization, kernel and reference, against the oracle.

use burn::tensor::{Device, FloatDType, Tensor};
use vim_kernels::{Implementation, KernelChoice, KernelError, layer_norm};
use vim_verify::layer_norm::{SIZES, floor, inputs, run};
use vim_verify::rows_of;

use crate::support::{BOTH, Dtype, bf16_devices, devices, pass, values};

fn check_all(dtypes: [Dtype; 2], device: &Device) {
    for [rows, channels] in SIZES {
        for relu in [true, false] {
            for one in BOTH {
                let case = format!("{device:?} {one} {dtypes:?} {rows} {channels} relu {relu}");
                let arrays = run(&inputs(rows, channels, relu, dtypes[0]), one, dtypes, device);
                pass(rows_of(arrays.unwrap(), floor(channels), 1.0, &case));
            }
        }
    }
}

#[test]
fn kernel_and_reference_match_the_oracle() {
    devices().iter().for_each(|device| check_all([Dtype::F32; 2], device));
}

#[test]
fn bf16_matches_the_oracle() {
    let all = [[Dtype::Bf16; 2], [Dtype::Bf16, Dtype::F32], [Dtype::F32, Dtype::Bf16]];
    for device in bf16_devices() {
        all.iter().for_each(|dtypes| check_all(*dtypes, &device));
    }
}

#[test]
fn the_same_bits_twice() {
    let case = inputs(3000, 44, true, Dtype::F32);
    for device in devices() {
        let run = || run(&case, Implementation::Kernel, [Dtype::F32; 2], &device).unwrap();
        assert_eq!(run(), run(), "{device:?}");
    }
}

/// A row of one number over and over is its bias; a NaN stays one, also behind a ReLU.
#[test]
fn a_constant_row_and_a_nan() {
    for device in devices() {
        let rows = Tensor::from_data([[3.0_f32, 3.0, 3.0], [1.0, f32::NAN, 2.0]], &device);
        let weight = Tensor::from_data([1.0_f32, 2.0, 3.0], &device);
        let bias = Tensor::from_data([0.5_f32, -0.5, 0.25], &device);
        let y =
            layer_norm::<2>(rows, weight, bias, 1e-6, true, FloatDType::F32, KernelChoice::Kernel);
        let y = values(y.unwrap());
        assert_eq!(y[..3], [0.5, 0.0, 0.25], "{device:?}");
        assert!(y[3..].iter().all(|y| y.is_nan()), "{device:?}: {y:?}");
    }
}

#[test]
fn wrong_arguments_are_named() {
    let device = Device::flex();
    let call = |rows: usize, weight: usize, bias: usize| {
        let x = Tensor::<3>::zeros([2, rows, 5], &device);
        let [weight, bias] = [weight, bias].map(|count| Tensor::<1>::zeros([count], &device));
        layer_norm(x, weight, bias, 1e-6, false, FloatDType::F32, KernelChoice::Auto)
    };
    assert_eq!(call(3, 5, 5).unwrap().dims(), [2, 3, 5]);
    for (arguments, wrong) in [((0, 5, 5), "x"), ((3, 4, 5), "weight"), ((3, 5, 1), "bias")] {
        let (rows, weight, bias) = arguments;
        let error = call(rows, weight, bias).unwrap_err();
        assert!(matches!(&error, KernelError::Shape { tensor, .. } if *tensor == wrong), "{error}");
    }
    let x = Tensor::<2>::zeros([2, 5], &device);
    let ones = || Tensor::<1>::zeros([5], &device);
    let error = layer_norm(x, ones(), ones(), 1e-6, false, FloatDType::F64, KernelChoice::Auto);
    assert!(matches!(error, Err(KernelError::Dtype { .. })), "{error:?}");
}
