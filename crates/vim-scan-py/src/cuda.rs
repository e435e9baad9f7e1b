//! Tensors of a GPU in CubeCL's memory that PyTorch sees, and launches in the order of its streams.
//!
//! CubeCL has a stream for each [`StreamId`]. Here each of PyTorch's streams has such an id, whose
//! stream is replaced by PyTorch's own: kernels, copies and the reuse of memory follow one another
//! as all else that PyTorch queues there, without an event.

#![expect(unsafe_code, reason = "the memory that DLPack shows to others")]

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous as dense;
use burn_cubecl::tensor::CubeTensor;
use cubecl::cuda::CudaRuntime;
use cubecl::device_handle::DeviceHandle;
use cubecl_server::runtime::Runtime;
use cubecl_server::server::ServerStorage;
use cubecl_server::stream::WriteScoped;
use dlpark::ffi::{DLDataType, DLDevice, DLManagedTensor};
use dlpark::metadata::Dynamic;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use vim_kernels::ScanOptions;
use vim_kernels::burn::backend::StreamId;
use vim_kernels::burn::tensor::{DType, Device, Tensor};
use vim_kernels::raw::{RawScan, RawSizes};

use crate::call::{Error, gathered};
use crate::mixer;

/// CubeCL's server on a CUDA device.
type Server = <CudaRuntime as Runtime>::Server;

/// Ids that CubeCL tells apart; see its `streaming.max_streams`.
const MOST_STREAMS: u64 = 128;

/// A tensor as Python names it: where it is, its shape, and its type.
pub(crate) type Place = (u64, Vec<usize>, String);

/// What the process shares with PyTorch.
#[derive(Default)]
struct Shared {
    /// A tensor of each device.
    devices: HashMap<usize, CubeTensor>,
    /// The id of each stream of PyTorch, by device and address.
    streams: HashMap<(usize, u64), u64>,
    /// The tensors that PyTorch sees, by address.
    seen: HashMap<u64, CubeTensor>,
}

static SHARED: LazyLock<Mutex<Shared>> = LazyLock::new(Mutex::default);

fn shared() -> MutexGuard<'static, Shared> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device, with what follows queued on PyTorch's `stream`.
///
/// `run` runs on the thread that serves the device: all that it asks of the device is done at once
/// there, where each allocation and each address would else be a question to another thread.
pub(crate) fn on_stream<R: Send>(
    device: usize,
    stream: u64,
    run: impl FnOnce(&CubeTensor) -> Result<R, Error> + Send,
) -> Result<R, Error> {
    let (id, like) = known(device, stream)?;
    let served = DeviceHandle::<Server>::new(like.client.service_id().device);
    let done = served.exclusive(|| id.executes(|| run(&like)));
    done.map_err(text).map_err(failed)?
}

/// The id of a stream of PyTorch, and a tensor of its device.
fn known(device: usize, stream: u64) -> Result<(StreamId, CubeTensor), Error> {
    // Held throughout: no other thread finds a stream that is not replaced yet.
    let mut shared = shared();
    let of_device = shared.devices.get(&device).cloned();
    if let (Some(value), Some(like)) = (shared.streams.get(&(device, stream)), &of_device) {
        return Ok((StreamId { value: *value }, like.clone()));
    }
    let id = StreamId { value: 1 + shared.streams.len() as u64 };
    if id.value >= MOST_STREAMS {
        let error = format!("vim_scan runs on {} streams at most", MOST_STREAMS - 1);
        return Err(PyRuntimeError::new_err(error).into());
    }
    let like = id.executes(|| {
        let like = of_device.map_or_else(|| first_of(device), Ok)?;
        replace_stream(&like, stream)?;
        Ok::<_, Error>(like)
    })?;
    shared.devices.insert(device, like.clone());
    shared.streams.insert((device, stream), id.value);
    Ok((id, like))
}

/// A tensor of a device.
fn first_of(device: usize) -> Result<CubeTensor, Error> {
    let one = Tensor::<1>::empty([1], &Device::cuda(device));
    let one = one.try_into_primitive::<CubeBackend>();
    one.map_err(|_| PyRuntimeError::new_err("vim_scan: not a CUDA device").into())
}

/// Makes `address` the stream of the current id.
fn replace_stream(like: &CubeTensor, address: u64) -> Result<(), Error> {
    let one = empty(like, &[1], DType::F32);
    DeviceHandle::<Server>::new(like.client.service_id().device)
        .submit_blocking(move |server| {
            let id = StreamId::current();
            // The stream of the id is there from its first use on.
            server.get_resource(one.handle.clone().binding(), id).map_err(text)?;
            let streams = server.write_streams();
            let own = streams.try_stream_mut(&id).ok_or("no stream has this id")?;
            own.sys = address as *mut _;
            Ok::<_, String>(())
        })
        .map_err(text)
        .flatten()
        .map_err(failed)
}

fn text(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

/// What a device says of a failure: `MemoryError` where memory was short.
fn failed(problem: String) -> Error {
    // As CubeCL and the driver say it. Of several failures the one of memory counts.
    let of_memory = ["out of device memory", "out_of_memory", "out of memory"];
    let says_so = |line: &&str| of_memory.iter().any(|of| line.to_ascii_lowercase().contains(of));
    let line = problem.lines().find(says_so);
    let is_memory = line.is_some();
    let line = line.or_else(|| problem.lines().next()).unwrap_or_default();
    let problem = format!("vim_scan: {}", line.trim());
    let error =
        if is_memory { PyMemoryError::new_err(problem) } else { PyRuntimeError::new_err(problem) };
    error.into()
}

/// A new contiguous tensor on the device of `like`, uninitialized.
fn empty(like: &CubeTensor, shape: &[usize], dtype: DType) -> CubeTensor {
    let handle = like.client.empty(shape.iter().product::<usize>() * dtype.size());
    let (client, device) = (like.client.clone(), like.device.clone());
    CubeTensor::new_contiguous(client, device, shape.to_vec().into(), handle, dtype)
}

fn dtype_of(name: &str) -> Result<DType, Error> {
    match name {
        "float32" => Ok(DType::F32),
        "bfloat16" => Ok(DType::BF16),
        other => Err(PyTypeError::new_err(format!("{other} on a GPU: float32 or bfloat16")).into()),
    }
}

/// A tensor that PyTorch is to own.
pub(crate) struct Exported {
    tensor: CubeTensor,
    address: u64,
    device: usize,
}

/// What such a tensor holds.
struct Owner {
    _tensor: CubeTensor,
    address: u64,
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Before the memory can be another tensor's.
        let seen = shared().seen.remove(&self.address);
        drop(seen);
    }
}

impl Exported {
    /// Shows `tensor`, which is contiguous, where its launches were queued; an error if they were
    /// not.
    fn new(tensor: CubeTensor, device: usize) -> Result<Self, Error> {
        let client = &tensor.client;
        client.check([&tensor.handle]).map_err(text).map_err(failed)?;
        let resource = client.get_resource::<Server>(tensor.handle.clone());
        let address = resource.map_err(text).map_err(failed)?.resource().ptr;
        Ok(Self { tensor, address, device })
    }

    /// New ones of these shapes and types, on the stream of the caller.
    pub(crate) fn empty(
        like: &CubeTensor,
        device: usize,
        wanted: &[(Vec<usize>, String)],
    ) -> Result<Vec<Self>, Error> {
        let of = |(shape, dtype): &(Vec<usize>, String)| {
            Self::new(empty(like, shape, dtype_of(dtype)?), device)
        };
        wanted.iter().map(of).collect()
    }

    pub(crate) fn into_capsule(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let Self { tensor, address, device } = self;
        let shape: Vec<i64> = tensor.meta.shape().iter().map(|&size| size as i64).collect();
        let dtype = if tensor.dtype == DType::BF16 { DLDataType::BF16 } else { DLDataType::F32 };
        shared().seen.insert(address, tensor.clone());
        let owner = Box::new(Owner { _tensor: tensor, address });
        let mut managed = Dynamic::compact(shape)
            .initialize_as::<DLManagedTensor>(owner)
            .map_err(|error| PyRuntimeError::new_err(format!("vim_scan: {error}")))?;
        managed
            .set_data(address as *mut _)
            .set_dtype(dtype)
            .set_device(DLDevice::cuda(device as i32));
        // SAFETY: the tensor is contiguous at `address`, and lives as long as its owner.
        let managed: dlpark::legacy::Dlpack = unsafe { managed.finish() };
        managed.into_pyobject(py)
    }
}

/// Whether PyTorch sees a tensor of ours of `bytes` there.
pub(crate) fn is_ours(address: u64, bytes: usize) -> bool {
    let shared = shared();
    let bytes_of = |of: &CubeTensor| of.meta.shape().num_elements() * of.dtype.size();
    shared.seen.get(&address).is_some_and(|of| bytes_of(of) == bytes)
}

/// The tensor at a place that is ours.
fn ours((address, shape, dtype): &Place) -> Result<CubeTensor, Error> {
    let seen = shared().seen.get(address).cloned();
    let (of, dtype) =
        (seen.ok_or_else(|| failed("a tensor that is not ours".into()))?, dtype_of(dtype)?);
    if of.meta.shape().num_elements() != shape.iter().product::<usize>() || of.dtype != dtype {
        return Err(failed("a tensor of another size than ours".into()));
    }
    let (client, device) = (of.client.clone(), of.device.clone());
    Ok(CubeTensor::new_contiguous(client, device, shape.clone().into(), of.handle, dtype))
}

/// The inputs of a mixer.
pub(crate) struct Placed {
    pub(crate) device: usize,
    pub(crate) places: Vec<Place>,
}

impl mixer::Place for Placed {
    type Out = Exported;

    fn input<const R: usize>(&self, at: usize) -> Result<Tensor<R>, Error> {
        let place = &self.places[at];
        mixer::has_axes::<R>(mixer::NAMES[at], &place.1)?;
        Ok(Tensor::from_primitive::<CubeBackend>(ours(place)?))
    }

    fn output<const R: usize>(&self, tensor: Tensor<R>) -> Result<Exported, Error> {
        let tensor = tensor.try_into_primitive::<CubeBackend>();
        let tensor = tensor.map_err(|error| failed(text(error)))?;
        Exported::new(dense(tensor), self.device)
    }
}

/// The call whose inputs are at `places`, in the order of the operation.
fn call(places: &[Option<Place>], options: ScanOptions) -> Result<RawScan<CubeTensor>, Error> {
    let tensors = places.iter().map(|place| place.as_ref().map(ours).transpose());
    gathered(options, tensors)
}

/// y, the last state, and what a backward pass needs if `save`.
pub(crate) fn forward(
    device: usize,
    places: &[Option<Place>],
    options: ScanOptions,
    save: bool,
) -> Result<Vec<Option<Exported>>, Error> {
    let out = call(places, options)?.forward(save)?;
    let export = |tensor| Exported::new(tensor, device);
    Ok(vec![
        Some(export(out.y)?),
        Some(export(out.last_state)?),
        out.saved.map(export).transpose()?,
    ])
}

/// The `wanted` gradients of inputs that are there.
pub(crate) fn backward(
    device: usize,
    places: &[Option<Place>],
    [grad_y, saved]: [&Place; 2],
    options: ScanOptions,
    wanted: [bool; 8],
) -> Result<Vec<Exported>, Error> {
    let grads = call(places, options)?.backward(ours(grad_y)?, ours(saved)?, wanted)?;
    grads.into_iter().flatten().map(|grad| Exported::new(grad, device)).collect()
}

/// Numbers that a forward pass saves.
pub(crate) fn saved_len(sizes: RawSizes, options: ScanOptions) -> usize {
    sizes.on_gpu(options)
}

/// Gives memory that nothing uses back to the device.
pub(crate) fn empty_cache() -> Result<(), Error> {
    let devices: Vec<CubeTensor> = shared().devices.values().cloned().collect();
    let ids: Vec<u64> = shared().streams.values().copied().collect();
    for like in devices {
        for value in &ids {
            StreamId { value: *value }
                .executes(|| like.client.memory_cleanup())
                .map_err(text)
                .map_err(failed)?;
        }
    }
    Ok(())
}
