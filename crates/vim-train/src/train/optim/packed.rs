//! The optimizer's state on devices that update all tensors of a model in a few launches.

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use vim_kernels::{AdamWHyper, FlatParams, ParamStep};

use super::{Moments, ParamGroup, Rule};

/// The moments of all parameters, each in one tensor.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    packing: FlatParams,
    /// The parameters after the last step, in one tensor; `None` before the first.
    value: Option<Tensor<1>>,
    moments: [Tensor<1>; 2],
}

impl Packed {
    /// Packs the moments of each parameter, by path; missing ones are zeros.
    pub(super) fn new(
        groups: &[ParamGroup],
        values: &[Tensor<1>],
        mut moments: BTreeMap<String, Moments>,
    ) -> Self {
        let packing = FlatParams::of(values);
        let pairs = groups.iter().zip(values).map(|(group, value)| {
            moments.remove(&group.path).unwrap_or_else(|| Moments::zeros(value))
        });
        let (first, second) = pairs.map(|Moments { first, second }| (first, second)).unzip();
        let moments = [packing.pack(first), packing.pack(second)];
        Self { packing, value: None, moments }
    }

    /// The sum of the squares of gradients, `[1]`.
    pub(super) fn square_norm(&self, gradients: &[Tensor<1>]) -> Tensor<1> {
        self.packing.sum_of_squares(gradients)
    }

    /// The parameters after the last step, if any, and their layout.
    pub(super) fn value(&self) -> Option<(&FlatParams, &Tensor<1>)> {
        self.value.as_ref().map(|value| (&self.packing, value))
    }

    /// A step; changes nothing if `square_norm` is not finite. Returns the parameters.
    pub(super) fn step(
        &mut self,
        values: Vec<Tensor<1>>,
        gradients: Vec<Tensor<1>>,
        rates: &[ParamStep],
        rule: Rule,
        square_norm: Tensor<1>,
        limit: Option<f64>,
    ) -> Vec<Tensor<1>> {
        let Rule { betas, eps, corrections: [_, second] } = rule;
        let rule = AdamWHyper { betas, eps, limit, root_scale: second.sqrt().recip() };
        let moments = self.moments.clone();
        let [value, first, second] =
            self.packing.adamw(values, gradients, moments, rates, square_norm, rule);
        self.moments = [first, second];
        self.packing.parts(self.value.insert(value))
    }

    /// The moments of each parameter by its path.
    pub(super) fn moments(&self, groups: &[ParamGroup]) -> BTreeMap<String, Moments> {
        let [first, second] = self.moments.each_ref().map(|packed| self.packing.parts(packed));
        let moments = first.into_iter().zip(second);
        let moments = moments.map(|(first, second)| Moments { first, second });
        groups.iter().map(|group| group.path.clone()).zip(moments).collect()
    }
}

/// Rate and decay of each parameter at the learning rate `lr`.
pub(super) fn rates(groups: &[ParamGroup], lr: f64, rule: Rule) -> Vec<ParamStep> {
    let [first, _] = rule.corrections;
    let rate = |group: &ParamGroup| ParamStep {
        rate: group.rate(lr) / first,
        keep: 1.0 - group.rate(lr) * group.weight_decay,
    };
    groups.iter().map(rate).collect()
}
