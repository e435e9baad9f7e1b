//! The addition to the residual stream with its norm, kernel and reference, against the oracle.

use burn::tensor::{Device, FloatDType, Tensor};
use vim_kernels::oracle::OracleNorm;
use vim_kernels::{
    ImageFactors, Implementation, KernelChoice, KernelError, add_rms_norm, add_scaled_rms_norm,
};
use vim_verify::norm::{Reads, SIZES, inputs, judge, kept, run, times};

use crate::support::{BOTH, Dtype, Numbers, bf16_devices, devices, error, pass, tensor, values};

/// max |difference| / max |reference| in f32, as the suite has it.
const F32: f64 = 3e-6;
const EPSILON: f64 = 1e-5;

fn check_all(dtype: Dtype, device: &Device) {
    for [count, d_model] in SIZES {
        for has_residual in [true, false] {
            let norm = inputs(count, d_model, has_residual, dtype);
            // Images of two rows.
            let (images, factors) = (inputs(2 * count, d_model, has_residual, dtype), kept(count));
            for reads in [Reads::Both, Reads::Normed, Reads::Sum] {
                for one in BOTH {
                    pass(judge(&norm, reads, &[], one, dtype, device, 1.0).unwrap());
                    pass(judge(&images, reads, &factors, one, dtype, device, 1.0).unwrap());
                }
            }
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

/// More rows than the cubes of a launch take at once, so that each iterates several times.
#[test]
fn many_rows_match_the_oracle() {
    let norm = inputs(9001, 24, true, Dtype::F32);
    for device in devices() {
        let kernel = Implementation::Kernel;
        pass(judge(&norm, Reads::Both, &[], kernel, Dtype::F32, &device, 1.0).unwrap());
    }
}

#[test]
fn the_same_bits_twice() {
    let norm = inputs(997, 48, true, Dtype::F32);
    for device in devices() {
        let kernel = Implementation::Kernel;
        let run = || run(&norm, Reads::Both, &[], kernel, Dtype::F32, &device).unwrap();
        assert_eq!(run(), run(), "{device:?}");
    }
}

/// A reference that is rounded is off by as much again as what is held to it.
#[test]
fn references_with_factors_are_not_rounded() {
    for (device, factors) in
        bf16_devices().iter().flat_map(|device| [(device, vec![]), (device, kept(7))])
    {
        let norm = inputs(14, 5, true, Dtype::Bf16);
        let reference = Implementation::Reference;
        let arrays = run(&norm, Reads::Both, &factors, reference, Dtype::Bf16, device).unwrap();
        let (_, _, want, _) = arrays.into_iter().find(|(name, ..)| *name == "x").unwrap();
        assert!(want.iter().any(|want| *want != Dtype::Bf16.round(*want)), "{factors:?}");
    }
    assert_eq!(times(&[0.3, 0.7], &[], Dtype::Bf16), [0.3, 0.7]);
    assert_eq!(times(&[0.3, 0.7], &[0.0, 1.3], Dtype::Bf16), [0.0, 0.7 * 1.296875]);
}

#[test]
fn images_with_factors_have_the_bits_of_the_product_and_the_norm() {
    let bits = |dtype: Dtype, device: &Device| {
        for [count, d_model] in [[1, 5], [7, 1000], [37, 192], [3, 2000]] {
            for residual in [true, false] {
                for reads in [Reads::Both, Reads::Normed, Reads::Sum] {
                    let (norm, factors) =
                        (inputs(2 * count, d_model, residual, dtype), kept(count));
                    let of = |norm: &OracleNorm, factors: &[f64]| {
                        run(norm, reads, factors, Implementation::Kernel, dtype, device).unwrap()
                    };
                    let x = dtype.rounded(times(&norm.x, &factors, dtype));
                    let scaled = OracleNorm { x, ..norm.clone() };
                    for (got, want) in of(&norm, &factors).into_iter().zip(of(&scaled, &[])) {
                        let want_bits = match want.0 {
                            "x" => dtype.rounded(times(&want.1, &factors, dtype)),
                            _ => want.1,
                        };
                        assert_eq!(got.1, want_bits, "{device:?} {count} {d_model} {}", got.0);
                    }
                }
            }
        }
    };
    // WGSL may make one operation of a product of f32 and a sum.
    let rounds_each = |device: &&Device| !format!("{device:?}").contains("Wgpu");
    devices().iter().filter(rounds_each).for_each(|device| bits(Dtype::F32, device));
    bf16_devices().iter().for_each(|device| bits(Dtype::Bf16, device));
}

/// Two layers share a stream: the sum of the first is read by its own norm and by the second layer.
/// The same graph arises where memory-bound operations are recomputed in the backward pass.
#[test]
fn a_stream_of_two_layers_has_the_references_gradients() {
    for on in devices() {
        let tracked = on.clone().autodiff();
        for device in [tracked.clone(), tracked.gradient_checkpointing()] {
            let run = |choice| {
                let mut numbers = Numbers::new(47);
                let mut leaf =
                    || tensor(&numbers.vec(5 * 12, -1.0, 1.0, Dtype::F32), [5, 12], &device);
                let (x, y, by) = (leaf().require_grad(), leaf(), leaf());
                let weight =
                    tensor(&numbers.vec(12, 0.5, 1.5, Dtype::F32), [12], &device).require_grad();
                let (a, sum) =
                    add_rms_norm(x.clone(), None, weight.clone(), EPSILON, choice).unwrap();
                let (b, sum) =
                    add_rms_norm(a * y, Some(sum), weight.clone(), EPSILON, choice).unwrap();
                let grads = (b * by.clone() + sum.square() * by).sum().backward();
                (values(x.grad(&grads).unwrap()), values(weight.grad(&grads).unwrap()))
            };
            let (x, weight) = run(KernelChoice::Kernel);
            let (want_x, want_weight) = run(KernelChoice::Reference);
            assert!(error(&x, &want_x) <= F32, "{on:?} x");
            assert!(error(&weight, &want_weight) <= F32, "{on:?} weight");
        }
    }
}

#[test]
fn wrong_arguments_are_named() {
    let device = Device::flex();
    let zeros = |shape: [usize; 2]| Tensor::<2>::zeros(shape, &device);
    let call = |x: Tensor<2>, residual: Tensor<2>, weight: usize| {
        let weight = Tensor::zeros([weight], &device);
        add_rms_norm(x, Some(residual), weight, EPSILON, KernelChoice::Auto)
    };
    assert!(call(zeros([2, 3]), zeros([2, 3]), 3).is_ok());
    let weight = call(zeros([2, 3]), zeros([2, 3]), 2).unwrap_err();
    assert!(matches!(weight, KernelError::Shape { tensor: "weight", .. }), "{weight}");
    let residual = call(zeros([2, 3]), zeros([3, 3]), 3).unwrap_err();
    assert!(matches!(residual, KernelError::Shape { tensor: "residual", .. }), "{residual}");
    let half = call(zeros([2, 3]), zeros([2, 3]).cast(FloatDType::BF16), 3).unwrap_err();
    assert!(matches!(half, KernelError::Dtype { tensor: "residual", .. }), "{half}");
    let scaled = |factors: [usize; 2], row| {
        let factors = ImageFactors { factors: zeros(factors), row };
        let weight = Tensor::zeros([3], &device);
        let choice = KernelChoice::Auto;
        add_scaled_rms_norm(zeros([2, 3]), Some(factors), None, weight, EPSILON, choice)
    };
    assert!(scaled([4, 2], 3).is_ok());
    for (factors, row) in [([4, 2], 4), ([4, 3], 0)] {
        let wrong = scaled(factors, row).unwrap_err();
        assert!(matches!(wrong, KernelError::Shape { tensor: "factors", .. }), "{wrong}");
    }
}
