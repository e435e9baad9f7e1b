//! A model's numbers as flat tensors without gradients, in the order of [`Vim::parameters`].

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use vim_model::Vim;

fn flat<const D: usize>(tensor: Tensor<D>) -> Tensor<1> {
    let count = tensor.shape().num_elements();
    tensor.reshape([count])
}

/// The parameters.
#[must_use]
pub fn values(model: &Vim) -> Vec<Tensor<1>> {
    struct Values(Vec<Tensor<1>>);
    impl ModuleVisitor for Values {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.push(flat(param.val().inner()));
        }
    }
    let mut values = Values(Vec::new());
    model.visit(&mut values);
    values.0
}

/// Their gradients; as many as parameters unless some have none.
#[must_use]
pub fn gradients(model: &Vim, gradients: GradientsParams) -> Vec<Tensor<1>> {
    struct Gradients(GradientsParams, Vec<Tensor<1>>);
    impl ModuleVisitor for Gradients {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.1.extend(self.0.remove::<D>(param.id).map(flat));
        }
    }
    let mut gradients = Gradients(gradients, Vec::new());
    model.visit(&mut gradients);
    gradients.1
}

/// `model` with other parameters.
///
/// # Panics
///
/// If there are not as many, of the same sizes.
#[must_use]
pub fn with_values(model: Vim, values: Vec<Tensor<1>>) -> Vim {
    struct Replace(std::vec::IntoIter<Tensor<1>>);
    impl ModuleMapper for Replace {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let new = self.0.next().expect("a value for every parameter");
            param.map(|old| {
                let new = new.reshape(old.dims());
                let requires_grad = old.is_require_grad();
                let new = if old.device().is_autodiff() { Tensor::from_inner(new) } else { new };
                if requires_grad { new.require_grad() } else { new }
            })
        }
    }
    let mut replace = Replace(values.into_iter());
    let model = model.map(&mut replace);
    assert!(replace.0.next().is_none(), "no more values than parameters");
    model
}
