//! What several tests build and measure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Tensor, TensorData, activation::log_softmax};
use vim_model::{ImageSize, Names, Preset, SsmConfig, Vim, VimConfig};
use vim_torch::{Array, Element, Item, StateDict};

/// Numbers by parameter path, each with its shape, a linear layer's weight as PyTorch stores it.
pub(crate) type Named = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

pub(crate) fn fixture(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "fixtures", name].iter().collect()
}

/// 17 tokens, 16 channels, two blocks: every part of the model, none of the size.
pub(crate) fn small() -> VimConfig {
    VimConfig {
        image_size: 16.into(),
        patch_size: 4,
        depth: 2,
        d_model: 16,
        d_state: 4,
        num_classes: 5,
        ssm: SsmConfig::default(),
        ..VimConfig::preset(Preset::Tiny)
    }
}

/// Images that look like nothing in particular and have no symmetry, `[B, 3, H, W]`.
pub(crate) fn images(batch: usize, size: impl Into<ImageSize>) -> TensorData {
    let ImageSize { height, width } = size.into();
    let numbers: Vec<f32> =
        (0..batch * 3 * height * width).map(|i| ((i * i) as f32 * 0.37 + i as f32).sin()).collect();
    TensorData::new(numbers, [batch, 3, height, width])
}

/// The same as a tensor of a device without an autodiff graph.
pub(crate) fn batch(count: usize, size: impl Into<ImageSize>) -> Tensor<4> {
    Tensor::from_data(images(count, size), &Device::flex())
}

/// Logits in evaluation.
pub(crate) fn logits(model: &Vim, images: Tensor<4>) -> Vec<f32> {
    numbers(model.forward(images).unwrap())
}

/// A model on a device without an autodiff graph.
pub(crate) fn build(config: &VimConfig, seed: u64) -> Vim {
    config.init(&Device::flex(), seed).unwrap()
}

/// Mean cross-entropy against one label per image, `[1]`.
pub(crate) fn cross_entropy(logits: Tensor<2>, labels: &[i64]) -> Tensor<1> {
    let [batch, classes] = logits.dims();
    let mut one_hot = vec![0.0_f32; batch * classes];
    for (row, &label) in labels.iter().enumerate() {
        one_hot[row * classes + usize::try_from(label).unwrap()] = 1.0;
    }
    let one_hot = Tensor::from_data(TensorData::new(one_hot, [batch, classes]), &logits.device());
    (log_softmax(logits, 1) * one_hot).sum().neg() / batch as f64
}

/// Every parameter of the model.
pub(crate) fn values(model: &Vim) -> Named {
    collect(model, None)
}

/// Every parameter's gradient.
pub(crate) fn gradients(model: &Vim, grads: &Gradients) -> Named {
    collect(model, Some(grads))
}

fn collect(model: &Vim, grads: Option<&Gradients>) -> Named {
    let mut collect = Collect { grads, path: Vec::new(), found: Named::new() };
    model.visit(&mut collect);
    collect.found
}

struct Collect<'a> {
    grads: Option<&'a Gradients>,
    path: Vec<String>,
    found: Named,
}

impl ModuleVisitor for Collect<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let path = self.path.join(".");
        let tensor = match self.grads {
            Some(grads) => {
                param.val().grad(grads).unwrap_or_else(|| panic!("no gradient for {path}"))
            }
            None => param.val(),
        };
        let is_linear = D == 2 && path.ends_with(".weight");
        let tensor = if is_linear { tensor.transpose() } else { tensor };
        self.found.insert(path, (tensor.dims().to_vec(), numbers(tensor)));
    }
}

/// The checkpoint that holds `arrays`.
pub(crate) fn dict(arrays: Vec<(String, Array)>) -> StateDict {
    let mut state = StateDict::default();
    for (key, array) in arrays {
        state.insert(key, Item::Array(array));
    }
    state
}

/// The model's parameters as arrays of a file.
pub(crate) fn arrays(model: &Vim, names: Names) -> Vec<(String, Array)> {
    let array = |(key, data): (&str, &TensorData)| {
        let (shape, values) = (data.shape().to_vec(), data.iter().collect());
        (key.to_owned(), Array { shape, values, stored: Element::F32 })
    };
    model.state(names).unwrap().iter().map(array).collect()
}

pub(crate) fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec().unwrap()
}

/// max |a − b| / max |b|: the error of `a` in units of the largest reference.
pub(crate) fn error(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let largest = b.iter().fold(0.0_f64, |max, x| max.max(f64::from(x.abs())));
    let worst = a.iter().zip(b).fold(0.0_f64, |max, (x, y)| {
        let difference = f64::from(*x) - f64::from(*y);
        if difference.is_nan() { f64::INFINITY } else { max.max(difference.abs()) }
    });
    worst / largest
}
