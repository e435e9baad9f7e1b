//! A model's parameters as named arrays.

use std::io::Cursor;
use std::mem;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Tensor, TensorData, Transaction};
use vim_torch::{ArrayView, WriteError, write_pytorch, write_safetensors};

use super::names::{ModulePath, Names, ROPE_TABLES, has_pytorch_key, pytorch_key, transposed};
use crate::config::VimConfig;
use crate::rope::RopeTable;
use crate::vim::Vim;

/// Tensors by name, in f32 in the host's memory: a snapshot, which later training does not change.
#[derive(Clone, Debug, Default)]
pub struct NamedArrays {
    arrays: Vec<(String, TensorData)>,
    texts: Vec<(&'static str, String)>,
}

impl NamedArrays {
    /// Every parameter of `module` by its path, in the order of the modules.
    #[must_use]
    pub fn of<M: Module>(module: &M) -> Self {
        let mut collect = Collect::default();
        module.visit(&mut collect);
        collect.pending.read()
    }

    /// Every parameter of `module` as PyTorch has it: under `key(path)`, and a linear layer's
    /// weight as `[outputs, inputs]`.
    #[must_use]
    pub fn renamed<M: Module>(module: &M, key: impl Fn(&str) -> String) -> Self {
        let mut collect = Collect::default();
        module.visit(&mut collect);
        let Collect { pending, transposed: is_transposed, .. } = collect;
        let mut state = pending.read();
        for ((path, data), is_transposed) in state.arrays.iter_mut().zip(is_transposed) {
            *path = key(path);
            if is_transposed && let [rows, columns] = data.shape()[..] {
                let values: Vec<f32> = data.iter().collect();
                *data = TensorData::new(transposed(&values, columns), [columns, rows]);
            }
        }
        state
    }

    /// The same arrays and, behind them, the rotary positions of `config`, if it has some, under
    /// the original's names below `prefix`.
    #[must_use]
    pub fn with_rope(mut self, config: &VimConfig, prefix: &str) -> Self {
        if let Some(RopeTable { shape, cos, sin }) = config.rope_table() {
            for (key, values) in ROPE_TABLES.into_iter().zip([cos, sin]) {
                self.arrays.push((format!("{prefix}{key}"), TensorData::new(values, shape)));
            }
        }
        self
    }

    /// Those of the arrays whose names are to be kept.
    #[must_use]
    pub fn filtered(mut self, is_kept: impl Fn(&str) -> bool) -> Self {
        self.arrays.retain(|(name, _)| is_kept(name));
        self
    }

    /// The same arrays with one more text beside them in a file: a key and its value.
    #[must_use]
    pub fn with_metadata(mut self, key: &'static str, text: String) -> Self {
        self.texts.push((key, text));
        self
    }

    /// Names, each with its array.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &TensorData)> {
        self.arrays.iter().map(|(name, data)| (name.as_str(), data))
    }

    /// Numbers in all arrays.
    #[must_use]
    pub fn num_elements(&self) -> usize {
        self.iter().map(|(_, data)| data.num_elements()).sum()
    }

    /// The bytes of a safetensors file.
    ///
    /// # Errors
    ///
    /// [`WriteError::Safetensors`].
    pub fn to_safetensors(&self) -> Result<Vec<u8>, WriteError> {
        let mut bytes = Vec::new();
        write_safetensors(&mut bytes, self.views(), &self.texts())?;
        Ok(bytes)
    }

    /// The bytes of a PyTorch archive; see [`write_pytorch`].
    ///
    /// # Errors
    ///
    /// [`WriteError::Zip`].
    pub fn to_pytorch(&self) -> Result<Vec<u8>, WriteError> {
        let mut bytes = Cursor::new(Vec::new());
        write_pytorch(&mut bytes, self.views(), &self.texts())?;
        Ok(bytes.into_inner())
    }

    fn texts(&self) -> Vec<(&str, &str)> {
        self.texts.iter().map(|(key, text)| (*key, text.as_str())).collect()
    }

    fn views(&self) -> impl Iterator<Item = (&str, ArrayView<'_>)> {
        self.iter()
            .map(|(name, data)| (name, ArrayView { shape: data.shape(), bytes: data.as_bytes() }))
    }
}

/// Tensors to be read from their device in one transaction instead of one by one.
#[derive(Default)]
pub struct PendingArrays {
    names: Vec<String>,
    transaction: Transaction,
}

impl PendingArrays {
    /// Adds a tensor without gradients under `name`.
    pub fn add<const D: usize>(&mut self, name: String, tensor: Tensor<D>) {
        self.names.push(name);
        self.transaction = mem::take(&mut self.transaction).register(tensor);
    }

    /// Waits for the device.
    #[must_use]
    pub fn read(self) -> NamedArrays {
        let data = self.transaction.execute().into_iter().map(TensorData::convert::<f32>);
        NamedArrays { arrays: self.names.into_iter().zip(data).collect(), texts: Vec::new() }
    }
}

impl Vim {
    /// Every parameter under the names of `names`, in the order of the modules. The original's
    /// names include its tables of rotary positions.
    ///
    /// # Errors
    ///
    /// The path of the first parameter that the original has no counterpart of.
    pub fn state(&self, names: Names) -> Result<NamedArrays, String> {
        if names == Names::Ours {
            return Ok(NamedArrays::of(self));
        }
        let paths = self.parameters().into_iter().map(|parameter| parameter.path);
        if let Some(path) = paths.into_iter().find(|path| !has_pytorch_key(path)) {
            return Err(path);
        }
        Ok(NamedArrays::renamed(self, pytorch_key).with_rope(self.config(), ""))
    }
}

#[derive(Default)]
struct Collect {
    path: ModulePath,
    /// Whether PyTorch stores the transpose of each.
    transposed: Vec<bool>,
    pending: PendingArrays,
}

impl ModuleVisitor for Collect {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.transposed.push(self.path.is_transposed(D, Names::Pytorch));
        self.pending.add(self.path.join(), param.val().inner());
    }
}
