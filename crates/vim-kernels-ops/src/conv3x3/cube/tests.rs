//! The kernels that gather in place against f64, without tensor cores: what they gather, mask and
//! write is the same with them.

use burn::backend::DispatchDevice;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::{Device, DeviceKind, TensorData};
use burn_cubecl::CubeDevice;

use super::super::oracle::OracleConv3x3;
use super::*;

/// max |difference| / max |reference|: sums of up to 300 products of f32 below 1, and of the
/// weight's gradient of up to 800.
const TOLERANCE: f64 = 3e-6;

fn device() -> CubeDevice {
    let device = Device::wgpu(DeviceKind::DefaultDevice);
    let DispatchDevice::Cube(device) = device.as_dispatch().clone() else {
        unreachable!("wgpu's devices are CubeCL's")
    };
    device
}

/// Numbers in [−1, 1) that a seed determines, as f32 has them.
fn numbers(count: usize, seed: u32) -> Vec<f64> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from((state >> 8) as f32 / (1 << 23) as f32 - 1.0)
        })
        .collect()
}

fn on_device<const R: usize>(values: &[f64], shape: [usize; R], device: &CubeDevice) -> CubeTensor {
    let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
    CubeBackend::float_from_data(TensorData::new(values, shape), device)
}

fn agrees(got: CubeTensor, want: &[f64], what: &str) {
    let got = burn::tensor::read_sync(CubeBackend::float_into_data(got))
        .expect("the device answers")
        .try_to_vec::<f32>()
        .expect("the data are f32");
    assert_eq!(got.len(), want.len(), "{what}");
    let largest = want.iter().fold(0.0f64, |most, value| most.max(value.abs()));
    for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(got) - want).abs();
        assert!(error <= TOLERANCE * largest, "{what}, element {i}: {got} for {want}");
    }
}

/// `[o, c, 3, 3]` as the kernels take it, `[9, c, o]`.
fn by_tap(weight: &[f64], inputs: usize, outputs: usize) -> Vec<f64> {
    (0..weight.len())
        .map(|at| {
            let (tap, c, o) = (at / outputs / inputs, at / outputs % inputs, at % outputs);
            weight[(o * inputs + c) * TAPS + tap]
        })
        .collect()
}

/// A stage less deep than on a GPU, and fewer of them: WebGPU's shared memory is small.
fn shallow(plan: MatmulPlan) -> MatmulPlan {
    MatmulPlan { depth: 16, stages: 2, ..plan }
}

fn check(size: [usize; 3], inputs: usize, outputs: usize, parts: usize) {
    let device = &device();
    let case = format!("{size:?} {inputs} to {outputs}");
    let [batch, height, width] = size;
    let images = Images::new([batch, height, width, inputs]);
    let conv = OracleConv3x3 {
        size,
        inputs,
        outputs,
        x: numbers(images.pixels() * inputs, 1),
        weight: numbers(TAPS * inputs * outputs, 2),
        bias: Some(numbers(outputs, 3)),
    };
    let grad_y = numbers(images.pixels() * outputs, 4);
    let x = on_device(&conv.x, [batch, height, width, inputs], device);
    let of_taps = by_tap(&conv.weight, inputs, outputs);
    let weight = on_device(&of_taps, [TAPS * inputs, outputs], device);
    let bias = on_device(conv.bias.as_deref().expect("there is one"), [outputs], device);
    let grad = on_device(&grad_y, [batch, height, width, outputs], device);
    let form = MatmulForm {
        lhs_by_columns: false,
        rhs_by_columns: false,
        arithmetic: Arithmetic::Units,
        has_bias: true,
        accumulates: false,
    };
    let memory = 32 << 10;

    let y = empty(&x, [batch, height, width, outputs], DType::F32);
    let plan = shallow(table::convolution(form, images.pixels(), outputs, memory));
    launch_convolve(&x, images, &weight, Some(&bias), &y, plan);
    agrees(y, &conv.forward(), &format!("{case}: y"));

    let want = conv.backward(&grad_y);
    let form = MatmulForm { rhs_by_columns: true, has_bias: false, ..form };
    let grad_x = empty(&x, [batch, height, width, inputs], DType::F32);
    let plan = shallow(table::convolution(form, images.pixels(), inputs, memory));
    let of_grad = Images { channels: outputs, ..images };
    launch_convolve(&grad, of_grad, &weight, None, &grad_x, plan);
    agrees(grad_x, &want.x, &format!("{case}: gradient of x"));

    let form = MatmulForm { lhs_by_columns: true, rhs_by_columns: false, ..form };
    let (plan, _) = table::gradient(form, [inputs, outputs, images.pixels()], memory);
    let got = launch_weight_gradient(&x, images, &grad, outputs, shallow(plan), parts);
    let of_weight = by_tap(&want.weight, inputs, outputs);
    agrees(got, &of_weight, &format!("{case}: gradient of the weight"));
}

#[test]
fn odd_sizes_are_f64s() {
    for (size, inputs, outputs) in [
        ([1, 1, 1], 1, 1),
        ([3, 2, 5], 3, 17),
        ([1, 7, 2], 17, 3),
        ([3, 5, 7], 32, 1),
        ([1, 16, 16], 1, 32),
        ([2, 1, 16], 20, 20),
        ([2, 16, 1], 36, 8),
    ] {
        check(size, inputs, outputs, 1);
    }
}

// More pixels than a tile has, and sums in parts.
#[test]
fn several_tiles_and_parts_are_f64s() {
    check([3, 16, 16], 32, 17, 3);
    check([1, 33, 10], 18, 40, 2);
}
