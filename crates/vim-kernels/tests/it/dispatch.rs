//! Who decides which implementation runs, and how numbers come to the host.

use burn::tensor::Tensor;
use vim_kernels::{Implementation, KernelChoice, read_while};

use crate::support::devices;

#[test]
fn every_device_has_a_kernel_with_and_without_autodiff() {
    for plain in devices() {
        for device in [plain.clone(), plain.autodiff()] {
            assert_eq!(KernelChoice::Auto.resolve(&device), Ok(Implementation::Kernel));
            assert_eq!(KernelChoice::Kernel.resolve(&device), Ok(Implementation::Kernel));
            assert_eq!(KernelChoice::Reference.resolve(&device), Ok(Implementation::Reference));
        }
    }
}

#[test]
fn flags_read_as_the_original_reads_them() {
    for on in ["1", "true", "YES", " on "] {
        assert_eq!(KernelChoice::from_flag(on), KernelChoice::Kernel);
    }
    for off in ["0", "false", "no", "off", "", "2"] {
        assert_eq!(KernelChoice::from_flag(off), KernelChoice::Reference);
    }
}

#[test]
fn numbers_come_to_the_host_as_they_were_when_they_were_asked_for() {
    for plain in devices() {
        for device in [plain.clone(), plain.autodiff()] {
            let x =
                Tensor::<2>::from_data([[1.0_f32, -2.5, 4.0], [3.0, f32::INFINITY, 0.5]], &device);
            // What is no row after row comes as its rows do.
            let turned = x.clone().swap_dims(0, 1);
            let ([rows, columns], sum) =
                read_while([x.clone(), turned], || x.clone().mul_scalar(2.0).sum());
            assert_eq!(rows, [1.0, -2.5, 4.0, 3.0, f32::INFINITY, 0.5], "{device:?}");
            assert_eq!(columns, [1.0, 3.0, -2.5, f32::INFINITY, 4.0, 0.5], "{device:?}");
            assert_eq!(sum.into_scalar::<f32>(), f32::INFINITY);
            let (none, done) = read_while::<2, 0, _>([], || "done");
            assert_eq!((none.len(), done), (0, "done"));
        }
    }
}
