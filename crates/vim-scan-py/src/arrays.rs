//! Arrays that cross DLPack.

#![expect(unsafe_code, reason = "memory of another library, as DLPack describes it")]

use std::slice;

use dlpark::DlpackElement;
use dlpark::ffi::{DLDevice, DLManagedTensor};
use dlpark::metadata::Dynamic;
use dlpark::python::{ImportedDlpack, from_dlpack};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use vim_kernels::raw::Slice;

/// A tensor of a caller, contiguous in a CPU's memory, which lives as long as this.
pub(crate) struct Borrowed {
    tensor: ImportedDlpack,
    name: &'static str,
    pub(crate) shape: Vec<usize>,
}

impl Borrowed {
    pub(crate) fn take(name: &'static str, tensor: &Bound<'_, PyAny>) -> PyResult<Self> {
        let tensor = from_dlpack(tensor.as_borrowed(), None, None)?;
        let shape = {
            let view = tensor.validate().map_err(|error| wrong(name, error))?;
            if view.device() != DLDevice::CPU {
                return Err(PyTypeError::new_err(format!("`{name}` is not in a CPU's memory")));
            }
            view.shape().iter().map(|&size| size as usize).collect()
        };
        Ok(Self { tensor, name, shape })
    }

    /// Whether its numbers are `T`.
    pub(crate) fn is<T: DlpackElement>(&self) -> PyResult<bool> {
        Ok(self.tensor.validate().map_err(|error| wrong(self.name, error))?.dtype().is::<T>())
    }

    /// Its numbers in row-major order.
    pub(crate) fn values<T: DlpackElement>(&self) -> PyResult<&[T]> {
        let view = self.tensor.validate().map_err(|error| wrong(self.name, error))?;
        let strides = view.strides_or_compact().map_err(|error| wrong(self.name, error))?;
        if !is_dense(view.shape(), &strides) {
            return Err(wrong(self.name, "not contiguous"));
        }
        // SAFETY: the producer vouches for the memory that its descriptor names, which is in a
        // CPU's memory and dense, and which this owner keeps alive; no thread writes it during a
        // call, as an operation's inputs do not change.
        unsafe {
            let first = view.offset_data_ptr::<T>().map_err(|error| wrong(self.name, error))?;
            Ok(slice::from_raw_parts(first, self.shape.iter().product()))
        }
    }
}

/// Whether rows follow one another. The stride of an axis of one number says nothing: PyTorch 2.6
/// gives it as 1.
fn is_dense(shape: &[i64], strides: &[i64]) -> bool {
    let mut next = 1;
    shape.iter().zip(strides).rev().all(|(&size, &stride)| {
        let is_next = size == 1 || stride == next;
        next *= size;
        is_next
    })
}

impl Borrowed {
    /// An argument of the kernels.
    pub(crate) fn slice(&self) -> PyResult<Slice<'_>> {
        Ok(Slice { values: self.values()?, shape: &self.shape })
    }
}

fn wrong(name: &str, error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("`{name}`: {error}"))
}

/// A result, which a consumer of DLPack is to own.
pub(crate) struct Owned<T> {
    pub(crate) values: Vec<T>,
    pub(crate) shape: Vec<usize>,
}

impl<T: DlpackElement + Send> Owned<T> {
    pub(crate) fn into_capsule(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let Self { values, shape } = self;
        let shape: Vec<i64> = shape.into_iter().map(|size| size as i64).collect();
        let mut owner = Box::new(values);
        let data = owner.as_mut_ptr().cast();
        let mut tensor = Dynamic::compact(shape)
            .initialize_as::<DLManagedTensor>(owner)
            .map_err(|error| PyRuntimeError::new_err(format!("vim_scan: {error}")))?;
        tensor.set_data(data).set_dtype(T::DTYPE).set_device(DLDevice::CPU);
        // SAFETY: `data` is the vector's, as many numbers as the shape says, in row-major order;
        // the context owns the vector, whose memory does not move.
        let tensor: dlpark::legacy::Dlpack = unsafe { tensor.finish() };
        tensor.into_pyobject(py)
    }
}
