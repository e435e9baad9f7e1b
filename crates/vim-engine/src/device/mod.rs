//! Selects the device of a backend. The only file with a backend's `cfg`, except the opening of
//! CUDA's libraries.

mod absent;
pub mod cuda_libraries;
pub mod fault;
pub mod machine;
pub mod memory;
mod name;
pub mod threads;

use burn::tensor::Device;
use strum::VariantArray;

#[cfg(feature = "tch")]
use crate::config::Gpus;
use crate::config::{Backend, DevicesConfig};
use crate::device::machine::Machine;
use crate::error::Error;
pub use fault::DeviceError;
pub use name::DeviceName;

/// A device and its name.
#[derive(Clone, Debug)]
pub struct SelectedDevice {
    /// The device, without autodiff.
    pub device: Device,
    /// Its name for the log and the run's record, such as `cpu` or `cuda:0`.
    pub name: String,
}

impl SelectedDevice {
    /// The name with the GPU's: `cuda:0, NVIDIA H200`.
    pub fn with_hardware(&self) -> String {
        gpu_name(&self.device)
            .map_or_else(|| self.name.clone(), |gpu| format!("{}, {gpu}", self.name))
    }

    /// The backend and the GPU's name without number: devices of one kind round alike.
    pub fn kind(&self) -> String {
        let backend = self.name.split(':').next().unwrap_or_default();
        gpu_name(&self.device).map_or_else(|| backend.to_owned(), |gpu| format!("{backend}, {gpu}"))
    }

    /// What tells the GPU from all others, where processes may not share it.
    pub fn unique_id(&self) -> Option<String> {
        let number = self.name.strip_prefix("cuda:")?.parse().ok()?;
        cuda_libraries::gpu_id(number)
    }

    /// Whether it is an NVIDIA GPU, through CUDA.
    pub fn is_cuda(&self) -> bool {
        self.name.starts_with("cuda")
    }

    /// Whether it is the processor, through the backend that compiles nothing.
    pub fn is_cpu(&self) -> bool {
        self.name == "cpu"
    }
}

/// The device that a flag names; [`DeviceError::Unavailable`] if it is not compiled in or absent.
pub fn choose_named(name: &DeviceName) -> Result<SelectedDevice, Error> {
    let gpus = name.gpus();
    choose_as(&DevicesConfig { backend: name.backend, gpus, ..DevicesConfig::default() }, BY_FLAG)
}

/// How the user chooses a device, for errors.
#[derive(Clone, Copy, Debug)]
struct Asked {
    backend: &'static str,
    #[cfg(any(feature = "cuda", feature = "wgpu", feature = "tch"))]
    gpus: &'static str,
    cpu: &'static str,
}

const BY_CONFIG: Asked = Asked {
    backend: "devices.backend",
    #[cfg(any(feature = "cuda", feature = "wgpu", feature = "tch"))]
    gpus: "devices.gpus",
    cpu: "devices.backend=cpu",
};

const BY_FLAG: Asked = Asked {
    backend: "--device",
    #[cfg(any(feature = "cuda", feature = "wgpu", feature = "tch"))]
    gpus: "--device",
    cpu: "--device cpu",
};

/// The backends in this build.
pub fn backends() -> Vec<Backend> {
    let has = |backend: &Backend| match backend {
        Backend::Auto => false,
        Backend::Cpu => true,
        Backend::Cuda => cfg!(feature = "cuda"),
        Backend::Wgpu => cfg!(feature = "wgpu"),
        Backend::Tch => cfg!(feature = "tch"),
    };
    Backend::VARIANTS.iter().copied().filter(has).collect()
}

/// Name of the GPU or the processor.
pub fn hardware(device: &Device) -> Option<String> {
    gpu_name(device).or_else(|| {
        let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    })
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn gpu_name(device: &Device) -> Option<String> {
    device.identity().map(|identity| identity.name)
}

#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
fn gpu_name(_: &Device) -> Option<String> {
    None
}

/// f32 multiply-adds per second of the device, by the framework's probe where it has one.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub fn multiply_adds_per_second(device: &Device) -> Option<f64> {
    use burn::tensor::{ThroughputKey, ThroughputMode};
    let dtype = ThroughputKey { mode: ThroughputMode::Launch }.dtype(); // f32
    let key = ThroughputKey { mode: ThroughputMode::ComputeDirect { dtype } };
    let stat = device.performance_stats(&[key]).into_iter().next()?;
    // The probe counts a multiply-add as two.
    stat.value.ok().map(|value| value.ops_per_s() / 2.0).filter(|rate| rate.is_finite())
}

/// f32 multiply-adds per second of the device, by the framework's probe where it has one.
#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
pub fn multiply_adds_per_second(_: &Device) -> Option<f64> {
    None
}

/// The device that `config` asks for.
///
/// `auto` takes the first present of cuda, wgpu (a real GPU, not an emulated one) and cpu. `wgpu`
/// by name also takes an emulated one, after the real ones. [`DeviceError::Unavailable`] if it is
/// not compiled in, absent, or more than one is requested.
pub fn choose(config: &DevicesConfig) -> Result<SelectedDevice, Error> {
    choose_as(config, BY_CONFIG)
}

fn choose_as(config: &DevicesConfig, asked: Asked) -> Result<SelectedDevice, Error> {
    match config.backend {
        Backend::Cpu => Ok(cpu()),
        Backend::Cuda => cuda(config, asked),
        Backend::Wgpu => wgpu(config, asked),
        Backend::Tch => tch(config, asked),
        Backend::Auto => match present(asked)? {
            Backend::Cuda => cuda(config, asked),
            Backend::Wgpu => wgpu(config, asked),
            Backend::Cpu | Backend::Tch | Backend::Auto => Ok(cpu()),
        },
    }
}

fn cpu() -> SelectedDevice {
    SelectedDevice { device: Device::flex(), name: "cpu".into() }
}

/// The first backend of this build that has a GPU on this machine; the processor where GPUs are
/// hidden, or where there is none and this process was given none.
fn present(asked: Asked) -> Result<Backend, Error> {
    let machine = Machine::this();
    if absent::are_hidden(&machine) {
        Ok(Backend::Cpu)
    } else if cuda_count() > 0 {
        Ok(Backend::Cuda)
    } else if wgpu_count() > 0 {
        Ok(Backend::Wgpu)
    } else {
        absent::may_be(&machine, asked.backend, asked.cpu)?;
        Ok(Backend::Cpu)
    }
}

/// The numbers of the GPUs that a run of `config` trains on together: none where it trains on one
/// device, which [`choose`] finds. Only CUDA has several.
pub fn gpus(config: &DevicesConfig) -> Result<Vec<usize>, Error> {
    let visible = cuda_gpus(config);
    let numbers = config.gpus.numbers(visible);
    if numbers.len() < 2 {
        return Ok(Vec::new());
    }
    if visible == 0 {
        return match config.backend {
            // The first device of any kind would be another run than the one described.
            Backend::Auto => Err(DeviceError::Unavailable(format!(
                "devices.gpus: {}, and no CUDA GPU is here, which alone train together: set \
                 devices.gpus=1, or devices.backend=cpu",
                config.gpus
            ))
            .into()),
            // Choosing one says what is missing; the CPU has no GPUs to count.
            Backend::Cpu | Backend::Cuda | Backend::Wgpu | Backend::Tch => Ok(Vec::new()),
        };
    }
    match numbers.iter().find(|&&number| number >= visible) {
        None => Ok(numbers),
        Some(_) => Err(DeviceError::Unavailable(format!(
            "devices.gpus: {} is more than this machine has, {visible} CUDA GPUs: set it to what a \
             job is given (slurm.gpus_per_node)",
            config.gpus
        ))
        .into()),
    }
}

/// The GPUs of `count` ranks, which the user asked for by `flag`: `None` for ranks on the CPU.
/// Ranks share GPUs where [`vim_comm::SHARE_GPU`] says so.
pub(crate) fn of_ranks(
    config: &DevicesConfig,
    count: usize,
    flag: &str,
) -> Result<Vec<Option<usize>>, Error> {
    let backend =
        if config.backend == Backend::Auto { present(BY_CONFIG)? } else { config.backend };
    match backend {
        Backend::Cuda => {}
        Backend::Cpu => return Ok(vec![None; count]),
        Backend::Wgpu | Backend::Tch | Backend::Auto if count == 1 => return Ok(vec![None]),
        Backend::Wgpu | Backend::Tch | Backend::Auto => {
            return Err(DeviceError::Unavailable(format!(
                "{flag} {count}: {backend} computes on one device: use --device cuda, or cpu"
            ))
            .into());
        }
    }
    let visible = count_cuda(flag)?;
    if count > visible && !vim_comm::shares_gpu() {
        return Err(DeviceError::Unavailable(format!(
            "{flag} {count}: more than this machine has, {visible} CUDA GPUs"
        ))
        .into());
    }
    Ok((0..count).map(|rank| Some(rank % visible)).collect())
}

/// CUDA's GPUs on this machine, where `config` trains on them.
pub(crate) fn cuda_gpus(config: &DevicesConfig) -> usize {
    match config.backend {
        Backend::Cuda | Backend::Auto => cuda_count(),
        Backend::Cpu | Backend::Wgpu | Backend::Tch => 0,
    }
}

/// The number of CUDA's GPUs, at least one, which the user asked for by `flag`.
pub(crate) fn count_cuda(flag: &str) -> Result<usize, Error> {
    match cuda_count() {
        0 if cfg!(feature = "cuda") => Err(DeviceError::Unavailable(format!(
            "{flag}: no CUDA GPU on this machine ({}): start it in a job with GPUs, or without {flag}",
            absent::no_cuda_gpu(&Machine::this())
        ))
        .into()),
        0 => Err(DeviceError::Unavailable(format!(
            "{flag}: this build has no cuda: build it with --features cuda"
        ))
        .into()),
        count => Ok(count),
    }
}

/// The number of the one GPU to use, of `visible`. Of several, which `train` alone takes, it is the
/// first.
#[cfg(any(feature = "cuda", feature = "wgpu", feature = "tch"))]
fn one_gpu(
    config: &DevicesConfig,
    asked: Asked,
    backend: &str,
    visible: usize,
) -> Result<usize, Error> {
    match config.gpus.numbers(visible)[..] {
        _ if visible == 0 => {
            let why = match backend {
                "wgpu" => String::new(),
                _ => format!(" ({})", absent::no_cuda_gpu(&Machine::this())),
            };
            let no_gpu = format!("no {backend} GPU on this machine{why}: use {}", asked.cpu);
            Err(DeviceError::Unavailable(format!("{}: {no_gpu}", asked.backend)).into())
        }
        [number] if number < visible => Ok(number),
        [number, ..] if backend == "CUDA" && number < visible => Ok(number),
        [number] => Err(DeviceError::Unavailable(format!(
            "{}: {backend} GPU {number} is not there, this machine has {visible}: choose another, or {}",
            asked.gpus,
            asked.cpu
        )).into()),
        ref several => Err(DeviceError::Unavailable(format!(
            "{}: {} GPUs, but only CUDA takes several: set devices.gpus=1",
            asked.gpus,
            several.len()
        )).into()),
    }
}

#[cfg(feature = "cuda")]
fn cuda(config: &DevicesConfig, asked: Asked) -> Result<SelectedDevice, Error> {
    let number = one_gpu(config, asked, "CUDA", cuda_count())?;
    // Without these the first kernel would panic.
    cuda_libraries::open().map_err(|error| {
        Error::from(DeviceError::Unavailable(format!(
            "{}: {error}; or use {}",
            asked.backend, asked.cpu
        )))
    })?;
    Ok(SelectedDevice { device: Device::cuda(number), name: format!("cuda:{number}") })
}

#[cfg(feature = "cuda")]
fn cuda_count() -> usize {
    cuda_libraries::open_driver();
    // Enumerating panics without the driver's library.
    std::panic::catch_unwind(|| Device::enumerate(burn::tensor::DeviceType::Cuda).into_vec().len())
        .unwrap_or(0)
}

#[cfg(feature = "wgpu")]
fn wgpu(config: &DevicesConfig, asked: Asked) -> Result<SelectedDevice, Error> {
    let (mut gpus, emulated) = wgpu_gpus();
    gpus.extend(emulated);
    let number = one_gpu(config, asked, "wgpu", gpus.len())?;
    Ok(SelectedDevice { device: gpus.swap_remove(number), name: format!("wgpu:{number}") })
}

/// The real GPUs, and the rasterizers that run on the processor.
#[cfg(feature = "wgpu")]
fn wgpu_gpus() -> (Vec<Device>, Vec<Device>) {
    let all = || Device::enumerate(burn::tensor::DeviceType::Wgpu).into_vec();
    let emulated = |device: &Device| {
        let name = device.identity().map(|identity| identity.name.to_lowercase());
        name.is_none_or(|name| {
            ["llvmpipe", "lavapipe", "swiftshader"].iter().any(|s| name.contains(s))
        })
    };
    let (emulated, real) =
        std::panic::catch_unwind(all).unwrap_or_default().into_iter().partition(emulated);
    (real, emulated)
}

#[cfg(feature = "wgpu")]
fn wgpu_count() -> usize {
    wgpu_gpus().0.len()
}

/// LibTorch on the processor, or on the GPU that a list of numbers names.
#[cfg(feature = "tch")]
#[expect(deprecated, reason = "upstream advises against LibTorch, and so does docs/install.md")]
fn tch(config: &DevicesConfig, asked: Asked) -> Result<SelectedDevice, Error> {
    if let Gpus::All | Gpus::Count(_) = config.gpus {
        return Ok(SelectedDevice { device: Device::libtorch(), name: "tch".into() });
    }
    let visible = Device::enumerate(burn::tensor::DeviceType::LibTorch).into_vec().len();
    let number = one_gpu(config, asked, "LibTorch", visible)?;
    Ok(SelectedDevice { device: Device::libtorch_cuda(number), name: format!("tch:{number}") })
}

#[cfg(not(feature = "tch"))]
fn tch(_: &DevicesConfig, asked: Asked) -> Result<SelectedDevice, Error> {
    Err(not_compiled("tch", asked))
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: &DevicesConfig, asked: Asked) -> Result<SelectedDevice, Error> {
    Err(not_compiled("cuda", asked))
}

#[cfg(not(feature = "cuda"))]
fn cuda_count() -> usize {
    0
}

#[cfg(not(feature = "wgpu"))]
fn wgpu(_: &DevicesConfig, asked: Asked) -> Result<SelectedDevice, Error> {
    Err(not_compiled("wgpu", asked))
}

#[cfg(not(feature = "wgpu"))]
fn wgpu_count() -> usize {
    0
}

#[cfg(not(all(feature = "cuda", feature = "wgpu", feature = "tch")))]
fn not_compiled(feature: &str, asked: Asked) -> Error {
    Error::from(DeviceError::Unavailable(format!(
        "{}: this build has no {feature}: build it with --features {feature}, or use {}",
        asked.backend, asked.cpu
    )))
}

/// Waits for the device's queue.
pub(crate) fn wait(device: &Device) -> Result<(), Error> {
    device.sync().map_err(|error| Error::failed(format!("the device failed: {error}")))
}
