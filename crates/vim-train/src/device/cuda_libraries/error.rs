//! What is missing, in one line.

use std::io;
use std::path::PathBuf;

/// How to get what is missing, for CUDA of the version `major`: the newest that the driver runs, or 13.
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

/// Why kernels cannot be compiled for a GPU of NVIDIA.
#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    /// There is no library of NVRTC.
    #[error("CUDA: no libnvrtc.so.13 (or .12, .11) in {looked}: {remedy}")]
    NoNvrtc {
        /// Where it was looked for.
        looked: String,
        /// How to get it.
        remedy: String,
    },

    /// Headers are missing.
    #[error("CUDA: no header {absent} in {looked}: {remedy}")]
    NoHeaders {
        /// Those that no place has all of, for the place that has the most.
        absent: String,
        /// Where they were looked for.
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

    /// The library is there and cannot be opened.
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
        /// Whose `include` has the headers.
        root: PathBuf,
        /// What NVRTC says.
        problem: String,
    },
}
