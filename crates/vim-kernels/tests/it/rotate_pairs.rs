//! The rotation of pairs of channels, kernel and reference, against the oracle.

use burn::tensor::{Device, FloatDType, Tensor};
use vim_kernels::{KernelChoice, rotate_pairs};
use vim_verify::rotate_pairs::{SIZES, inputs, run};
use vim_verify::rows_of;

use crate::support::{BOTH, Dtype, at_fault, bf16_devices, devices, pass, tensor, values};

fn check_all(dtype: Dtype, device: &Device) {
    for shape in SIZES {
        for one in BOTH {
            let case = format!("{device:?} {one} {dtype} {shape:?}");
            let arrays = run(&inputs(shape, dtype), one, dtype, device).unwrap();
            pass(rows_of(arrays, 1e-30, 1.0, &case));
        }
    }
}

#[test]
fn kernel_and_reference_match_the_oracle() {
    devices().iter().for_each(|device| check_all(Dtype::F32, device));
}

#[test]
fn bf16_matches_the_oracle() {
    bf16_devices().iter().for_each(|device| check_all(Dtype::Bf16, device));
}

// A GPU may fuse a product and the sum; a CPU's kernel does not.
#[test]
fn kernel_and_reference_are_the_same_bits_on_a_cpu() {
    for (shape, dtype) in
        SIZES.into_iter().flat_map(|size| [(size, Dtype::F32), (size, Dtype::Bf16)])
    {
        let case = inputs(shape, dtype);
        let [kernel, reference] = BOTH.map(|one| run(&case, one, dtype, &Device::flex()));
        assert_eq!(kernel.unwrap(), reference.unwrap(), "{shape:?} {dtype}");
    }
}

/// The result and the gradient of x, of arguments that lie as `lie` makes them.
fn of_lying(
    shape: [usize; 3],
    device: &Device,
    lie: impl Fn(Tensor<3>) -> Tensor<3>,
) -> [Vec<f64>; 2] {
    let device = &device.clone().autodiff();
    let case = inputs(shape, Dtype::F32);
    let [_, len, d_model] = shape;
    let x = tensor(&case.x, shape, device).require_grad();
    let [cos, sin] = [&case.cos, &case.sin].map(|of| lie(tensor(of, [1, len, d_model], device)));
    let y = lie(rotate_pairs(lie(x.clone()), cos, sin, KernelChoice::Kernel).unwrap());
    let grads = (y.clone() * tensor(&case.x, shape, device)).sum().backward();
    [values(y), values(x.grad(&grads).unwrap())]
}

// As operations of Burn leave tensors: slices of longer rows and of more tokens, rows that CUDA
// pads, and channels farther apart than one element.
#[test]
fn how_the_arguments_lie_changes_no_bit() {
    for device in devices() {
        for shape in [[5, 3, 10], [3, 7, 64], [1, 16, 192]] {
            let dense = of_lying(shape, &device, |x| x);
            let within = |axis: usize, x: Tensor<3>| {
                let size = x.dims()[axis];
                Tensor::cat(vec![x.clone(), x.clone(), x], axis).narrow(axis, size, size)
            };
            let same = |name: &str, lie: &dyn Fn(Tensor<3>) -> Tensor<3>| {
                assert_eq!(of_lying(shape, &device, lie), dense, "{device:?} {shape:?} {name}");
            };
            same("computed", &|x| x * 1.0);
            same("of longer rows", &|x| within(2, x));
            same("of more tokens", &|x| within(1, x));
            same("transposed", &|x| x.swap_dims(1, 2).mul_scalar(1.0).swap_dims(1, 2));
        }
    }
}

#[test]
fn wrong_arguments_are_named() {
    let zeros = |shape: [usize; 3]| Tensor::<3>::zeros(shape, &Device::flex());
    let run = |x: [usize; 3], cos, sin| {
        rotate_pairs(zeros(x), zeros(cos), zeros(sin), KernelChoice::Auto)
    };
    assert_eq!(run([2, 3, 4], [1, 3, 4], [1, 3, 4]).unwrap().dims(), [2, 3, 4]);
    assert_eq!(at_fault(run([2, 3, 5], [1, 3, 5], [1, 3, 5])), "x");
    assert_eq!(at_fault(run([2, 0, 4], [1, 0, 4], [1, 0, 4])), "x");
    assert_eq!(at_fault(run([2, 3, 4], [2, 3, 4], [1, 3, 4])), "cos");
    assert_eq!(at_fault(run([2, 3, 4], [1, 3, 4], [1, 3, 2])), "sin");
    let double = zeros([1, 3, 4]).cast(FloatDType::F64);
    let typed = rotate_pairs(zeros([2, 3, 4]), zeros([1, 3, 4]), double, KernelChoice::Auto);
    assert_eq!(at_fault(typed), "sin");
}
