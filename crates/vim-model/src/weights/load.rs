//! Named arrays into a model, from memory or from a checkpoint of the PyTorch original.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor, TensorData};
use vim_torch::{Item, ReadError, Section, StateDict, read_checkpoint};

use super::names::{ModulePath, Names, is_buffer, pytorch_key, transposed};
use super::pos_embed::{Resize, resize_positions};
use crate::config::{ClassToken, ModelError, VimConfig};
use crate::vim::Vim;

/// Differences between a checkpoint and the model that are allowed; by default none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// The head may be missing or of another number of classes: the model keeps its own, if it has
    /// one.
    pub head: bool,
    /// Any parameter may be missing: the model keeps its own.
    pub missing: bool,
    /// Positions of another grid are resized, and rows of class tokens cut out.
    pub resize: Option<Resize>,
    /// Where the class tokens of the file stand: a model without class tokens drops them, and by
    /// `resize` their rows of positions.
    pub class_token: Option<ClassToken>,
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
    /// Names of tensors taken that have NaN or infinite numbers.
    pub not_finite: Vec<String>,
    /// Classes of a head that was not taken, in the file (0 where it has none) and in the model.
    pub head: Option<(usize, usize)>,
    /// Grids of positions that were resized, from and to, as rows and columns.
    pub resized: Option<([usize; 2], [usize; 2])>,
    /// Class tokens of the file that the model has not.
    pub dropped_class_tokens: usize,
    /// Keys of the file that are computed, not learned, and therefore ignored.
    pub computed: Vec<String>,
}

/// A checkpoint that cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The configuration is wrong.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The file is not there, or is no checkpoint.
    #[error("{} {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: ReadError,
    },
    /// The file and the model disagree.
    #[error("{} does not fit the model: {mismatch}", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// Every difference.
        mismatch: Box<StateDictMismatch>,
    },
}

/// Reads a checkpoint file into a model of `config`, which the file does not carry.
///
/// Any file that [`vim_torch::read_checkpoint`] reads. Strict: every parameter must be there, in
/// its shape, and nothing else. Half-precision and f64 tensors become f32.
///
/// # Errors
///
/// [`ImportError`] names the file, the configuration's key, or every key that differs.
pub fn import_pytorch(
    config: &VimConfig,
    path: &Path,
    device: &Device,
) -> Result<Vim, ImportError> {
    let model = config.init(device, 0)?;
    let unread = |source| ImportError::Read { path: path.to_path_buf(), source };
    let file = File::open(path).map_err(|error| unread(ReadError::Io(error)))?;
    let checkpoint = read_checkpoint(BufReader::new(file), Section::Model).map_err(unread)?;
    let (model, _) = model
        .load(&checkpoint.state, LoadOptions::default())
        .map_err(|mismatch| ImportError::Mismatch { path: path.to_path_buf(), mismatch })?;
    Ok(model)
}

/// `module` with every parameter from `state`, by path; the two must agree in every name and shape.
///
/// # Errors
///
/// [`StateDictMismatch`] lists every difference.
pub fn load_module<M: Module>(module: M, state: &StateDict) -> Result<M, Box<StateDictMismatch>> {
    let naming = Naming {
        names: Names::Ours,
        key: &str::to_owned,
        computed: &|_| false,
        absent: &|_| false,
    };
    let (module, _) = fill(module, state, naming, LoadOptions::default(), None)?;
    Ok(module)
}

/// [`load_module`] from a file of PyTorch that calls the parameter at a path `key(path)` and stores
/// a linear layer's weight as `[outputs, inputs]`. Keys that are `computed` are ignored, and a
/// parameter whose key is `absent` from the files stays as it is.
///
/// # Errors
///
/// As [`load_module`].
pub fn load_renamed<M: Module>(
    module: M,
    state: &StateDict,
    key: &dyn Fn(&str) -> String,
    computed: &dyn Fn(&str) -> bool,
    absent: &dyn Fn(&str) -> bool,
) -> Result<(M, LoadReport), Box<StateDictMismatch>> {
    let naming = Naming { names: Names::Pytorch, key, computed, absent };
    fill(module, state, naming, LoadOptions::default(), None)
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
        let names = names_in(&self, state);
        let key = match names {
            Names::Ours => str::to_owned,
            Names::Pytorch => pytorch_key,
        };
        let computed = |key: &str| is_buffer(key, &config);
        let naming = Naming { names, key: &key, computed: &computed, absent: &|_| false };
        fill(self, state, naming, options, Some(&config))
    }
}

/// What a state dict calls the parameters, and which of its keys are none.
#[derive(Clone, Copy)]
struct Naming<'a> {
    /// Whose layout.
    names: Names,
    /// From a path.
    key: &'a dyn Fn(&str) -> String,
    /// Whether a key is of something computed, not learned.
    computed: &'a dyn Fn(&str) -> bool,
    /// Whether a key is of a parameter that the file's model does not have.
    absent: &'a dyn Fn(&str) -> bool,
}

/// The naming of `state`: ours if it has a key that only we have.
fn names_in(model: &Vim, state: &StateDict) -> Names {
    let paths = model.parameters().into_iter().map(|parameter| parameter.path);
    let (ours, theirs): (BTreeSet<String>, BTreeSet<String>) =
        paths.map(|path| (path.clone(), pytorch_key(&path))).unzip();
    let is_ours = |key: &str| ours.contains(key) && !theirs.contains(key);
    if state.iter().any(|(key, _)| is_ours(key)) { Names::Ours } else { Names::Pytorch }
}

fn fill<M: Module>(
    module: M,
    state: &StateDict,
    naming: Naming<'_>,
    options: LoadOptions,
    config: Option<&VimConfig>,
) -> Result<(M, LoadReport), Box<StateDictMismatch>> {
    let (path, used) = (ModulePath::default(), BTreeSet::new());
    let (report, mismatch) = (LoadReport::default(), StateDictMismatch::default());
    let mut fill = Fill { path, state, naming, options, config, used, report, mismatch };
    let module = module.map(&mut fill);
    let Fill { used, mut report, mut mismatch, .. } = fill;
    let drops_head = options.head && config.is_some_and(|config| config.num_classes == 0);
    let drops_tokens = options.class_token.is_some()
        && config.is_some_and(|config| config.class_token == ClassToken::None);
    for (key, item) in state.iter().filter(|(key, _)| !used.contains(*key)) {
        match (key, item) {
            ("head.weight", _) if drops_head => {}
            ("head.bias", Item::Array(bias)) if drops_head => {
                report.head = Some((bias.values.len(), 0));
            }
            ("cls_token" | "cls_token_head" | "cls_token_tail", _) if drops_tokens => {
                report.dropped_class_tokens += 1;
            }
            _ if (naming.computed)(key) => report.computed.push(key.to_owned()),
            _ => mismatch.unexpected.push(key.to_owned()),
        }
    }
    if mismatch.is_none() { Ok((module, report)) } else { Err(Box::new(mismatch)) }
}

struct Fill<'a> {
    path: ModulePath,
    state: &'a StateDict,
    naming: Naming<'a>,
    options: LoadOptions,
    /// Of a whole model, whose positions may be resized.
    config: Option<&'a VimConfig>,
    used: BTreeSet<String>,
    report: LoadReport,
    mismatch: StateDictMismatch,
}

impl Fill<'_> {
    /// Where class tokens stand among the positions of the file, for a model of `config`.
    fn class_token_of_file(&self, config: &VimConfig) -> ClassToken {
        let has_token =
            ["cls_token", "cls_token_head"].iter().any(|key| self.state.get(key).is_some());
        match self.options.class_token {
            Some(token) if config.class_token == ClassToken::None && has_token => token,
            Some(_) | None => config.class_token,
        }
    }

    /// The values of the parameter at `path`, of shape `expected` in the file; `None` keeps the
    /// model's.
    fn values(&mut self, path: &str, key: &str, expected: &[usize]) -> Option<Vec<f32>> {
        let head = path.strip_prefix("head.").filter(|_| self.options.head);
        let Some(item) = self.state.get(key) else {
            if (self.naming.absent)(key) {
                return None;
            }
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
        if !array.values.iter().all(|value| value.is_finite()) {
            self.report.not_finite.push(key.to_owned());
        }
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
            && let Some(config) = self.config
            && let Some((values, from)) =
                resize_positions(array, self.class_token_of_file(config), config, resize)
        {
            self.report.resized = Some((from, config.grid())).filter(|(from, to)| from != to);
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
        let key = (self.naming.key)(&path);
        let shape = param.dims();
        let is_transposed = self.path.is_transposed(D, self.naming.names);
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

/// A tensor of a checkpoint whose shape is not the model's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeMismatch {
    /// Its name in the checkpoint.
    pub key: String,
    /// The shape that the model has, as the checkpoint would store it.
    pub expected: Vec<usize>,
    /// The shape in the file.
    pub got: Vec<usize>,
}

/// Every difference. All names and shapes are the checkpoint's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateDictMismatch {
    /// Parameters that the file lacks, with the model's shape.
    pub missing: Vec<(String, Vec<usize>)>,
    /// Keys that are not the model's.
    pub unexpected: Vec<String>,
    /// Parameters of another shape.
    pub wrong_shape: Vec<ShapeMismatch>,
    /// Keys that cannot be read as floats, with the reason.
    pub unreadable: Vec<String>,
}

impl StateDictMismatch {
    /// Whether there is no difference.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// One line for every difference.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.groups()
            .into_iter()
            .flat_map(|(what, items)| items.into_iter().map(move |item| format!("{what}: {item}")))
            .collect()
    }

    fn groups(&self) -> [(&'static str, Vec<String>); 4] {
        let missing = self.missing.iter();
        let wrong_shape = self.wrong_shape.iter().map(|ShapeMismatch { key, expected, got }| {
            format!("{key} (expected {expected:?}, got {got:?})")
        });
        [
            ("missing", missing.map(|(key, shape)| format!("{key} {shape:?}")).collect()),
            ("not in the model", self.unexpected.clone()),
            ("of another shape", wrong_shape.collect()),
            ("unreadable", self.unreadable.clone()),
        ]
    }
}

impl std::error::Error for StateDictMismatch {}

/// In one line, each group cut after a few names.
impl fmt::Display for StateDictMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 4;
        let mut parts = Vec::new();
        for (what, items) in self.groups().into_iter().filter(|(_, items)| !items.is_empty()) {
            let shown = items[..items.len().min(SHOWN)].join(", ");
            let more = items.len().saturating_sub(SHOWN);
            let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
            parts.push(format!("{what}: {shown}{rest}"));
        }
        f.write_str(&parts.join("; "))
    }
}
