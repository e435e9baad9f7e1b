//! How a pass computes.

use burn::tensor::Tensor;
use vim_kernels::Precision;

use crate::batch_norm::Statistics;
use crate::conv::ConvModule;
use crate::error::DenseError;

/// Statistics and precision of a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass<'a> {
    pub(crate) statistics: Statistics<'a>,
    pub(crate) precision: Precision,
}

impl Pass<'_> {
    /// [`ConvModule::forward`].
    pub(crate) fn conv(
        self,
        models: &[&ConvModule],
        xs: Vec<Tensor<4>>,
        layer: &'static str,
    ) -> Result<Vec<Tensor<4>>, DenseError> {
        ConvModule::forward(models, xs, self.statistics, self.precision, layer)
    }
}
