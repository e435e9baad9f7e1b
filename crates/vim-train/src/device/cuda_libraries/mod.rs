//! Finds the CUDA run-time libraries.
//!
//! NVRTC compiles kernels when they first run: it needs its library, the toolkit's headers and the
//! driver. CubeCL looks for the headers in `CUDA_PATH/include` and opens the library by its bare
//! name. [`search()`] looks in toolkits, environment modules and PyPI's wheels. `main` points
//! `CUDA_PATH` at the result, and the library is opened by path before CubeCL opens it by name. All
//! of this works without the feature `cuda`, so that `doctor` can report it in any build.

mod error;
mod headers;
#[cfg(feature = "cuda")]
mod load;
mod merge;
mod places;
mod search;
mod toolkit;
mod wheels;

use std::path::PathBuf;
use std::sync::OnceLock;

use serde::Serialize;

pub use error::CudaError;
#[cfg(feature = "cuda")]
pub(crate) use load::{compile_a_kernel, mapped, open, open_driver};
pub use places::{VARIABLES, WHEELS};
pub use search::{driver, driver_version, newest_cuda, search};

use crate::device::machine::Machine;

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
    static FOUND: OnceLock<Result<Libraries, CudaError>> = OnceLock::new();
    FOUND.get_or_init(|| search(&Machine::this())).as_ref()
}
