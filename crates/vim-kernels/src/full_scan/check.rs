//! Checks of a call, and which implementation runs it.

use burn::tensor::{DType, Device};

use super::MAX_FULL_STATES;
use crate::dispatch::{Implementation, KernelChoice, runs_cubecl};
use crate::error::KernelError;
use crate::scan::shapes::ScanShapes;

/// The implementation that `choice` selects on `device`.
pub(super) fn implementation(
    choice: KernelChoice,
    device: &Device,
) -> Result<Implementation, KernelError> {
    if runs_cubecl(device) && choice != KernelChoice::Reference {
        return Ok(Implementation::Kernel);
    }
    choice.resolve(device)
}

impl ScanShapes<3> {
    /// Checks every shape and type, and the size where a GPU's kernel runs.
    ///
    /// # Errors
    ///
    /// [`KernelError::Dtype`], [`KernelError::Shape`] or [`KernelError::TooLarge`].
    pub(super) fn check(
        &self,
        implementation: Implementation,
        device: &Device,
    ) -> Result<(), KernelError> {
        let on_gpu = implementation == Implementation::Kernel && runs_cubecl(device);
        self.check_types(on_gpu && device.supports_dtype(DType::BF16))?;
        let [channels, d_state, columns] = self.a.0;
        self.check_shapes(|d_inner| {
            let square = channels == d_inner && d_state == columns;
            let good = square && (1..=MAX_FULL_STATES).contains(&d_state);
            (good, format!("[D, N, N] with D = {d_inner} and N from 1 to {MAX_FULL_STATES}"))
        })?;
        if on_gpu { self.check_size(1, 1) } else { Ok(()) }
    }

    fn check_types(&self, has_bf16: bool) -> Result<(), KernelError> {
        let activation = self.u.1;
        let weight = DType::F32;
        let projection = |constant| if constant { weight } else { activation };
        let known = activation == DType::F32 || (activation == DType::BF16 && has_bf16);
        let checks = [
            ("u", Some(activation).filter(|_| !known), weight),
            ("delta", Some(self.delta.1), activation),
            ("a", Some(self.a.1), weight),
            ("b", Some(self.b.1), projection(self.b_constant)),
            ("c", Some(self.c.1), projection(self.c_constant)),
            ("d", self.d.map(|(_, dtype)| dtype), weight),
            ("z", self.z.map(|(_, dtype)| dtype), activation),
            ("delta_bias", self.delta_bias.map(|(_, dtype)| dtype), weight),
        ];
        for (tensor, got, want) in checks {
            if let Some(got) = got.filter(|&got| got != want) {
                let got = got.name().to_string();
                return Err(KernelError::Dtype { operation: self.operation, tensor, got });
            }
        }
        Ok(())
    }
}
