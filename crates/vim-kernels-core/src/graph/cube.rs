//! Recording and replay by CubeCL: a graph of CUDA, or launches that wgpu encodes again.

#![expect(unsafe_code, reason = "launching a kernel without bounds checks, and a graph")]

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::TensorMetadata;
use burn::tensor::{Device, Shape, Tensor};
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

/// See [`Graph`](super::Graph).
#[derive(Debug)]
pub(super) struct Recorded<const I: usize, const O: usize> {
    device: Device,
    /// The buffers that the launches read and write, dense.
    input: CubeTensor,
    output: CubeTensor,
    graph: client::Graph,
    /// What the launches read beside what the computation owns.
    _constants: Vec<CubeTensor>,
    /// Neither `Send` nor `Sync`: the stream is that of the thread.
    _on_its_thread: PhantomData<*const ()>,
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
        let (graph, output, constants) = loop {
            match record(&input, &device, &run)? {
                Ok(recorded) => break recorded,
                Err(why) if attempt == ATTEMPTS => return Err(no_graph(&device, why).into()),
                Err(_) => attempt += 1,
            }
        };
        let (_constants, _on_its_thread) = (constants, PhantomData);
        Ok(Self { device, input, output, graph, _constants, _on_its_thread })
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Of an input on [`Self::device`].
    pub(super) fn replay(&self, input: Tensor<I>) -> Result<Tensor<O>, KernelError> {
        copy(&dense(primitive(input)), &self.input);
        // SAFETY: what the launches read is owned by `self` or borrowed by the closure beside it
        // and does not change, and CubeCL keeps the pages of all buffers that they touch while the
        // graph lives. Those that they write are known to nobody else, and the copies before and
        // after are on the same stream, as `self` does not leave its thread.
        unsafe { self.graph.replay() }.map_err(|error| no_graph(&self.device, line(&error)))?;
        Ok(Tensor::from_primitive::<CubeBackend>(copied(&self.output)))
    }
}

/// A graph, what the recorded run returned and the constants that it reads; or why the device
/// recorded nothing.
type Attempt<T> = Result<(client::Graph, T, Vec<CubeTensor>), String>;

/// Runs `run` to warm up, then records it.
fn record<T, E>(
    input: &CubeTensor,
    device: &Device,
    run: &impl Fn() -> Result<T, E>,
) -> Result<Attempt<T>, E> {
    let client = &input.client;
    let Some(keeper) = Keeper::of(input) else {
        return Ok(Err("another graph is being recorded".to_owned()));
    };
    if let Err(error) = client.graph_prepare() {
        return Ok(Err(line(&error)));
    }
    let window = Window(Some(client));
    for _ in 0..WARM_UP {
        let y = run()?;
        if let Err(error) = device.sync() {
            return Ok(Err(line(&error)));
        }
        drop(y);
    }
    keeper.close();
    if let Err(error) = client.start_capture() {
        return Ok(Err(line(&error)));
    }
    let y = run()?;
    let graph = window.close().map_err(|error| line(&error));
    Ok(graph.map(|graph| (graph, y, keeper.kept())))
}

/// From the preparation of a recording to its end, which must not be left out: the stream would go
/// on recording instead of computing.
struct Window<'a>(Option<&'a Client>);

impl Window<'_> {
    fn close(mut self) -> Result<client::Graph, impl std::fmt::Display> {
        let client = self.0.take().expect("invariant: only this and `drop` take it");
        client.stop_capture()
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        // Something else failed, and is reported; this ends the recording whatever it returns. It
        // passes on a panic of the device's thread, which may be why this stack unwinds.
        if let Some(client) = self.0 {
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
fn copy_kernel<F: Float, N: Size>(
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

/// Copies a dense tensor into another of its size and type.
fn copy(from: &CubeTensor, to: &CubeTensor) {
    let elements = from.shape().num_elements();
    let size = from.dtype.size();
    let begin = from.handle.offset_start.unwrap_or(0) as usize;
    let fits =
        |n: &usize| n * size <= 16 && elements.is_multiple_of(*n) && begin.is_multiple_of(n * size);
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
