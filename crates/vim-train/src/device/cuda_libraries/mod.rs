//! Where the CUDA run-time libraries lie: what a GPU of NVIDIA needs beside this program.
//!
//! Kernels are compiled when they first run, by NVRTC: that takes its library, the toolkit's headers, and
//! the driver. CubeCL looks for the headers in `CUDA_PATH/include`, and opens the library by its bare name. Here
//! they are [searched](search) for where clusters keep them: in toolkits, environment modules and the wheels of
//! PyPI. `main` then points `CUDA_PATH` at what was found, and the library is opened by its path before CubeCL asks
//! for its name. None of it needs the feature `cuda`, so that a build without it can say what is there too.

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

/// What the kernels of a GPU are compiled with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Libraries {
    /// The library of NVRTC.
    pub nvrtc: PathBuf,
    /// Its version, as far as its files' names say.
    pub nvrtc_version: String,
    /// The folder whose `include` has the headers: what `CUDA_PATH` is set to.
    pub root: PathBuf,
    /// The headers' version, where they say.
    pub headers_version: Option<String>,
    /// What led there, such as `CUDA_HOME` or `/usr/local/cuda`.
    pub origin: String,
}

/// What this process found when it first asked.
///
/// # Errors
///
/// What is missing, where it was looked for, and what to do.
pub fn found() -> Result<&'static Libraries, &'static CudaError> {
    static FOUND: OnceLock<Result<Libraries, CudaError>> = OnceLock::new();
    FOUND.get_or_init(|| search(&Machine::this())).as_ref()
}
