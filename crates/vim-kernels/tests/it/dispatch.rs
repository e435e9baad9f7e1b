//! Who decides which implementation runs.

use vim_kernels::{Implementation, KernelChoice};

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
