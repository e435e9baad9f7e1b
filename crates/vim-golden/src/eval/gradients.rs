//! Parameters and gradients by name.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Gradients, Tensor};

use super::arrays::Floats;

/// Of each parameter of `model`, by path and in PyTorch's shape, its gradient among those that
/// `grads` gives for the path, zeros where it has none; its value where `grads` gives nothing.
pub(super) fn by_path<'a>(
    model: &impl Module,
    grads: &'a dyn Fn(&str) -> Option<&'a Gradients>,
) -> BTreeMap<String, Floats> {
    struct Collect<'a> {
        grads: &'a dyn Fn(&str) -> Option<&'a Gradients>,
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
            let (path, value) = (self.path.join("."), param.val());
            let found = match (self.grads)(&path) {
                Some(grads) => value.grad(grads).unwrap_or_else(|| value.inner().zeros_like()),
                None => value,
            };
            // PyTorch stores a linear layer's weight transposed.
            let is_linear = D == 2 && self.linear.last() == Some(&true);
            let found = if is_linear { found.transpose() } else { found };
            let shape = found.dims().to_vec();
            self.found.insert(path, Floats { shape, values: found.into_data().iter().collect() });
        }
    }
    let (path, linear, found) = (Vec::new(), Vec::new(), BTreeMap::new());
    let mut collect = Collect { grads, path, linear, found };
    model.visit(&mut collect);
    collect.found
}
