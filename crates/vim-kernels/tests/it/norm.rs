//! The addition to the residual stream with its norm, kernel and reference, against the oracle.

use burn::tensor::{DType, Device, FloatDType, Tensor};
use vim_kernels::oracle::{OracleNorm, OracleNormGrads};
use vim_kernels::{KernelChoice, KernelError, add_rms_norm};

use crate::devices::{bf16_devices, devices};
use crate::support::{Dtype, Numbers, error, figures, tensor, to_bf16, values};

/// max |difference| / max |reference| in f32: a few roundings of 6e-8 an element, and means over up
/// to 2000 of them; the weight's gradient sums over rows.
const F32: f64 = 3e-6;
/// The same in bf16, where x, its gradient and the normalized rows are rounded to 8 bits, by up to
/// 2⁻⁸ of each. The sum and the other gradients are f32 throughout.
const BF16: f64 = 1.0 / 256.0 + F32;
const EPSILON: f64 = 1e-5;

/// Which of the results the loss reads.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reads {
    Both,
    Normed,
    Sum,
}

struct Outcome {
    normed: Vec<f64>,
    sum: Vec<f64>,
    grads: OracleNormGrads,
}

fn rows(rows: usize, d_model: usize, has_residual: bool) -> OracleNorm {
    let mut x = Numbers::new(41);
    OracleNorm {
        d_model,
        epsilon: EPSILON,
        x: x.vec(rows * d_model, -2.0, 2.0, Dtype::F32),
        residual: has_residual.then(|| x.vec(rows * d_model, -3.0, 3.0, Dtype::F32)),
        weight: x.vec(d_model, -1.5, 1.5, Dtype::F32),
    }
}

/// What the loss weighs the normalized rows and the sums with.
fn weights(norm: &OracleNorm, reads: Reads) -> [Vec<f64>; 2] {
    let mut numbers = Numbers::new(43);
    let both = [(); 2].map(|()| numbers.vec(norm.x.len(), -1.0, 1.0, Dtype::F32));
    let [normed, sum] = both;
    let nothing = vec![0.0; norm.x.len()];
    match reads {
        Reads::Both => [normed, sum],
        Reads::Normed => [normed, nothing],
        Reads::Sum => [nothing, sum],
    }
}

fn run(
    norm: &OracleNorm,
    [by_normed, by_sum]: &[Vec<f64>; 2],
    reads: Reads,
    dtype: FloatDType,
    choice: KernelChoice,
    on: &Device,
) -> Outcome {
    let device = on.clone().autodiff();
    let shape = [norm.x.len() / norm.d_model, norm.d_model];
    let x = tensor(&norm.x, shape, &device).cast(dtype).require_grad();
    let residual = norm.residual.as_ref().map(|r| tensor(r, shape, &device).require_grad());
    let weight = tensor(&norm.weight, [norm.d_model], &device).require_grad();
    let (normed, sum) =
        add_rms_norm(x.clone(), residual.clone(), weight.clone(), norm.epsilon, choice).unwrap();
    assert_eq!(normed.dtype(), DType::from(dtype), "normed");
    assert_eq!(sum.dtype(), DType::F32, "sum");
    let of_normed =
        (normed.clone().cast(FloatDType::F32) * tensor(by_normed, shape, &device)).sum();
    let of_sum = (sum.clone() * tensor(by_sum, shape, &device)).sum();
    let loss = match reads {
        Reads::Both => of_normed + of_sum,
        Reads::Normed => of_normed,
        Reads::Sum => of_sum,
    };
    let grads = loss.backward();
    let grad_x = x.grad(&grads).unwrap();
    assert_eq!(grad_x.dtype(), DType::from(dtype), "the gradient of x");
    // The reference has no gradient of a weight that the loss does not depend on.
    let grad_weight = match weight.grad(&grads) {
        Some(grad) => values(grad),
        None => {
            assert_eq!((reads, choice), (Reads::Sum, KernelChoice::Reference));
            vec![0.0; norm.d_model]
        }
    };
    Outcome {
        normed: values(normed),
        sum: values(sum),
        grads: OracleNormGrads {
            x: values(grad_x),
            residual: residual.map_or(vec![], |r| values(r.grad(&grads).unwrap())),
            weight: grad_weight,
        },
    }
}

fn check(norm: &OracleNorm, reads: Reads, dtype: FloatDType, choice: KernelChoice, on: &Device) {
    let bf16 = dtype == FloatDType::BF16;
    let mut by = weights(norm, reads);
    let mut norm = norm.clone();
    if bf16 {
        // x and the gradient of the normalized rows arrive in bf16, so they are rounded from the
        // start.
        norm.x = to_bf16(&norm.x);
        by[0] = to_bf16(&by[0]);
    }
    let got = run(&norm, &by, reads, dtype, choice, on);
    let (normed, sum) = norm.forward();
    let want = norm.backward(&by[0], &by[1]);
    let rounded = if bf16 { BF16 } else { F32 };
    for (name, got, want, tolerance) in [
        ("normed", &got.normed, &normed, rounded),
        ("sum", &got.sum, &sum, F32),
        ("x", &got.grads.x, &want.x, rounded),
        ("residual", &got.grads.residual, &want.residual, F32),
        ("weight", &got.grads.weight, &want.weight, F32),
    ] {
        // One element normalizes to its sign: its gradient is the rounding error of a difference of
        // terms of size 1, plus epsilon's share.
        let floor = if norm.d_model == 1 { 1.0 } else { 1e-30 };
        let error = figures(got, want, floor).max;
        let rows = norm.x.len() / norm.d_model;
        assert!(
            error <= tolerance,
            "{on:?} {choice} {dtype:?} [{rows}, {}] {reads:?} residual {}: \
             {name} is off by {error:.1e}",
            norm.d_model,
            norm.residual.is_some()
        );
    }
}

/// Rows and channels: one, odd, vectors of 1, 2 and 4, a row of many vectors, and one that takes a
/// whole cube.
const SIZES: [(usize, usize); 9] =
    [(1, 1), (7, 1), (1, 5), (7, 5), (7, 192), (1, 384), (7, 1000), (37, 192), (3, 2000)];

#[test]
fn kernel_and_reference_match_the_oracle() {
    for device in devices() {
        for (count, d_model) in SIZES {
            for has_residual in [true, false] {
                for reads in [Reads::Both, Reads::Normed, Reads::Sum] {
                    for choice in [KernelChoice::Kernel, KernelChoice::Reference] {
                        let norm = rows(count, d_model, has_residual);
                        check(&norm, reads, FloatDType::F32, choice, &device);
                    }
                }
            }
        }
    }
}

#[test]
fn bf16_matches_the_oracle() {
    for device in bf16_devices() {
        for (count, d_model) in SIZES {
            for has_residual in [true, false] {
                for reads in [Reads::Both, Reads::Normed, Reads::Sum] {
                    for choice in [KernelChoice::Kernel, KernelChoice::Reference] {
                        let norm = rows(count, d_model, has_residual);
                        check(&norm, reads, FloatDType::BF16, choice, &device);
                    }
                }
            }
        }
    }
}

/// More rows than the cubes of a launch take at once, so that each iterates several times.
#[test]
fn many_rows_match_the_oracle() {
    for device in devices() {
        check(&rows(9001, 24, true), Reads::Both, FloatDType::F32, KernelChoice::Kernel, &device);
    }
}

#[test]
fn the_same_bits_twice() {
    for device in devices() {
        let norm = rows(997, 48, true);
        let by = weights(&norm, Reads::Both);
        let run = || run(&norm, &by, Reads::Both, FloatDType::F32, KernelChoice::Kernel, &device);
        let (one, two) = (run(), run());
        assert_eq!((one.normed, one.sum), (two.normed, two.sum), "{device:?}");
        assert_eq!(one.grads, two.grads, "{device:?}");
    }
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
}
