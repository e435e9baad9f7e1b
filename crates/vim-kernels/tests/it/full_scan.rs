//! The scan with a full A: kernels and reference against the oracle, on the CPU and on the GPU of
//! the build.

use burn::tensor::{Device, FloatDType, Tensor};
use vim_kernels::oracle::{OracleFullScan, OracleScan};
use vim_kernels::{Discretization, FullScanOptions, Implementation, KernelError, full_scan};
use vim_verify::full_scan::{every_case, looser};
use vim_verify::run::{PER_TOKEN, SUMS};
use vim_verify::scan::{Case, inputs};

use crate::support::{
    BOTH, Dtype, Form, Results, SEED, Sizes, at_fault, check_full, devices, error, grad_of, named,
    run as run_diagonal, scan, without_inputs,
};

fn full(sizes: Sizes, form: Form, reach: f64) -> OracleFullScan {
    vim_verify::full_scan::full(scan(sizes, form, reach), reach)
}

fn run(full: &OracleFullScan, implementation: Implementation, device: &Device) -> Results {
    let grad_y = grad_of(&full.0);
    Results::of_full_on_device(full, &grad_y, implementation, Dtype::F32, device).unwrap()
}

fn check(full: &OracleFullScan, implementation: Implementation) {
    for device in devices() {
        check_full(full, implementation, Dtype::F32, 1.0, &device);
    }
}

#[test]
fn both_match_the_oracle_in_every_case_of_the_suite() {
    for implementation in BOTH {
        for case in every_case(false, implementation) {
            let full = vim_verify::full_scan::full(case.inputs(SEED, Dtype::F32), case.reach);
            for device in devices() {
                check_full(&full, implementation, Dtype::F32, looser(&case), &device);
            }
        }
    }
}

#[test]
fn kernel_matches_the_oracle_at_awkward_sizes() {
    for d_state in [1, 2, 5, 16, 17, 32] {
        for len in [1, 2, 5, 37] {
            for d_inner in [1, 5] {
                check(
                    &full([1, len, d_inner, d_state], Form::Variable, 4.0),
                    Implementation::Kernel,
                );
            }
        }
    }
}

#[test]
fn kernel_matches_the_oracle_over_groups_of_blocks() {
    // 16 channels of 16 states make two blocks; 3 groups of 9 one full and one with a spare team.
    check(&full([3, 19, 27, 16], Form::Grouped(3), 4.0), Implementation::Kernel);
}

#[test]
fn both_match_the_oracle_where_delta_a_is_huger_than_in_the_suite() {
    let case = Case { sizes: [2, 5, 6, 5], form: Form::Variable, reach: 20_000.0, reverse: false };
    let full = full(case.sizes, case.form, case.reach);
    for device in devices() {
        for implementation in BOTH {
            check_full(&full, implementation, Dtype::F32, looser(&case), &device);
        }
    }
}

#[test]
fn pivots_are_sought() {
    // A = [[2, 5], [−3, 0.5]] and delta = 1: the first pivot, 1 − 2/2, is zero, the system is not
    // singular.
    let mut full = full([1, 5, 3, 2], Form::Variable, 1.0);
    full.0.a = [2.0, 5.0, -3.0, 0.5].repeat(3);
    full.0.delta = vec![1.0; 15];
    full.0.delta_softplus = false;
    full.0.delta_bias = None;
    check(&full, Implementation::Kernel);
    check(&full, Implementation::Reference);
}

#[test]
fn a_singular_system_is_not_hidden() {
    // A = diag(2, −1) and delta = 1 in channel 1 from token 2 on: I − A/2 has a zero on its
    // diagonal.
    let mut full = full([1, 5, 3, 2], Form::Variable, 1.0);
    full.0.a = [-1.0, 0.0, 0.0, -1.0].repeat(3);
    full.0.a[4] = 2.0;
    full.0.delta = vec![0.5; 15];
    full.0.delta[2 * 3 + 1] = 1.0;
    full.0.delta_softplus = false;
    full.0.delta_bias = None;
    for device in devices() {
        for implementation in BOTH {
            let got = run(&full, implementation, &device);
            for token in 0..5 {
                let [before, at, after] = [0, 1, 2].map(|channel| got.y[token * 3 + channel]);
                assert!(
                    before.is_finite() && after.is_finite(),
                    "{device:?} {implementation}: other channels"
                );
                assert_eq!(at.is_finite(), token < 2, "{device:?} {implementation}: token {token}");
            }
        }
    }
}

#[test]
fn nan_is_not_swallowed() {
    let mut full = full([1, 5, 3, 2], Form::Variable, 3.0);
    full.0.delta[4] = f64::NAN;
    for device in devices() {
        let got = run(&full, Implementation::Kernel, &device);
        assert!(got.y[4].is_nan() && got.y[7].is_nan() && got.y[5].is_finite(), "{device:?}");
        assert!(got.y[3].is_finite() && got.y[1].is_finite(), "{device:?}");
        assert!(got.grads.a[4].is_nan() && got.grads.delta[1].is_nan(), "{device:?}");
        assert!(got.grads.a[0].is_finite() && got.grads.u[5].is_finite(), "{device:?}");
    }
}

#[test]
fn inputs_may_be_absent() {
    let OracleFullScan(whole) = full([2, 9, 6, 4], Form::Variable, 3.0);
    for full in without_inputs(&whole).map(OracleFullScan) {
        check(&full, Implementation::Kernel);
        check(&full, Implementation::Reference);
    }
}

#[test]
fn a_diagonal_a_gives_the_diagonal_method() {
    for form in [Form::Variable, Form::Constant] {
        let diagonal = OracleScan {
            method: Discretization::Bilinear,
            reverse: true,
            ..scan([2, 37, 5, 5], form, 4.0)
        };
        let mut full = OracleFullScan(diagonal.clone());
        full.0.a = vec![0.0; 5 * 5 * 5];
        for (i, a) in diagonal.a.iter().enumerate() {
            full.0.a[i * 5 + i % 5] = *a;
        }
        let want = run_diagonal(&diagonal, Implementation::Kernel, &Device::flex());
        for device in devices() {
            let got = run(&full, Implementation::Kernel, &device);
            // Two kernels, each within the tolerance of the oracle.
            for (what, got, want) in
                [("y", &got.y, &want.y), ("last_state", &got.last_state, &want.last_state)]
            {
                let error = error(got, want);
                assert!(error <= 2.0 * PER_TOKEN, "{device:?}: {what} is off by {error:.1e}");
            }
            let of_diagonal = (0..25).map(|i| got.grads.a[i * 5 + i % 5]).collect::<Vec<_>>();
            let off = error(&of_diagonal, &want.grads.a);
            assert!(off <= 2.0 * SUMS, "{device:?}: the gradient of a is off by {off:.1e}");
            for ((what, got), (_, want)) in named(&got.grads).into_iter().zip(named(&want.grads)) {
                if what != "a" {
                    let error = error(got, want);
                    assert!(error <= 2.0 * SUMS, "{device:?}: {what} is off by {error:.1e}");
                }
            }
        }
    }
}

#[test]
fn the_same_bits_twice() {
    for form in [Form::Variable, Form::Constant] {
        let full = full([3, 37, 20, 16], form, 4.0);
        for device in devices() {
            let [one, two] = [(); 2].map(|()| run(&full, Implementation::Kernel, &device));
            assert!(one == two, "{device:?}");
        }
    }
}

#[test]
fn bf16_runs_where_the_device_has_it() {
    let scan = inputs([2, 37, 9, 16], Form::Variable, 4.0, Dtype::Bf16);
    let rounded = vim_verify::full_scan::full(scan, 4.0);
    for device in devices() {
        if device != Device::flex() && device.supports_dtype(FloatDType::BF16) {
            check_full(&rounded, Implementation::Kernel, Dtype::Bf16, 1.0, &device);
        } else {
            let half = |dims| Tensor::<3>::zeros(dims, &device).cast(FloatDType::BF16);
            let a = Tensor::zeros([4, 5, 5], &device);
            let (u, b) = (half([2, 3, 4]), half([2, 3, 5]));
            let options = FullScanOptions::default();
            let result = full_scan(u.clone(), u, a, b.clone(), b, None, None, None, options);
            assert!(matches!(result, Err(KernelError::Dtype { tensor: "u", .. })), "{device:?}");
        }
    }
}

#[test]
fn wrong_shapes_name_the_argument() {
    let device = Device::flex();
    let call = |delta: [usize; 3], a: [usize; 3], c: [usize; 3], d: usize| {
        let states = a[1];
        full_scan(
            Tensor::zeros([2, 3, 4], &device),
            Tensor::zeros(delta, &device),
            Tensor::zeros(a, &device),
            Tensor::<3>::zeros([2, 3, states], &device),
            Tensor::<3>::zeros(c, &device),
            Some(Tensor::zeros([d], &device)),
            None,
            None,
            FullScanOptions::default(),
        )
    };
    assert_eq!(at_fault(call([2, 3, 4], [4, 5, 5], [2, 3, 5], 4)), "nothing");
    assert_eq!(at_fault(call([2, 4, 4], [4, 5, 5], [2, 3, 5], 4)), "delta");
    assert_eq!(at_fault(call([2, 3, 4], [3, 5, 5], [2, 3, 5], 4)), "a");
    assert_eq!(at_fault(call([2, 3, 4], [4, 5, 6], [2, 3, 5], 4)), "a");
    assert_eq!(at_fault(call([2, 3, 4], [4, 33, 33], [2, 3, 33], 4)), "a");
    assert_eq!(at_fault(call([2, 3, 4], [4, 32, 32], [2, 3, 32], 4)), "nothing");
    assert_eq!(at_fault(call([2, 3, 4], [4, 5, 5], [2, 3, 6], 4)), "c");
    assert_eq!(at_fault(call([2, 3, 4], [4, 5, 5], [2, 3, 5], 3)), "d");
}
