//! What a call must satisfy, and which implementation runs it.

use burn::tensor::{DType, Device, Tensor};

use super::{FullSpec, MAX_FULL_STATES};
use crate::choice::{Implementation, ScanChoice};
use crate::error::KernelError;

const OPERATION: &str = "full_scan";

/// Which implementation `choice` means on `device`.
pub(super) fn implementation(
    choice: ScanChoice,
    device: &Device,
) -> Result<Implementation, KernelError> {
    if on_gpu(device) && choice != ScanChoice::Reference {
        return Ok(Implementation::Kernel);
    }
    choice.resolve(device)
}

/// Whether the kernels in CubeCL serve `device`.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn on_gpu(device: &Device) -> bool {
    matches!(device.clone().inner().as_dispatch(), burn::backend::DispatchDevice::Cube(_))
}

#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
fn on_gpu(_device: &Device) -> bool {
    false
}

/// A call to check.
pub(super) struct Call<'a> {
    pub(super) u: &'a Tensor<3>,
    pub(super) delta: &'a Tensor<3>,
    pub(super) a: &'a Tensor<3>,
    pub(super) b: &'a Tensor<4>,
    pub(super) c: &'a Tensor<4>,
    pub(super) d: Option<&'a Tensor<1>>,
    pub(super) z: Option<&'a Tensor<3>>,
    pub(super) delta_bias: Option<&'a Tensor<1>>,
    pub(super) spec: FullSpec,
}

impl Call<'_> {
    /// Checks every shape and type.
    pub(super) fn check(&self, implementation: Implementation) -> Result<(), KernelError> {
        self.dtypes(implementation)?;
        self.shapes()
    }

    fn dtypes(&self, implementation: Implementation) -> Result<(), KernelError> {
        let device = self.u.device();
        let bf16 = implementation == Implementation::Kernel
            && on_gpu(&device)
            && device.supports_dtype(DType::BF16);
        let activation = self.u.dtype();
        let weight = DType::F32;
        let projection = |constant| if constant { weight } else { activation };
        let known = activation == DType::F32 || (activation == DType::BF16 && bf16);
        let checks = [
            ("u", Some(self.u.dtype()).filter(|_| !known), weight),
            ("delta", Some(self.delta.dtype()), activation),
            ("a", Some(self.a.dtype()), weight),
            ("b", Some(self.b.dtype()), projection(self.spec.b_constant)),
            ("c", Some(self.c.dtype()), projection(self.spec.c_constant)),
            ("d", self.d.map(Tensor::dtype), weight),
            ("z", self.z.map(Tensor::dtype), activation),
            ("delta_bias", self.delta_bias.map(Tensor::dtype), weight),
        ];
        for (tensor, got, want) in checks {
            if let Some(got) = got.filter(|&got| got != want) {
                let got = got.name().to_string();
                return Err(KernelError::Dtype { operation: OPERATION, tensor, got });
            }
        }
        Ok(())
    }

    fn shapes(&self) -> Result<(), KernelError> {
        let [batch, len, d_inner] = self.u.dims();
        let [_, d_state, columns] = self.a.dims();
        let nonempty = batch > 0 && len > 0 && d_inner > 0;
        expect("u", &self.u.dims(), nonempty, "[B, L, D], none of them 0".to_string())?;
        let like_u = |tensor, dims: [usize; 3]| {
            let expected = format!("[B, L, D] = [{batch}, {len}, {d_inner}] as `u`");
            expect(tensor, &dims, dims == [batch, len, d_inner], expected)
        };
        let channels = |tensor, dims: [usize; 1]| {
            expect(tensor, &dims, dims == [d_inner], format!("[D] = [{d_inner}]"))
        };
        like_u("delta", self.delta.dims())?;
        let square = self.a.dims()[0] == d_inner && d_state == columns;
        let good = square && (1..=MAX_FULL_STATES).contains(&d_state);
        let expected = format!("[D, N, N] with D = {d_inner} and N from 1 to {MAX_FULL_STATES}");
        expect("a", &self.a.dims(), good, expected)?;
        for (name, tensor, constant) in
            [("b", self.b, self.spec.b_constant), ("c", self.c, self.spec.c_constant)]
        {
            let dims @ [lead_batch, lead_len, groups, states] = tensor.dims();
            if constant {
                let expected = format!("[D, N] = [{d_inner}, {d_state}]");
                expect(name, &dims[2..], [groups, states] == [d_inner, d_state], expected)?;
            } else {
                let good = [lead_batch, lead_len, states] == [batch, len, d_state]
                    && groups > 0
                    && d_inner % groups == 0;
                let expected = format!(
                    "[B, L, G, N] = [{batch}, {len}, G, {d_state}] with G dividing {d_inner}"
                );
                expect(name, &dims, good, expected)?;
            }
        }
        if !self.spec.b_constant && !self.spec.c_constant {
            let (groups, dims) = (self.b.dims()[2], self.c.dims());
            expect("c", &dims, dims[2] == groups, format!("the {groups} groups of `b`"))?;
        }
        if let Some(d) = self.d {
            channels("d", d.dims())?;
        }
        if let Some(z) = self.z {
            like_u("z", z.dims())?;
        }
        if let Some(delta_bias) = self.delta_bias {
            channels("delta_bias", delta_bias.dims())?;
        }
        Ok(())
    }
}

fn expect(
    tensor: &'static str,
    got: &[usize],
    good: bool,
    expected: String,
) -> Result<(), KernelError> {
    let got = got.to_vec();
    if good {
        Ok(())
    } else {
        Err(KernelError::Shape { operation: OPERATION, tensor, got, expected })
    }
}
