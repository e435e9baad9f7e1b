//! Gradients by name.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Gradients, Tensor};
use vim_dense::detection::Detector;

use super::super::arrays::Floats;

/// The gradient of every parameter in PyTorch's shape, by path: of the backbone through its last
/// feature, of all else from the loss. Zeros where the loss does not depend on it.
pub(super) fn gradients(
    model: &Detector,
    heads: &Gradients,
    through: &Gradients,
) -> BTreeMap<String, Floats> {
    struct Collect<'a> {
        heads: &'a Gradients,
        through: &'a Gradients,
        path: Vec<String>,
        linear: Vec<bool>,
        found: BTreeMap<String, Floats>,
    }
    impl ModuleVisitor for Collect<'_> {
        fn enter_module(&mut self, name: &str, container_type: &str) {
            self.path.push(name.to_owned());
            self.linear.push(container_type == "Struct:Linear");
        }
        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.path.pop();
            self.linear.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let value = param.val();
            let is_backbone = self.path.first().is_some_and(|name| name == "backbone");
            let grads = if is_backbone { self.through } else { self.heads };
            let grad = value.grad(grads).unwrap_or_else(|| value.inner().zeros_like());
            // PyTorch stores a linear layer's weight transposed.
            let is_linear = D == 2 && self.linear.last() == Some(&true);
            let grad = if is_linear { grad.transpose() } else { grad };
            let shape = grad.dims().to_vec();
            self.found.insert(
                self.path.join("."),
                Floats { shape, values: grad.into_data().iter().collect() },
            );
        }
    }
    let (path, linear, found) = (Vec::new(), Vec::new(), BTreeMap::new());
    let mut collect = Collect { heads, through, path, linear, found };
    model.visit(&mut collect);
    collect.found
}
