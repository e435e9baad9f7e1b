//! What a panic stands for: a device's fault, or a defect.

use std::any::Any;

use super::Error;
use crate::device::fault::{Beyond, Fault, Load, one_line};
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
            Some(Fault::Beyond(beyond)) => Self::Beyond(beyond),
            None => Self::Internal(format!("{place}{}", one_line(text))),
        }
    }

    /// The same, with what was on the device if that was too much.
    #[must_use]
    pub fn with_load(self, load: Load) -> Self {
        let load = Some(load);
        if let Self::DeviceMemory { bytes, .. } = self {
            Self::DeviceMemory { bytes, load }
        } else if let Self::Beyond(beyond) = self {
            Self::Beyond(Beyond { load, ..beyond })
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
}
