//! A model's parameters as named arrays, and named arrays into a model.

use std::collections::BTreeSet;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Tensor, TensorData};
use vim_torch::{Array, Element, Item, StateDict};

use crate::import::{ROPE_TABLES, has_pytorch_key, is_buffer, pytorch_key};
use crate::misfit::{Misfit, Misshapen};
use crate::pos_embed::{Positions, Resize};
use crate::rope::RopeTable;
use crate::vim::Vim;

/// Whose names and layout arrays have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// This program's: module paths, a linear layer's weight as `[inputs, outputs]`.
    Ours,
    /// The original's: [`pytorch_key`], a linear layer's weight as `[outputs, inputs]`.
    Pytorch,
}

/// In what a checkpoint may differ from the model; by default in nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tolerance {
    /// The head may be missing or of another number of classes: the model keeps its own.
    pub head: bool,
    /// Any parameter may be missing: the model keeps its own.
    pub missing: bool,
    /// Positions of another grid are resized.
    pub resize: Option<Resize>,
}

/// What was taken from a checkpoint, and what was not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// Tensors taken.
    pub tensors: usize,
    /// Numbers taken.
    pub parameters: usize,
    /// Names of parameters that the checkpoint lacks, and that are as the model had them.
    pub missing: Vec<String>,
    /// Classes of a head that was not taken, in the file (0 where it has none) and in the model.
    pub head: Option<(usize, usize)>,
    /// Grids of positions that were resized, from and to, as rows and columns.
    pub resized: Option<([usize; 2], [usize; 2])>,
    /// Keys of the file that are computed, not learned, and so not needed.
    pub computed: Vec<String>,
}

impl Vim {
    /// Takes every parameter from `state`, under our names or the original's.
    ///
    /// # Errors
    ///
    /// [`Misfit`] lists every disagreement that `tolerance` does not allow for.
    pub fn load(
        self,
        state: &StateDict,
        tolerance: Tolerance,
    ) -> Result<(Self, LoadReport), Box<Misfit>> {
        let names = names_in(&self, state);
        let config = self.config().clone();
        let positions = Positions::of(&config);
        let mut fill = Fill {
            at: Place::default(),
            state,
            names,
            tolerance,
            positions,
            used: BTreeSet::new(),
            report: LoadReport::default(),
            misfit: Misfit::default(),
        };
        let model = self.map(&mut fill);
        let Fill { used, mut report, mut misfit, .. } = fill;
        for (key, _) in state.iter().filter(|(key, _)| !used.contains(*key)) {
            let list =
                if is_buffer(key, &config) { &mut report.computed } else { &mut misfit.unmatched };
            list.push(key.to_owned());
        }
        if misfit.is_none() { Ok((model, report)) } else { Err(Box::new(misfit)) }
    }

    /// Every parameter under the names of `names`, in the order of the modules; under the original's,
    /// also the tables of rotary positions, which it keeps with them.
    ///
    /// # Errors
    ///
    /// The path of the first parameter that the original has no counterpart of.
    pub fn state(&self, names: Names) -> Result<Vec<(String, Array)>, String> {
        let mut collect = Collect { at: Place::default(), names, arrays: Vec::new() };
        self.visit(&mut collect);
        if names == Names::Pytorch {
            let alone = collect.arrays.iter().find(|(path, _)| !has_pytorch_key(path));
            if let Some((path, _)) = alone {
                return Err(path.clone());
            }
            collect.arrays.iter_mut().for_each(|(path, _)| *path = pytorch_key(path));
            if let Some(RopeTable { shape, cos, sin }) = self.config().rope_table() {
                for (key, values) in ROPE_TABLES.into_iter().zip([cos, sin]) {
                    let array = Array { shape: shape.to_vec(), values, stored: Element::F32 };
                    collect.arrays.push((key.to_owned(), array));
                }
            }
        }
        Ok(collect.arrays)
    }
}

/// Whose names `state` has: ours, if there is one that only we have.
fn names_in(model: &Vim, state: &StateDict) -> Names {
    let paths = model.parameters().into_iter().map(|parameter| parameter.path);
    let (ours, theirs): (BTreeSet<String>, BTreeSet<String>) =
        paths.map(|path| (path.clone(), pytorch_key(&path))).unzip();
    let is_ours = |key: &str| ours.contains(key) && !theirs.contains(key);
    if state.iter().any(|(key, _)| is_ours(key)) { Names::Ours } else { Names::Pytorch }
}

/// Where a visitor is.
#[derive(Default)]
struct Place {
    path: Vec<String>,
    is_linear: Vec<bool>,
}

impl Place {
    fn enter(&mut self, name: &str, container_type: &str) {
        self.path.push(name.to_owned());
        self.is_linear.push(container_type == "Struct:Linear");
    }

    fn exit(&mut self) {
        self.path.pop();
        self.is_linear.pop();
    }

    fn path(&self) -> String {
        self.path.join(".")
    }

    /// Whether the parameter here, of rank `rank`, is the other way round in PyTorch.
    fn is_transposed(&self, rank: usize, names: Names) -> bool {
        // The parameter's own name is the last part, its module the one before.
        names == Names::Pytorch && rank == 2 && self.is_linear.last() == Some(&true)
    }
}

struct Fill<'a> {
    at: Place,
    state: &'a StateDict,
    names: Names,
    tolerance: Tolerance,
    positions: Positions,
    used: BTreeSet<String>,
    report: LoadReport,
    misfit: Misfit,
}

impl Fill<'_> {
    /// The values for the parameter here, of shape `expected` in the file; `None` to keep the model's.
    fn values(&mut self, path: &str, key: &str, expected: &[usize]) -> Option<Vec<f32>> {
        let head = path.strip_prefix("head.").filter(|_| self.tolerance.head);
        let Some(item) = self.state.get(key) else {
            if head.is_some() {
                self.report.head = Some((0, *expected.first()?));
            } else if self.tolerance.missing {
                self.report.missing.push(key.to_owned());
            } else {
                self.misfit.missing.push((key.to_owned(), expected.to_vec()));
            }
            return None;
        };
        self.used.insert(key.to_owned());
        let array = match item {
            Item::Array(array) => array,
            Item::Unreadable(what) => {
                self.misfit.unreadable.push(format!("{key} ({what})"));
                return None;
            }
        };
        if array.shape == expected {
            return Some(array.values.clone());
        }
        if head == Some("bias") {
            self.report.head = Some((array.values.len(), expected.iter().product()));
            return None;
        }
        if head.is_some() {
            return None; // the bias reports it
        }
        if let Some(resize) = self.tolerance.resize.filter(|_| path == "pos_embed")
            && let Some((values, from)) = self.positions.resize(array, resize)
        {
            self.report.resized = Some((from, self.positions.grid));
            return Some(values);
        }
        self.misfit.misshapen.push(Misshapen {
            key: key.to_owned(),
            expected: expected.to_vec(),
            got: array.shape.clone(),
        });
        None
    }
}

impl ModuleMapper for Fill<'_> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.at.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.at.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let path = self.at.path();
        let key = match self.names {
            Names::Ours => path.clone(),
            Names::Pytorch => pytorch_key(&path),
        };
        let shape = param.dims();
        let is_transposed = self.at.is_transposed(D, self.names);
        let mut expected = shape.to_vec();
        if is_transposed {
            expected.reverse();
        }
        let Some(values) = self.values(&path, &key, &expected) else { return param };
        self.report.tensors += 1;
        self.report.parameters += values.len();
        let values = if is_transposed { transposed(&values, shape[0]) } else { values };
        param.map(|old| {
            let (device, requires_grad) = (old.device(), old.is_require_grad());
            let data = TensorData::new(values, shape);
            let new = Tensor::<D>::from_data(data, &device.clone().inner());
            let new = if device.is_autodiff() { Tensor::from_inner(new) } else { new };
            if requires_grad { new.require_grad() } else { new }
        })
    }
}

struct Collect {
    at: Place,
    names: Names,
    arrays: Vec<(String, Array)>,
}

impl ModuleVisitor for Collect {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.at.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.at.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let mut shape = param.dims().to_vec();
        let mut values: Vec<f32> = param.val().inner().into_data().iter().collect();
        if self.at.is_transposed(D, self.names) {
            values = transposed(&values, shape[1]);
            shape.reverse();
        }
        self.arrays.push((self.at.path(), Array { shape, values, stored: Element::F32 }));
    }
}

/// The transpose of a matrix whose rows have `columns` numbers.
fn transposed(values: &[f32], columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|c| values.iter().skip(c).step_by(columns).copied()).collect()
}
