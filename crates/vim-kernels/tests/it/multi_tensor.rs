//! Optimizer operations over many tensors at once, on a GPU or a software rasterizer, against loops
//! in f64.

use burn::tensor::{Device, Tensor};
use vim_kernels::{
    AdamWHyper, FlatParams, ParamStep, moving_average, sum_of_squares, supports_multi_tensor,
};

use crate::support::{self, values};

/// More tensors than a launch binds with 31 bindings; the sizes are one, a block and its
/// neighbours, and several blocks.
const SIZES: [usize; 17] =
    [1, 2, 3, 255, 256, 257, 2047, 2048, 2049, 4096, 5000, 7, 1, 1, 12, 6144, 100];

fn numbers(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| f64::from(((i * 37 + seed * 101) as f32 * 0.731).sin())).collect()
}

fn tensor(values: &[f64], device: &Device) -> Tensor<1> {
    support::tensor(values, [values.len()], device)
}

/// Tensors of all sizes with the numbers of `seed`.
fn all(seed: usize, device: &Device) -> Vec<Tensor<1>> {
    SIZES.iter().enumerate().map(|(i, &n)| tensor(&numbers(n, i + seed), device)).collect()
}

fn device() -> Device {
    let device = Device::default();
    assert!(supports_multi_tensor(&device), "this test is for a GPU, or for one in software");
    device
}

// A few rounded operations on numbers of the order of 1.
fn close(got: &[f64], want: &[f64], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() < 2e-6, "{what}[{i}]: {got} {want}");
    }
}

#[test]
fn the_sum_of_squares_is_over_all_tensors() {
    let device = device();
    let numbers = SIZES.iter().enumerate().map(|(i, &n)| numbers(n, i));
    let (numbers, tensors): (Vec<Vec<f64>>, _) = (numbers.collect(), all(0, &device));
    let want: f64 = numbers.iter().flatten().map(|x| x * x).sum();
    let got = values(sum_of_squares(&tensors))[0];
    assert!((got - want).abs() < 1e-6 * want, "{got} {want}");
    // A view of a larger buffer, whose first element is not the buffer's.
    let part = tensors[7].clone().narrow(0, 8, 1024);
    let want: f64 = numbers[7][8..1032].iter().map(|x| x * x).sum();
    let got = values(sum_of_squares(&[part]))[0];
    assert!((got - want).abs() < 1e-6 * want, "{got} {want}");
}

#[test]
fn adamw_updates_every_tensor_by_the_formula() {
    let device = device();
    // A norm of 4 and a limit of half of it.
    let norm = || tensor(&[16.0], &device);
    let (limit, root_scale) = (Some(2.0), 1.0 / 0.0975f64.sqrt());
    let rule = AdamWHyper { betas: [0.9, 0.95], eps: 1e-8, limit, root_scale };
    let inputs = |i: usize, n: usize| {
        let square: Vec<f64> = numbers(n, i + 60).iter().map(|x| x * x + 0.1).collect();
        [numbers(n, i), numbers(n, i + 20), numbers(n, i + 40), square]
    };
    let all = |which: usize| -> Vec<Tensor<1>> {
        let of = |(i, &n): (usize, &usize)| tensor(&inputs(i, n)[which], &device);
        SIZES.iter().enumerate().map(of).collect()
    };
    let packing = FlatParams::of(&all(0));
    let rates = (0..SIZES.len()).map(|i| ParamStep {
        rate: 0.01 * (i + 1) as f64,
        keep: if i % 2 == 0 { 1.0 } else { 0.995 },
    });
    let rates = [rates.collect(), vec![ParamStep { rate: 0.003, keep: 1.0 }; SIZES.len()]];
    let state = [0, 2, 3].map(|which| packing.pack(all(which)));
    let parts = state.each_ref().map(|packed| packing.parts(packed));
    for round in 0..2 {
        packing.adamw(state.each_ref(), all(1), &rates[round], norm(), rule);
        for (packed, parts) in state.iter().zip(&parts) {
            let filled_up = packing.pack(parts.clone());
            assert_eq!(values(packed.clone()), values(filled_up), "zeros between tensors");
        }
        for (i, &n) in SIZES.iter().enumerate() {
            let [mut v, g, mut m, mut s] = inputs(i, n);
            for k in 0..n {
                for rates in &rates[..=round] {
                    let ParamStep { rate, keep } = rates[i];
                    let gradient = 0.5 * g[k];
                    m[k] = 0.9 * m[k] + 0.1 * gradient;
                    s[k] = 0.95 * s[k] + 0.05 * gradient * gradient;
                    v[k] = keep * v[k] - rate * m[k] / (s[k].sqrt() * rule.root_scale + 1e-8);
                }
            }
            close(&values(parts[0][i].clone()), &v, "value");
            close(&values(parts[1][i].clone()), &m, "first");
            close(&values(parts[2][i].clone()), &s, "second");
        }
    }
}

#[test]
fn what_is_packed_comes_back() {
    let device = device();
    let packing = FlatParams::of(&all(0, &device));
    let parts = packing.parts(&packing.pack(all(0, &device)));
    for (i, (got, &n)) in parts.into_iter().zip(&SIZES).enumerate() {
        close(&values(got), &numbers(n, i), "a part");
    }
}

#[test]
fn moving_averages_are_those_of_each_pair() {
    let device = device();
    let packing = FlatParams::of(&all(0, &device));
    let [averages, weights] = [0, 9].map(|seed| packing.pack(all(seed, &device)));
    moving_average(&averages, weights, tensor(&[1.0], &device), 0.75);
    for (i, got) in packing.parts(&averages).into_iter().enumerate() {
        let (a, v) = (numbers(SIZES[i], i), numbers(SIZES[i], i + 9));
        let want: Vec<f64> = a.iter().zip(&v).map(|(a, v)| 0.75 * a + 0.25 * v).collect();
        close(&values(got), &want, "average");
    }
}

#[test]
fn a_norm_that_is_not_finite_changes_nothing() {
    let device = device();
    let rule = AdamWHyper { betas: [0.9, 0.95], eps: 1e-8, limit: None, root_scale: 1.0 };
    let tensors = [1, 2, 3, 4].map(|seed| tensor(&numbers(300, seed), &device));
    let packing = FlatParams::of(&tensors[..1]);
    let packed = tensors.map(|tensor| packing.pack(vec![tensor]));
    let all = || packed.each_ref().map(|packed| values(packed.clone()));
    let before = all();
    for norm in [f64::NAN, f64::INFINITY] {
        let gradient = tensor(&[f64::NAN; 300], &device);
        let rates = [ParamStep { rate: 0.1, keep: 0.9 }];
        let norm = || tensor(&[norm], &device);
        let [value, first, second, average] = &packed;
        packing.adamw([value, first, second], vec![gradient], &rates, norm(), rule);
        moving_average(average, value.clone(), norm(), 0.75);
        assert_eq!(all(), before, "{:?}", values(norm()));
    }
}
