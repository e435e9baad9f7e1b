//! What several tests build and measure.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Int, Tensor, TensorData};
use vim_dense::{Segmenter, SegmenterConfig};
use vim_model::{LastTap, NamedArrays, Preset, Rope, Tapped, VimConfig};
use vim_torch::{Array, Element, Item, StateDict};

/// Classes of every model here.
pub(crate) const CLASSES: usize = 5;

/// Heads and backbone of a model of every part and no size: 2 × 2 windows at least at stride 32.
pub(crate) fn small() -> (SegmenterConfig, VimConfig) {
    let heads = SegmenterConfig {
        out_indices: vec![0, 1, 2, 3],
        channels: Some(6),
        aux_channels: 5,
        dropout: 0.0,
        ..SegmenterConfig::default()
    };
    let backbone = VimConfig {
        image_size: 64.into(),
        depth: 4,
        d_model: 8,
        d_state: 2,
        drop_path: 0.0,
        ..SegmenterConfig::backbone(Preset::Tiny)
    };
    (heads, backbone)
}

/// Models that differ in their pyramids and features: `(name, heads, backbone)`.
pub(crate) fn variants() -> Vec<(&'static str, SegmenterConfig, VimConfig)> {
    let (heads, backbone) = small();
    let residual = |last| SegmenterConfig { features: Tapped::Residual, last, ..heads.clone() };
    let patches_of_8 = VimConfig { patch_size: 8, ..backbone.clone() };
    vec![
        ("patches of 16", heads.clone(), backbone.clone()),
        ("patches of 8", heads.clone(), patches_of_8),
        ("stream", residual(LastTap::Add), VimConfig { rope: Rope::Both, ..backbone.clone() }),
        (
            "normed stream",
            residual(LastTap::AddNorm),
            VimConfig { rope: Rope::Hidden, d_state: 3, ..backbone.clone() },
        ),
        (
            "one block for all levels",
            SegmenterConfig { out_indices: vec![2], ..heads.clone() },
            backbone.clone(),
        ),
        (
            "an odd grid",
            SegmenterConfig { out_indices: vec![3], ..residual(LastTap::None) },
            VimConfig { image_size: 80.into(), ..backbone },
        ),
    ]
}

/// A model of which no number is where it started, so that no zero or one hides a mistake;
/// variances stay positive.
pub(crate) fn shaken(heads: &SegmenterConfig, backbone: &VimConfig, device: &Device) -> Segmenter {
    struct Shake(usize);
    impl ModuleMapper for Shake {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let requires = param.val().is_require_grad();
            let shaken = param.map(|value| {
                self.0 += 1;
                let shape = value.dims();
                let noise: Vec<f32> = (0..shape.iter().product())
                    .map(|i: usize| 0.2 * ((i * 7 + self.0 * 13) as f32 * 1.7).sin())
                    .collect();
                (value.clone() + Tensor::from_data(TensorData::new(noise, shape), &value.device()))
                    .detach()
            });
            shaken.set_require_grad(requires)
        }
    }
    heads.init(backbone, CLASSES, device, 5).unwrap().map(&mut Shake(0))
}

/// Arrays as a file has them.
pub(crate) fn dict(arrays: &NamedArrays) -> StateDict {
    let mut state = StateDict::default();
    for (key, data) in arrays.iter() {
        let (shape, values) = (data.shape().to_vec(), data.iter().collect());
        state.insert(key.to_owned(), Item::Array(Array { shape, values, stored: Element::F32 }));
    }
    state
}

/// Images without a symmetry, `[B, 3, S, S]`; `first` is the number of the first.
pub(crate) fn images(first: usize, count: usize, side: usize, device: &Device) -> Tensor<4> {
    let size = 3 * side * side;
    let numbers: Vec<f32> = (first * size..(first + count) * size)
        .map(|i| ((i % 8191) as f32 * 0.37 + (i / 97) as f32).sin())
        .collect();
    Tensor::from_data(TensorData::new(numbers, [count, 3, side, side]), device)
}

/// Their labels, `[B, S, S]`: a few are 255.
pub(crate) fn labels(first: usize, count: usize, side: usize) -> Vec<i64> {
    let label = |i: usize| {
        let pixel = i % (side * side);
        let block = pixel / side / 5 * 3 + pixel % side / 7 + i / (side * side);
        if i % 11 == 3 { 255 } else { (block % CLASSES) as i64 }
    };
    (first * side * side..(first + count) * side * side).map(label).collect()
}

pub(crate) fn label_tensor(
    first: usize,
    count: usize,
    side: usize,
    device: &Device,
) -> Tensor<3, Int> {
    Tensor::from_data(TensorData::new(labels(first, count, side), [count, side, side]), device)
}

/// Numbers by path, each with its shape.
pub(crate) type Named = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// Every parameter and statistic.
pub(crate) fn values(model: &Segmenter) -> Named {
    collect(model, None)
}

/// The gradient of every parameter that has one.
pub(crate) fn gradients(model: &Segmenter, grads: &Gradients) -> Named {
    collect(model, Some(grads))
}

fn collect(model: &Segmenter, grads: Option<&Gradients>) -> Named {
    struct Collect<'a>(Option<&'a Gradients>, Vec<String>, Named);
    impl ModuleVisitor for Collect<'_> {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.1.push(name.to_owned());
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.1.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let found = match self.0 {
                Some(grads) => param.val().grad(grads),
                None => Some(param.val()),
            };
            if let Some(found) = found {
                self.2.insert(self.1.join("."), (found.dims().to_vec(), numbers(found)));
            }
        }
    }
    let mut collect = Collect(grads, Vec::new(), Named::new());
    model.visit(&mut collect);
    collect.2
}

pub(crate) fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter().collect()
}

/// max |a − b| / max |b|.
pub(crate) fn error(a: &[f32], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let largest = b.iter().fold(0.0_f64, |max, x| max.max(x.abs()));
    let worst = a.iter().zip(b).fold(0.0_f64, |max, (x, y)| {
        let difference = f64::from(*x) - y;
        if difference.is_nan() { f64::INFINITY } else { max.max(difference.abs()) }
    });
    worst / largest.max(f64::MIN_POSITIVE)
}
