//! A call by its numbers: f32 by the kernels, f64 and complex A by the loops in f64.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use vim_kernels::oracle::{Number, OracleScan, OracleScanGrads};
use vim_kernels::raw::{RawScan, RawSizes, Slice};
use vim_kernels::{Complex, KernelError, ScanOptions};

use crate::arrays::{Borrowed, Owned};

/// The inputs by name, in the order of the operation.
const NAMES: [&str; 8] = ["u", "delta", "A", "B", "C", "D", "z", "delta_bias"];

/// Why a call is refused.
#[derive(Debug)]
pub(crate) enum Error {
    Kernel(KernelError),
    Python(PyErr),
}

impl From<KernelError> for Error {
    fn from(error: KernelError) -> Self {
        Self::Kernel(error)
    }
}

impl From<PyErr> for Error {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        match error {
            Error::Python(error) => error,
            Error::Kernel(error @ KernelError::Dtype { .. }) => {
                PyTypeError::new_err(error.to_string())
            }
            Error::Kernel(error) => PyValueError::new_err(error.to_string()),
        }
    }
}

/// A result of either type.
pub(crate) enum Array {
    Single(Owned<f32>),
    Double(Owned<f64>),
}

impl Array {
    pub(crate) fn into_capsule(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            Self::Single(array) => array.into_capsule(py),
            Self::Double(array) => array.into_capsule(py),
        }
    }
}

/// A call of these inputs, in the order of the operation; u, delta, A, B and C must be there.
pub(crate) fn gathered<T, E: From<PyErr>>(
    options: ScanOptions,
    mut inputs: impl Iterator<Item = Result<Option<T>, E>>,
) -> Result<RawScan<T>, E> {
    let mut optional = || inputs.next().unwrap_or(Ok(None));
    let there = |input: Result<Option<T>, E>| -> Result<T, E> {
        input?.ok_or_else(|| PyTypeError::new_err("u, delta, A, B and C are needed").into())
    };
    Ok(RawScan {
        options,
        u: there(optional())?,
        delta: there(optional())?,
        a: there(optional())?,
        b: there(optional())?,
        c: there(optional())?,
        d: optional()?,
        z: optional()?,
        delta_bias: optional()?,
    })
}

/// The inputs of a call, and what computes it.
pub(crate) struct Inputs {
    tensors: RawScan<Borrowed>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Single,
    Double,
    /// f64, with pairs of numbers as the last axis of A, B and C.
    Complex,
}

impl Inputs {
    /// `tensors` in the order of the operation, all of the type of the first.
    pub(crate) fn take(
        tensors: &[Option<Bound<'_, PyAny>>],
        options: ScanOptions,
    ) -> PyResult<Self> {
        let tensors = NAMES.iter().zip(tensors).map(|(name, tensor)| {
            tensor.as_ref().map(|tensor| Borrowed::take(name, tensor)).transpose()
        });
        let tensors = gathered(options, tensors)?;
        let kind = match (tensors.u.is::<f64>()?, tensors.a.shape.len()) {
            (false, _) => Kind::Single,
            (true, 3) => Kind::Complex,
            (true, _) => Kind::Double,
        };
        Ok(Self { tensors, kind })
    }

    /// y, the last state, and what a backward pass needs if `save`.
    pub(crate) fn forward(&self, save: bool) -> Result<Vec<Option<Array>>, Error> {
        let sizes = self.sizes()?;
        let RawSizes { batch, len, d_inner, d_state, .. } = sizes;
        let (y, state) = (vec![batch, len, d_inner], vec![batch, d_inner, d_state]);
        let double = |values, shape| Some(Array::Double(Owned { values, shape }));
        Ok(match self.kind {
            Kind::Single => {
                let out = self.slices()?.forward(save)?;
                let saved = out.saved.map(|values| Owned { shape: vec![values.len()], values });
                vec![
                    Some(Array::Single(Owned { values: out.y, shape: y })),
                    Some(Array::Single(Owned { values: out.last_state, shape: state })),
                    saved.map(Array::Single),
                ]
            }
            Kind::Double => {
                let (values, last_state) = self.oracle::<f64>(sizes)?.forward();
                vec![double(values, y), double(last_state, state), None]
            }
            Kind::Complex => {
                let (values, last_state) = self.oracle::<Complex<f64>>(sizes)?.forward();
                let pairs = [&state[..], &[2]].concat();
                vec![double(values, y), double(Complex::unpack(last_state), pairs), None]
            }
        })
    }

    /// The `wanted` gradients of inputs that are there, from `grad_y` and what the forward pass
    /// saved.
    pub(crate) fn backward(
        &self,
        grad_y: &Borrowed,
        saved: &Borrowed,
        wanted: [bool; 8],
    ) -> Result<Vec<Array>, Error> {
        let sizes = self.sizes()?;
        let t = &self.tensors;
        let all = [
            Some(&t.u),
            Some(&t.delta),
            Some(&t.a),
            Some(&t.b),
            Some(&t.c),
            t.d.as_ref(),
            t.z.as_ref(),
            t.delta_bias.as_ref(),
        ];
        let shape = |of: Option<&Borrowed>| of.map_or(Vec::new(), |of| of.shape.clone());
        let grads: [Option<Array>; 8] = match self.kind {
            Kind::Single => {
                let grads = self.slices()?.backward(grad_y.values()?, saved.values()?, wanted)?;
                let mut shapes = all.into_iter().map(shape);
                grads.map(|values| {
                    let shape = shapes.next().unwrap_or_default();
                    values.map(|values| Array::Single(Owned { values, shape }))
                })
            }
            Kind::Double | Kind::Complex => {
                let grads = if self.kind == Kind::Double {
                    unpacked(self.oracle::<f64>(sizes)?.backward(grad_y.values()?))
                } else {
                    unpacked(self.oracle::<Complex<f64>>(sizes)?.backward(grad_y.values()?))
                };
                let mut of = all.into_iter().zip(wanted);
                grads.map(|values| {
                    let (of, wanted) = of.next().unwrap_or_default();
                    let is_there = wanted && of.is_some();
                    is_there.then(|| Array::Double(Owned { values, shape: shape(of) }))
                })
            }
        };
        Ok(grads.into_iter().flatten().collect())
    }

    /// The sizes, of shapes that fit each other.
    fn sizes(&self) -> Result<RawSizes, Error> {
        let pairs = if self.kind == Kind::Complex { 1 } else { 0 };
        let t = &self.tensors;
        for (name, of) in [("A", &t.a), ("B", &t.b), ("C", &t.c)] {
            if pairs == 1 && of.shape.last() != Some(&2) {
                let error =
                    format!("`{name}` has no pairs of numbers as its last axis: {:?}", of.shape);
                return Err(PyValueError::new_err(error).into());
            }
        }
        let is_paired = |of: &Borrowed| [&t.a, &t.b, &t.c].iter().any(|one| std::ptr::eq(*one, of));
        Ok(t.sizes(|of| {
            of.shape[..of.shape.len() - if is_paired(of) { pairs } else { 0 }].to_vec()
        })?)
    }

    /// The arguments of the kernels.
    fn slices(&self) -> Result<RawScan<Slice<'_>>, Error> {
        let t = &self.tensors;
        Ok(RawScan {
            options: t.options,
            u: t.u.slice()?,
            delta: t.delta.slice()?,
            a: t.a.slice()?,
            b: t.b.slice()?,
            c: t.c.slice()?,
            d: t.d.as_ref().map(Borrowed::slice).transpose()?,
            z: t.z.as_ref().map(Borrowed::slice).transpose()?,
            delta_bias: t.delta_bias.as_ref().map(Borrowed::slice).transpose()?,
        })
    }

    /// The scan in f64.
    fn oracle<T: Packed>(&self, sizes: RawSizes) -> Result<OracleScan<T>, Error> {
        let t = &self.tensors;
        let real = |of: &Borrowed| -> PyResult<Vec<f64>> { Ok(of.values()?.to_vec()) };
        let optional = |of: &Option<Borrowed>| of.as_ref().map(real).transpose();
        let packed = |of: &Borrowed| -> PyResult<Vec<T>> { Ok(T::pack(of.values()?)) };
        let is_constant = |of: &Borrowed| of.shape.len() == t.a.shape.len();
        let RawSizes { batch, len, d_inner, d_state, groups } = sizes;
        Ok(OracleScan {
            batch,
            len,
            d_inner,
            d_state,
            groups,
            method: t.options.method,
            series: t.options.series,
            delta_softplus: t.options.delta_softplus,
            reverse: t.options.reverse,
            b_constant: is_constant(&t.b),
            c_constant: is_constant(&t.c),
            u: real(&t.u)?,
            delta: real(&t.delta)?,
            a: packed(&t.a)?,
            b: packed(&t.b)?,
            c: packed(&t.c)?,
            d: optional(&t.d)?,
            z: optional(&t.z)?,
            delta_bias: optional(&t.delta_bias)?,
        })
    }
}

/// Numbers of a state as an array has them.
trait Packed: Number {
    fn pack(values: &[f64]) -> Vec<Self>;
    fn unpack(values: Vec<Self>) -> Vec<f64>;
}

impl Packed for f64 {
    fn pack(values: &[f64]) -> Vec<Self> {
        values.to_vec()
    }
    fn unpack(values: Vec<Self>) -> Vec<f64> {
        values
    }
}

impl Packed for Complex<f64> {
    fn pack(values: &[f64]) -> Vec<Self> {
        values.chunks_exact(2).map(|pair| Self::new(pair[0], pair[1])).collect()
    }
    fn unpack(values: Vec<Self>) -> Vec<f64> {
        values.into_iter().flat_map(|value| [value.re, value.im]).collect()
    }
}

/// In the order of the inputs.
fn unpacked<T: Packed>(grads: OracleScanGrads<T>) -> [Vec<f64>; 8] {
    let OracleScanGrads { u, delta, a, b, c, d, z, delta_bias } = grads;
    [u, delta, T::unpack(a), T::unpack(b), T::unpack(c), d, z, delta_bias]
}
