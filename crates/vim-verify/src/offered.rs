//! What of the suite a device is not offered, known before a check runs.
//!
//! Everything else must run: a type or a kernel that is refused where it is offered is a failure.

use burn::tensor::Device;
use vim_kernels::{Implementation, Precision, has_kernel};

use crate::check::Check;
use crate::compare::Dtype;

/// Operations whose precision a device must multiply in.
const PRODUCTS: [&str; 3] = ["linear", "conv3x3", "mixer_inner"];

/// What some devices lack: whether a check is of it, whether a device has it, and what to say.
type Lack = (fn(&Check) -> bool, fn(&Device) -> bool, &'static str);

const LACKS: [Lack; 5] = [
    (
        is_bf16,
        |device| device.supports_dtype(Dtype::Bf16.float()),
        "the device does not compute in bf16",
    ),
    (
        |check| is_bf16(check) && PRODUCTS.contains(&check.operation),
        |device| Precision::Bf16.check(device).is_ok(),
        "the device does not multiply in bf16",
    ),
    (
        |check| check.operation == "selective_scan_complex" && is_kernel(check),
        on_gpu,
        "no fused kernel for complex A on the CPU",
    ),
    (
        |check| check.operation == "full_scan" && is_bf16(check) && is_kernel(check),
        on_gpu,
        "full_scan takes bf16 on a GPU alone",
    ),
    (
        |check| check.operation == "full_scan" && is_bf16(check) && !is_kernel(check),
        |_| false,
        "full_scan takes bf16 in its kernel alone",
    ),
];

/// Why `device` is not offered what `check` is of; `None` where it must run.
pub(crate) fn lacking(check: &Check, device: &Device) -> Option<&'static str> {
    LACKS.iter().find(|(of, has, _)| of(check) && !has(device)).map(|&(_, _, reason)| reason)
}

/// Whether `device` runs the kernels in CubeCL.
pub(crate) fn on_gpu(device: &Device) -> bool {
    has_kernel(device) && device.clone().inner() != Device::flex()
}

fn is_bf16(check: &Check) -> bool {
    check.dtype == Dtype::Bf16.to_string()
}

fn is_kernel(check: &Check) -> bool {
    check.implementation == Implementation::Kernel.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Subject;

    #[test]
    fn the_cpu_lacks_this_and_nothing_else() {
        let lack = |operation, implementation, dtype: Dtype| {
            let run = |_: &_, _| Ok(Vec::new());
            let check = Check::new(Subject::Oracle, operation, implementation, dtype, run);
            lacking(&check, &Device::flex())
        };
        let (kernel, reference) = (Implementation::Kernel, Implementation::Reference);
        for operation in PRODUCTS {
            assert!(lack(operation, kernel, Dtype::Bf16).is_some(), "{operation}");
            assert_eq!(lack(operation, kernel, Dtype::F32), None, "{operation}");
        }
        assert!(lack("full_scan", kernel, Dtype::Bf16).is_some());
        assert!(lack("full_scan", reference, Dtype::Bf16).is_some());
        assert!(lack("selective_scan_complex", kernel, Dtype::F32).is_some());
        assert_eq!(lack("selective_scan_complex", reference, Dtype::F32), None);
        assert_eq!(lack("selective_scan", kernel, Dtype::Bf16), None);
        assert_eq!(lack("full_scan", kernel, Dtype::F32), None);
    }
}
