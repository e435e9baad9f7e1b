//! The headers that kernels include.

use std::path::{Path, PathBuf};

/// Headers that the kernels of this program and of Burn include, directly or indirectly.
const NEEDED: [&str; 6] =
    ["cuda_fp16.h", "cuda_bf16.h", "mma.h", "crt/mma.h", "cooperative_groups.h", "cuda_runtime.h"];

/// A header of the C++ core libraries; from CUDA 13 on these are in a folder `cccl`.
const CCCL: &str = "nv/target";

/// Headers missing from all folders; their `cccl` subfolders are searched too.
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
