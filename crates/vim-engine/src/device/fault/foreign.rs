//! Texts of other libraries by which this program knows their panics, errors and threads.
//!
//! Each row is a crate and a text: scripts/check_dependencies.py looks for it in the source that
//! Cargo.lock pins, whatever the case of its letters, so that an update cannot change one unseen.

/// In place of a crate: NVIDIA's driver and kernel module, and LibTorch, whose sources are
/// elsewhere.
const NO_CRATE: &str = "";

/// Of a device that has no memory left, in small letters; the number of bytes may follow.
pub(crate) const OUT_OF_MEMORY: [(&str, &str); 8] = [
    ("cubecl-runtime", "out of device memory allocating "),
    ("cubecl-runtime", "can't allocate buffer of size: "),
    ("cubecl-runtime", "every page size the memory tracks still holds live allocations"),
    ("cubecl-runtime", "out-of-memory"),
    ("wgpu-core", "not enough memory left"),
    ("wgpu", "out of memory"),
    ("wgpu", "outofmemory"),
    ("cudarc", "cuda_error_out_of_memory"),
];

/// Of a driver that is older than NVRTC, in small letters.
pub(crate) const UNSUPPORTED_PTX: (&str, &str) = ("cudarc", "cuda_error_unsupported_ptx_version");

/// Of a driver that has a GPU and does not start, in small letters: its MPS server, fabric or
/// kernel module is not ready for this process.
pub(crate) const NOT_READY: [(&str, &str); 3] = [
    ("cudarc", "cuda_error_mps_"),
    ("cudarc", "cuda_error_system_not_ready"),
    ("cudarc", "cuda_error_system_driver_mismatch"),
];

/// Of a device that is lost, in small letters. `Xid` is NVIDIA's code in the system log.
pub(crate) const LOST: [(&str, &str); 20] = [
    ("cudarc", "cuda_error_illegal_address"),
    ("cudarc", "cuda_error_illegal_instruction"),
    ("cudarc", "cuda_error_misaligned_address"),
    ("cudarc", "cuda_error_invalid_pc"),
    ("cudarc", "cuda_error_launch_failed"),
    ("cudarc", "cuda_error_launch_timeout"),
    ("cudarc", "cuda_error_hardware_stack_error"),
    ("cudarc", "cuda_error_ecc_uncorrectable"),
    ("cudarc", "cuda_error_nvlink_uncorrectable"),
    ("cudarc", "cuda_error_contained"),
    ("cudarc", "cuda_error_device_unavailable"),
    ("cudarc", "cuda_error_no_device"),
    ("cudarc", "cuda_error_system_not_ready"),
    ("cudarc", "cuda_error_unknown"),
    ("cubecl-runtime", "device is poisoned"),
    ("cubecl-runtime", "device was poisoned"),
    ("wgpu-core", "device is lost"),
    ("wgpu-hal", "device lost"),
    ("cubecl-wgpu", "device was lost"),
    (NO_CRATE, "xid"),
];

/// Before the cause of an error of CubeCL.
pub(crate) const CAUSE: (&str, &str) = ("cubecl-runtime", "Caused by:");

/// What a line begins with from which on a text is a trace, in small letters.
pub(crate) const TRACES: [(&str, &str); 3] = [
    ("cubecl-runtime", "backtrace"),
    (NO_CRATE, "stack backtrace"),
    (NO_CRATE, "exception raised from"),
];

/// The format of the names of CubeCL's threads.
pub(crate) const DEVICE_THREADS: (&str, &str) = ("cubecl-common", "DS{}-{}-{}");

/// In CubeCL's warning about a panic that it has caught.
pub(crate) const SWALLOWED: (&str, &str) = ("cubecl-common", "panicked on device runner thread");
