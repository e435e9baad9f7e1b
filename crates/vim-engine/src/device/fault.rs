//! Failures of a device: those that it reports before a run, and those of a GPU in the middle of
//! one, recognised in the texts of CubeCL, CUDA and wgpu.
//!
//! The latter arrive as panics: the framework queues work; a failure shows when a value is read.

pub(crate) mod foreign;

use std::fmt;

use crate::config::{RecomputeChoice, TrainConfig};
use crate::error::{Failure, code};
use foreign::{CAUSE, LOST, OUT_OF_MEMORY, TRACES, UNSUPPORTED_PTX};

/// Errors of devices.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The requested device is absent or lacks a requested feature.
    #[error("{0}")]
    Unavailable(String),

    /// The device has no memory left.
    #[error("the device ran out of memory{}: {}", asked_for(*bytes), advice(*load))]
    OutOfMemory {
        /// Bytes of the allocation that failed, if known.
        bytes: Option<u64>,
        /// The batch sizes of the run, if known.
        load: Option<BatchFootprint>,
    },

    /// The device failed.
    #[error(
        "the device failed ({reason}) and does nothing more for this process: run it again, a training by the same command with --resume auto; if it fails again, look for Xid in the system's log (dmesg) and take another GPU"
    )]
    Lost {
        /// The driver's name of the failure.
        reason: String,
    },

    /// The driver loads no kernel that NVRTC compiles.
    #[error(
        "NVIDIA's driver is older than NVRTC, and loads no kernel that it compiles (CUDA_ERROR_UNSUPPORTED_PTX_VERSION): take an older NVRTC; `vim-train doctor` says which (docs/install.md)"
    )]
    OldDriver,

    /// A batch exceeds a kernel's limit.
    #[error(
        "{operation}: {what} of {got} is beyond the kernel's limit of {limit}: {}",
        load.advice(*got, *limit)
    )]
    TooLarge {
        /// The operation called.
        operation: &'static str,
        /// The quantity that is too large.
        what: &'static str,
        /// Its value.
        got: usize,
        /// The limit.
        limit: usize,
        /// The batch sizes of the run.
        load: BatchFootprint,
    },
}

impl Failure for DeviceError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Unavailable(_) | Self::Lost { .. } | Self::OldDriver => code::UNAVAILABLE,
            Self::OutOfMemory { .. } => code::MEMORY,
            Self::TooLarge { .. } => code::CONFIG,
        }
    }
}

fn asked_for(bytes: Option<u64>) -> String {
    bytes.map_or_else(String::new, |bytes| {
        format!(" (another {:.1} MiB were asked for)", bytes as f64 / f64::from(1 << 20))
    })
}

fn advice(load: Option<BatchFootprint>) -> String {
    load.map_or_else(
        || "take smaller batches or a larger device".to_owned(),
        |load| load.to_string(),
    )
}

impl DeviceError {
    /// What the text of a panic or an error says of a device, if anything.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let lower = text.to_ascii_lowercase();
        if first(&lower, &[UNSUPPORTED_PTX]).is_some() {
            return Some(Self::OldDriver);
        }
        if let Some((at, pattern)) = first(&lower, &OUT_OF_MEMORY) {
            let digits = lower[at + pattern.len()..].bytes().take_while(u8::is_ascii_digit).count();
            let number = &lower[at + pattern.len()..][..digits];
            return Some(Self::OutOfMemory { bytes: number.parse().ok(), load: None });
        }
        let (at, pattern) = first(&lower, &LOST)?;
        let reason = if pattern.ends_with("poisoned") {
            cause(text).unwrap_or_else(|| "it is poisoned".to_owned())
        } else if pattern == "xid" {
            one_line(&text[at..])
        } else {
            text[at..at + pattern.len()].to_owned()
        };
        Some(Self::Lost { reason })
    }
}

/// The first of `patterns` that is in `text` as words of their own, in the order of the patterns.
fn first<'a>(text: &str, patterns: &[(&str, &'a str)]) -> Option<(usize, &'a str)> {
    let is_word = |at: usize| !text[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
    let found = |&(_, pattern): &(&str, &'a str)| {
        text.match_indices(pattern).find(|(at, _)| is_word(*at)).map(|(at, _)| (at, pattern))
    };
    patterns.iter().find_map(found)
}

/// The text after the last [`CAUSE`].
fn cause(text: &str) -> Option<String> {
    let (_, cause) = text.rsplit_once(CAUSE.1)?;
    Some(one_line(cause)).filter(|cause| !cause.is_empty())
}

/// Longest line that is reported, in characters.
const LINE: usize = 400;

/// A text of several lines as one line, without a backtrace at its end.
pub fn one_line(text: &str) -> String {
    // Debug output of an error escapes line ends.
    let text = text.replace("\\n", "\n");
    let is_trace = |line: &str| {
        let line = line.trim_start().to_ascii_lowercase();
        TRACES.iter().any(|(_, begin)| line.starts_with(begin))
    };
    let lines = text.lines().take_while(|line| !is_trace(line)).map(str::trim);
    let line = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LINE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// The sizes that determine how much of a device's memory a run needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchFootprint {
    /// `train.batch_size`.
    pub batch_size: usize,
    /// `train.accumulate`: number of micro-batches.
    pub parts: usize,
    /// `train.recompute`.
    pub recompute: RecomputeChoice,
    /// Whether images are mixed in pairs, which needs an even batch size.
    pub in_pairs: bool,
}

impl BatchFootprint {
    /// The sizes in a configuration.
    pub fn of(train: &TrainConfig, in_pairs: bool) -> Self {
        let &TrainConfig { accumulate: parts, recompute, .. } = train;
        let batch_size = train.images();
        Self { batch_size, parts, recompute, in_pairs }
    }

    /// The largest divisor of the batch size that is at most half of it.
    fn smaller(self) -> Option<usize> {
        let step = if self.in_pairs { 2 } else { 1 };
        let fits =
            |&size: &usize| self.batch_size.is_multiple_of(size) && size.is_multiple_of(step);
        (1..=self.batch_size / 2).rev().find(fits)
    }

    /// The smallest divisor of the batch size that is at least `times` the present micro-batch
    /// count.
    fn parts_of(self, times: usize) -> Option<usize> {
        let least = self.parts.saturating_mul(times);
        (least..=self.batch_size).find(|&parts| self.batch_size.is_multiple_of(parts))
    }

    /// Advice for a micro-batch too large for a kernel by the factor `got / limit`.
    pub(crate) fn advice(self, got: usize, limit: usize) -> String {
        let more = self.in_parts(got.div_ceil(limit.max(1)));
        more.unwrap_or_else(|| "use smaller images".to_owned())
    }

    /// Advice to use at least `times` as many micro-batches, if the batch divides so.
    fn in_parts(self, times: usize) -> Option<String> {
        let more = self.parts_of(times)?;
        let images = self.batch_size / more;
        Some(format!("set train.accumulate={more} (the same gradient, {images} images at a time)"))
    }
}

/// Advice for running out of memory.
impl fmt::Display for BatchFootprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { batch_size, parts, .. } = self;
        let mut ways: Vec<String> = self.in_parts(2).into_iter().collect();
        if self.recompute != RecomputeChoice::States {
            ways.push("set train.recompute=states (much less memory, some time)".into());
        }
        if let Some(smaller) = self.smaller() {
            ways.push(format!("set train.batch_size={smaller}, which may fit"));
        }
        ways.push("take a smaller model, smaller images or a larger device".into());
        let images = batch_size / parts;
        write!(formatter, "{images} images at a time are too many for it: {}", ways.join(", or "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_has_run_out() {
        for (text, bytes) in [
            (
                "Error while reading data: use `try_into_data` instead to catch the error at runtime: WithContext { reason: \"An IO error happened\\nCaused by:\\n  out of device memory allocating 1073741824 bytes\\nBacktrace:\\n  0: main\" }",
                Some(1 << 30),
            ),
            ("can't allocate buffer of size: 2048\n<backtrace>", Some(2048)),
            (
                "Can't allocate 77 bytes: every page size the memory tracks still holds live allocations",
                None,
            ),
            ("An out-of-memory error happened during launch\nCaused by:\n  x", None),
            ("called `Result::unwrap()` on an `Err` value: OutOfMemory { size: 4 }", None),
            ("DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")", None),
            ("wgpu error: Out of Memory", None),
            ("wgpu error: Validation Error\n\nCaused by:\n  Not enough memory left.", None),
        ] {
            let memory = DeviceError::OutOfMemory { bytes, load: None };
            assert_eq!(DeviceError::of(text), Some(memory), "{text}");
        }
    }

    #[test]
    fn a_device_that_is_lost() {
        for (text, reason) in [
            (
                "An error: DriverError(CUDA_ERROR_ILLEGAL_ADDRESS, \"an illegal memory access was encountered\")",
                "CUDA_ERROR_ILLEGAL_ADDRESS",
            ),
            (
                "DevicePoisoned { reason: \"The device is poisoned\\nCaused by:\\n  cuStreamSynchronize failed with status 719\\nBacktrace:\\n  0: main\" }",
                "cuStreamSynchronize failed with status 719",
            ),
            ("The device is poisoned", "it is poisoned"),
            (
                "wgpu error: Validation Error\n\nCaused by:\n  Parent device is lost\n",
                "device is lost",
            ),
            ("vkQueueSubmit failed: Device lost", "Device lost"),
            (
                "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",
                "Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",
            ),
        ] {
            let lost = DeviceError::Lost { reason: reason.to_owned() };
            assert_eq!(DeviceError::of(text), Some(lost), "{text}");
        }
    }

    #[test]
    fn a_driver_older_than_the_compiler() {
        let text = "Error while reading data: WithContext { reason: \"Unable to load the PTX: DriverError(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, \\\"the provided PTX was compiled with an unsupported toolchain.\\\")\\nBacktrace:\\n  0: main\" }";
        let error = DeviceError::of(text).unwrap();
        assert_eq!((&error, error.exit_code()), (&DeviceError::OldDriver, 69));
        let line = error.to_string();
        assert!(line.contains("vim-train doctor") && !line.contains('\n'), "{line}");
    }

    #[test]
    fn other_panics_are_not_the_devices() {
        for text in [
            "index out of bounds: the len is 3 but the index is 3",
            "called `Result::unwrap()` on an `Err` value: PoisonError { .. }: poisoned lock",
            "the device's queue: PoisonError { .. }: poisoned lock",
            "oxides",
            "shape mismatch",
            "",
        ] {
            assert_eq!(DeviceError::of(text), None, "{text}");
        }
    }

    #[test]
    fn the_batch_that_may_fit_divides_the_one_that_did_not() {
        let load = |batch_size, in_pairs| BatchFootprint {
            batch_size,
            parts: 1,
            recompute: RecomputeChoice::States,
            in_pairs,
        };
        let next = |batch_size, in_pairs| load(batch_size, in_pairs).smaller();
        assert_eq!(next(128, true), Some(64));
        assert_eq!(next(96, false), Some(48));
        assert_eq!((next(50, false), next(50, true)), (Some(25), Some(10)));
        assert_eq!((next(7, false), next(1, false), next(2, true)), (Some(1), None, None));
        let parts =
            |batch_size, parts| BatchFootprint { parts, ..load(batch_size, false) }.parts_of(2);
        assert_eq!((parts(128, 1), parts(128, 4), parts(96, 3)), (Some(2), Some(8), Some(6)));
        assert_eq!((parts(7, 1), parts(7, 7), parts(1, 1)), (Some(7), None, None));
        assert_eq!(
            BatchFootprint { parts: 2, recompute: RecomputeChoice::Auto, ..load(64, true) }
                .to_string(),
            "32 images at a time are too many for it: set train.accumulate=4 (the same gradient, 16 images at a time), \
             or set train.recompute=states (much less memory, some time), or set train.batch_size=32, which may fit, \
             or take a smaller model, smaller images or a larger device"
        );
    }

    #[test]
    fn a_line_ends_before_the_backtrace() {
        assert_eq!(one_line("a\n  b\\nc\nBacktrace:\n  0: main"), "a b c");
        assert_eq!(
            one_line(
                "Torch(\"gather(): wrong index\\nException raised from check at /x.h:11\\nframe #0\")"
            ),
            "Torch(\"gather(): wrong index"
        );
        assert_eq!(one_line(&"é".repeat(1000)).chars().count(), 401);
    }
}
