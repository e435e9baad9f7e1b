//! The scan with a full A: kernels and reference against the oracle, on the CPU and on the GPU of
//! the build.

use burn::tensor::{Device, FloatDType, Tensor};
use vim_kernels::oracle::{OracleFullScan, OracleScan, OracleScanGrads};
use vim_kernels::{Discretization, FullScanOptions, KernelChoice, KernelError, ScanBC, full_scan};

use crate::support::{
    Form, Numbers, Outcome, Sizes, error_over, grad_of, named, run as run_diagonal, scan, tensor,
    values,
};

/// max |difference| / max |reference| in f32, of arrays with a value per token. A solve is good to
/// about N·6e-8 times the condition of its system, which is a few units for these A; states sum up
/// to a hundred of them.
const PER_TOKEN: f64 = 2e-5;

/// The same for gradients that are sums over all tokens, whose terms have both signs.
const SUMS: f64 = 1e-4;

/// A scan with a full A: that of [`scan`] on the diagonal, plus a skew part and a small
/// unstructured part, both of the diagonal's size divided by √N.
pub(crate) fn full(sizes: Sizes, form: Form, reach: f64, seed: u64) -> OracleFullScan {
    let [_, _, d_inner, d_state] = sizes;
    let mut scan = scan(sizes, form, reach, seed);
    let mut x = Numbers::new(seed + 1000);
    let size = reach / (d_state as f64).sqrt();
    let mut a = x.vec(d_inner * d_state * d_state, -0.05 * size, 0.05 * size);
    for channel in 0..d_inner {
        let matrix = &mut a[channel * d_state * d_state..][..d_state * d_state];
        for n in 0..d_state {
            for m in 0..n {
                let skew = f64::from((size * (2.0 * x.next() - 1.0)) as f32);
                matrix[n * d_state + m] = f64::from((matrix[n * d_state + m] + skew) as f32);
                matrix[m * d_state + n] = f64::from((matrix[m * d_state + n] - skew) as f32);
            }
            matrix[n * d_state + n] = scan.a[channel * d_state + n];
        }
    }
    scan.a = a;
    OracleFullScan(scan)
}

/// The devices of this build, each with the name to report it by.
fn devices() -> Vec<(&'static str, Device)> {
    #[cfg_attr(
        not(any(feature = "cuda", feature = "wgpu")),
        expect(unused_mut, reason = "a GPU is added where the build has one")
    )]
    let mut devices = vec![("flex", Device::flex())];
    #[cfg(feature = "cuda")]
    devices.push(("cuda", Device::cuda(0)));
    #[cfg(feature = "wgpu")]
    devices.push(("wgpu", Device::wgpu(burn::tensor::DeviceKind::DefaultDevice)));
    devices
}

/// Runs `full` forward and backward on `device`; activations are cast to `dtype` and their
/// gradients come back through the cast.
fn run(
    OracleFullScan(scan): &OracleFullScan,
    device: &Device,
    choice: KernelChoice,
    dtype: FloatDType,
) -> Outcome {
    let device = device.clone().autodiff();
    let OracleScan { batch, len, d_inner, d_state, groups, .. } = *scan;
    let tokens = [batch, len, d_inner];
    let leaf = |values: &[f64]| tensor(values, [values.len()], &device).require_grad();
    let (u, delta) = (leaf(&scan.u), leaf(&scan.delta));
    let (a, b, c) = (leaf(&scan.a), leaf(&scan.b), leaf(&scan.c));
    let d = scan.d.as_deref().map(leaf);
    let z = scan.z.as_deref().map(leaf);
    let bias = scan.delta_bias.as_deref().map(leaf);
    let projection = |leaf: &Tensor<1>, constant: bool| -> ScanBC {
        if constant {
            leaf.clone().reshape([d_inner, d_state]).into()
        } else if groups > 1 {
            leaf.clone().cast(dtype).reshape([batch, len, groups, d_state]).into()
        } else {
            leaf.clone().cast(dtype).reshape([batch, len, d_state]).into()
        }
    };
    let activation = |leaf: &Tensor<1>| leaf.clone().cast(dtype).reshape(tokens);
    let out = full_scan(
        activation(&u),
        activation(&delta),
        a.clone().reshape([d_inner, d_state, d_state]),
        projection(&b, scan.b_constant),
        projection(&c, scan.c_constant),
        d.clone(),
        z.as_ref().map(activation),
        bias.clone(),
        FullScanOptions { delta_softplus: scan.delta_softplus, reverse: scan.reverse, choice },
    )
    .unwrap();
    let y = out.y.cast(FloatDType::F32);
    let grads = (y.clone() * tensor(&grad_of(scan), tokens, &device)).sum().backward();
    let grad = |leaf: &Tensor<1>| values(leaf.grad(&grads).unwrap());
    let optional = |leaf: &Option<Tensor<1>>| leaf.as_ref().map_or(vec![], grad);
    Outcome {
        y: values(y),
        last_state: values(out.last_state),
        grads: OracleScanGrads {
            u: grad(&u),
            delta: grad(&delta),
            a: grad(&a),
            b: grad(&b),
            c: grad(&c),
            d: optional(&d),
            z: optional(&z),
            delta_bias: optional(&bias),
        },
    }
}

/// Compares the results `got` for `full` with the oracle; tolerances are times `looser`.
fn compare(what: &str, full: &OracleFullScan, got: &Outcome, looser: f64) {
    let OracleFullScan(scan) = full;
    let (y, last_state) = full.forward();
    let grads = full.backward(&grad_of(scan));
    let sizes = [scan.batch, scan.len, scan.d_inner, scan.d_state];
    let mut pairs = vec![("y", &got.y[..], &y[..]), ("last_state", &got.last_state, &last_state)];
    pairs.extend(
        named(&got.grads).into_iter().zip(named(&grads)).map(|((name, g), (_, w))| (name, g, w)),
    );
    for (name, got, want) in pairs {
        // One sum a channel, of terms of both signs: see the test of the diagonal scan.
        let floor = if name == "delta_bias" {
            grads.delta.iter().map(|g| g * g).sum::<f64>().sqrt() / (scan.d_inner as f64).sqrt()
        } else {
            1e-30
        };
        let error = error_over(got, want, floor);
        let constant = (name == "b" && scan.b_constant) || (name == "c" && scan.c_constant);
        let sum = constant || ["a", "d", "delta_bias"].contains(&name);
        let tolerance = looser * if sum { SUMS } else { PER_TOKEN };
        assert!(
            error <= tolerance,
            "{what} reverse {} {sizes:?}: {name} is off by {error:.1e}",
            scan.reverse
        );
    }
}

fn check(full: &OracleFullScan, choice: KernelChoice) {
    for (name, device) in devices() {
        let got = run(full, &device, choice, FloatDType::F32);
        compare(&format!("{name} {choice}"), full, &got, 1.0);
    }
}

const FORMS: [Form; 4] = [Form::Variable, Form::Grouped(2), Form::Constant, Form::Mixed];

#[test]
fn both_match_the_oracle_in_every_form() {
    for form in FORMS {
        for reverse in [false, true] {
            let mut full = full([2, 37, 10, 5], form, 4.0, 3);
            full.0.reverse = reverse;
            check(&full, KernelChoice::Kernel);
            check(&full, KernelChoice::Reference);
        }
    }
}

#[test]
fn kernel_matches_the_oracle_at_awkward_sizes() {
    for d_state in [1, 2, 5, 16, 17, 32] {
        for len in [1, 2, 5, 37] {
            for d_inner in [1, 5] {
                check(
                    &full([1, len, d_inner, d_state], Form::Variable, 4.0, 5),
                    KernelChoice::Kernel,
                );
            }
        }
    }
}

#[test]
fn kernel_matches_the_oracle_over_several_blocks() {
    // 16 channels of 16 states make two blocks, 3 groups of 9 one full and one with a spare team.
    check(&full([3, 19, 27, 16], Form::Grouped(3), 4.0, 6), KernelChoice::Kernel);
    check(&full([2, 197, 16, 16], Form::Variable, 4.0, 7), KernelChoice::Kernel);
}

#[test]
fn reference_matches_the_oracle_at_awkward_sizes() {
    for [len, d_inner, d_state] in [[1, 1, 1], [2, 5, 2], [5, 1, 17], [2, 5, 32]] {
        let full = full([1, len, d_inner, d_state], Form::Variable, 4.0, 5);
        let got = run(&full, &Device::flex(), KernelChoice::Reference, FloatDType::F32);
        compare("flex reference", &full, &got, 1.0);
    }
}

#[test]
fn both_match_the_oracle_where_delta_a_is_huge() {
    // delta reaches 1.3, so |delta·a| reaches 1000 and beyond. A state then turns by almost −1 a
    // token and its small decay carries what the tokens before it rounded: tolerances ten times
    // wider.
    for (reach, len) in [(1000.0, 37), (20_000.0, 5)] {
        let full = full([2, len, 6, 5], Form::Variable, reach, 8);
        for (name, device) in devices() {
            for choice in [KernelChoice::Kernel, KernelChoice::Reference] {
                let got = run(&full, &device, choice, FloatDType::F32);
                compare(&format!("{name} {choice} {reach}"), &full, &got, 10.0);
            }
        }
    }
}

#[test]
fn pivots_are_sought() {
    // A = [[2, 5], [−3, 0.5]] and delta = 1: the first pivot, 1 − 2/2, is zero, the system is not
    // singular.
    let mut full = full([1, 5, 3, 2], Form::Variable, 1.0, 9);
    full.0.a = [2.0, 5.0, -3.0, 0.5].repeat(3);
    full.0.delta = vec![1.0; 15];
    full.0.delta_softplus = false;
    full.0.delta_bias = None;
    check(&full, KernelChoice::Kernel);
    check(&full, KernelChoice::Reference);
}

#[test]
fn a_singular_system_is_not_hidden() {
    // A = diag(2, −1) and delta = 1 in channel 1 from token 2 on: I − A/2 has a zero on its
    // diagonal.
    let mut full = full([1, 5, 3, 2], Form::Variable, 1.0, 9);
    full.0.a = [-1.0, 0.0, 0.0, -1.0].repeat(3);
    full.0.a[4] = 2.0;
    full.0.delta = vec![0.5; 15];
    full.0.delta[2 * 3 + 1] = 1.0;
    full.0.delta_softplus = false;
    full.0.delta_bias = None;
    for (name, device) in devices() {
        for choice in [KernelChoice::Kernel, KernelChoice::Reference] {
            let got = run(&full, &device, choice, FloatDType::F32);
            for token in 0..5 {
                let [before, at, after] = [0, 1, 2].map(|channel| got.y[token * 3 + channel]);
                assert!(before.is_finite() && after.is_finite(), "{name} {choice}: other channels");
                assert_eq!(at.is_finite(), token < 2, "{name} {choice}: token {token}");
            }
        }
    }
}

#[test]
fn nan_is_not_swallowed() {
    let mut full = full([1, 5, 3, 2], Form::Variable, 3.0, 17);
    full.0.delta[4] = f64::NAN;
    for (name, device) in devices() {
        let got = run(&full, &device, KernelChoice::Kernel, FloatDType::F32);
        assert!(got.y[4].is_nan() && got.y[7].is_nan() && got.y[5].is_finite(), "{name}");
        assert!(got.y[3].is_finite() && got.y[1].is_finite(), "{name}");
        assert!(got.grads.a[4].is_nan() && got.grads.delta[1].is_nan(), "{name}");
        assert!(got.grads.a[0].is_finite() && got.grads.u[5].is_finite(), "{name}");
    }
}

#[test]
fn inputs_may_be_absent() {
    for absent in 0..4 {
        let mut full = full([2, 9, 6, 4], Form::Variable, 3.0, 11);
        match absent {
            0 => full.0.d = None,
            1 => full.0.z = None,
            2 => full.0.delta_bias = None,
            _ => {
                full.0.delta_softplus = false;
                full.0.delta_bias = None;
                full.0.delta.iter_mut().for_each(|d| *d = 0.02 + d.abs() / 4.0);
            }
        }
        check(&full, KernelChoice::Kernel);
        check(&full, KernelChoice::Reference);
    }
}

#[test]
fn a_diagonal_a_gives_the_diagonal_method() {
    for form in [Form::Variable, Form::Constant] {
        let diagonal = OracleScan {
            method: Discretization::Bilinear,
            reverse: true,
            ..scan([2, 37, 5, 5], form, 4.0, 12)
        };
        let mut full = OracleFullScan(diagonal.clone());
        full.0.a = vec![0.0; 5 * 5 * 5];
        for (i, a) in diagonal.a.iter().enumerate() {
            full.0.a[i * 5 + i % 5] = *a;
        }
        let want = run_diagonal(&diagonal, KernelChoice::Kernel, &grad_of(&diagonal));
        for (name, device) in devices() {
            let got = run(&full, &device, KernelChoice::Kernel, FloatDType::F32);
            // Two kernels, each within the tolerance of the oracle.
            for (what, got, want) in
                [("y", &got.y, &want.y), ("last_state", &got.last_state, &want.last_state)]
            {
                let error = error_over(got, want, 1e-30);
                assert!(error <= 2.0 * PER_TOKEN, "{name}: {what} is off by {error:.1e}");
            }
            let of_diagonal = (0..25).map(|i| got.grads.a[i * 5 + i % 5]).collect::<Vec<_>>();
            let error = error_over(&of_diagonal, &want.grads.a, 1e-30);
            assert!(error <= 2.0 * SUMS, "{name}: the gradient of a is off by {error:.1e}");
            for ((what, got), (_, want)) in named(&got.grads).into_iter().zip(named(&want.grads)) {
                if what != "a" {
                    let error = error_over(got, want, 1e-30);
                    assert!(error <= 2.0 * SUMS, "{name}: {what} is off by {error:.1e}");
                }
            }
        }
    }
}

#[test]
fn the_same_bits_twice() {
    for form in [Form::Variable, Form::Constant] {
        let full = full([3, 37, 20, 16], form, 4.0, 13);
        for (name, device) in devices() {
            let [one, two] =
                [(); 2].map(|()| run(&full, &device, KernelChoice::Kernel, FloatDType::F32));
            let same = one.y == two.y && one.last_state == two.last_state && one.grads == two.grads;
            assert!(same, "{name}");
        }
    }
}

#[test]
fn bf16_runs_where_the_device_has_it() {
    // 8 bits of mantissa: 2⁻⁸ relative in every input and output, a few of them added up.
    let mut rounded = full([2, 37, 9, 16], Form::Variable, 4.0, 14);
    let bf16 = |x: &mut Vec<f64>| {
        x.iter_mut().for_each(|x| {
            *x = f64::from(f32::from_bits((*x as f32).to_bits() & 0xffff_0000));
        });
    };
    for x in [&mut rounded.0.u, &mut rounded.0.delta, &mut rounded.0.b, &mut rounded.0.c] {
        bf16(x);
    }
    bf16(rounded.0.z.as_mut().unwrap());
    for (name, device) in devices() {
        if name != "flex" && device.supports_dtype(FloatDType::BF16) {
            let got = run(&rounded, &device, KernelChoice::Kernel, FloatDType::BF16);
            compare(&format!("{name} bf16"), &rounded, &got, 1e-2 / PER_TOKEN);
        } else {
            let half = |dims| Tensor::<3>::zeros(dims, &device).cast(FloatDType::BF16);
            let a = Tensor::zeros([4, 5, 5], &device);
            let (u, b) = (half([2, 3, 4]), half([2, 3, 5]));
            let options = FullScanOptions::default();
            let result = full_scan(u.clone(), u, a, b.clone(), b, None, None, None, options);
            assert!(matches!(result, Err(KernelError::Dtype { tensor: "u", .. })), "{name}");
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
    assert_eq!(at_fault(call([2, 3, 4], [4, 5, 5], [2, 3, 5], 4)), "nothing");
    assert_eq!(at_fault(call([2, 4, 4], [4, 5, 5], [2, 3, 5], 4)), "delta");
    assert_eq!(at_fault(call([2, 3, 4], [3, 5, 5], [2, 3, 5], 4)), "a");
    assert_eq!(at_fault(call([2, 3, 4], [4, 5, 6], [2, 3, 5], 4)), "a");
    assert_eq!(at_fault(call([2, 3, 4], [4, 33, 33], [2, 3, 33], 4)), "a");
    assert_eq!(at_fault(call([2, 3, 4], [4, 32, 32], [2, 3, 32], 4)), "nothing");
    assert_eq!(at_fault(call([2, 3, 4], [4, 5, 5], [2, 3, 6], 4)), "c");
    assert_eq!(at_fault(call([2, 3, 4], [4, 5, 5], [2, 3, 5], 3)), "d");
}
