//! Two directions at once against the oracle, run once per direction.

use burn::tensor::{Device, FloatDType, Tensor};
use vim_kernels::oracle::OracleConv;
use vim_kernels::{
    ConvOptions, DirectionWeights, Discretization, KernelChoice, KernelError, Precision, Recompute,
    ScanOptions, causal_conv1d_bidirectional, has_fused_mixer, mixer_inner,
    selective_scan_bidirectional,
};
use vim_verify::bidirectional::rows;
use vim_verify::conv::inputs;
use vim_verify::rows_of;

use crate::support::{Dtype, Numbers, Sizes, at_fault, devices, pass, tensor, values};

fn check(sizes: Sizes, method: Discretization, reverse: bool, choice: KernelChoice, on: &Device) {
    let options =
        ScanOptions { method, delta_softplus: true, reverse, choice, ..ScanOptions::default() };
    pass(rows(sizes, options, Dtype::F32, on, 1.0).unwrap());
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
        // Methods that read the token before, within a chunk and across a segment.
        for method in [Discretization::ExpTrapezoidal, Discretization::FohLinear] {
            check([2, 21, 5, 16], method, true, KernelChoice::Kernel, &device);
        }
        check([1, 1025, 3, 2], Discretization::Tustin, false, KernelChoice::Kernel, &device);
        check([2, 9, 5, 4], Discretization::Tustin, true, KernelChoice::Reference, &device);
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
            let ahead = inputs([batch, len, d_inner], width, (true, false, true), Dtype::F32);
            let mut x = Numbers::new(31);
            let back = OracleConv {
                reverse: true,
                weight: x.vec(d_inner * width, -0.7, 0.7, Dtype::F32),
                bias: Some(x.vec(d_inner, -0.5, 0.5, Dtype::F32)),
                ..ahead.clone()
            };
            let two = [&ahead, &back];
            let input = tensor(&ahead.x, [batch, len, d_inner], &device).require_grad();
            let weights =
                two.map(|conv| tensor(&conv.weight, [d_inner, 1, width], &device).require_grad());
            let biases = two
                .map(|conv| tensor(conv.bias.as_ref().unwrap(), [d_inner], &device).require_grad());
            let options = ConvOptions { silu: true, reverse: false, choice };
            let (of_weights, of_biases) = (weights.clone(), biases.clone());
            let y = causal_conv1d_bidirectional(input.clone(), of_weights, of_biases, options);
            let y = y.unwrap();
            let grad_y = Numbers::new(23).vec(2 * ahead.x.len(), -1.0, 1.0, Dtype::F32);
            let weighting = tensor(&grad_y, [2, batch, len, d_inner], &device);
            let grads = (y.clone() * weighting).sum().backward();

            let (first, second) = grad_y.split_at(ahead.x.len());
            let want_y = [ahead.forward(), back.forward()].concat();
            let [ahead, back] = [ahead.backward(first), back.backward(second)];
            let want_x = ahead.x.iter().zip(&back.x).map(|(x, y)| x + y).collect();
            let one = |t: &Tensor<1>| values(t.grad(&grads).unwrap());
            let three = |t: &Tensor<3>| values(t.grad(&grads).unwrap());
            let arrays = vec![
                ("y", values(y), want_y, 5e-6),
                ("x", three(&input), want_x, 5e-6),
                ("weight", three(&weights[0]), ahead.weight, 5e-6),
                ("weight back", three(&weights[1]), back.weight, 5e-6),
                ("bias", one(&biases[0]), ahead.bias, 5e-6),
                ("bias back", one(&biases[1]), back.bias, 5e-6),
            ];
            let case = format!("{on:?} {choice} [{batch}, {len}, {d_inner}]");
            pass(rows_of(arrays, 1e-30, 1.0, &case));
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

/// Weights of a direction of 8 channels, 4 states and a step of rank 2.
fn direction(a_log: f32, device: &Device) -> DirectionWeights {
    fn of<const R: usize>(shape: [usize; R], device: &Device) -> Tensor<R> {
        Tensor::<R>::full(shape, 0.25, device).require_grad()
    }
    DirectionWeights {
        conv_weight: of([8, 1, 4], device),
        conv_bias: of([8], device),
        x_proj: of([8, 2 + 2 * 4], device),
        dt_proj: of([2, 8], device),
        delta_bias: of([8], device),
        a_log: Tensor::<2>::full([8, 4], a_log, device).require_grad(),
        d: of([8], device),
    }
}

#[test]
fn a_mixer_without_tokens_is_an_error() {
    for device in devices().into_iter().filter(has_fused_mixer).map(Device::autodiff) {
        for shape in [[0, 5, 16], [2, 0, 16]] {
            let xz = Tensor::<3>::ones(shape, &device);
            let weights = || direction(0.0, &device);
            let options = ScanOptions::default();
            let y =
                mixer_inner(xz, weights(), weights(), options, Precision::F32, Recompute::Inputs);
            assert_eq!(at_fault(y), "xz");
        }
    }
}

#[test]
fn a_mixer_whose_states_decay_at_once_has_gradients() {
    for device in devices().into_iter().filter(has_fused_mixer) {
        let device = device.autodiff();
        // e¹⁰⁰ is no f32. Eleven tokens: a GPU's kernel has room for sixteen, with steps of 0.
        let (ahead, back) = (direction(100.0, &device), direction(100.0, &device));
        let xz = Tensor::<3>::full([2, 11, 16], 0.5, &device).require_grad();
        let (options, weights) = (ScanOptions::default(), [ahead.clone(), back.clone()]);
        let y = mixer_inner(xz.clone(), ahead, back, options, Precision::F32, Recompute::Inputs)
            .unwrap();
        let grads = y.clone().sum().backward();
        assert!(values(y).iter().all(|y| y.is_finite()));
        assert!(
            values(xz.grad(&grads).unwrap()).iter().all(|grad| grad.is_finite() && *grad != 0.0)
        );
        for weights in weights {
            let of_x_proj = values(weights.x_proj.grad(&grads).unwrap());
            assert!(of_x_proj.iter().all(|grad| grad.is_finite()), "{of_x_proj:?}");
            let of_a = values(weights.a_log.grad(&grads).unwrap());
            assert!(of_a.iter().all(|&grad| grad == 0.0), "{of_a:?}");
        }
    }
}
