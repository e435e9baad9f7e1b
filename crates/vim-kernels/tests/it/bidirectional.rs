//! Two directions at once against the oracle, run once per direction.

use burn::tensor::{Device, FloatDType, Tensor};
use vim_kernels::oracle::{OracleConv, OracleScan};
use vim_kernels::{
    ConvOptions, Discretization, KernelChoice, KernelError, ScanOptions,
    causal_conv1d_bidirectional, selective_scan_bidirectional,
};

use crate::devices::devices;
use crate::support::{Dtype, Form, Numbers, Sizes, error, grad_of, scan, tensor, values};

/// max |difference| / max |reference| in f32, as for one direction.
const PER_TOKEN: f64 = 2e-5;
/// The same for sums over all tokens.
const SUMS: f64 = 1e-4;

/// The scans of both directions, which share z.
fn pair(sizes: Sizes, method: Discretization, reverse: bool) -> [OracleScan; 2] {
    let ahead = OracleScan { method, reverse, ..scan(sizes, Form::Variable, 4.0) };
    let back = OracleScan { method, reverse: !reverse, ..scan(sizes, Form::Variable, 3.0) };
    [OracleScan { z: back.z.clone(), ..ahead }, back]
}

fn check(sizes: Sizes, method: Discretization, reverse: bool, choice: KernelChoice, on: &Device) {
    let [batch, len, d_inner, d_state] = sizes;
    let device = on.clone().autodiff();
    let two = pair(sizes, method, reverse);
    let both =
        |of: fn(&OracleScan) -> &Vec<f64>| [of(&two[0]), of(&two[1])].map(Vec::as_slice).concat();
    let tokens = [2, batch, len, d_inner];
    let u = tensor(&both(|s| &s.u), tokens, &device).require_grad();
    let delta = tensor(&both(|s| &s.delta), tokens, &device).require_grad();
    let a = tensor(&both(|s| &s.a), [2, d_inner, d_state], &device).require_grad();
    let [b, c] = [both(|s| &s.b), both(|s| &s.c)]
        .map(|x| tensor(&x, [2, batch, len, d_state], &device).require_grad());
    let [d, bias] = [both(|s| s.d.as_ref().unwrap()), both(|s| s.delta_bias.as_ref().unwrap())]
        .map(|x| tensor(&x, [2, d_inner], &device).require_grad());
    let z = tensor(two[0].z.as_ref().unwrap(), [batch, len, d_inner], &device).require_grad();
    let options =
        ScanOptions { method, series: two[0].series, delta_softplus: true, reverse, choice };
    let (some_d, some_z, some_bias) = (Some(d.clone()), Some(z.clone()), Some(bias.clone()));
    let y = selective_scan_bidirectional(
        u.clone(),
        delta.clone(),
        a.clone(),
        b.clone(),
        c.clone(),
        some_d,
        some_z,
        some_bias,
        options,
    )
    .unwrap();
    let grad_y = grad_of(&two[0]);
    let grads = (y.clone() * tensor(&grad_y, [batch, len, d_inner], &device)).sum().backward();

    let sum = |x: &[f64], y: &[f64]| -> Vec<f64> { x.iter().zip(y).map(|(x, y)| x + y).collect() };
    let want_y = sum(&two[0].forward().0, &two[1].forward().0);
    let [ahead, back] = two.each_ref().map(|scan| scan.backward(&grad_y));
    for (name, got, want, tolerance) in [
        ("y", values(y), want_y, PER_TOKEN),
        ("u", values(u.grad(&grads).unwrap()), [ahead.u, back.u].concat(), PER_TOKEN),
        (
            "delta",
            values(delta.grad(&grads).unwrap()),
            [ahead.delta, back.delta].concat(),
            PER_TOKEN,
        ),
        ("a", values(a.grad(&grads).unwrap()), [ahead.a, back.a].concat(), SUMS),
        ("b", values(b.grad(&grads).unwrap()), [ahead.b, back.b].concat(), PER_TOKEN),
        ("c", values(c.grad(&grads).unwrap()), [ahead.c, back.c].concat(), PER_TOKEN),
        ("d", values(d.grad(&grads).unwrap()), [ahead.d, back.d].concat(), SUMS),
        ("z", values(z.grad(&grads).unwrap()), sum(&ahead.z, &back.z), PER_TOKEN),
        (
            "delta_bias",
            values(bias.grad(&grads).unwrap()),
            [ahead.delta_bias, back.delta_bias].concat(),
            SUMS,
        ),
    ] {
        let error = error(&got, &want);
        assert!(
            error <= tolerance,
            "{on:?} {choice} {method} {sizes:?}: {name} is off by {error:.1e}"
        );
    }
}

#[test]
fn two_scans_at_once_match_the_oracle() {
    for device in devices() {
        for method in [Discretization::Zoh, Discretization::HighOrder] {
            check([3, 37, 10, 16], method, false, KernelChoice::Kernel, &device);
        }
        // One token; several passes; segments; the first direction being the reverse one.
        check([2, 1, 5, 4], Discretization::Zoh, true, KernelChoice::Kernel, &device);
        check([2, 21, 5, 17], Discretization::Poly, true, KernelChoice::Kernel, &device);
        check([1, 197, 130, 4], Discretization::Bilinear, false, KernelChoice::Kernel, &device);
        check([1, 1025, 3, 2], Discretization::Zoh, false, KernelChoice::Kernel, &device);
        check([2, 9, 5, 4], Discretization::Foh, true, KernelChoice::Reference, &device);
    }
}

#[test]
fn two_convolutions_at_once_match_the_oracle() {
    for on in devices() {
        for (choice, [batch, len, d_inner], width) in [
            (KernelChoice::Kernel, [3, 37, 10], 4),
            (KernelChoice::Kernel, [1, 1, 1], 2),
            (KernelChoice::Kernel, [2, 197, 132], 4),
            (KernelChoice::Reference, [2, 5, 6], 3),
        ] {
            let device = on.clone().autodiff();
            let mut x = Numbers::new(29);
            let numbers = x.vec(batch * len * d_inner, -2.0, 2.0, Dtype::F32);
            let two = [false, true].map(|reverse| OracleConv {
                batch,
                len,
                d_inner,
                width,
                silu: true,
                reverse,
                x: numbers.clone(),
                weight: x.vec(d_inner * width, -0.7, 0.7, Dtype::F32),
                bias: Some(x.vec(d_inner, -0.5, 0.5, Dtype::F32)),
            });
            let input = tensor(&numbers, [batch, len, d_inner], &device).require_grad();
            let weights = two
                .each_ref()
                .map(|conv| tensor(&conv.weight, [d_inner, 1, width], &device).require_grad());
            let biases = two
                .each_ref()
                .map(|conv| tensor(conv.bias.as_ref().unwrap(), [d_inner], &device).require_grad());
            let options = ConvOptions { silu: true, reverse: false, choice };
            let y = causal_conv1d_bidirectional(
                input.clone(),
                weights.clone(),
                biases.clone(),
                options,
            )
            .unwrap();
            let grad_y = Numbers::new(23).vec(2 * numbers.len(), -1.0, 1.0, Dtype::F32);
            let weighting = tensor(&grad_y, [2, batch, len, d_inner], &device);
            let grads = (y.clone() * weighting).sum().backward();

            let (first, second) = grad_y.split_at(numbers.len());
            let [ahead, back] = [two[0].backward(first), two[1].backward(second)];
            let want_x: Vec<f64> = ahead.x.iter().zip(&back.x).map(|(x, y)| x + y).collect();
            let one = |t: &Tensor<1>| values(t.grad(&grads).unwrap());
            let three = |t: &Tensor<3>| values(t.grad(&grads).unwrap());
            for (name, got, want) in [
                ("y", values(y), [two[0].forward(), two[1].forward()].concat()),
                ("x", three(&input), want_x),
                ("weight", three(&weights[0]), ahead.weight),
                ("weight back", three(&weights[1]), back.weight),
                ("bias", one(&biases[0]), ahead.bias),
                ("bias back", one(&biases[1]), back.bias),
            ] {
                let error = error(&got, &want);
                assert!(
                    error <= 5e-6,
                    "{on:?} {choice} [{batch}, {len}, {d_inner}]: {name} is off by {error:.1e}"
                );
            }
        }
    }
}

#[test]
fn a_wrong_part_is_named() {
    let device = Device::flex();
    let call = |directions: usize, d: [usize; 2], z: [usize; 3]| {
        selective_scan_bidirectional(
            Tensor::zeros([2, 1, 3, 4], &device),
            Tensor::zeros([2, 1, 3, 4], &device),
            Tensor::zeros([directions, 4, 5], &device),
            Tensor::zeros([2, 1, 3, 5], &device),
            Tensor::zeros([2, 1, 3, 5], &device),
            Some(Tensor::zeros(d, &device)),
            Some(Tensor::zeros(z, &device)),
            None,
            ScanOptions::default(),
        )
    };
    assert!(call(2, [2, 4], [1, 3, 4]).is_ok());
    for (result, wrong) in [
        (call(1, [2, 4], [1, 3, 4]), "a"),
        (call(2, [2, 5], [1, 3, 4]), "d"),
        (call(2, [2, 4], [2, 3, 4]), "z"),
    ] {
        assert!(matches!(result, Err(KernelError::Shape { tensor, .. }) if tensor == wrong));
    }
    let u = || Tensor::<4>::zeros([2, 1, 3, 4], &device).cast(FloatDType::F64);
    let rest = || Tensor::<4>::zeros([2, 1, 3, 5], &device);
    let a = Tensor::zeros([2, 4, 5], &device);
    let result = selective_scan_bidirectional(
        u(),
        u(),
        a,
        rest(),
        rest(),
        None,
        None,
        None,
        ScanOptions::default(),
    );
    assert!(matches!(result, Err(KernelError::Dtype { tensor: "u", .. })));
}
