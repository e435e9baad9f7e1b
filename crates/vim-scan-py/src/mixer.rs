//! Vim's mixer between its outer projections as one operation, whose backward pass computes the
//! forward pass again: it keeps nothing but its inputs.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use vim_kernels::burn::tensor::{Device, Gradients, Tensor, TensorData};
use vim_kernels::{DirectionWeights, Precision, Recompute, ScanOptions, mixer_inner};

use crate::arrays::{Borrowed, Owned};
use crate::call::Error;

/// xz, and for each direction the seven of [`DirectionWeights`], in its order.
pub(crate) const INPUTS: usize = 15;

/// The inputs by name.
pub(crate) const NAMES: [&str; INPUTS] = [
    "xz",
    "conv1d_weight",
    "conv1d_bias",
    "x_proj_weight",
    "delta_proj_weight",
    "delta_bias",
    "A",
    "D",
    "conv1d_weight of the other direction",
    "conv1d_bias of the other direction",
    "x_proj_weight of the other direction",
    "delta_proj_weight of the other direction",
    "delta_bias of the other direction",
    "A of the other direction",
    "D of the other direction",
];

/// A call on a CPU, without gradients.
#[derive(Clone)]
pub(crate) struct Mixer {
    xz: Tensor<3>,
    directions: [DirectionWeights; 2],
    options: ScanOptions,
}

/// Where a call's tensors come from.
pub(crate) trait Place {
    /// Input number `at`, which has `R` axes.
    fn input<const R: usize>(&self, at: usize) -> Result<Tensor<R>, Error>;
}

/// The weights of both directions.
pub(crate) fn directions(place: &(impl Place + ?Sized)) -> Result<[DirectionWeights; 2], Error> {
    let direction = |first: usize| -> Result<DirectionWeights, Error> {
        Ok(DirectionWeights {
            conv_weight: place.input(first)?,
            conv_bias: place.input(first + 1)?,
            x_proj: place.input(first + 2)?,
            dt_proj: place.input(first + 3)?,
            delta_bias: place.input(first + 4)?,
            a_log: place.input(first + 5)?,
            d: place.input(first + 6)?,
        })
    };
    Ok([direction(1)?, direction(8)?])
}

impl Mixer {
    pub(crate) fn new(inputs: &[Borrowed], options: ScanOptions) -> Result<Self, Error> {
        Ok(Self { xz: inputs.input(0)?, directions: directions(inputs)?, options })
    }

    fn run(self) -> Result<Tensor<3>, Error> {
        let [forward, backward] = self.directions;
        let (options, recompute) = (self.options, Recompute::Inputs);
        Ok(mixer_inner(self.xz, forward, backward, options, Precision::F32, recompute)?)
    }

    /// `[B, L, D]`.
    pub(crate) fn forward(self) -> Result<Owned<f32>, Error> {
        output(self.run()?)
    }

    /// The `wanted` gradients, from that of the result.
    pub(crate) fn backward(
        self,
        grad_y: &Borrowed,
        wanted: [bool; INPUTS],
    ) -> Result<Vec<Owned<f32>>, Error> {
        let grad_y: Tensor<3> = std::slice::from_ref(grad_y).input(0)?;
        let [of_xz, of_directions @ ..] = wanted;
        let (of_forward, of_backward) = of_directions.split_at(INPUTS / 2);
        let [forward, backward] = self.directions;
        let (forward, backward) = (leaves(forward, of_forward), leaves(backward, of_backward));
        let inputs = Self { xz: leaf(self.xz, of_xz), directions: [forward, backward], ..self };
        let y = inputs.clone().run()?;
        // The gradient of y is 1 · grad_y.
        let mut grads = (y * grad_y.autodiff()).sum().backward();
        let [forward, backward] = &inputs.directions;
        let mut all = vec![gradient(&inputs.xz, &mut grads)?];
        all.extend(gradients(forward, &mut grads)?);
        all.extend(gradients(backward, &mut grads)?);
        Ok(all.into_iter().flatten().collect())
    }
}

fn leaf<const R: usize>(tensor: Tensor<R>, is_wanted: bool) -> Tensor<R> {
    let tensor = tensor.autodiff();
    if is_wanted { tensor.require_grad() } else { tensor }
}

fn leaves(of: DirectionWeights, wanted: &[bool]) -> DirectionWeights {
    DirectionWeights {
        conv_weight: leaf(of.conv_weight, wanted[0]),
        conv_bias: leaf(of.conv_bias, wanted[1]),
        x_proj: leaf(of.x_proj, wanted[2]),
        dt_proj: leaf(of.dt_proj, wanted[3]),
        delta_bias: leaf(of.delta_bias, wanted[4]),
        a_log: leaf(of.a_log, wanted[5]),
        d: leaf(of.d, wanted[6]),
    }
}

/// The gradient of a leaf.
fn gradient<const R: usize>(
    leaf: &Tensor<R>,
    grads: &mut Gradients,
) -> Result<Option<Owned<f32>>, Error> {
    leaf.grad_remove(grads).map(output).transpose()
}

/// In the order of [`NAMES`].
fn gradients(
    of: &DirectionWeights,
    grads: &mut Gradients,
) -> Result<[Option<Owned<f32>>; INPUTS / 2], Error> {
    Ok([
        gradient(&of.conv_weight, grads)?,
        gradient(&of.conv_bias, grads)?,
        gradient(&of.x_proj, grads)?,
        gradient(&of.dt_proj, grads)?,
        gradient(&of.delta_bias, grads)?,
        gradient(&of.a_log, grads)?,
        gradient(&of.d, grads)?,
    ])
}

fn output<const R: usize>(tensor: Tensor<R>) -> Result<Owned<f32>, Error> {
    let shape = tensor.dims().to_vec();
    let values = tensor.into_data().try_into_vec();
    let values = values.map_err(|error| PyRuntimeError::new_err(format!("{error:?}")))?;
    Ok(Owned { values, shape })
}

/// In a CPU's memory.
impl Place for [Borrowed] {
    fn input<const R: usize>(&self, at: usize) -> Result<Tensor<R>, Error> {
        let (name, of) = (NAMES[at], &self[at]);
        has_axes::<R>(name, &of.shape)?;
        let data = TensorData::new(of.values::<f32>()?.to_vec(), of.shape.clone());
        Ok(Tensor::from_data(data, &Device::flex()))
    }
}

/// Refuses a tensor of another number of axes.
pub(crate) fn has_axes<const R: usize>(name: &str, shape: &[usize]) -> Result<(), Error> {
    if shape.len() == R {
        return Ok(());
    }
    let error = format!("`{name}` has shape {shape:?}, where {R} axes are expected");
    Err(PyValueError::new_err(error).into())
}
