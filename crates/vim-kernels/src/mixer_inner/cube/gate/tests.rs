use super::*;
use crate::mixer_inner::cube::sums::tests::{on_device, values};
use crate::mixer_inner::cube::view;
use crate::mixer_inner::scan as mixer_scan;
use vim_kernels_scan::for_mixer::{ScanArguments, ScanSpec, Wanted, gated_sum, scan_results};
use vim_kernels_scan::{Discretization, ScanOptions};

/// B and L.
const SIZES: [usize; 2] = [2, 7];

/// Gates of every size, 0 among them.
const GATES: [f32; 9] = [0.0, -0.0, 1e-30, -1e-6, 0.3, -2.0, 17.0, -60.0, 90.0];

fn at(of: &[f32], i: usize) -> f64 {
    f64::from(of[i])
}

// One channel, two and four to a vector.
#[test]
fn gradients_are_those_of_the_gated_sum() {
    [3, 6, 8].into_iter().for_each(check);
}

fn check(d: usize) {
    let [batch, len] = SIZES;
    let count = batch * len * d;
    let numbers = |count: usize, seed: f32| -> Vec<f32> {
        (0..count).map(|i| (i as f32 * 0.37 + seed).sin()).collect()
    };
    let (both, grad) = (numbers(2 * count, 1.0), numbers(count, 2.0));
    let z: Vec<f32> = (0..count).map(|i| GATES[i % GATES.len()]).collect();
    // z lies in the first half of rows of 2·D.
    let mut rows = vec![9.0; 2 * count];
    for (row, z) in rows.chunks_exact_mut(2 * d).zip(z.chunks_exact(d)) {
        row[..d].copy_from_slice(z);
    }
    let gates = on_device(rows, [2 * count]);
    let grad_z = on_device(vec![9.0; 2 * count], [2 * count]);
    let whole = on_device(both.clone(), [2 * batch, len, d]);
    let y = gate(&whole, &gates, 2 * d);
    let of_y = on_device(grad.clone(), [batch, len, d]);
    let of_sum = gate_backward(of_y, y.clone(), &gates, &grad_z, 2 * d);
    let [y, of_sum, of_z] = [&y, &of_sum, &grad_z].map(values);
    for i in 0..count {
        let (sum, grad, z) = (at(&both, i) + at(&both, count + i), at(&grad, i), at(&z, i));
        let logistic = 1.0 / (1.0 + (-z).exp());
        let slope = logistic * (1.0 + z * (1.0 - logistic));
        let row = i / d * 2 * d + i % d;
        let pairs = [
            ("y", at(&y, i), sum * z * logistic),
            ("of the sum", at(&of_sum, i), grad * z * logistic),
            ("of z", at(&of_z, row), grad * sum * slope),
        ];
        for (what, got, want) in pairs {
            // Roundings of f32; WGSL's exponential errs by 3 + 2·|x| of them. Absolute where z
            // counts as 10⁻¹².
            let share = if z.abs() > 20.0 { 3e-5 } else { 3e-6 };
            let most = share * want.abs() + if z.abs() < 1e-11 { 1e-11 } else { 0.0 };
            assert!((got - want).abs() <= most, "{what} {z}: {got} for {want}");
        }
        assert_eq!(of_z[i / d * 2 * d + d + i % d], 9.0, "the other half is left");
    }
}

// Images of which each direction fills the device twice, so that one runs behind the other.
#[test]
fn the_sum_that_a_scan_gates_is_that_of_both_at_once() {
    let properties = on_device(vec![0.0], [1]).client.properties().clone();
    let processors = properties.hardware.num_streaming_multiprocessors.unwrap_or(16);
    let [batch, len, d, n] = [16 * processors as usize, 11, 64, 4];
    let numbers = |count: usize, seed: f32| -> Vec<f32> {
        (0..count).map(|i| (i as f32 * 0.37 + seed).sin()).collect()
    };
    let on = |shape: &[usize], seed: f32| {
        let count = shape.iter().product();
        on_device(numbers(count, seed), [count])
    };
    let z: Vec<f32> = (0..batch * len * d).map(|i| GATES[i % GATES.len()]).collect();
    let z = on_device(z, [batch, len, d]);
    let rates = numbers(2 * d * n, 3.0).into_iter().map(|a| -2.0 - a).collect();
    let shaped = |of: CubeTensor, shape: &[usize]| {
        let mut strides = vec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * shape[axis];
        }
        view(&of, 0, shape, &strides)
    };
    let tokens = [2 * batch, len, d];
    let states = [2 * batch, len, 1, n];
    let arguments = ScanArguments {
        u: shaped(on(&tokens, 1.0), &tokens),
        delta: shaped(on(&tokens, 2.0), &tokens),
        a: on_device(rates, [2 * d, n]),
        b: shaped(on(&states, 4.0), &states),
        c: shaped(on(&states, 5.0), &states),
        d: on(&[2 * d], 6.0),
        z: z.clone(),
        delta_bias: on(&[2 * d], 7.0),
    };
    for reverse in [false, true] {
        for method in [Discretization::Zoh, Discretization::Tustin] {
            let options =
                ScanOptions { method, reverse, delta_softplus: true, ..ScanOptions::default() };
            let spec = ScanSpec { has_z: false, ..mixer_scan(options) };
            let (both, ..) = scan_results(arguments.clone(), spec, Wanted::default());
            let want = values(&gate(&both, &z, d));
            let got = values(&gated_sum(&arguments, spec).expect("it fills the device"));
            let largest = want.iter().fold(0.0f32, |most, y| most.max(y.abs()));
            for (got, want) in got.iter().zip(&want) {
                assert!((got - want).abs() <= 1e-6 * largest, "{got} for {want}");
            }
        }
        // Two passes over the states, or two ways: at once.
        let options =
            ScanOptions { method: Discretization::Poly, reverse, ..ScanOptions::default() };
        assert!(gated_sum(&arguments, ScanSpec { has_z: false, ..mixer_scan(options) }).is_none());
    }
}
