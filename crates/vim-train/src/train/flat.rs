//! A model's trainable parameters as flat tensors without gradients, in the order of its modules.
//!
//! Trainable parameters are float parameters that require a gradient, unlike running statistics.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;

fn flat<const D: usize>(tensor: Tensor<D>) -> Tensor<1> {
    let count = tensor.shape().num_elements();
    tensor.reshape([count])
}

/// Paths, such as `layers.0.mixer.forward.a_log`, and shapes of the trainable parameters.
pub fn parameters<M: Module>(model: &M) -> Vec<(String, Vec<usize>)> {
    #[derive(Default)]
    struct Parameters(Vec<String>, Vec<(String, Vec<usize>)>);
    impl ModuleVisitor for Parameters {
        fn enter_module(&mut self, name: &str, _container_type: &str) {
            self.0.push(name.to_owned());
        }
        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.0.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if param.val().is_require_grad() {
                self.1.push((self.0.join("."), param.dims().to_vec()));
            }
        }
    }
    let mut parameters = Parameters::default();
    model.visit(&mut parameters);
    parameters.1
}

/// Values of the trainable parameters.
pub fn values<M: Module>(model: &M) -> Vec<Tensor<1>> {
    struct Values(Vec<Tensor<1>>);
    impl ModuleVisitor for Values {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let value = param.val();
            if value.is_require_grad() {
                self.0.push(flat(value.inner()));
            }
        }
    }
    let mut values = Values(Vec::new());
    model.visit(&mut values);
    values.0
}

/// Gradients of the trainable parameters that have one.
pub fn gradients<M: Module>(model: &M, gradients: GradientsParams) -> Vec<Tensor<1>> {
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

/// `model`, which is on an autodiff device, with new values of its trainable parameters.
///
/// # Panics
///
/// If count or sizes of the values differ from the parameters'.
pub fn with_values<M: Module>(model: M, values: Vec<Tensor<1>>) -> M {
    struct Replace(std::vec::IntoIter<Tensor<1>>);
    impl ModuleMapper for Replace {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            if !param.val().is_require_grad() {
                return param;
            }
            let new = self.0.next().expect("a value for every parameter");
            param.map(|old| Tensor::from_inner(new.reshape(old.dims())).require_grad())
        }
    }
    let mut replace = Replace(values.into_iter());
    let model = model.map(&mut replace);
    assert!(replace.0.next().is_none(), "no more values than parameters");
    model
}
