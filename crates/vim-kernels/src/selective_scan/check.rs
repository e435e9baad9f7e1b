//! What the arguments of a scan must be.

use burn::tensor::Device;

use super::ScanSpec;
use crate::error::{KernelError, check_dtypes};
use crate::given::Given;

impl Given<2> {
    /// Holds every argument against `u` and `a`.
    ///
    /// # Errors
    ///
    /// [`KernelError::Shape`] or [`KernelError::Dtype`], which name the argument.
    pub(super) fn check(&self, device: &Device) -> Result<(), KernelError> {
        self.check_types(device)?;
        let [channels, d_state] = self.a.0;
        self.check_shapes(|d_inner| {
            let expected = format!("[D, N] with D = {d_inner} and N ≥ 1");
            (channels == d_inner && d_state > 0, expected)
        })
    }

    /// That a GPU's kernels can run a scan of `spec` over `directions` at once.
    ///
    /// # Errors
    ///
    /// [`KernelError::TooLarge`] says what is.
    pub(crate) fn check_scan_size(
        &self,
        spec: ScanSpec,
        directions: usize,
    ) -> Result<(), KernelError> {
        self.check_size(directions, spec.ways())
    }

    fn check_types(&self, device: &Device) -> Result<(), KernelError> {
        let mut activations = vec![("u", self.u.1), ("delta", self.delta.1)];
        let mut weights = vec![
            ("a", Some(self.a.1)),
            ("d", self.d.map(|(_, dtype)| dtype)),
            ("delta_bias", self.delta_bias.map(|(_, dtype)| dtype)),
        ];
        for (name, (_, dtype), constant) in
            [("b", self.b, self.b_constant), ("c", self.c, self.c_constant)]
        {
            if constant {
                weights.push((name, Some(dtype)));
            } else {
                activations.push((name, dtype));
            }
        }
        activations.extend(self.z.map(|(_, dtype)| ("z", dtype)));
        check_dtypes(self.operation, device, &activations, &weights)
    }
}
