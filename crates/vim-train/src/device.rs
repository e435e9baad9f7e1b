//! The name of a backend → a device. The only file of this crate with a backend's `cfg`.

use burn::tensor::Device;

use crate::config::{Backend, DevicesConfig};
use crate::error::Error;

/// What computes, and what to call it.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The device, without autodiff.
    pub device: Device,
    /// Its name for the log and the run's record, such as `cpu` or `cuda:0`.
    pub name: String,
}

/// Limits the threads that compute on the CPU; without a limit there is one per core that this
/// process may use.
///
/// # Errors
///
/// [`Error::Internal`] if threads have been started before.
pub fn use_threads(count: Option<usize>) -> Result<(), Error> {
    let Some(count) = count else { return Ok(()) };
    rayon::ThreadPoolBuilder::new()
        .num_threads(count)
        .build_global()
        .map_err(|error| Error::Internal(format!("{count} threads: {error}")))
}

/// Threads that compute on the CPU.
#[must_use]
pub fn threads() -> usize {
    rayon::current_num_threads()
}

/// The device that `config` asks for.
///
/// `auto` takes the first present of cuda, wgpu (a real GPU, not an emulated one) and cpu.
///
/// # Errors
///
/// [`Error::Device`] if it is not compiled in, not on this machine, or more than one is asked for.
pub fn choose(config: &DevicesConfig) -> Result<Chosen, Error> {
    match config.backend {
        Backend::Cpu => Ok(cpu()),
        Backend::Cuda => cuda(config),
        Backend::Wgpu => wgpu(config),
        Backend::Auto => match present() {
            Backend::Cuda => cuda(config),
            Backend::Wgpu => wgpu(config),
            Backend::Cpu | Backend::Auto => Ok(cpu()),
        },
    }
}

fn cpu() -> Chosen {
    Chosen { device: Device::flex(), name: "cpu".into() }
}

/// The first backend of this build that has a GPU on this machine.
fn present() -> Backend {
    if cuda_count() > 0 {
        Backend::Cuda
    } else if wgpu_count() > 0 {
        Backend::Wgpu
    } else {
        Backend::Cpu
    }
}

/// The number of the one GPU to use, of `visible`.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn one_gpu(config: &DevicesConfig, backend: &str, visible: usize) -> Result<usize, Error> {
    match config.gpus.numbers(visible)[..] {
        [number] if number < visible => Ok(number),
        [number] => Err(Error::Device(format!(
            "devices.gpus: {backend} GPU {number} is not there, this machine has {visible}: choose another, or devices.backend=cpu"
        ))),
        [] => Err(Error::Device(format!(
            "devices.backend: no {backend} GPU on this machine: use devices.backend=cpu"
        ))),
        ref several => Err(Error::Device(format!(
            "devices.gpus: {} GPUs, but a run uses one for now: set devices.gpus=1, and start a run on each",
            several.len()
        ))),
    }
}

#[cfg(feature = "cuda")]
fn cuda(config: &DevicesConfig) -> Result<Chosen, Error> {
    let number = one_gpu(config, "CUDA", cuda_count())?;
    Ok(Chosen { device: Device::cuda(number), name: format!("cuda:{number}") })
}

#[cfg(feature = "cuda")]
fn cuda_count() -> usize {
    // Enumerating opens the driver's library, which panics where there is none.
    std::panic::catch_unwind(|| Device::enumerate(burn::tensor::DeviceType::Cuda).into_vec().len())
        .unwrap_or(0)
}

#[cfg(feature = "wgpu")]
fn wgpu(config: &DevicesConfig) -> Result<Chosen, Error> {
    let mut gpus = wgpu_gpus();
    let number = one_gpu(config, "wgpu", gpus.len())?;
    Ok(Chosen { device: gpus.swap_remove(number), name: format!("wgpu:{number}") })
}

/// The real GPUs: a rasterizer that runs on the processor is none.
#[cfg(feature = "wgpu")]
fn wgpu_gpus() -> Vec<Device> {
    let all = || Device::enumerate(burn::tensor::DeviceType::Wgpu).into_vec();
    let software = |device: &Device| {
        let name = device.identity().map(|identity| identity.name.to_lowercase());
        name.is_none_or(|name| {
            ["llvmpipe", "lavapipe", "swiftshader"].iter().any(|s| name.contains(s))
        })
    };
    let mut gpus = std::panic::catch_unwind(all).unwrap_or_default();
    gpus.retain(|device| !software(device));
    gpus
}

#[cfg(feature = "wgpu")]
fn wgpu_count() -> usize {
    wgpu_gpus().len()
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: &DevicesConfig) -> Result<Chosen, Error> {
    Err(not_compiled("cuda"))
}

#[cfg(not(feature = "cuda"))]
fn cuda_count() -> usize {
    0
}

#[cfg(not(feature = "wgpu"))]
fn wgpu(_: &DevicesConfig) -> Result<Chosen, Error> {
    Err(not_compiled("wgpu"))
}

#[cfg(not(feature = "wgpu"))]
fn wgpu_count() -> usize {
    0
}

#[cfg(not(all(feature = "cuda", feature = "wgpu")))]
fn not_compiled(feature: &str) -> Error {
    Error::Device(format!(
        "devices.backend: this build has no {feature}: build it with --features {feature}, or use devices.backend=cpu"
    ))
}
