//! A computation that is recorded once and replayed as a whole.
//!
//! A forward pass of few images takes the host longer to launch, kernel by kernel, than the GPU to
//! run. CUDA records the launches into a graph, which is then launched as one.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod constants;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;

#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub use constants::{PreparedByAddress, buffer, constant_by_address};

use burn::tensor::{Device, Tensor};

use crate::check::{ShapeAndType, expect, shape_of};
use crate::dispatch::{device_name, runs_cubecl};
use crate::error::KernelError;

const OPERATION: &str = "Graph";
/// Why an input or a result of autodiff has no graph.
const TRACKED: &str = "gradients are tracked";

/// The launches of a computation of one tensor from another, recorded on a GPU.
///
/// A replay runs the same kernels on the same memory as the recorded pass, so its result has the
/// same bits. What operations of this crate first make of their weights, such as a rounded copy, is
/// made once, before the recording. All this memory stays reserved while the graph lives. A graph
/// stays on the thread that recorded it: a thread's launches are in order among each other, those
/// of two threads are not.
///
/// A graph computes with the weights of the recording. The tensors that the computation reads must
/// not change while the graph lives: record another one after an update.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use vim_kernels::{Graph, KernelError, KernelChoice, add_rms_norm};
///
/// let device = Device::flex(); // or a GPU
/// let gain = Tensor::<1>::ones([8], &device);
/// let x = Tensor::<3>::ones([1, 4, 8], &device);
/// let norm = |x: Tensor<3>| {
///     Ok(add_rms_norm(x, None, gain.clone(), 1e-5, KernelChoice::Auto)?.0)
/// };
/// match Graph::capture(x.clone(), norm) {
///     Ok(graph) => assert_eq!(graph.replay(x)?.dims(), [1, 4, 8]),
///     Err(KernelError::NoGraph { why, .. }) => println!("kernel by kernel: {why}"),
///     Err(other) => return Err(other),
/// }
/// # Ok::<(), KernelError>(())
/// ```
#[derive(Debug)]
pub struct Graph<F, const I: usize, const O: usize> {
    recorded: on_cubecl::Recorded<I, O>,
    input: ShapeAndType<I>,
    /// Owns or borrows the tensors that the launches read.
    _forward: F,
}

impl<F, const I: usize, const O: usize> Graph<F, I, O> {
    /// Records `forward` of tensors like `input`, after running it a few times.
    ///
    /// `forward` must launch the same kernels for every input of this shape and type, and must not
    /// read results on the host. What the host decides in it, such as random numbers, is recorded.
    ///
    /// # Errors
    ///
    /// [`KernelError::NoGraph`] says why nothing was recorded: the device or its backend records
    /// no launches, gradients are tracked, the result is on another device, another graph is being
    /// recorded, or the pass did what cannot be recorded. The device computes as before then.
    /// Errors of `forward` are returned as they are.
    pub fn capture<E>(input: Tensor<I>, forward: F) -> Result<Self, E>
    where
        F: Fn(Tensor<I>) -> Result<Tensor<O>, E>,
        E: From<KernelError>,
    {
        let device = input.device();
        if !runs_cubecl(&device) {
            return Err(no_graph(&device, "its backend records no launches").into());
        }
        if device.is_autodiff() {
            return Err(no_graph(&device, TRACKED).into());
        }
        let shape_and_type = shape_of(&input);
        let recorded = on_cubecl::Recorded::capture(input, &forward)?;
        Ok(Self { recorded, input: shape_and_type, _forward: forward })
    }

    /// What the recorded computation returns for `input`: a tensor of its own, which later replays
    /// do not change.
    ///
    /// # Errors
    ///
    /// [`KernelError::Shape`] and [`KernelError::Dtype`] if `input` is not like the recorded one,
    /// [`KernelError::NoGraph`] if it is on another device or its gradients are tracked, or if the
    /// device refuses the launch.
    pub fn replay(&self, input: Tensor<I>) -> Result<Tensor<O>, KernelError> {
        let (dims, dtype) = self.input;
        let expected = format!("{dims:?}, as recorded");
        expect(OPERATION, "input", &input.dims(), input.dims() == dims, expected)?;
        if input.dtype() != dtype {
            let got = format!("{:?} where {dtype:?} was recorded", input.dtype());
            return Err(KernelError::Dtype { operation: OPERATION, tensor: "input", got });
        }
        let device = input.device();
        if device != *self.recorded.device() {
            return Err(no_graph(&device, "the graph was recorded on another device"));
        }
        // Devices are equal whether gradients are tracked or not.
        if device.is_autodiff() {
            return Err(no_graph(&device, TRACKED));
        }
        self.recorded.replay(input)
    }
}

/// The error that nothing is recorded on `device`.
fn no_graph(device: &Device, why: impl Into<String>) -> KernelError {
    KernelError::NoGraph { device: device_name(device), why: why.into() }
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
use cube as on_cubecl;

#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
mod on_cubecl {
    use super::{Device, KernelError, Tensor};

    /// No device of this build records.
    #[derive(Debug)]
    pub(super) enum Recorded<const I: usize, const O: usize> {}

    impl<const I: usize, const O: usize> Recorded<I, O> {
        pub(super) fn capture<E>(
            _: Tensor<I>,
            _: &impl Fn(Tensor<I>) -> Result<Tensor<O>, E>,
        ) -> Result<Self, E> {
            unreachable!("no device of this build records launches")
        }

        pub(super) fn device(&self) -> &Device {
            match *self {}
        }

        pub(super) fn replay(&self, _: Tensor<I>) -> Result<Tensor<O>, KernelError> {
            match *self {}
        }
    }
}
