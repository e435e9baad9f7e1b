//! A scan that is given step sizes against one that computes them, whose results and gradients are
//! checked against the f64 loops.

use burn::backend::DispatchDevice;
use burn::tensor::{Device, DeviceKind, TensorData};

use super::*;
use crate::discretization::Discretization;
use crate::scan::ScanOptions;

fn on_device<const R: usize>(values: &[f64], shape: [usize; R]) -> CubeTensor {
    let device = Device::wgpu(DeviceKind::DefaultDevice);
    let DispatchDevice::Cube(device) = device.as_dispatch().clone() else {
        unreachable!("wgpu's devices are CubeCL's")
    };
    let values: Vec<f32> = values.iter().map(|&x| x as f32).collect();
    CubeBackend::float_from_data(TensorData::new(values, shape), &device)
}

fn values(tensor: CubeTensor) -> Vec<f32> {
    let data = burn::tensor::read_sync(CubeBackend::float_into_data(tensor));
    data.expect("the device answers").try_to_vec().expect("f32")
}

#[test]
fn steps_that_are_given_are_the_computed_ones() {
    const D: usize = 5;
    const N: usize = 4;
    // One segment, and several.
    for (method, len) in [(Discretization::Poly, 13), (Discretization::Zoh, 69)] {
        let wave = |count: usize, step: f64| -> Vec<f64> {
            (0..count).map(|i| (step * (i + 1) as f64).sin()).collect()
        };
        let (raw, bias) = (wave(len * D, 0.9), wave(D, 1.7));
        let softplus = |i: usize| (raw[i] + bias[i % D]).exp().ln_1p();
        let given: Vec<f64> = (0..len * D).map(softplus).collect();
        let a: Vec<f64> = wave(D * N, 0.3).into_iter().map(|x| -1.5 - x).collect();
        let arguments = |delta: &[f64]| ScanArguments {
            u: on_device(&wave(len * D, 0.5), [1, len, D]),
            delta: on_device(delta, [1, len, D]),
            a: on_device(&a, [D, N]),
            b: on_device(&wave(len * N, 0.8), [1, len, 1, N]),
            c: on_device(&wave(len * N, 1.1), [1, len, 1, N]),
            d: on_device(&wave(D, 0.6), [D]),
            z: on_device(&[0.0], [1, 1, 1]),
            delta_bias: on_device(&bias, [D]),
        };
        let run = |delta: &[f64], steps_given: bool| {
            let spec = ScanSpec {
                options: ScanOptions { method, delta_softplus: true, ..ScanOptions::default() },
                bidirectional: false,
                has_d: true,
                has_z: false,
                has_delta_bias: true,
                b_constant: false,
                c_constant: false,
                compact_states: false,
                steps_given,
            };
            let (y, _, saved) = scan_results(arguments(delta), spec, true);
            let saved = saved.expect("invariant: a forward pass that saves returns it");
            let grad = on_device(&wave(len * D, 0.7), [1, len, D]);
            let into = [(); 2].map(|()| on_device(&vec![0.0; len * N], [1, len, 1, N]));
            let [u, delta, a, b, c, d, _, bias] =
                scan_gradients(grad, arguments(delta), saved, spec, into);
            [y, u, delta, a, b, c, d, bias].map(values)
        };
        let pairs = run(&given, true).into_iter().zip(run(&raw, false)).enumerate();
        for (which, (got, want)) in pairs {
            let largest = want.iter().fold(1e-3f32, |most, x| most.max(x.abs()));
            for (got, want) in got.iter().zip(&want) {
                // Softplus and its slope in f32, a few units in the last place of each.
                let error = (got - want).abs();
                assert!(error <= 2e-5 * largest, "{method} {which}: {got} for {want}");
            }
        }
    }
}
