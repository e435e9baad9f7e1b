//! A computation that is recorded once and replayed as a whole.
//!
//! A pass of few images takes the host longer to launch, kernel by kernel, than the GPU to run.
//! CUDA records the launches into a graph, which is then launched as one. [`Graph`] is a function
//! of one tensor; [`Launches`] are whatever ran between two points.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod constants;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;
mod drawn;

pub use drawn::{Draws, drawn};

#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub use constants::{PreparedByAddress, buffer, constant_by_address};

use burn::tensor::{Device, Int, Tensor};

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

    /// Whether `input` has the shape and type of the recorded one.
    pub fn takes(&self, input: &Tensor<I>) -> bool {
        shape_of(input) == self.input
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
        fits(self.input, shape_of(&input))?;
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

/// Launches that were recorded, to be launched again as a whole.
///
/// They read and write the memory that the recorded run did. Whatever that run made on the host is
/// part of them: numbers that it uploaded, and those that it passed to kernels.
#[derive(Debug)]
pub struct Launches(on_cubecl::Launches);

/// The time before a recording: what runs in it leaves behind the buffers and kernels that the
/// recorded run needs, which can make none.
#[derive(Debug)]
pub struct WarmUp(on_cubecl::WarmUp);

impl WarmUp {
    /// Begins on `device`, for this thread.
    ///
    /// # Errors
    ///
    /// [`KernelError::NoGraph`] if the device or its backend records no launches, or records some.
    pub fn begin(device: &Device) -> Result<Self, KernelError> {
        if !runs_cubecl(device) {
            return Err(no_graph(device, "its backend records no launches"));
        }
        on_cubecl::WarmUp::begin(device).map(Self)
    }

    /// Records what `run` launches, none of which runs now; beside it, what `run` returns. Of
    /// memory that was there before, `run` may change that of `changed`, by kernels.
    ///
    /// # Errors
    ///
    /// [`KernelError::NoGraph`] if `run` did what cannot be recorded: it then has done nothing.
    /// Errors of `run` are returned as they are.
    pub fn record<T, E: From<KernelError>>(
        self,
        changed: &[Tensor<1>],
        run: impl FnOnce() -> Result<T, E>,
    ) -> Result<(Launches, T), E> {
        // What launches would have written that never run counts as lost, until it is written.
        let before: Vec<Tensor<1>> = changed.iter().map(in_own_buffer).collect();
        match self.0.record(run) {
            Ok((launches, result)) => Ok((Launches(launches), result)),
            Err(error) => {
                for (to, by) in changed.iter().zip(before) {
                    overwrite(to, by)?;
                }
                Err(error)
            }
        }
    }
}

impl Launches {
    /// Launches them.
    ///
    /// # Safety
    ///
    /// The tensors that the recorded run read, and did not make, must still exist.
    ///
    /// # Errors
    ///
    /// [`KernelError::NoGraph`] if the device refuses.
    #[expect(unsafe_code, reason = "what was recorded names memory")]
    pub unsafe fn replay(&self) -> Result<(), KernelError> {
        // SAFETY: as the caller promises.
        unsafe { self.0.replay() }
    }
}

/// Writes `by` where `to` lies, dense, of its shape and type: whatever shares that memory sees it.
///
/// # Errors
///
/// [`KernelError::Shape`] if the shapes differ, [`KernelError::Dtype`] if the types do.
pub fn overwrite<const D: usize>(to: &Tensor<D>, by: Tensor<D>) -> Result<(), KernelError> {
    fits((to.dims(), to.dtype()), (by.dims(), by.dtype()))?;
    on_cubecl::overwrite(to.clone().inner(), by.inner());
    Ok(())
}

/// [`overwrite`] of whole numbers.
///
/// # Errors
///
/// As [`overwrite`].
pub fn overwrite_int<const D: usize>(
    to: &Tensor<D, Int>,
    by: Tensor<D, Int>,
) -> Result<(), KernelError> {
    fits((to.dims(), to.dtype()), (by.dims(), by.dtype()))?;
    on_cubecl::overwrite_int(to.clone().inner(), by.inner());
    Ok(())
}

/// A copy of a tensor on a GPU, which nothing else shares a buffer with; its gradients are not
/// tracked.
#[must_use]
pub fn in_own_buffer<const D: usize>(tensor: &Tensor<D>) -> Tensor<D> {
    let copy = on_cubecl::in_own_buffer(tensor.clone().inner());
    if tensor.device().is_autodiff() { copy.autodiff() } else { copy }
}

/// [`in_own_buffer`] of whole numbers.
#[must_use]
pub fn in_own_buffer_int<const D: usize>(tensor: &Tensor<D, Int>) -> Tensor<D, Int> {
    let copy = on_cubecl::in_own_buffer_int(tensor.clone().inner());
    if tensor.device().is_autodiff() { copy.autodiff() } else { copy }
}

/// Checks that an input has the shape and type of the recorded one.
fn fits<const D: usize>(
    (to, dtype): ShapeAndType<D>,
    (by, got): ShapeAndType<D>,
) -> Result<(), KernelError> {
    expect(OPERATION, "input", &by, by == to, format!("{to:?}, as recorded"))?;
    if got == dtype {
        return Ok(());
    }
    let got = format!("{got:?} where {dtype:?} was recorded");
    Err(KernelError::Dtype { operation: OPERATION, tensor: "input", got })
}

/// The error that nothing is recorded on `device`.
fn no_graph(device: &Device, why: impl Into<String>) -> KernelError {
    KernelError::NoGraph { device: device_name(device), why: why.into() }
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
use cube as on_cubecl;

#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
mod on_cubecl {
    use super::{Device, Int, KernelError, Tensor};

    const NONE: &str = "no device of this build records launches";

    /// No device of this build records.
    #[derive(Debug)]
    pub(super) enum Launches {}

    impl Launches {
        #[expect(unsafe_code, reason = "as where launches are recorded")]
        pub(super) unsafe fn replay(&self) -> Result<(), KernelError> {
            match *self {}
        }
    }

    #[derive(Debug)]
    pub(super) enum WarmUp {}

    impl WarmUp {
        pub(super) fn begin(_: &Device) -> Result<Self, KernelError> {
            unreachable!("{NONE}")
        }

        pub(super) fn record<T, E>(
            self,
            _: impl FnOnce() -> Result<T, E>,
        ) -> Result<(Launches, T), E> {
            match self {}
        }
    }

    #[derive(Debug)]
    pub(super) enum Recorded<const I: usize, const O: usize> {}

    impl<const I: usize, const O: usize> Recorded<I, O> {
        pub(super) fn capture<E>(
            _: Tensor<I>,
            _: &impl Fn(Tensor<I>) -> Result<Tensor<O>, E>,
        ) -> Result<Self, E> {
            unreachable!("{NONE}")
        }

        pub(super) fn device(&self) -> &Device {
            match *self {}
        }

        pub(super) fn replay(&self, _: Tensor<I>) -> Result<Tensor<O>, KernelError> {
            match *self {}
        }
    }

    pub(super) fn overwrite<const D: usize>(_: Tensor<D>, _: Tensor<D>) {
        unreachable!("{NONE}")
    }

    pub(super) fn overwrite_int<const D: usize>(_: Tensor<D, Int>, _: Tensor<D, Int>) {
        unreachable!("{NONE}")
    }

    pub(super) fn in_own_buffer<const D: usize>(_: Tensor<D>) -> Tensor<D> {
        unreachable!("{NONE}")
    }

    pub(super) fn in_own_buffer_int<const D: usize>(_: Tensor<D, Int>) -> Tensor<D, Int> {
        unreachable!("{NONE}")
    }
}
