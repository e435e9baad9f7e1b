//! The CubeCL kernels against the oracle, on every GPU of the build (Mesa's lavapipe is one).
//!
//! The matrix is that of the CPU kernel, at sizes that a software rasterizer can afford: most of
//! its time is spent compiling a kernel for each method, form and N, so tests of other properties
//! share N = 16.

use burn::tensor::{Device, Int, Tensor};
use burn_cubecl::CubeBackend;
use strum::VariantArray;
use vim_kernels::oracle::OracleScan;
use vim_kernels::raw::channels_last;
use vim_kernels::{
    Discretization, Implementation, KernelChoice, ScanOptions, Series, largest_argument,
    largest_polynomial_argument, selective_scan,
};
use vim_kernels_core::cube::{primitive, recorded};
use vim_verify::scan::inputs;

use crate::support::{
    Dtype, Form, Results, bf16_devices, check as check_on, devices, named, run, scan,
    without_inputs,
};

fn gpus() -> Vec<Device> {
    devices().into_iter().filter(|device| *device != Device::flex()).collect()
}

fn check(scan: &OracleScan) {
    for device in gpus() {
        check_on(scan, Implementation::Kernel, Dtype::F32, 1.0, &device);
    }
}

#[test]
fn every_method_series_and_direction() {
    // Each direction with one series: a kernel takes seconds to compile for a software rasterizer.
    for &method in Discretization::VARIANTS {
        let both = [(Series::Exact, false), (Series::Taylor, true)];
        for (series, reverse) in both.into_iter().filter(|(s, _)| method.series().contains(s)) {
            let base = scan([2, 37, 10, 16], Form::Variable, 4.0);
            check(&OracleScan { method, series, reverse, ..base });
        }
    }
}

#[test]
fn every_form_of_b_and_c() {
    for method in [
        Discretization::Zoh,
        Discretization::HighOrder,
        Discretization::Poly,
        Discretization::FohLinear,
    ] {
        for form in [Form::Grouped(2), Form::Constant, Form::Mixed] {
            check(&OracleScan { method, ..scan([2, 21, 10, 4], form, 4.0) });
        }
    }
}

#[test]
fn awkward_sizes() {
    for (len, d_inner, d_state) in
        [(1, 1, 1), (2, 5, 8), (5, 64, 17), (197, 33, 16), (8, 1, 5), (9, 130, 2), (9, 5, 31)]
    {
        // Two-way methods and φ functions only where several passes or kinds of cubes make a
        // difference.
        let two_way = d_state == 17 || d_inner == 130;
        for method in [Discretization::Zoh, Discretization::Poly, Discretization::Tustin] {
            if method != Discretization::Poly || two_way {
                let base = scan([1, len, d_inner, d_state], Form::Variable, 4.0);
                check(&OracleScan { method, ..base });
            }
        }
    }
}

#[test]
fn many_states_take_several_passes() {
    // Whole passes of 10 and of 16, and three of 14 of which the last has two to spare.
    for (d_state, method) in [
        (20, Discretization::Zoh),
        (32, Discretization::Zoh),
        (40, Discretization::Poly),
        (256, Discretization::Bilinear),
        (20, Discretization::FohLinear),
        (40, Discretization::ExpTrapezoidal),
    ] {
        let base = scan([1, 19, 3, d_state], Form::Variable, 4.0);
        check(&OracleScan { method, ..base });
    }
}

#[test]
fn long_sequences_are_cut_into_segments() {
    // Each kind of decay, and a two-way method in both orders; an awkward N, of which one state is
    // missing from the second pass. Methods that read the token before read it across a border.
    for (method, reverse, len, d_state) in [
        (Discretization::Zoh, true, 1025, 4),
        (Discretization::Bilinear, false, 1025, 4),
        (Discretization::Poly, false, 1025, 4),
        (Discretization::Poly, true, 133, 17),
        (Discretization::Zoh, false, 133, 17),
        (Discretization::ExpTrapezoidal, false, 1025, 4),
        (Discretization::FohLinear, true, 1025, 4),
        (Discretization::Tustin, false, 1025, 4),
        (Discretization::Tustin, true, 133, 17),
    ] {
        let base = scan([1, len, 5, d_state], Form::Variable, 4.0);
        check(&OracleScan { method, reverse, ..base });
    }
}

// Over a segment of 32 tokens a state would grow by e⁹⁶, more than an f32 holds.
#[test]
fn a_growing_system_may_start_quietly() {
    for reverse in [false, true] {
        // The last token of the walk alone has an input, the first alone a gradient.
        let ends = |token| (0..1024).map(|t| f64::from(u8::from(t == token))).collect::<Vec<_>>();
        let (first, last) = if reverse { (1023, 0) } else { (0, 1023) };
        let scan = OracleScan {
            reverse,
            a: vec![1.0],
            delta: vec![3.0; 1024],
            u: ends(last),
            b: vec![1.0; 1024],
            c: vec![1.0; 1024],
            d: None,
            z: None,
            delta_bias: None,
            delta_softplus: false,
            ..scan([1, 1024, 1, 1], Form::Variable, 1.0)
        };
        // By zero-order hold a state is 3·u of its token before any other has come to it.
        let want = |token| ends(token).iter().map(|one| 3.0 * one).collect::<Vec<_>>();
        for device in gpus() {
            let grad_y = ends(first);
            let kernel = Implementation::Kernel;
            let got = Results::on_device(&scan, &grad_y, kernel, Dtype::F32, &device).unwrap();
            assert_eq!((got.y, got.last_state), (want(last), vec![3.0]));
            assert_eq!(got.grads.u, want(first));
            for (name, grads) in named(&got.grads).into_iter().filter(|(name, _)| *name != "u") {
                assert!(grads.iter().all(|&grad| grad == 0.0), "{name}: {grads:?}");
            }
        }
    }
}

// The last token of a chunk, of a tile or of a segment, and the first of the next.
#[test]
fn the_token_before_may_be_across_any_border() {
    for method in Discretization::VARIANTS.iter().copied().filter(|m| m.form().previous.is_some()) {
        for len in [1, 2, 7, 8, 9, 31, 33, 63, 64, 65, 73] {
            let base = scan([2, len, 5, 16], Form::Variable, 4.0);
            check(&OracleScan { method, reverse: len % 2 == 0, ..base });
        }
    }
}

#[test]
fn delta_a_may_be_huge() {
    for &method in Discretization::VARIANTS {
        // Of the gradient of delta by `zoh_exact` nothing but e⁻²⁸ is left at the larger one.
        let all = if method == Discretization::ZohExact { 1 } else { 2 };
        for reach in [1000.0, 20_000.0].into_iter().take(all) {
            let base = scan([1, 11, 6, 16], Form::Variable, reach);
            check(&OracleScan { method, ..base });
        }
    }
}

/// The maximum is in the last token, channel and state; the largest delta and the largest |a| are
/// of two channels. Each case exceeds what tests beside it reach.
#[test]
fn the_largest_argument_of_a_polynomial_is_noted() {
    let mut longest = 1e15_f32;
    for device in devices() {
        // The ragged part of a tile and of a cube, states of two passes, segments.
        for [len, d_inner, d_state] in [[5, 37, 16], [9, 130, 17], [1025, 2, 16], [1, 1, 1]] {
            longest *= 8.0;
            let cell = |t: &mut [f32], at, value| t[at] = value;
            let (mut delta, mut a) = (vec![0.5; len * d_inner], vec![-1.0; d_inner * d_state]);
            cell(&mut a, 0, -4096.0);
            cell(&mut delta, len * d_inner - 1, longest);
            cell(&mut a, d_inner * d_state - 1, -1024.0);
            let tokens = |values: &[f32]| {
                Tensor::<1>::from_floats(values, &device).reshape([1, len, d_inner])
            };
            let scan = |method, delta: &[f32], choice| {
                let a = Tensor::<1>::from_floats(a.as_slice(), &device);
                let b = Tensor::<3>::ones([1, len, d_state], &device);
                let options = ScanOptions { method, choice, ..ScanOptions::default() };
                let u = tokens(&vec![1.0; len * d_inner]);
                let a = a.reshape([d_inner, d_state]);
                selective_scan(u, tokens(delta), a, b.clone(), b, None, None, None, options)
            };
            let run = |method, delta: &[f32], choice| {
                scan(method, delta, choice).unwrap();
                largest_polynomial_argument(&device).unwrap().into_scalar::<f32>()
            };
            // Under any method where that is asked for, which is then none of the others.
            let asked = |method, delta: &[f32]| {
                let scan = || scan(method, delta, KernelChoice::Kernel);
                largest_argument(&device, scan).unwrap().1
            };
            let method = Discretization::Rk4;
            for method in [Discretization::Zoh, method] {
                assert_eq!(asked(method, &delta), Some(1024.0 * longest), "{device:?}");
            }
            let before = largest_polynomial_argument(&device).map(Tensor::into_scalar::<f32>);
            assert!(before.unwrap_or(0.0) < 1024.0 * longest, "{device:?}: {before:?}");
            assert_eq!(run(method, &delta, KernelChoice::Kernel), 1024.0 * longest, "{device:?}");
            // A bounded method is none of them, and the reference's is an upper bound.
            delta[0] = 1e30;
            let zoh = run(Discretization::Zoh, &delta, KernelChoice::Kernel);
            assert_eq!(zoh, 1024.0 * longest, "{device:?}");
            // Nor is one whose launches are recorded; every buffer of its kernels is told.
            if device != Device::flex() {
                let (y, made) = recorded(|| scan(method, &delta, KernelChoice::Kernel).unwrap().y);
                assert!(made.iter().any(|of| of.meta.shape().to_vec() == y.dims()), "{device:?}");
                let largest = largest_polynomial_argument(&device).unwrap().into_scalar::<f32>();
                assert_eq!(largest, 1024.0 * longest, "{device:?}");
            }
            delta[0] = 0.5;
            longest *= 4.0;
            let bound = run(method, &vec![longest; len * d_inner], KernelChoice::Reference);
            assert_eq!(bound, if d_inner == 1 { 1024.0 } else { 4096.0 } * longest, "{device:?}");
        }
    }
}

#[test]
fn channels_come_last() {
    for device in gpus() {
        for [batch, channels, len] in
            [[1, 1, 1], [3, 5, 197], [2, 384, 65], [1, 64, 64], [1, 130, 2]]
        {
            let count = batch * channels * len;
            let x = Tensor::<1, Int>::arange(0..count as i64, &device).float();
            let x = x.reshape([batch, channels, len]);
            let turned = channels_last(&primitive(x.clone()));
            assert_eq!(turned.meta.shape().to_vec(), [batch, len, channels]);
            let turned = Tensor::<3>::from_primitive::<CubeBackend>(turned);
            turned.into_data().assert_eq(&x.swap_dims(1, 2).into_data(), true);
            // Of more axes all but the first and the last are channels.
            let x = Tensor::<1, Int>::arange(0..2 * count as i64, &device).float();
            let x = x.reshape([batch, 2, channels, len]);
            let turned = channels_last(&primitive(x.clone()));
            let turned = Tensor::<4>::from_primitive::<CubeBackend>(turned);
            turned.into_data().assert_eq(&x.permute([0, 3, 1, 2]).into_data(), true);
        }
    }
}

#[test]
fn inputs_may_be_absent() {
    without_inputs(&scan([2, 5, 6, 4], Form::Variable, 3.0)).iter().for_each(check);
}

// A race between the units of a cube, or between cubes through the cache, would not give the same
// bits fifty times.
#[test]
fn the_same_bits_fifty_times() {
    let scan = scan([3, 197, 150, 16], Form::Variable, 4.0);
    for device in gpus() {
        let run = || run(&scan, Implementation::Kernel, &device);
        let one = run();
        for _ in 1..50 {
            assert!(one == run());
        }
    }
}

#[test]
fn nan_is_not_swallowed() {
    for device in gpus() {
        for method in [Discretization::Zoh, Discretization::Bilinear, Discretization::HighOrder] {
            let clean = scan([1, 5, 3, 16], Form::Variable, 3.0);
            for input in ["u", "delta", "z"] {
                let mut scan = OracleScan { method, ..clean.clone() };
                match input {
                    "u" => scan.u[4] = f64::NAN,
                    "delta" => scan.delta[4] = f64::NAN,
                    _ => scan.z.as_mut().unwrap()[4] = f64::NAN,
                }
                let out = run(&scan, Implementation::Kernel, &device);
                assert!(out.y[4].is_nan(), "{method}: {input} to y");
                assert!(input == "z" || out.y[7].is_nan(), "{method}: {input} to later y");
                assert!(out.y[5].is_finite(), "{method}: nothing reaches another channel");
            }
        }
    }
}

#[test]
fn bf16_where_the_device_has_it() {
    for device in bf16_devices() {
        for &method in Discretization::VARIANTS {
            for form in [Form::Variable, Form::Constant] {
                let scan = inputs([2, 37, 10, 16], form, 4.0, Dtype::Bf16);
                let scan = OracleScan { method, ..scan };
                check_on(&scan, Implementation::Kernel, Dtype::Bf16, 1.0, &device);
            }
        }
    }
}
