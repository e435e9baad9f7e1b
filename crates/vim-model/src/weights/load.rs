//! Named arrays into a model, from memory or from a checkpoint of the PyTorch original.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor, TensorData};
use vim_torch::{Array, Item, ReadError, Section, StateDict, read_checkpoint};

use super::head_rows::{ClassAxis, HeadRows, Refusal};
use super::names::{ModulePath, Names, is_buffer, pytorch_key, transposed};
use super::pos_embed::{Grid, Resize, grid_of, resize_positions};
use crate::config::{ClassToken, ModelError, VimConfig};
use crate::vim::Vim;

/// Differences between a checkpoint and the model that are allowed; by default none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions<'a> {
    /// The head may be missing or of another number of classes: the model keeps its own, if it has
    /// one.
    pub head: bool,
    /// Any parameter may be missing: the model keeps its own.
    pub missing: bool,
    /// Tensors that the model does not have are ignored.
    pub extra: bool,
    /// Positions of another grid are resized, and rows of class tokens cut out.
    pub resize: Option<Resize>,
    /// Where the class tokens of the file stand: a model without class tokens drops them, and by
    /// `resize` their rows of positions.
    pub class_token: Option<ClassToken>,
    /// Rows and columns of patches that the positions of the file are of, where it is known. Else
    /// they are a square, or of the model's grid where that is no square and has as many patches.
    pub grid: Option<[usize; 2]>,
    /// Of each class of the model the class of the file whose numbers it takes; `None` keeps its
    /// initial values. The head is then taken class by class, and the file may have another number
    /// of classes. What is of no class, as a detector's background, is always the file's.
    pub rows: Option<&'a [Option<usize>]>,
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
    /// Classes of a head that was taken by [`LoadOptions::rows`].
    pub head_rows: Option<HeadRows>,
    /// Grids of positions that were resized, from and to, as rows and columns.
    pub resized: Option<([usize; 2], [usize; 2])>,
    /// Rows and columns of the model's patches, which is no square, where nothing says that the
    /// positions of the file are of it: they could be of another grid of as many patches.
    pub assumed_grid: Option<[usize; 2]>,
    /// Class tokens of the file that the model has not.
    pub dropped_class_tokens: usize,
    /// Keys of the file that are computed, not learned, and therefore ignored.
    pub computed: Vec<String>,
    /// Keys of the file that are not the model's.
    pub extra: Vec<String>,
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
/// Any file that [`vim_torch::read_checkpoint`] reads: PyTorch's archives and safetensors, under
/// the original's names or this crate's. Strict: every parameter must be there, in its shape, and
/// nothing else. Half-precision and f64 tensors become f32.
///
/// # Errors
///
/// [`ImportError`] names the file, the configuration's key, or every key that differs.
#[doc(alias = "load")]
#[doc(alias = "load_safetensors")]
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
    let (module, _) = load_named(module, state, &Naming::OURS, LoadOptions::default(), None)?;
    Ok(module)
}

/// [`load_module`] under the names of `naming`, with the differences that `options` allows.
/// `backbone` is the module's Vision Mamba, whose positions may be resized.
///
/// # Errors
///
/// [`StateDictMismatch`] lists every difference that `options` does not allow.
pub fn load_named<M: Module>(
    module: M,
    state: &StateDict,
    naming: &Naming<'_>,
    options: LoadOptions<'_>,
    backbone: Option<&VimConfig>,
) -> Result<(M, LoadReport), Box<StateDictMismatch>> {
    fill(module, state, *naming, options, backbone)
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
        options: LoadOptions<'_>,
    ) -> Result<(Self, LoadReport), Box<StateDictMismatch>> {
        let config = self.config().clone();
        let names = names_in(&self, state);
        let key = match names {
            Names::Ours => str::to_owned,
            Names::Pytorch => pytorch_key,
        };
        let computed = |key: &str| is_buffer(key, &config);
        let naming = Naming { names, key: &key, computed: &computed, ..Naming::OURS };
        fill(self, state, naming, options, Some(&config))
    }
}

/// What a state dict calls the parameters of a module, which of its keys are none, and which
/// parameters [`LoadOptions`] speaks of.
#[derive(Clone, Copy)]
pub struct Naming<'a> {
    /// Whose layout: PyTorch stores a linear layer's weight as `[outputs, inputs]`.
    pub names: Names,
    /// The key of the parameter at a path.
    pub key: &'a dyn Fn(&str) -> String,
    /// Whether a key is of something computed, not learned, which is ignored.
    pub computed: &'a dyn Fn(&str) -> bool,
    /// Whether a key is of a parameter that the file's model does not have: it stays as it is.
    pub absent: &'a dyn Fn(&str) -> bool,
    /// Begins the paths of the Vision Mamba in the module.
    pub backbone: &'a str,
    /// Whether the parameter at a path has a number for each class.
    pub head: &'a dyn Fn(&str) -> bool,
    /// The path of the parameter `[K]` that tells the number of classes, and how many more numbers
    /// it has, which are of none.
    pub classes: (&'a str, usize),
    /// Whether a key is of a part that this model was built without: it is not read.
    pub unused: &'a dyn Fn(&str) -> bool,
}

impl fmt::Debug for Naming<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Naming").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Naming<'_> {
    /// This program's names of a classifier, or of any module that `options` allows nothing for.
    pub const OURS: Self = Naming {
        names: Names::Ours,
        key: &str::to_owned,
        computed: &|_| false,
        absent: &|_| false,
        backbone: "",
        head: &|path| path.starts_with("head."),
        classes: ("head.bias", 0),
        unused: &|_| false,
    };
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
    options: LoadOptions<'_>,
    config: Option<&VimConfig>,
) -> Result<(M, LoadReport), Box<StateDictMismatch>> {
    let (path, used) = (ModulePath::default(), BTreeSet::new());
    let (report, mismatch) = (LoadReport::default(), StateDictMismatch::default());
    let kept = 0;
    let mut fill = Fill { path, state, naming, options, config, used, kept, report, mismatch };
    let module = module.map(&mut fill);
    let Fill { used, kept, mut report, mut mismatch, .. } = fill;
    report.parameters -= kept;
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
            _ if options.extra || (naming.unused)(key) => report.extra.push(key.to_owned()),
            _ => mismatch.unexpected.push(key.to_owned()),
        }
    }
    if mismatch.is_none() { Ok((module, report)) } else { Err(Box::new(mismatch)) }
}

struct Fill<'a> {
    path: ModulePath,
    state: &'a StateDict,
    naming: Naming<'a>,
    options: LoadOptions<'a>,
    /// Of a whole model, whose positions may be resized.
    config: Option<&'a VimConfig>,
    used: BTreeSet<String>,
    /// Numbers that arrays taken by rows keep of the model's.
    kept: usize,
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

    /// The values of the parameter at `path`, of shape `expected` in the file, where `axis` is the
    /// dimension of classes if it has one; `None` keeps the model's. `own` are the model's, in the
    /// file's layout.
    fn values(
        &mut self,
        path: &str,
        key: &str,
        expected: &[usize],
        axis: usize,
        own: &dyn Fn() -> Vec<f32>,
    ) -> Option<Vec<f32>> {
        let has_classes = (self.naming.head)(path);
        let is_head = self.options.head && has_classes;
        let Some(item) = self.state.get(key) else {
            if (self.naming.absent)(key) {
                return None;
            }
            if is_head {
                let (tells, others) = self.naming.classes;
                if path == tells || self.report.head.is_none() {
                    self.report.head = Some((0, expected.first()?.saturating_sub(others)));
                }
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
        if has_classes && let Some(rows) = self.options.rows {
            return self.rows(path, key, array, ClassAxis { expected, axis, rows }, own());
        }
        if !array.values.iter().all(|value| value.is_finite()) {
            self.report.not_finite.push(key.to_owned());
        }
        let is_positions = path.strip_prefix(self.naming.backbone) == Some("pos_embed");
        if is_positions && let Some(config) = self.config {
            return self.positions(key, array, expected, config);
        }
        if array.shape == expected {
            return Some(array.values.clone());
        }
        if is_head {
            let (tells, others) = self.naming.classes;
            if path == tells {
                let [file, model] = [array.values.len(), expected.iter().product()];
                self.report.head =
                    Some((file.saturating_sub(others), model.saturating_sub(others)));
            }
            return None;
        }
        self.wrong_shape(key, array, expected)
    }

    /// The numbers of the classes of `array` that the options ask for, among the model's `own`.
    fn rows(
        &mut self,
        path: &str,
        key: &str,
        array: &Array,
        head: ClassAxis<'_>,
        own: Vec<f32>,
    ) -> Option<Vec<f32>> {
        // Only this array tells the number of classes: others may have rows of none.
        let tells = path == self.naming.classes.0;
        let taken = match head.take(array, own) {
            Ok(_) if tells && head.others() != Some(self.naming.classes.1) => {
                self.mismatch.rows.push(format!("{key} ({})", head.count_differs()));
                return None;
            }
            Ok(taken) => taken,
            Err(Refusal::Rows(words)) => {
                self.mismatch.rows.push(format!("{key} ({words})"));
                return None;
            }
            Err(Refusal::Shape) => return self.wrong_shape(key, array, head.expected),
        };
        let classes = *self.report.head_rows.get_or_insert(taken.classes);
        if classes.file != taken.classes.file {
            let length = classes.file + head.others().unwrap_or_default();
            return self.wrong_shape(key, array, &head.shape_of(length));
        }
        if !taken.is_finite {
            self.report.not_finite.push(key.to_owned());
        }
        if taken.count == 0 {
            return None;
        }
        self.kept += taken.values.len() - taken.count;
        Some(taken.values)
    }

    /// The table of positions `array` as one of the model of `config`. Tables of as many rows may
    /// be of different grids, so that the shape alone does not say whether one fits.
    fn positions(
        &mut self,
        key: &str,
        array: &Array,
        expected: &[usize],
        config: &VimConfig,
    ) -> Option<Vec<f32>> {
        let (from, to) = (self.class_token_of_file(config), config.grid());
        let is_whole = array.shape == expected;
        let grid = match grid_of(array, from, self.options.grid, config) {
            Some(Grid::Known(grid)) => grid,
            Some(Grid::Assumed(grid)) => {
                self.report.assumed_grid = Some(grid);
                grid
            }
            Some(Grid::Unknown(patches)) if self.options.resize.is_some() => {
                self.mismatch.grid.push(format!(
                    "{key} ({patches} patches are no square, and the file does not record their \
                     rows and columns: import it with the configuration that it was trained with)"
                ));
                return None;
            }
            Some(Grid::Unknown(_)) | None => return self.wrong_shape(key, array, expected),
        };
        if is_whole && grid == to {
            return Some(array.values.clone());
        }
        if let Some(resize) = self.options.resize
            && let Some(values) = resize_positions(array, from, grid, config, resize)
        {
            self.report.resized = Some((grid, to)).filter(|(from, to)| from != to);
            return Some(values);
        }
        if !is_whole {
            return self.wrong_shape(key, array, expected);
        }
        let [[rows, columns], [own_rows, own_columns]] = [grid, to];
        self.mismatch.grid.push(format!(
            "{key} (expected {own_rows} x {own_columns} patches, got {rows} x {columns})"
        ));
        None
    }

    fn wrong_shape(&mut self, key: &str, array: &Array, expected: &[usize]) -> Option<Vec<f32>> {
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
        // A linear layer's outputs are the last dimension here, and the first of PyTorch.
        let axis = usize::from(self.path.is_transposed(D, Names::Pytorch) && !is_transposed);
        let own = || {
            let values: Vec<f32> = param.val().into_data().iter().collect();
            if is_transposed { transposed(&values, shape[1]) } else { values }
        };
        let Some(values) = self.values(&path, &key, &expected, axis, &own) else { return param };
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
    /// Positions of another grid of patches, or of one that nothing tells, each in words.
    pub grid: Vec<String>,
    /// Arrays without the rows that [`LoadOptions::rows`] asks for, each in words.
    pub rows: Vec<String>,
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

    fn groups(&self) -> [(&'static str, Vec<String>); 6] {
        let missing = self.missing.iter();
        let wrong_shape = self.wrong_shape.iter().map(|ShapeMismatch { key, expected, got }| {
            format!("{key} (expected {expected:?}, got {got:?})")
        });
        [
            ("missing", missing.map(|(key, shape)| format!("{key} {shape:?}")).collect()),
            ("not in the model", self.unexpected.clone()),
            ("of another shape", wrong_shape.collect()),
            ("of another grid", self.grid.clone()),
            ("of other classes", self.rows.clone()),
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
