//! Named arrays into a model.

use std::collections::BTreeSet;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Tensor, TensorData};
use vim_torch::{Item, StateDict};

use super::mismatch::{ShapeMismatch, StateDictMismatch};
use super::names::{ModulePath, Names, is_buffer, pytorch_key, transposed};
use super::pos_embed::{Positions, Resize};
use crate::vim::Vim;

/// Differences between a checkpoint and the model that are allowed; by default none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// The head may be missing or of another number of classes: the model keeps its own.
    pub head: bool,
    /// Any parameter may be missing: the model keeps its own.
    pub missing: bool,
    /// Positions of another grid are resized.
    pub resize: Option<Resize>,
}

/// The outcome of loading a checkpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// Tensors taken.
    pub tensors: usize,
    /// Numbers taken.
    pub parameters: usize,
    /// Names of parameters that the checkpoint lacks, which keep the model's values.
    pub missing: Vec<String>,
    /// Classes of a head that was not taken, in the file (0 where it has none) and in the model.
    pub head: Option<(usize, usize)>,
    /// Grids of positions that were resized, from and to, as rows and columns.
    pub resized: Option<([usize; 2], [usize; 2])>,
    /// Keys of the file that are computed, not learned, and therefore ignored.
    pub computed: Vec<String>,
}

/// `module` with every parameter from `state`, by path; the two must agree in every name and shape.
///
/// # Errors
///
/// [`StateDictMismatch`] lists every difference.
pub fn load_module<M: Module>(module: M, state: &StateDict) -> Result<M, Box<StateDictMismatch>> {
    let fill = Fill::new(state, Names::Ours, LoadOptions::default(), None);
    let (module, _) = fill.load(module, |_| false)?;
    Ok(module)
}

impl Vim {
    /// Takes every parameter from `state`, under this program's names or the original's.
    ///
    /// # Errors
    ///
    /// [`StateDictMismatch`] lists every difference that `options` does not allow.
    pub fn load(
        self,
        state: &StateDict,
        options: LoadOptions,
    ) -> Result<(Self, LoadReport), Box<StateDictMismatch>> {
        let config = self.config().clone();
        let positions = Some(Positions::of(&config));
        let fill = Fill::new(state, names_in(&self, state), options, positions);
        fill.load(self, |key| is_buffer(key, &config))
    }
}

/// The naming of `state`: ours if it has a key that only we have.
fn names_in(model: &Vim, state: &StateDict) -> Names {
    let paths = model.parameters().into_iter().map(|parameter| parameter.path);
    let (ours, theirs): (BTreeSet<String>, BTreeSet<String>) =
        paths.map(|path| (path.clone(), pytorch_key(&path))).unzip();
    let is_ours = |key: &str| ours.contains(key) && !theirs.contains(key);
    if state.iter().any(|(key, _)| is_ours(key)) { Names::Ours } else { Names::Pytorch }
}

struct Fill<'a> {
    path: ModulePath,
    state: &'a StateDict,
    names: Names,
    options: LoadOptions,
    /// Where positions of another grid may be resized.
    positions: Option<Positions>,
    used: BTreeSet<String>,
    report: LoadReport,
    mismatch: StateDictMismatch,
}

impl<'a> Fill<'a> {
    fn new(
        state: &'a StateDict,
        names: Names,
        options: LoadOptions,
        positions: Option<Positions>,
    ) -> Self {
        Self {
            path: ModulePath::default(),
            state,
            names,
            options,
            positions,
            used: BTreeSet::new(),
            report: LoadReport::default(),
            mismatch: StateDictMismatch::default(),
        }
    }

    fn load<M: Module>(
        mut self,
        module: M,
        is_computed: impl Fn(&str) -> bool,
    ) -> Result<(M, LoadReport), Box<StateDictMismatch>> {
        let module = module.map(&mut self);
        let Self { used, mut report, mut mismatch, .. } = self;
        for (key, _) in self.state.iter().filter(|(key, _)| !used.contains(*key)) {
            let computed = is_computed(key);
            let list = if computed { &mut report.computed } else { &mut mismatch.unexpected };
            list.push(key.to_owned());
        }
        if mismatch.is_none() { Ok((module, report)) } else { Err(Box::new(mismatch)) }
    }

    /// The values of the parameter at `path`, of shape `expected` in the file; `None` keeps the
    /// model's.
    fn values(&mut self, path: &str, key: &str, expected: &[usize]) -> Option<Vec<f32>> {
        let head = path.strip_prefix("head.").filter(|_| self.options.head);
        let Some(item) = self.state.get(key) else {
            if head.is_some() {
                self.report.head = Some((0, *expected.first()?));
            } else if self.options.missing {
                self.report.missing.push(key.to_owned());
            } else {
                self.mismatch.missing.push((key.to_owned(), expected.to_vec()));
            }
            return None;
        };
        self.used.insert(key.to_owned());
        let array = match item {
            Item::Array(array) => array,
            Item::Unreadable(what) => {
                self.mismatch.unreadable.push(format!("{key} ({what})"));
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
        if let Some(resize) = self.options.resize.filter(|_| path == "pos_embed")
            && let Some(positions) = &self.positions
            && let Some((values, from)) = positions.resize(array, resize)
        {
            self.report.resized = Some((from, positions.grid));
            return Some(values);
        }
        self.mismatch.wrong_shape.push(ShapeMismatch {
            key: key.to_owned(),
            expected: expected.to_vec(),
            got: array.shape.clone(),
        });
        None
    }
}

impl ModuleMapper for Fill<'_> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let path = self.path.join();
        let key = match self.names {
            Names::Ours => path.clone(),
            Names::Pytorch => pytorch_key(&path),
        };
        let shape = param.dims();
        let is_transposed = self.path.is_transposed(D, self.names);
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
