//! What a panic stands for: a device's fault, or a defect.

use std::any::Any;

use vim_kernels::KernelError;

use super::Error;
use crate::device::fault::{Fault, Load, one_line};
use crate::fatal;

impl Error {
    /// A panic is a device's fault, or else a defect; its message is the best there is to report.
    #[must_use]
    pub fn from_panic(panic: &(dyn Any + Send)) -> Self {
        let place = fatal::take_place().map_or_else(String::new, |place| format!("{place}: "));
        Self::of_panic(&fatal::message(panic), &place)
    }

    /// The error that a panic's `text` stands for; a defect is reported with `place` before it.
    pub(crate) fn of_panic(text: &str, place: &str) -> Self {
        match Fault::of(text) {
            Some(Fault::OutOfMemory { bytes }) => Self::DeviceMemory { bytes, load: None },
            Some(Fault::Lost { reason }) => Self::DeviceLost { reason },
            None => Self::Internal(format!("{place}{}", one_line(text))),
        }
    }

    /// The same, with what was on the device if that was too much.
    #[must_use]
    pub fn with_load(self, load: Load) -> Self {
        if let Self::DeviceMemory { bytes, .. } = self {
            Self::DeviceMemory { bytes, load: Some(load) }
        } else if let Self::Kernel(KernelError::TooLarge { operation, what, got, limit }) = self {
            Self::TooLarge { operation, what, got, limit, load }
        } else {
            self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_the_devices_fault_or_ours() {
        let load = Load { batch_size: 128, parts: 1, recompute: false, in_pairs: true };
        let text = "x: out of device memory allocating 3145728 bytes\nBacktrace";
        let error = Error::of_panic(text, "").with_load(load);
        assert_eq!(
            error.to_string(),
            format!("the device ran out of memory (another 3.0 MiB were asked for): {load}")
        );
        let error = Error::of_panic("CUDA_ERROR_LAUNCH_FAILED", "");
        assert!(error.to_string().starts_with("the device failed (CUDA_ERROR_LAUNCH_FAILED)"));
        let error = Error::of_panic("a\nb", "here: ");
        assert_eq!(error.to_string(), "internal error: here: a b; please report it");
    }

    #[test]
    fn a_batch_beyond_a_kernel_is_told_the_parts_that_fit() {
        let what =
            "linear: a buffer, in numbers of 4957667328 is beyond the kernel's limit of 4294967295";
        let error = |got| {
            Error::from(KernelError::TooLarge {
                operation: "linear",
                what: "a buffer, in numbers",
                got,
                limit: u32::MAX as usize,
            })
        };
        assert_eq!(error(4_957_667_328).to_string(), format!("{what}: use a smaller batch"));
        let load = Load { batch_size: 96, parts: 1, recompute: true, in_pairs: false };
        for (times, way) in [
            (2, "set train.accumulate=2 (the same gradient, 48 images at a time)"),
            (5, "set train.accumulate=6 (the same gradient, 16 images at a time)"),
            (97, "use smaller images"),
        ] {
            let got = if times == 2 { 4_957_667_328 } else { times * u32::MAX as usize };
            let error = error(got).with_load(load);
            assert_eq!(error.exit_code(), 78);
            let text = error.to_string();
            assert!(text.ends_with(&format!("limit of 4294967295: {way}")), "{text}");
            assert!(times != 2 || text == format!("{what}: {way}"), "{text}");
        }
    }
}
