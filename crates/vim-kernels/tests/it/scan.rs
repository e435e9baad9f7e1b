//! Kernel and reference against the oracle: outputs, last state and all eight gradients.

use burn::tensor::{Device, FloatDType, Tensor};
use strum::VariantArray;
use vim_kernels::Discretization::ZohExact;
use vim_kernels::oracle::OracleScan;
use vim_kernels::{
    Discretization, Implementation, KernelChoice, KernelError, ScanOptions, selective_scan,
};
use vim_verify::scan::{Case, every_case};

use crate::support::{
    BOTH, Dtype, Form, Results, SEED, Sizes, at_fault, check, devices, grad_of, named, run, scan,
    without_inputs,
};

/// A case by every method and series.
fn check_case(case: &Case, implementation: Implementation) {
    check_case_of(case, implementation, |_| true);
}

/// A case by every series of the methods that are `wanted`.
fn check_case_of(
    case: &Case,
    implementation: Implementation,
    wanted: impl Fn(Discretization) -> bool,
) {
    for &method in Discretization::VARIANTS.iter().filter(|&&method| wanted(method)) {
        for &series in method.series() {
            let scan = OracleScan { method, series, ..case.inputs(SEED, Dtype::F32) };
            check(&scan, implementation, Dtype::F32, 1.0, &Device::flex());
        }
    }
}

/// Both ways at `sizes`.
fn check_sizes(sizes: Sizes, form: Form, reach: f64, implementation: Implementation) {
    for reverse in [false, true] {
        check_case(&Case { sizes, form, reach, reverse }, implementation);
    }
}

#[test]
fn both_match_the_oracle_in_every_case_of_the_suite() {
    for implementation in BOTH {
        for case in every_case(false, false, implementation) {
            check_case(&case, implementation);
        }
    }
}

/// Whole vectors of channels and parts of them, and one state more than a power of two.
#[test]
fn kernel_matches_the_oracle_at_awkward_sizes() {
    for len in [1, 2, 5, 37, 197, 1025] {
        for d_state in [1, 8, 16, 17] {
            for d_inner in [1, 5, 64] {
                let sizes = [1, len, d_inner, d_state];
                check_sizes(sizes, Form::Variable, 4.0, Implementation::Kernel);
            }
        }
    }
}

#[test]
fn both_match_the_oracle_where_delta_a_is_huger_than_in_the_suite() {
    for implementation in BOTH {
        for reverse in [false, true] {
            let case = Case { sizes: [1, 5, 6, 3], form: Form::Variable, reach: 20_000.0, reverse };
            // Autodiff subtracts two terms of 1/|x| for ∂(delta·φ₁)/∂delta, of which eˣ is left.
            let has = |method| implementation == Implementation::Kernel || method != ZohExact;
            check_case_of(&case, implementation, has);
        }
    }
}

#[test]
fn inputs_may_be_absent() {
    for implementation in BOTH {
        for scan in without_inputs(&scan([2, 5, 6, 4], Form::Variable, 3.0)) {
            for &method in Discretization::VARIANTS {
                let scan = OracleScan { method, ..scan.clone() };
                check(&scan, implementation, Dtype::F32, 1.0, &Device::flex());
            }
        }
    }
}

#[test]
fn the_same_bits_twice() {
    let scan = scan([5, 197, 150, 16], Form::Variable, 4.0);
    let [one, two] = [(); 2].map(|()| run(&scan, Implementation::Kernel, &Device::flex()));
    assert!(one == two);
}

#[test]
fn nan_is_not_swallowed() {
    let clean = || scan([1, 5, 3, 2], Form::Variable, 3.0);
    // Channel 1 of token 1 is poisoned: it and all later tokens of its channel must show it.
    for input in ["u", "delta", "z"] {
        let mut scan = clean();
        match input {
            "u" => scan.u[4] = f64::NAN,
            "delta" => scan.delta[4] = f64::NAN,
            _ => scan.z.as_mut().unwrap()[4] = f64::NAN,
        }
        for &method in Discretization::VARIANTS {
            let scan = OracleScan { method, ..scan.clone() };
            let out = run(&scan, Implementation::Kernel, &Device::flex());
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
    let (kernel, device) = (Implementation::Kernel, Device::flex());
    let out = Results::on_device(&scan, &grad_y, kernel, Dtype::F32, &device).unwrap();
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

#[test]
fn a_rate_of_minus_infinity_keeps_nothing() {
    // Eleven tokens: a GPU's kernel has room for sixteen, with steps of 0.
    let base = scan([1, 11, 1, 1], Form::Variable, 4.0);
    let delta: Vec<f64> = base.delta.iter().map(|d| Dtype::F32.round(0.1 + d.abs())).collect();
    let alone = OracleScan {
        a: vec![f64::NEG_INFINITY],
        d: None,
        z: None,
        delta_bias: None,
        delta_softplus: false,
        delta: delta.clone(),
        ..base
    };
    let OracleScan { u, b, c, .. } = &alone;
    let product = |factors: [&[f64]; 3]| -> Vec<f64> {
        (0..11).map(|t| factors.iter().map(|of| of[t]).product()).collect()
    };
    // A state is delta·b·u of its token, and y is c times that.
    let states = product([&delta, b, u]);
    let want = [
        ("y", states.iter().zip(c).map(|(h, c)| h * c).collect()),
        ("last_state", vec![states[10]]),
        ("u", product([c, &delta, b])),
        ("delta", product([c, b, u])),
        ("a", vec![0.0]),
        ("b", product([c, &delta, u])),
        ("c", states.clone()),
    ];
    let ones = vec![1.0; 11];
    let on = |implementation, device: &Device| {
        Results::on_device(&alone, &ones, implementation, Dtype::F32, device).unwrap()
    };
    let mut results = vec![Results::of_oracle(&alone, &ones)];
    for device in devices() {
        results.extend(BOTH.map(|implementation| on(implementation, &device)));
    }
    for (i, results) in results.iter().enumerate() {
        for (name, want) in &want {
            let got = results.named().into_iter().find(|(own, _)| own == name).unwrap().1;
            assert_eq!(got.len(), want.len(), "{name}");
            for (got, want) in got.iter().zip(want) {
                assert!((got - want).abs() < 1e-5, "result {i}: {name}: {got} for {want}");
            }
        }
    }
    // Among other states, under every method that is no bare polynomial.
    for &method in Discretization::VARIANTS.iter().filter(|&&m| m != Discretization::Rk4) {
        let mut scan = OracleScan { method, ..scan([2, 11, 6, 16], Form::Variable, 4.0) };
        (scan.a[3], scan.a[40]) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
        for device in devices() {
            for implementation in BOTH {
                check(&scan, implementation, Dtype::F32, 1.0, &device);
            }
        }
    }
}
