//! Interpolation, and the loss of interpolated logits, kernel and reference, against the oracle.

use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData};
use vim_kernels::{Implementation, KernelChoice, KernelError, resize, resize_nll};
use vim_verify::resize::{SIZES, floor, inputs, nll_inputs, run, run_nll};
use vim_verify::rows_of;

use crate::support::{BOTH, Dtype, at_fault, bf16_devices, devices, pass, values};

fn check_all(dtype: Dtype, device: &Device) {
    for (from, to) in SIZES {
        for one in BOTH {
            let case = format!("{device:?} {one} {dtype} {from:?} to {to:?}");
            let arrays = run(&inputs(from, to, dtype), one, dtype, device).unwrap();
            pass(rows_of(arrays, 1e-30, 1.0, &case));
            for ignored in [Some(3), None] {
                let nll = nll_inputs(from, to, ignored, dtype);
                let arrays = run_nll(&nll, one, dtype, device).unwrap();
                pass(rows_of(arrays, floor(from), 1.0, &format!("{case} ignored {ignored:?}")));
            }
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

#[test]
fn the_same_bits_twice() {
    let nll = nll_inputs([2, 9, 8, 12], [35, 33], Some(5), Dtype::F32);
    for device in devices() {
        let kernel = Implementation::Kernel;
        let run = || run_nll(&nll, kernel, Dtype::F32, &device).unwrap();
        assert_eq!(run(), run(), "{device:?}");
    }
}

#[test]
fn labels_that_are_no_class_change_nothing() {
    for device in devices() {
        for choice in [KernelChoice::Kernel, KernelChoice::Reference] {
            let call = |labels: [i32; 4]| {
                let logits = TensorData::new(vec![0.5f32, 1.0, -2.0, 0.25, 3.0, 1.5], [1, 1, 2, 3]);
                let logits = Tensor::<4>::from_data(logits, &device.clone().autodiff());
                let logits = logits.require_grad();
                let labels = TensorData::new(labels.to_vec(), [1, 1, 4]);
                let labels = Tensor::<3, Int>::from_data(labels, (&logits.device(), DType::I32));
                let nll = resize_nll(logits.clone(), labels, choice).unwrap();
                let grads = nll.loss.clone().backward();
                (values(nll.loss), values(logits.grad(&grads).unwrap()), values(nll.labelled))
            };
            let ignored = call([0, 255, 2, 255]);
            assert_eq!(ignored.2, [2.0], "{device:?} {choice}");
            assert_eq!(call([0, 3, 2, -1]), ignored, "{device:?} {choice}");
        }
    }
}

#[test]
fn wrong_arguments_are_named() {
    let device = Device::flex();
    let x = Tensor::<4>::zeros([2, 3, 4, 5], &device);
    let auto = KernelChoice::Auto;
    assert_eq!(resize(x.clone(), [6, 7], auto).unwrap().dims(), [2, 6, 7, 5]);
    assert_eq!(at_fault(resize(x.clone(), [6, 0], auto)), "to");
    assert_eq!(at_fault(resize(x.clone().cast(FloatDType::F64), [6, 7], auto)), "x");
    let labels = |shape: [usize; 3]| Tensor::<3, Int>::zeros(shape, &device);
    assert!(resize_nll(x.clone(), labels([2, 6, 7]), auto).is_ok());
    assert_eq!(at_fault(resize_nll(x.clone(), labels([1, 6, 7]), auto)), "labels");
    assert_eq!(at_fault(resize_nll(x, labels([2, 0, 7]), auto)), "labels");
    let many = resize_nll(Tensor::zeros([1, 1, 1, 256], &device), labels([1, 1, 1]), auto);
    assert!(matches!(many.unwrap_err(), KernelError::Beyond { got: 256, .. }));
    let long = resize(Tensor::<4>::zeros([1, 1, 8, 1], &device), [1, 32_769], auto).unwrap_err();
    let text = "resize: a side of 32769 is beyond the kernel's limit of 32768";
    assert_eq!(long.to_string(), text);
}
