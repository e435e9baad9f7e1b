//! Opens the libraries before CubeCL does.

use std::fs;
use std::mem::forget;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts};
use libloading::Library;

use super::{CudaError, CudaVersion, Libraries, driver, found};
use crate::device::fault::one_line;
use crate::device::machine::Machine;
use crate::error::panic_message;

/// A kernel with the types and tensor-core operations of our kernels.
const KERNEL: &str = r#"
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cooperative_groups.h>
#include <mma.h>
extern "C" __global__ void twice(__nv_bfloat16 *x, __half *y) {
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> sum;
    nvcuda::wmma::fill_fragment(sum, 0.0f);
    cooperative_groups::this_thread_block().sync();
    x[threadIdx.x] = __hadd(x[threadIdx.x], x[threadIdx.x]);
    y[threadIdx.x] = __float2half(sum.x[0]);
}
"#;

/// Opens NVRTC's library and its companion by path. The linker then resolves their bare names to
/// the open libraries: PyPI's wheels have no run-path.
pub(crate) fn open() -> Result<&'static Libraries, &'static CudaError> {
    // Process-wide, as the linker's list of open libraries is.
    static OPENED: OnceLock<Result<(), CudaError>> = OnceLock::new();
    let libraries = found()?;
    let opened = OPENED.get_or_init(|| {
        for path in builtins(&libraries.nvrtc) {
            // Another version's companion may be there too; a mismatch shows when NVRTC compiles.
            let _ = keep(&path);
        }
        let path = libraries.nvrtc.clone();
        keep(&path).map_err(|problem| CudaError::Broken { path, problem })
    });
    opened.as_ref().map(|()| libraries)
}

/// NVRTC's built-in declarations, a separate library.
fn builtins(nvrtc: &Path) -> Vec<PathBuf> {
    let folder = nvrtc.parent().and_then(|folder| fs::read_dir(folder).ok());
    let files = folder.into_iter().flatten().flatten().map(|entry| entry.path());
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libnvrtc-builtins.so.")
    };
    files.filter(is_one).collect()
}

/// Opens the driver's library outside the linker's search path.
pub(crate) fn open_driver() {
    if keep(Path::new("libcuda.so.1")).is_err()
        && let Some(path) = driver(&Machine::this())
    {
        // If that fails too, there is no GPU; the caller reports it.
        let _ = keep(&path);
    }
}

/// What the driver says of its start, if it fails.
pub(crate) fn driver_failure() -> Option<String> {
    use cudarc::driver::result::init;
    // The bindings panic where the library lacks a function.
    let failure = match catch_unwind(|| init().map_err(|error| error.to_string())) {
        Ok(started) => started.err()?,
        Err(panic) => panic_message(&*panic),
    };
    Some(format!("NVIDIA's driver does not start: {}", one_line(&failure)))
}

/// The newest CUDA that the driver's library runs; none without a library.
#[expect(unsafe_code, reason = "asking the driver, for which the bindings have no safe call")]
pub(crate) fn driver_cuda() -> Option<CudaVersion> {
    use cudarc::driver::sys::cuDriverGetVersion;
    open_driver();
    // The bindings panic where there is no library.
    let told = catch_unwind(|| {
        let mut number = 0;
        // SAFETY: writes one number.
        unsafe { cuDriverGetVersion(&mut number) }.result().map(|()| number)
    });
    let number = u32::try_from(told.ok()?.ok()?).ok().filter(|number| *number > 0)?;
    Some(CudaVersion::of_number(number))
}

/// The UUID of GPU `number`; none where the driver does not say it.
pub(crate) fn gpu_id(number: i32) -> Option<String> {
    use cudarc::driver::result::{device, init};
    // The bindings panic where the library lacks a function.
    let id = catch_unwind(|| init().and_then(|()| device::get_uuid(device::get(number)?)));
    let bytes = id.ok()?.ok()?.bytes;
    Some(bytes.iter().map(|&byte| format!("{:02x}", byte as u8)).collect())
}

/// Free and all bytes of GPU `number`, as this process may use it; none where the driver does not
/// say it.
pub(crate) fn gpu_memory(number: usize) -> Option<(u64, u64)> {
    use cudarc::driver::CudaContext;
    // The bindings panic where the library lacks a function.
    let told = catch_unwind(|| CudaContext::new(number).and_then(|context| context.mem_get_info()));
    let (free, all) = told.ok()?.ok()?;
    Some((free as u64, all as u64))
}

/// Whether GPU `from` can reach the memory of GPU `to` directly; none where the driver does not say
/// it.
#[expect(unsafe_code, reason = "asking the driver, for which the bindings have no safe call")]
pub(crate) fn peer_access(from: i32, to: i32) -> Option<bool> {
    use cudarc::driver::result::{DriverError, device, init};
    use cudarc::driver::sys::cuDeviceCanAccessPeer;
    // The bindings panic where the library lacks a function.
    let reached = catch_unwind(|| {
        init()?;
        let (from, to, mut can) = (device::get(from)?, device::get(to)?, 0);
        // SAFETY: writes one number.
        unsafe { cuDeviceCanAccessPeer(&mut can, from, to) }.result()?;
        Ok::<_, DriverError>(can != 0)
    });
    reached.ok()?.ok()
}

/// Opens a library for as long as the process lives.
#[expect(
    unsafe_code,
    reason = "opening a library runs its code; these are NVIDIA's, which CubeCL opens anyway"
)]
fn keep(path: &Path) -> Result<(), String> {
    // SAFETY: NVIDIA's libraries may be opened at any time, from any thread.
    let library = unsafe { Library::new(path) }.map_err(|error| error.to_string())?;
    forget(library);
    Ok(())
}

/// Compiles a small kernel; no GPU is needed.
pub(crate) fn compile_a_kernel(libraries: &Libraries) -> Result<(), CudaError> {
    let include = libraries.root.join("include");
    let paths = [include.clone(), include.join("cccl")];
    let options = CompileOptions {
        arch: Some("sm_80"),
        include_paths: paths.iter().map(|path| path.display().to_string()).collect(),
        ..CompileOptions::default()
    };
    let failed = |problem: String| CudaError::Compile {
        nvrtc: libraries.nvrtc.clone(),
        root: libraries.root.clone(),
        problem: problem.split_whitespace().collect::<Vec<_>>().join(" "),
    };
    // The bindings panic where the library lacks a function.
    match catch_unwind(|| compile_ptx_with_opts(KERNEL, options)) {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(CompileError::CompileError { log, .. })) => {
            Err(failed(log.to_string_lossy().into_owned()))
        }
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(panic) => Err(failed(panic_message(&*panic))),
    }
}

/// The NVRTC libraries open in this process: several if the linker prefers another than the one
/// found.
pub(crate) fn mapped() -> Vec<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let paths = maps.lines().filter_map(|line| line.split_once('/').map(|(_, path)| path));
    let mut paths: Vec<PathBuf> = paths
        .map(|path| PathBuf::from(format!("/{path}")))
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libnvrtc.so"))
        })
        .collect();
    paths.dedup();
    paths
}
