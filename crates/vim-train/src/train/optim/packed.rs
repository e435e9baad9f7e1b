//! The optimizer's state where a device takes all tensors of a model in a few launches.

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use vim_kernels::{ParamStep, AdamWHyper, FlatParams};

use super::{Moments, Own};
use crate::train::multi_tensor::Rule;

/// The moments of all parameters, each in one tensor.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    /// Of the parameters, in their order.
    own: Vec<Own>,
    packing: FlatParams,
    /// The parameters after the last step, of which they are parts; none before the first.
    value: Option<Tensor<1>>,
    moments: [Tensor<1>; 2],
}

impl Packed {
    /// From the moments of each parameter by its path; zeros where there are none.
    pub(super) fn new(
        own: Vec<Own>,
        values: &[Tensor<1>],
        mut moments: BTreeMap<String, Moments>,
    ) -> Self {
        let packing = FlatParams::of(values);
        let pairs = own
            .iter()
            .zip(values)
            .map(|(own, value)| moments.remove(&own.path).unwrap_or_else(|| Moments::zeros(value)));
        let (first, second) = pairs.map(|Moments { first, second }| (first, second)).unzip();
        let moments = [packing.pack(first), packing.pack(second)];
        Self { own, packing, value: None, moments }
    }

    /// The sum of the squares of gradients, `[1]`.
    pub(super) fn square_norm(&self, gradients: &[Tensor<1>]) -> Tensor<1> {
        self.packing.sum_of_squares(gradients)
    }

    /// The parameters after the last step, if there was one, and how they lie.
    pub(super) fn value(&self) -> Option<(&FlatParams, &Tensor<1>)> {
        self.value.as_ref().map(|value| (&self.packing, value))
    }

    /// A step, which changes nothing where `square_norm` is not finite; returns the parameters.
    pub(super) fn step(
        &mut self,
        values: Vec<Tensor<1>>,
        gradients: Vec<Tensor<1>>,
        lr: f64,
        rule: Rule,
        square_norm: Tensor<1>,
        limit: Option<f64>,
    ) -> Vec<Tensor<1>> {
        let Rule { betas, eps, corrections: [first, second] } = rule;
        let rate = |own: &Own| ParamStep {
            rate: own.rate(lr) / first,
            keep: 1.0 - own.rate(lr) * own.weight_decay,
        };
        let rates: Vec<ParamStep> = self.own.iter().map(rate).collect();
        let rule = AdamWHyper { betas, eps, limit, root_scale: second.sqrt().recip() };
        let moments = self.moments.clone();
        let [value, first, second] =
            self.packing.adamw(values, gradients, moments, &rates, square_norm, rule);
        self.moments = [first, second];
        self.packing.parts(self.value.insert(value))
    }

    /// The moments of each parameter by its path.
    pub(super) fn moments(&self) -> BTreeMap<String, Moments> {
        let [first, second] = self.moments.each_ref().map(|packed| self.packing.parts(packed));
        let moments = first.into_iter().zip(second);
        let moments = moments.map(|(first, second)| Moments { first, second });
        self.own.iter().map(|own| own.path.clone()).zip(moments).collect()
    }
}
