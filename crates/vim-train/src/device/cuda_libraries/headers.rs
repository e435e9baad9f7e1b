//! The headers that kernels include.

use std::path::{Path, PathBuf};

/// Headers that kernels of this program and of Burn include, and those that these include.
const NEEDED: [&str; 6] =
    ["cuda_fp16.h", "cuda_bf16.h", "mma.h", "crt/mma.h", "cooperative_groups.h", "cuda_runtime.h"];

/// A header of the C++ core libraries, which lie beside the others or, from CUDA 13 on, in a folder `cccl`.
const CCCL: &str = "nv/target";

/// Those that none of the folders has. What is in a folder `cccl` is found there too.
pub(super) fn absent(folders: &[PathBuf]) -> Vec<&'static str> {
    let has = |header: &str| folders.iter().any(|folder| folder.join(header).is_file());
    let mut absent: Vec<&str> = NEEDED.into_iter().filter(|header| !has(header)).collect();
    if !has(CCCL) && !has(&format!("cccl/{CCCL}")) {
        absent.push(CCCL);
    }
    absent
}

/// Whether `root/include` has them all.
pub(super) fn complete(root: &Path) -> bool {
    absent(&[root.join("include")]).is_empty()
}
