//! Kernel and reference against the oracle: outputs, last state and all eight gradients.

use burn::tensor::{Device, FloatDType, Tensor};
use strum::VariantArray;
use vim_kernels::oracle::OracleScan;
use vim_kernels::{Discretization, KernelChoice, KernelError, ScanOptions, Series, selective_scan};

use crate::support::{Form, Sizes, error_over, grad_of, named, run, run_on, scan};

/// max |difference| / max |reference| in f32, of arrays with a value per token. A coefficient is
/// good to about 4 units in the last place (2.4e-7), and a state sums of the order of
/// 1/(1 − a_bar) of them, which is up to 100 here.
const PER_TOKEN: f64 = 2e-5;

/// The same for gradients that are sums over all tokens, whose terms have both signs: the sum may
/// be a few times smaller than the terms that were rounded.
const SUMS: f64 = 1e-4;

/// The same in bf16, with rounded inputs: the f32 result, rounded to 8 bits (2⁻⁹ = 2e-3), and so is
/// the incoming gradient.
const BF16: f64 = 8e-3;

/// The same for sums over tokens, whose terms were each rounded so, and have both signs.
const BF16_SUMS: f64 = 2e-2;

fn check(scan: &OracleScan, choice: KernelChoice) {
    check_on(&Device::flex(), FloatDType::F32, scan, choice);
}

/// Checks `scan` on `device` against the oracle.
pub(crate) fn check_on(
    device: &Device,
    dtype: FloatDType,
    scan: &OracleScan,
    choice: KernelChoice,
) {
    let grad_y = grad_of(scan);
    let got = run_on(device, dtype, scan, choice, &grad_y);
    let (y, last_state) = scan.forward();
    let grads = scan.backward(&grad_y);
    let what = format!(
        "{choice} {dtype:?} {} {} reverse {} [{}, {}, {}, {}]",
        scan.method, scan.series, scan.reverse, scan.batch, scan.len, scan.d_inner, scan.d_state
    );
    let mut pairs = vec![("y", &got.y[..], &y[..]), ("last_state", &got.last_state, &last_state)];
    pairs.extend(
        named(&got.grads).into_iter().zip(named(&grads)).map(|((name, g), (_, w))| (name, g, w)),
    );
    for (name, got, want) in pairs {
        // The bias's gradient is one sum a channel of delta's, of both signs: its scale is what
        // sums of such terms come to, the root of the sum of their squares, however far this one
        // cancels.
        let floor = if name == "delta_bias" {
            grads.delta.iter().map(|g| g * g).sum::<f64>().sqrt() / (scan.d_inner as f64).sqrt()
        } else {
            1e-30
        };
        let error = error_over(got, want, floor);
        let constant = (name == "b" && scan.b_constant) || (name == "c" && scan.c_constant);
        let sum = constant || ["a", "d", "delta_bias"].contains(&name);
        let tolerance = match (dtype, sum, name) {
            (FloatDType::BF16, true, _) => BF16_SUMS,
            (FloatDType::BF16, false, _) if name != "last_state" => BF16,
            (_, true, _) => SUMS,
            (_, false, _) => PER_TOKEN,
        };
        assert!(error <= tolerance, "{what}: {name} is off by {error:.1e}");
    }
}

/// Every method × series × form × direction at `sizes`.
fn check_all(sizes: Sizes, forms: &[Form], reach: f64, choice: KernelChoice) {
    for &method in Discretization::VARIANTS {
        for &series in Series::VARIANTS {
            for &form in forms {
                for reverse in [false, true] {
                    let base = scan(sizes, form, reach, 3);
                    check(&OracleScan { method, series, reverse, ..base }, choice);
                }
            }
        }
    }
}

const FORMS: [Form; 4] = [Form::Variable, Form::Grouped(2), Form::Constant, Form::Mixed];

#[test]
fn kernel_matches_the_oracle_in_every_form() {
    check_all([2, 37, 10, 16], &FORMS, 4.0, KernelChoice::Kernel);
}

#[test]
fn reference_matches_the_oracle_in_every_form() {
    check_all([2, 37, 10, 16], &FORMS, 4.0, KernelChoice::Reference);
}

#[test]
fn kernel_matches_the_oracle_at_awkward_sizes() {
    for len in [1, 2, 5, 37, 197] {
        for d_state in [1, 8, 16, 17] {
            for d_inner in [1, 5, 64] {
                check_all([1, len, d_inner, d_state], &[Form::Variable], 4.0, KernelChoice::Kernel);
            }
        }
    }
}

#[test]
fn reference_matches_the_oracle_at_awkward_sizes() {
    for [len, d_inner, d_state] in
        [[1, 1, 1], [1, 64, 17], [2, 5, 8], [5, 1, 16], [5, 64, 1], [37, 5, 17], [197, 5, 16]]
    {
        check_all([1, len, d_inner, d_state], &[Form::Variable], 4.0, KernelChoice::Reference);
    }
}

#[test]
fn kernel_matches_the_oracle_over_long_sequences() {
    for d_state in [1, 8, 16, 17] {
        for d_inner in [1, 5, 64] {
            check_all([1, 1025, d_inner, d_state], &[Form::Variable], 4.0, KernelChoice::Kernel);
        }
    }
}

#[test]
fn reference_matches_the_oracle_over_long_sequences() {
    check_all([1, 1025, 2, 2], &[Form::Variable], 4.0, KernelChoice::Reference);
}

#[test]
fn both_match_the_oracle_where_delta_a_is_huge() {
    // delta reaches 1.3, so delta·a reaches −1000 and beyond: every decay underflows.
    for choice in [KernelChoice::Kernel, KernelChoice::Reference] {
        check_all([2, 37, 6, 3], &FORMS[..1], 1000.0, choice);
        check_all([1, 5, 6, 3], &FORMS[..1], 20_000.0, choice);
    }
}

#[test]
fn inputs_may_be_absent() {
    for choice in [KernelChoice::Kernel, KernelChoice::Reference] {
        for absent in 0..4 {
            let mut scan = scan([2, 5, 6, 4], Form::Variable, 3.0, 11);
            match absent {
                0 => scan.d = None,
                1 => scan.z = None,
                2 => scan.delta_bias = None,
                _ => {
                    // Without softplus, delta is used as it is: make it a step.
                    scan.delta_softplus = false;
                    scan.delta_bias = None;
                    scan.delta.iter_mut().for_each(|d| *d = 0.02 + d.abs() / 4.0);
                }
            }
            for &method in Discretization::VARIANTS {
                check(&OracleScan { method, ..scan.clone() }, choice);
            }
        }
    }
}

#[test]
fn the_same_bits_twice() {
    let scan = scan([5, 197, 150, 16], Form::Variable, 4.0, 13);
    let grad_y = grad_of(&scan);
    let [one, two] = [(); 2].map(|()| run(&scan, KernelChoice::Kernel, &grad_y));
    assert!(one.y == two.y && one.last_state == two.last_state && one.grads == two.grads);
}

#[test]
fn nan_is_not_swallowed() {
    let clean = || scan([1, 5, 3, 2], Form::Variable, 3.0, 17);
    // Channel 1 of token 1 is poisoned: it and all later tokens of its channel must show it.
    for input in ["u", "delta", "z"] {
        let mut scan = clean();
        match input {
            "u" => scan.u[4] = f64::NAN,
            "delta" => scan.delta[4] = f64::NAN,
            _ => scan.z.as_mut().unwrap()[4] = f64::NAN,
        }
        let grad_y = grad_of(&scan);
        for &method in Discretization::VARIANTS {
            let out = run(&OracleScan { method, ..scan.clone() }, KernelChoice::Kernel, &grad_y);
            assert!(out.y[4].is_nan(), "{method}: {input} to y");
            assert!(input == "z" || out.y[7].is_nan(), "{method}: {input} to later y");
            assert!(out.y[5].is_finite(), "{method}: nothing reaches another channel");
            for (name, grad) in named(&out.grads) {
                // y is linear in u, so u's own gradient does not see it; D's sees u and the gate
                // only.
                let blind = (input == "u" && name == "u") || (input == "delta" && name == "d");
                let reached = grad.iter().any(|g| g.is_nan());
                assert!(reached || blind, "{method}: {input} to the gradient of {name}");
            }
        }
    }
    let scan = clean();
    let mut grad_y = grad_of(&scan);
    grad_y[10] = f64::NAN;
    let out = run(&scan, KernelChoice::Kernel, &grad_y);
    assert!(out.grads.u[4].is_nan() && out.grads.a[2].is_nan() && out.grads.u[5].is_finite());
}

#[test]
fn wrong_shapes_name_the_argument() {
    let device = Device::flex();
    let call = |delta: [usize; 3], a: [usize; 2], c: [usize; 3], d: usize| {
        selective_scan(
            Tensor::zeros([2, 3, 4], &device),
            Tensor::zeros(delta, &device),
            Tensor::zeros(a, &device),
            Tensor::<3>::zeros([2, 3, 5], &device),
            Tensor::<3>::zeros(c, &device),
            Some(Tensor::zeros([d], &device)),
            None,
            None,
            ScanOptions::default(),
        )
    };
    let at_fault = |result: Result<_, KernelError>| match result {
        Err(KernelError::Shape { tensor, .. }) => tensor,
        Err(
            KernelError::NoKernel { .. }
            | KernelError::NoPrecision { .. }
            | KernelError::Dtype { .. }
            | KernelError::Complex { .. }
            | KernelError::TooLarge { .. },
        )
        | Ok(_) => "nothing",
    };
    assert_eq!(at_fault(call([2, 3, 4], [4, 5], [2, 3, 5], 4)), "nothing");
    assert_eq!(at_fault(call([2, 4, 4], [4, 5], [2, 3, 5], 4)), "delta");
    assert_eq!(at_fault(call([2, 3, 4], [3, 5], [2, 3, 5], 4)), "a");
    assert_eq!(at_fault(call([2, 3, 4], [4, 5], [2, 3, 6], 4)), "c");
    assert_eq!(at_fault(call([2, 3, 4], [4, 5], [2, 3, 5], 3)), "d");
}

#[test]
fn another_type_than_f32_is_an_error() {
    let device = Device::flex();
    let u = Tensor::<3>::zeros([2, 3, 4], &device);
    let b = Tensor::<3>::zeros([2, 3, 5], &device);
    let delta = u.clone().cast(FloatDType::F64);
    let a = Tensor::zeros([4, 5], &device);
    for choice in [KernelChoice::Kernel, KernelChoice::Reference] {
        let options = ScanOptions { choice, ..ScanOptions::default() };
        let (u, delta, a, b) = (u.clone(), delta.clone(), a.clone(), b.clone());
        let result = selective_scan(u, delta, a, b.clone(), b, None, None, None, options);
        assert!(matches!(result, Err(KernelError::Dtype { tensor: "delta", .. })));
    }
}
