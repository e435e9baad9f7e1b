//! Model and optimizer as safetensors bytes, by parameter path.

pub mod source;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::mem;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor, TensorData, Transaction};
use safetensors::tensor::{Dtype, SafeTensors, View, serialize};
use vim_model::Vim;

use crate::config::OptimConfig;
use crate::error::Error;
use crate::run::checkpoint::Weights;
use crate::train::optim::{AdamW, Moments};

/// Name of the model's file in a checkpoint.
pub const MODEL: &str = "model.safetensors";
/// Name of the file of the model's moving average in a checkpoint.
pub const EMA: &str = "ema.safetensors";
/// Name of the optimizer's file in a checkpoint.
pub const OPTIMIZER: &str = "optimizer.safetensors";

/// Name of the file of `weights` in a checkpoint.
#[must_use]
pub fn file(weights: Weights) -> &'static str {
    match weights {
        Weights::Model => MODEL,
        Weights::Ema => EMA,
    }
}

// Bytes of tensors are taken for those of a safetensors file, which are little-endian.
const _: () = assert!(cfg!(target_endian = "little"));

/// Named arrays of f32 in the host's memory, to be written to a file: a snapshot, which goes on meaning what it
/// meant when it was taken.
#[derive(Clone, Debug, Default)]
pub struct Arrays {
    arrays: BTreeMap<String, Array>,
    about: Vec<(&'static str, String)>,
}

impl Arrays {
    /// The bytes of a safetensors file.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`] only.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let about = self.about.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
        let about: HashMap<String, String> = about.collect();
        let about = (!about.is_empty()).then_some(about);
        serialize(&self.arrays, about)
            .map_err(|error| Error::Internal(format!("write safetensors: {error}")))
    }
}

#[derive(Clone, Debug)]
struct Array {
    shape: Vec<usize>,
    data: TensorData,
}

impl View for &Array {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.data.as_bytes())
    }
    fn data_len(&self) -> usize {
        self.data.as_bytes().len()
    }
}

/// Tensors to be read from the device together: once instead of once each.
#[derive(Default)]
struct Reading {
    arrays: Vec<(String, Vec<usize>)>,
    transaction: Transaction,
}

impl Reading {
    fn add<const D: usize>(&mut self, name: String, tensor: Tensor<D>) {
        self.arrays.push((name, tensor.dims().to_vec()));
        self.transaction = mem::take(&mut self.transaction).register(tensor);
    }

    fn read(self, about: Vec<(&'static str, String)>) -> Arrays {
        let data = self.transaction.execute().into_iter().map(TensorData::convert::<f32>);
        let arrays = self.arrays.into_iter().zip(data);
        let arrays = arrays.map(|((name, shape), data)| (name, Array { shape, data })).collect();
        Arrays { arrays, about }
    }
}

/// The model's parameters.
#[must_use]
pub fn model_arrays(model: &Vim) -> Arrays {
    #[derive(Default)]
    struct Collect(Vec<String>, Reading);
    impl ModuleVisitor for Collect {
        fn enter_module(&mut self, name: &str, _container_type: &str) {
            self.0.push(name.to_owned());
        }
        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.0.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.1.add(self.0.join("."), param.val().inner());
        }
    }
    let mut collect = Collect::default();
    model.visit(&mut collect);
    collect.1.read(Vec::new())
}

/// [`model_arrays`] as the bytes of a file.
///
/// # Errors
///
/// [`Error::Internal`] only.
pub fn model_to_bytes(model: &Vim) -> Result<Vec<u8>, Error> {
    model_arrays(model).to_bytes()
}

/// `model` with the parameters in `bytes`, which `source` names in errors.
///
/// # Errors
///
/// [`Error::Weights`] names the parameters that are missing, misshapen or not the model's.
pub fn model_from_bytes(model: Vim, bytes: &[u8], source: &str) -> Result<Vim, Error> {
    struct Fill<'a> {
        path: Vec<String>,
        arrays: HashMap<String, (Vec<usize>, &'a [u8])>,
        problems: Vec<String>,
    }
    impl ModuleMapper for Fill<'_> {
        fn enter_module(&mut self, name: &str, _container_type: &str) {
            self.path.push(name.to_owned());
        }
        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.path.pop();
        }
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let path = self.path.join(".");
            let expected = param.dims().to_vec();
            match self.arrays.remove(&path) {
                Some((shape, bytes)) if shape == expected => param.map(|old| {
                    let (device, requires_grad) = (old.device().inner(), old.is_require_grad());
                    let new = Tensor::<D>::from_data(data(&shape, bytes), &device);
                    let new =
                        if old.device().is_autodiff() { Tensor::from_inner(new) } else { new };
                    if requires_grad { new.require_grad() } else { new }
                }),
                Some((shape, _)) => {
                    self.problems.push(format!("{path} is {shape:?}, not {expected:?}"));
                    param
                }
                None => {
                    self.problems.push(format!("{path} is missing"));
                    param
                }
            }
        }
    }
    let tensors = open(bytes, source)?;
    let arrays = tensors.iter().map(|(n, t)| (n.to_owned(), (t.shape().to_vec(), t.data())));
    let mut fill = Fill { path: Vec::new(), arrays: arrays.collect(), problems: Vec::new() };
    let model = model.map(&mut fill);
    let mut unknown: Vec<_> = fill.arrays.into_keys().collect();
    unknown.sort();
    fill.problems.extend(unknown.into_iter().map(|path| format!("{path} is not in the model")));
    if fill.problems.is_empty() {
        return Ok(model);
    }
    let shown: Vec<_> = fill.problems.iter().take(4).cloned().collect();
    let more = fill.problems.len() - shown.len();
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    Err(Error::Weights { checkpoint: source.to_owned(), problems: shown.join(", ") + &more })
}

/// The optimizer's state.
#[must_use]
pub fn optimizer_arrays(optimizer: &AdamW) -> Arrays {
    let mut reading = Reading::default();
    for (path, Moments { first, second }) in optimizer.moments() {
        reading.add(format!("first.{path}"), first);
        reading.add(format!("second.{path}"), second);
    }
    reading.read(vec![("steps", optimizer.steps.to_string())])
}

/// [`optimizer_arrays`] as the bytes of a file.
///
/// # Errors
///
/// [`Error::Internal`] only.
pub fn optimizer_to_bytes(optimizer: &AdamW) -> Result<Vec<u8>, Error> {
    optimizer_arrays(optimizer).to_bytes()
}

/// The optimizer that `bytes` describes, to go on as `config` says.
///
/// # Errors
///
/// [`Error::Weights`] if it is not an optimizer's state.
pub fn optimizer_from_bytes(
    config: &OptimConfig,
    bytes: &[u8],
    device: &Device,
    source: &str,
) -> Result<AdamW, Error> {
    let wrong =
        |what: &str| Error::Weights { checkpoint: source.to_owned(), problems: what.into() };
    let tensors = open(bytes, source)?;
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| wrong(&e.to_string()))?;
    let steps = header.metadata().as_ref().and_then(|about| about.get("steps")?.parse().ok());
    let steps = steps.ok_or_else(|| wrong("the number of steps is missing"))?;
    let mut all = BTreeMap::new();
    for (name, first) in tensors.iter() {
        let Some(path) = name.strip_prefix("first.") else { continue };
        let second = tensors
            .tensor(&format!("second.{path}"))
            .map_err(|_| wrong(&format!("second.{path} is missing")))?;
        let load = |array: &[u8], shape: &[usize]| {
            Tensor::<1>::from_data(data(shape, array), &device.clone().inner())
        };
        let moments = Moments {
            first: load(first.data(), first.shape()),
            second: load(second.data(), second.shape()),
        };
        all.insert(path.to_owned(), moments);
    }
    Ok(AdamW::new(config).resumed(steps, all))
}

fn open<'a>(bytes: &'a [u8], source: &str) -> Result<SafeTensors<'a>, Error> {
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| Error::Weights {
        checkpoint: source.to_owned(),
        problems: format!("not safetensors: {error}"),
    })?;
    if let Some((name, _)) = tensors.iter().find(|(_, t)| t.dtype() != Dtype::F32) {
        let problems = format!("{name} is not f32");
        return Err(Error::Weights { checkpoint: source.to_owned(), problems });
    }
    Ok(tensors)
}

fn data(shape: &[usize], bytes: &[u8]) -> TensorData {
    let values: Vec<f32> =
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    TensorData::new(values, shape)
}
