//! Errors of the search.

use std::io;
use std::path::PathBuf;

/// How to install missing libraries of CUDA `major`: the newest that the driver runs, or 13.
pub(super) fn remedy(major: Option<u32>) -> String {
    let wheels = match major {
        Some(11 | 12) => {
            "nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12 nvidia-cuda-cccl-cu12 nvidia-cuda-nvcc-cu12"
        }
        Some(_) | None => "nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-cccl nvidia-cuda-crt",
    };
    format!(
        "load the toolkit (`module load cuda`), or `pip install {wheels}` and set VIM_CUDA_WHEELS to that environment (docs/install.md)"
    )
}

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
