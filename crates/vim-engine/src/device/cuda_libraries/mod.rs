//! Finds the CUDA run-time libraries.
//!
//! NVRTC compiles kernels when they first run: it needs its library, the toolkit's headers and the
//! driver. CubeCL looks for the headers in `CUDA_PATH/include` and opens the library by its bare
//! name. [`search()`] looks in toolkits, environment modules and PyPI's wheels. `main` points
//! `CUDA_PATH` at the result, and the library is opened by path before CubeCL opens it by name. All
//! of this works without the feature `cuda`, so that `doctor` can report it in any build.

#[cfg(feature = "cuda")]
mod load;
mod places;
pub mod search;
mod version;

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

use serde::Serialize;

#[cfg(feature = "cuda")]
pub(crate) use load::{
    compile_a_kernel, driver_cuda, driver_failure, gpu_id, gpu_memory, mapped, open, open_driver,
    peer_access,
};
pub use places::{VARIABLES, WHEELS};
pub use search::{driver, driver_version, search};
pub(crate) use version::remedy;
pub use version::{CudaVersion, newest_cuda};

use crate::device::machine::Machine;

/// The files of NCCL's library on this machine, outside the linker's places too.
pub fn nccl_places() -> Vec<PathBuf> {
    places::nccl(&Machine::this())
}

/// What tells a GPU from all others: nothing without CUDA.
#[cfg(not(feature = "cuda"))]
pub(crate) fn gpu_id(_: i32) -> Option<String> {
    None
}

/// The newest CUDA that the driver runs: what its library says, else what is known of its version.
pub(crate) fn newest_of_driver(machine: &Machine) -> Option<CudaVersion> {
    driver_cuda().or_else(|| search::newest_by_version(machine))
}

/// What the driver's library says that it runs: nothing without CUDA.
#[cfg(not(feature = "cuda"))]
fn driver_cuda() -> Option<CudaVersion> {
    None
}

/// What the driver says of its start: nothing without CUDA.
#[cfg(not(feature = "cuda"))]
pub(crate) fn driver_failure() -> Option<String> {
    None
}

/// Free and all bytes of a GPU: not known without CUDA.
#[cfg(not(feature = "cuda"))]
pub(crate) fn gpu_memory(_: usize) -> Option<(u64, u64)> {
    None
}

/// Whether a GPU reaches another one's memory: not known without CUDA.
#[cfg(not(feature = "cuda"))]
pub(crate) fn peer_access(_: i32, _: i32) -> Option<bool> {
    None
}

/// The compiler and headers for GPU kernels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Libraries {
    /// The library of NVRTC.
    pub nvrtc: PathBuf,
    /// The version according to the file names.
    pub nvrtc_version: String,
    /// Folder whose `include` has the headers; the value of `CUDA_PATH`.
    pub root: PathBuf,
    /// The headers' version, if known.
    pub headers_version: Option<String>,
    /// The origin, such as `CUDA_HOME` or `/usr/local/cuda`.
    pub origin: String,
}

/// The result of this process's first search.
pub fn found() -> Result<&'static Libraries, &'static CudaError> {
    // Process-wide: a process opens one NVRTC, which stays loaded.
    static FOUND: OnceLock<Result<Libraries, CudaError>> = OnceLock::new();
    FOUND.get_or_init(|| search(&Machine::this())).as_ref()
}

/// Sets `CUDA_PATH`, the only folder in which CubeCL then looks for the CUDA headers.
///
/// To be called at the start of `main`, before there is another thread.
#[cfg(feature = "cuda")]
#[expect(unsafe_code, reason = "CubeCL takes the headers' place from the environment alone")]
pub fn point_to_cuda() {
    // Missing libraries become an error when a GPU is requested.
    if let Ok(libraries) = found() {
        // SAFETY: at the start of main no other thread can read the environment.
        unsafe { std::env::set_var("CUDA_PATH", &libraries.root) };
    }
}

/// Nothing looks for CUDA's headers in this build.
#[cfg(not(feature = "cuda"))]
pub fn point_to_cuda() {}

/// Why kernels cannot be compiled for an NVIDIA GPU.
#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    /// There is no library of NVRTC.
    #[error("CUDA: no libnvrtc.so.13 (or .12, .11) in {looked}: {remedy}")]
    NoNvrtc {
        /// The places searched.
        looked: String,
        /// How to get it.
        remedy: String,
    },

    /// Headers are missing.
    #[error("CUDA: no header {absent} in {looked}: {remedy}")]
    NoHeaders {
        /// Headers missing from the most complete place.
        absent: String,
        /// The places searched.
        looked: String,
        /// How to get it.
        remedy: String,
    },

    /// Headers of several wheels cannot be put together.
    #[error(
        "CUDA: cannot put the headers of {} together in {}: {source}; set XDG_CACHE_HOME to a folder that can be written",
        wheels.display(), path.display()
    )]
    Merge {
        /// Where the wheels are.
        wheels: PathBuf,
        /// The folder of links.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },

    /// The library cannot be opened.
    #[error("CUDA: {} cannot be opened: {problem}; take another toolkit by CUDA_HOME or VIM_CUDA_WHEELS", path.display())]
    Broken {
        /// The library.
        path: PathBuf,
        /// The linker's reason.
        problem: String,
    },

    /// The library does not compile a small kernel.
    #[error("CUDA: {} with the headers of {} does not compile a kernel: {problem}; take another toolkit by CUDA_HOME or VIM_CUDA_WHEELS", nvrtc.display(), root.display())]
    Compile {
        /// The library.
        nvrtc: PathBuf,
        /// Folder whose `include` has the headers.
        root: PathBuf,
        /// NVRTC's message.
        problem: String,
    },
}
