//! Calls on a GPU: kernels in PyTorch's memory, on PyTorch's streams.
//!
//! CubeCL compiles the kernels and chooses their sizes. For a call of new shapes it does so once,
//! on a stream that records instead of running, with buffers that are given back at once; [`Plan`]
//! is what was recorded, with the addresses left open. From then on the driver launches it. No
//! memory and no thread of CubeCL takes part in a call.

#![expect(unsafe_code, reason = "functions of the driver, and launches by them")]

mod graph;
mod layout;

use std::collections::HashMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null_mut;
use std::sync::{LazyLock, Mutex, PoisonError};

use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::cuda::CudaRuntime;
use cubecl::device_handle::DeviceHandle;
use cubecl_server::runtime::Runtime;
use cubecl_server::server::ServerStorage;
use cubecl_server::stream::WriteScoped;
use cudarc::driver::sys;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use vim_kernels::burn::backend::StreamId;
use vim_kernels::burn::tensor::{DType, Device, Tensor};
use vim_kernels::raw::{RawSizes, channels_last};
use vim_kernels::{Precision, RawMixer, ScanOptions};
use vim_kernels_core::cube::{self, empty};

use crate::call::{Error, gathered};
use crate::mixer::{self, Place as _};
use graph::Graph;
use layout::Layout;

/// CubeCL's server on a CUDA device.
type Server = <CudaRuntime as Runtime>::Server;

/// The stream that records.
const RECORDING: StreamId = StreamId { value: 1 };

/// A tensor's shape, and its type as PyTorch names it.
pub(crate) type Kind = (Vec<usize>, String);

/// A call without its tensors.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    /// Of the operation's inputs.
    Forward { options: ScanOptions, save: bool },
    /// Of the gradient of y, the inputs, and what the forward pass saved.
    Backward { options: ScanOptions, wanted: [bool; 8] },
    /// Of the mixer's inputs.
    Mixer { options: ScanOptions },
    /// Of tensors that have channels first.
    Turned,
    /// Of the gradient of y, and the inputs.
    MixerBackward { options: ScanOptions, wanted: [bool; mixer::INPUTS] },
}

impl Call {
    /// Queues the call; its results in their order.
    fn run(self, mut inputs: Vec<Option<CubeTensor>>) -> Result<Vec<CubeTensor>, Error> {
        let missing = || Error::from(PyTypeError::new_err("vim_scan: an input is missing"));
        match self {
            Self::Forward { options, save } => {
                let out =
                    gathered(options, inputs.into_iter().map(Ok::<_, Error>))?.forward(save)?;
                Ok([Some(out.y), Some(out.last_state), out.saved].into_iter().flatten().collect())
            }
            Self::Backward { options, wanted } => {
                let saved = inputs.pop().flatten().ok_or_else(missing)?;
                let grad_y = inputs.remove(0).ok_or_else(missing)?;
                let scan = gathered(options, inputs.iter().cloned().map(Ok::<_, Error>))?;
                let grads = scan.backward(grad_y, saved, wanted)?.into_iter().zip(inputs);
                // Shaped as the inputs are: B and C without the axes that they lack.
                let shaped = grads.filter_map(|(grad, input)| {
                    let meta = input?.meta;
                    grad.map(|grad| CubeTensor { meta, ..grad })
                });
                Ok(shaped.collect())
            }
            Self::Turned => Ok(inputs.iter().flatten().map(channels_last).collect()),
            Self::Mixer { options } => Ok(vec![mixer_of(&inputs, options)?.forward()]),
            Self::MixerBackward { options, wanted } => {
                let grad_y = inputs.remove(0).ok_or_else(missing)?;
                let grads = mixer_of(&inputs, options)?.backward(grad_y, wanted);
                // It has all of the weights', or none.
                let grads = grads.into_iter().zip(wanted);
                Ok(grads.filter_map(|(grad, wanted)| grad.filter(|_| wanted)).collect())
            }
        }
    }
}

/// Of a call, in its order.
impl mixer::Place for [Option<CubeTensor>] {
    fn input<const R: usize>(&self, at: usize) -> Result<Tensor<R>, Error> {
        let (name, of) = (mixer::NAMES[at], self[at].clone());
        let of = of.ok_or_else(|| PyTypeError::new_err(format!("`{name}` is missing")))?;
        mixer::has_axes::<R>(name, of.meta.shape())?;
        Ok(Tensor::from_primitive::<CubeBackend>(of))
    }
}

fn mixer_of(inputs: &[Option<CubeTensor>], options: ScanOptions) -> Result<RawMixer, Error> {
    let xz: Tensor<3> = inputs.input(0)?;
    let precision = if xz.dtype() == DType::BF16 { Precision::Bf16 } else { Precision::F32 };
    let [forward, backward] = mixer::directions(inputs)?;
    Ok(RawMixer::new(xz, forward, backward, options, precision)?)
}

/// A device, as the stream that records knows it.
#[derive(Clone)]
struct Known {
    /// A tensor there.
    like: CubeTensor,
    /// The driver's name of the stream.
    stream: usize,
}

static KNOWN: LazyLock<Mutex<HashMap<usize, Known>>> = LazyLock::new(Mutex::default);

fn known(device: usize) -> Result<Known, Error> {
    let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.get(&device) {
        return Ok(known.clone());
    }
    let known = RECORDING.executes(|| {
        let one = Tensor::<1>::empty([1], &Device::cuda(device));
        let like = one.try_into_primitive::<CubeBackend>();
        let like = like.map_err(|_| failed("not a CUDA device".into()))?;
        let one = empty(&like, [1], DType::F32);
        let stream = DeviceHandle::<Server>::new(like.client.service_id().device).submit_blocking(
            move |server| {
                // The stream is there from its first use on.
                let id = StreamId::current();
                server.get_resource(one.handle.clone().binding(), id).map_err(text)?;
                let streams = server.write_streams();
                let stream = streams.try_stream_mut(&id).ok_or("no stream has this id")?;
                Ok::<_, String>(stream.sys as usize)
            },
        );
        let stream = stream.map_err(text).flatten().map_err(failed)?;
        Ok::<_, Error>(Known { like, stream })
    })?;
    all.insert(device, known.clone());
    Ok(known)
}

fn text(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

/// What a device says of a failure, without where: `MemoryError` where memory was short.
fn failed(problem: String) -> Error {
    let lines = problem.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines =
        lines.take_while(|line| !["Backtrace", "Asked at"].iter().any(|of| line.starts_with(of)));
    let said = lines.collect::<Vec<_>>().join("; ");
    // As CubeCL and the driver say it. Of several failures the one of memory counts.
    let of_memory = ["out of device memory", "out_of_memory", "out of memory"];
    let lower = problem.to_ascii_lowercase();
    let is_memory = of_memory.iter().any(|of| lower.contains(of));
    let said = format!("vim_scan: {said}");
    let error =
        if is_memory { PyMemoryError::new_err(said) } else { PyRuntimeError::new_err(said) };
    error.into()
}

/// Nothing, or what the driver says against `what`.
fn checked(what: &str, status: sys::CUresult) -> Result<(), Error> {
    status.result().map_err(|error| failed(format!("{what}: {error}")))
}

fn dtype_of(name: &str) -> Result<DType, Error> {
    match name {
        "float32" => Ok(DType::F32),
        "bfloat16" => Ok(DType::BF16),
        other => Err(PyTypeError::new_err(format!("{other} on a GPU: float32 or bfloat16")).into()),
    }
}

/// Where something begins: in which of the tensors of a launch, and how many bytes behind its
/// begin. The tensors are the inputs that are there, the results, and one for all that lives within
/// the call.
#[derive(Clone, Copy, Debug)]
struct Begin {
    tensor: usize,
    offset: u64,
}

/// A parameter of a kernel.
#[derive(Debug)]
enum Parameter {
    Address(Begin),
    Bytes(Box<[u8]>),
}

#[derive(Debug)]
struct Launch {
    function: usize,
    grid: [u32; 3],
    block: [u32; 3],
    shared_memory: u32,
    parameters: Vec<Parameter>,
}

/// The kernels of a call of certain shapes.
#[pyclass(frozen)]
pub(crate) struct Plan {
    launches: Vec<Launch>,
    /// Results that were part of a larger buffer: from where, into which tensor, how many bytes.
    copies: Vec<(Begin, usize, usize)>,
    /// The results.
    #[pyo3(get)]
    results: Vec<Kind>,
    /// Bytes of the last tensor.
    #[pyo3(get)]
    scratch: u64,
    tensors: usize,
    /// The context that the kernels are loaded in: the device's own, which PyTorch uses, too.
    context: usize,
}

#[pymethods]
impl Plan {
    /// Queues the call on a stream of the device, which PyTorch names by its address, with tensors
    /// at these addresses.
    fn launch(&self, py: Python<'_>, stream: u64, addresses: Vec<u64>) -> PyResult<()> {
        if addresses.len() != self.tensors {
            let error = format!("vim_scan: {} tensors, not {}", self.tensors, addresses.len());
            return Err(PyRuntimeError::new_err(error));
        }
        // A queue that is full makes the driver wait.
        Ok(py.detach(|| self.queue(stream, &addresses))?)
    }
}

impl Plan {
    fn queue(&self, stream: u64, addresses: &[u64]) -> Result<(), Error> {
        let mut context = null_mut();
        // SAFETY: a thread may have none, as one of autograd before its first own operation.
        checked("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut context) })?;
        if context as usize != self.context {
            let context = self.context as sys::CUcontext;
            // SAFETY: a device's own context, which nobody destroys.
            checked("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context) })?;
        }
        let stream = stream as sys::CUstream;
        let at = |place: Begin| addresses[place.tensor] + place.offset;
        let mut values: Vec<u64> = Vec::new();
        let mut pointers: Vec<*mut c_void> = Vec::new();
        for launch in &self.launches {
            values.clear();
            values.extend(launch.parameters.iter().map(|parameter| match parameter {
                Parameter::Address(place) => at(*place),
                Parameter::Bytes(_) => 0,
            }));
            pointers.clear();
            let parameters = launch.parameters.iter().zip(&mut values);
            pointers.extend(parameters.map(|(parameter, value)| match parameter {
                Parameter::Address(_) => std::ptr::from_mut(value).cast::<c_void>(),
                Parameter::Bytes(bytes) => bytes.as_ptr().cast_mut().cast(),
            }));
            let ([x, y, z], [u, v, w]) = (launch.grid, launch.block);
            let function = launch.function as sys::CUfunction;
            let shared = launch.shared_memory;
            // SAFETY: a function of a module that CubeCL keeps, with the parameters that it was
            // recorded with but for addresses, which are of tensors as large as those; the driver
            // reads the parameters within the call.
            let status = unsafe {
                let parameters = pointers.as_mut_ptr();
                sys::cuLaunchKernel(
                    function,
                    x,
                    y,
                    z,
                    u,
                    v,
                    w,
                    shared,
                    stream,
                    parameters,
                    null_mut(),
                )
            };
            checked("cuLaunchKernel", status)?;
        }
        for &(from, to, bytes) in &self.copies {
            // SAFETY: both are within tensors of this call.
            let status =
                unsafe { sys::cuMemcpyDtoDAsync_v2(addresses[to], at(from), bytes, stream) };
            checked("cuMemcpyDtoDAsync", status)?;
        }
        Ok(())
    }

    /// Records the call of `inputs` on a device; nothing of it runs.
    pub(crate) fn record(
        device: usize,
        call: Call,
        inputs: &[Option<Kind>],
    ) -> Result<Self, Error> {
        let Known { like, stream } = known(device)?;
        let served = DeviceHandle::<Server>::new(like.client.service_id().device);
        let record = || {
            let run = || Self::recorded(&like, stream, call, inputs);
            // Memory of its own for each buffer, which goes back to the device.
            let run = || like.client.memory_dedicated_allocation((), |()| run());
            let plan = catch_unwind(AssertUnwindSafe(run));
            let given_back = like.client.memory_cleanup();
            let plan = plan.unwrap_or_else(|panic| resume_unwind(panic))?;
            given_back.map_err(text).map_err(failed)?;
            Ok(plan)
        };
        // On the thread that serves the device, where the context is current.
        let once =
            || served.exclusive(|| RECORDING.executes(record)).map_err(text).map_err(failed)?;
        match once() {
            // What is compiled, or reclaimed, for the first time may disturb what is recorded.
            Err(Error::Python(_)) => once(),
            done => done,
        }
    }

    fn recorded(
        like: &CubeTensor,
        stream: usize,
        call: Call,
        inputs: &[Option<Kind>],
    ) -> Result<Self, Error> {
        let stream = stream as sys::CUstream;
        let mut context = null_mut();
        // SAFETY: this thread's.
        checked("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut context) })?;
        let make =
            |(shape, dtype): &Kind| Ok::<_, Error>(empty(like, shape.clone(), dtype_of(dtype)?));
        let inputs = inputs.iter().map(|kind| kind.as_ref().map(make).transpose());
        let inputs: Vec<Option<CubeTensor>> = inputs.collect::<Result<_, _>>()?;
        // Relaxed: kernels are compiled and memory is reserved meanwhile.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: CubeCL's stream, on which nothing else is queued.
        checked("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(stream, mode) })?;
        let run = || cube::recorded(|| call.run(inputs.clone()));
        let run = catch_unwind(AssertUnwindSafe(run));
        let graph = Graph::end(stream);
        let (results, made) = run.unwrap_or_else(|panic| resume_unwind(panic));
        let results = results?;
        if !results.iter().all(CubeTensor::is_contiguous) {
            return Err(failed("a result that is not contiguous".into()));
        }
        let handles = results.iter().map(|of| &of.handle);
        like.client.check(handles).map_err(text).map_err(failed)?;
        let launches = graph?.launches()?;
        let inputs: Vec<CubeTensor> = inputs.into_iter().flatten().collect();
        Layout::new(&inputs, &results, &made)?.plan(launches, &results, context as usize)
    }
}

/// Numbers that a forward pass saves.
pub(crate) fn saved_len(sizes: RawSizes, options: ScanOptions) -> usize {
    sizes.on_gpu(options)
}
