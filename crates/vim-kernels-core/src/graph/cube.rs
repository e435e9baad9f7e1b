//! Recording and replay by CubeCL: a graph of CUDA, or launches that wgpu encodes again.

#![expect(unsafe_code, reason = "launching a kernel without bounds checks, and a graph")]

use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::TensorMetadata;
use burn::tensor::{Device, Int, Shape, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::{self, Client};
use cubecl::prelude::*;

use super::constants::Keeper;
use super::no_graph;
use crate::cube::{cubes, dense, elem, empty, primitive};
use crate::error::KernelError;

/// Units of a cube.
const UNITS: u32 = 256;
/// Runs before the recorded one: the first compiles and allocates, the second finds what it needs.
const WARM_UP: usize = 2;
/// Recordings that are tried. One is given up if a buffer is asked for while all that the runs
/// before it left are in use, which depends on how far the host is ahead of the device's thread.
const ATTEMPTS: usize = 4;

/// See [`Launches`](super::Launches).
#[derive(Debug)]
pub(super) struct Launches {
    graph: client::Graph,
    device: Device,
    /// Neither `Send` nor `Sync`: the stream is that of the thread.
    _on_its_thread: PhantomData<*const ()>,
}

impl Launches {
    /// # Safety
    ///
    /// See [`Launches::replay`](super::Launches::replay).
    pub(super) unsafe fn replay(&self) -> Result<(), KernelError> {
        // SAFETY: CubeCL keeps the pages of all buffers that the launches touch while the graph
        // lives; the caller answers for what is in them.
        unsafe { self.graph.replay() }.map_err(|error| no_graph(&self.device, line(&error)))
    }
}

/// See [`WarmUp`](super::WarmUp).
#[derive(Debug)]
pub(super) struct WarmUp {
    window: Window,
    device: Device,
}

impl WarmUp {
    pub(super) fn begin(device: &Device) -> Result<Self, KernelError> {
        let client = primitive(Tensor::<1>::zeros([1], &device.clone().inner())).client;
        client.graph_prepare().map_err(|error| no_graph(device, line(&error)))?;
        Ok(Self { window: Window(Some(client)), device: device.clone() })
    }

    pub(super) fn record<T, E: From<KernelError>>(
        self,
        run: impl FnOnce() -> Result<T, E>,
    ) -> Result<(Launches, T), E> {
        let Self { window, device } = self;
        let start = window.client().start_capture();
        start.map_err(|error| no_graph(&device, line(&error)))?;
        let result = run()?;
        let graph = window.close().map_err(|error| no_graph(&device, line(&error)))?;
        Ok((Launches { graph, device, _on_its_thread: PhantomData }, result))
    }
}

/// See [`Graph`](super::Graph).
#[derive(Debug)]
pub(super) struct Recorded<const I: usize, const O: usize> {
    /// The buffers that the launches read and write, dense.
    input: CubeTensor,
    output: CubeTensor,
    launches: Launches,
    /// What the launches read beside what the computation owns.
    _constants: Vec<CubeTensor>,
}

impl<const I: usize, const O: usize> Recorded<I, O> {
    pub(super) fn capture<E: From<KernelError>>(
        like: Tensor<I>,
        forward: &impl Fn(Tensor<I>) -> Result<Tensor<O>, E>,
    ) -> Result<Self, E> {
        let device = like.device();
        let input = copied(&dense(primitive(like)));
        let run = || -> Result<CubeTensor, E> {
            let y = forward(Tensor::from_primitive::<CubeBackend>(input.clone()))?;
            if y.device() != device || y.device().is_autodiff() {
                return Err(no_graph(&y.device(), "the result is not where the input is").into());
            }
            Ok(dense(primitive(y)))
        };
        let mut attempt = 1;
        loop {
            match record(&input, &device, &run)? {
                Ok((launches, output, _constants)) => {
                    return Ok(Self { input, output, launches, _constants });
                }
                Err(why) if attempt == ATTEMPTS => return Err(why.into()),
                Err(_) => attempt += 1,
            }
        }
    }

    pub(super) fn device(&self) -> &Device {
        &self.launches.device
    }

    /// Of an input on [`Self::device`].
    pub(super) fn replay(&self, input: Tensor<I>) -> Result<Tensor<O>, KernelError> {
        copy(&dense(primitive(input)), &self.input);
        // SAFETY: what the launches read is owned by `self` or borrowed by the closure beside it
        // and does not change. What they write is known to nobody else, and the copies before and
        // after are on the same stream, as `self` does not leave its thread.
        unsafe { self.launches.replay() }?;
        Ok(Tensor::from_primitive::<CubeBackend>(copied(&self.output)))
    }
}

/// A graph, what the recorded run returned and the constants that it reads; or why the device
/// recorded nothing.
type Attempt<T> = Result<(Launches, T, Vec<CubeTensor>), KernelError>;

/// Runs `run` to warm up, then records it. Errors of `run` come from its first runs.
fn record<T, E>(
    input: &CubeTensor,
    device: &Device,
    run: &impl Fn() -> Result<T, E>,
) -> Result<Attempt<T>, E> {
    let Some(keeper) = Keeper::of(input) else {
        return Ok(Err(no_graph(device, "another graph is being recorded")));
    };
    let warm_up = match WarmUp::begin(device) {
        Ok(warm_up) => warm_up,
        Err(why) => return Ok(Err(why)),
    };
    for _ in 0..WARM_UP {
        let y = run()?;
        if let Err(error) = device.sync() {
            return Ok(Err(no_graph(device, line(&error))));
        }
        drop(y);
    }
    keeper.close();
    let mut failed = None;
    let recorded = warm_up.record(|| {
        run().map_err(|error| {
            failed = Some(error);
            no_graph(device, "the recorded run failed")
        })
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(recorded.map(|(launches, y)| (launches, y, keeper.kept()))),
    }
}

/// From the preparation of a recording to its end, which must not be left out: the stream would go
/// on recording instead of computing.
struct Window(Option<Client>);

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Window")
    }
}

impl Window {
    fn client(&self) -> &Client {
        self.0.as_ref().expect("invariant: only `close` and `drop` take it")
    }

    fn close(mut self) -> Result<client::Graph, impl std::fmt::Display> {
        let client = self.0.take().expect("invariant: taken only here");
        client.stop_capture()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // Something else failed, and is reported; this ends the recording whatever it returns. It
        // passes on a panic of the device's thread, which may be why this stack unwinds.
        if let Some(client) = self.0.take() {
            drop(catch_unwind(AssertUnwindSafe(|| client.stop_capture())));
        }
    }
}

/// An error in one line, without its backtrace.
fn line(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let text = text.split("Backtrace:").next().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn copy_kernel<F: Numeric, N: Size>(
    from: &[Vector<F, N>],
    to: &mut [Vector<F, N>],
    count: usize,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < count {
        to[at] = from[at];
    }
}

/// See [`overwrite`](super::overwrite).
pub(super) fn overwrite<const D: usize>(to: Tensor<D>, by: Tensor<D>) {
    copy(&dense(primitive(by)), &primitive(to));
}

/// See [`overwrite_int`](super::overwrite_int).
pub(super) fn overwrite_int<const D: usize>(to: Tensor<D, Int>, by: Tensor<D, Int>) {
    copy(&dense(int_primitive(by)), &int_primitive(to));
}

/// See [`in_own_buffer`](super::in_own_buffer).
pub(super) fn in_own_buffer<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    Tensor::from_primitive::<CubeBackend>(copied(&dense(primitive(tensor))))
}

/// See [`in_own_buffer_int`](super::in_own_buffer_int).
pub(super) fn in_own_buffer_int<const D: usize>(tensor: Tensor<D, Int>) -> Tensor<D, Int> {
    Tensor::from_primitive::<CubeBackend>(copied(&dense(int_primitive(tensor))))
}

fn int_primitive<const D: usize>(tensor: Tensor<D, Int>) -> CubeTensor {
    let tensor = tensor.try_into_primitive::<CubeBackend>();
    tensor.expect("invariant: the tensor is where kernels in CubeCL run, without autodiff")
}

/// Copies a dense tensor into another of its size and type.
fn copy(from: &CubeTensor, to: &CubeTensor) {
    let elements = from.shape().num_elements();
    let size = from.dtype.size();
    let begins = [from, to].map(|tensor| tensor.handle.offset_start.unwrap_or(0) as usize);
    let fits = |n: &usize| {
        n * size <= 16
            && elements.is_multiple_of(*n)
            && begins.iter().all(|begin| begin.is_multiple_of(n * size))
    };
    let lanes = [8, 4, 2].into_iter().find(fits).unwrap_or(1);
    let count = elements / lanes;
    let client = to.client.clone();
    // SAFETY: both are dense and have as many elements; units beyond do nothing.
    unsafe {
        copy_kernel::launch_unchecked(
            &client,
            cubes(&client, count.div_ceil(UNITS as usize)),
            CubeDim::new_1d(UNITS),
            from.required_address_type(),
            lanes,
            from.clone().into_buffer_arg(),
            to.clone().into_buffer_arg(),
            count,
            elem(from),
        );
    }
}

/// A dense tensor in a buffer of its own.
fn copied(tensor: &CubeTensor) -> CubeTensor {
    let shape: Vec<usize> = tensor.shape().iter().copied().collect();
    let to = empty(tensor, Shape::from(shape), tensor.dtype);
    copy(tensor, &to);
    to
}
