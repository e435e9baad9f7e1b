//! The two parts of batch norm, kernel and reference, against the oracle.

use burn::tensor::{Device, Tensor};
use vim_kernels::{Implementation, KernelChoice, KernelError, channel_sums, scale_shift};
use vim_verify::batch_norm::{SIZES, inputs, run, run_sums};
use vim_verify::rows_of;

use crate::support::{BOTH, Dtype, bf16_devices, devices, error, pass, tensor, values};

fn check_all(dtype: Dtype, device: &Device) {
    for (rows, channels) in SIZES {
        for one in BOTH {
            let case = format!("{device:?} {one} {dtype} {rows} {channels}");
            for relu in [true, false] {
                let arrays = run(&inputs(rows, channels, relu, dtype), one, dtype, device).unwrap();
                pass(rows_of(arrays, 1e-30, 1.0, &format!("{case} relu {relu}")));
            }
            let sums = inputs(rows, channels, false, dtype);
            let arrays = run_sums(&sums, one, dtype, device).unwrap();
            pass(rows_of(arrays, 1e-30, 1.0, &case));
        }
    }
}

#[test]
fn kernel_and_reference_match_the_oracle() {
    devices().iter().for_each(|device| check_all(Dtype::F32, device));
}

#[test]
fn bf16_matches_the_oracle() {
    bf16_devices().iter().for_each(|device| check_all(Dtype::Bf16, device));
}

#[test]
fn the_same_bits_twice() {
    let case = inputs(3000, 44, true, Dtype::F32);
    for device in devices() {
        let kernel = Implementation::Kernel;
        let run = || run(&case, kernel, Dtype::F32, &device).unwrap();
        let sums = || run_sums(&case, kernel, Dtype::F32, &device).unwrap();
        assert_eq!((run(), sums()), (run(), sums()), "{device:?}");
    }
}

/// Both parts together are batch norm, whose gradient passes through mean and variance too.
#[test]
fn together_they_are_batch_norm() {
    let (rows, channels) = (50, 6);
    let case = inputs(rows, channels, true, Dtype::F32);
    for device in devices() {
        let device = device.autodiff();
        let leaf = || tensor(&case.x, [rows, channels], &device).require_grad();
        let by = tensor(&inputs(rows, channels, true, Dtype::F32).x, [rows, channels], &device);
        let count = rows as f64;
        let (x, kernel) = (leaf(), KernelChoice::Kernel);
        let sums = channel_sums(x.clone(), kernel).unwrap() / count;
        let mean = sums.clone().narrow(0, 0, 1).reshape([channels]);
        let square = sums.narrow(0, 1, 1).reshape([channels]);
        let scale = (square - mean.clone().square() + 1e-5).sqrt().recip();
        let shift = mean.neg() * scale.clone();
        let y = scale_shift(x.clone(), scale, shift, true, kernel).unwrap();
        let got = x.grad(&(y.clone() * by.clone().square()).sum().backward()).unwrap();
        let x = leaf();
        let centred = x.clone() - x.clone().mean_dim(0);
        let variance = centred.clone().square().mean_dim(0);
        let want_y = burn::tensor::activation::relu(centred / (variance + 1e-5).sqrt());
        let want = x.grad(&(want_y.clone() * by.square()).sum().backward()).unwrap();
        // The variance is a difference of two means, a few times as large.
        assert!(error(&values(y), &values(want_y)) < 2e-5, "{device:?}");
        assert!(error(&values(got), &values(want)) < 2e-5, "{device:?}");
    }
}

#[test]
fn wrong_arguments_are_named() {
    let device = Device::flex();
    let x = Tensor::<4>::zeros([2, 3, 1, 5], &device);
    let call = |scale: usize, shift: usize| {
        let [scale, shift] = [scale, shift].map(|count| Tensor::<1>::zeros([count], &device));
        scale_shift(x.clone(), scale, shift, true, KernelChoice::Auto)
    };
    assert_eq!(call(5, 5).unwrap().dims(), [2, 3, 1, 5]);
    let scale = call(4, 5).unwrap_err();
    assert!(matches!(scale, KernelError::Shape { tensor: "scale", .. }), "{scale}");
    let shift = call(5, 1).unwrap_err();
    assert!(matches!(shift, KernelError::Shape { tensor: "shift", .. }), "{shift}");
    let none = channel_sums(Tensor::<2>::zeros([0, 3], &device), KernelChoice::Auto).unwrap_err();
    assert!(matches!(none, KernelError::Shape { tensor: "x", .. }), "{none}");
}
