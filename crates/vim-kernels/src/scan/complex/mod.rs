//! The scan with complex A, B and C: state `h` complex, `y = 2·Re(c·h)`; u, delta, z, D and the
//! bias real.
//!
//! An operation of its own behind [`super::selective_scan`], with the same two implementations:
//! tensor operations anywhere, and a fused kernel on CubeCL devices.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod autodiff;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;
mod reference;

use burn::tensor::{Device, FloatDType, Tensor};

use super::{ScanOutput, ScanSpec};
use crate::dispatch::{Implementation, KernelChoice, device_name};
use crate::error::KernelError;

const OPERATION: &str = "selective_scan";

/// The imaginary parts of A, B and C, each shaped as its real part.
pub(super) struct Imaginary {
    a: Tensor<2>,
    b: Tensor<4>,
    c: Tensor<4>,
}

/// A `[D, N]`, and B and C, `[B, L, G, N]` or `[1, 1, D, N]`.
pub(super) struct ComplexInputs {
    pub(super) a: Tensor<2>,
    pub(super) b: Tensor<4>,
    pub(super) c: Tensor<4>,
    pub(super) imaginary: Imaginary,
}

/// The imaginary parts, if there are any: of all three, each with the shape and type of its real
/// part.
pub(super) fn imaginary_parts(
    (a, a_im): (&Tensor<2>, Option<Tensor<2>>),
    (b, b_im): (&Tensor<4>, Option<Tensor<4>>),
    (c, c_im): (&Tensor<4>, Option<Tensor<4>>),
) -> Result<Option<Imaginary>, KernelError> {
    for (tensor, complex) in [("b", b_im.is_some()), ("c", c_im.is_some())] {
        if complex != a_im.is_some() {
            let got = if complex { "complex" } else { "real" };
            return Err(KernelError::Complex { operation: OPERATION, tensor, got });
        }
    }
    let (Some(a_im), Some(b_im), Some(c_im)) = (a_im, b_im, c_im) else { return Ok(None) };
    check_like_real("a.im", &a_im, a)?;
    check_like_real("b.im", &b_im, b)?;
    check_like_real("c.im", &c_im, c)?;
    Ok(Some(Imaginary { a: a_im, b: b_im, c: c_im }))
}

fn check_like_real<const R: usize>(
    tensor: &'static str,
    im: &Tensor<R>,
    re: &Tensor<R>,
) -> Result<(), KernelError> {
    if im.dims() != re.dims() {
        return Err(KernelError::Shape {
            operation: OPERATION,
            tensor,
            got: im.dims().to_vec(),
            expected: format!("{:?} as the real part", re.dims()),
        });
    }
    if im.dtype() != re.dtype() {
        let got = im.dtype().name().to_string();
        return Err(KernelError::Dtype { operation: OPERATION, tensor, got });
    }
    Ok(())
}

/// The implementation that runs on `device` where A is complex.
pub(super) fn resolve(
    choice: KernelChoice,
    device: &Device,
) -> Result<Implementation, KernelError> {
    choice.resolve_with(has_kernel(device), || format!("complex A on {}", device_name(device)))
}

/// Whether this build has a kernel for complex A on `device`: the CubeCL devices.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn has_kernel(device: &Device) -> bool {
    matches!(device.clone().inner().as_dispatch(), burn::backend::DispatchDevice::Cube(_))
}

/// Whether this build has a kernel for complex A on `device`: only CubeCL devices have.
#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
fn has_kernel(_device: &Device) -> bool {
    false
}

/// The scan of a checked call.
#[expect(clippy::too_many_arguments, reason = "the operation has these inputs")]
pub(super) fn scan(
    u: Tensor<3>,
    delta: Tensor<3>,
    inputs: ComplexInputs,
    d: Tensor<1>,
    z: Tensor<3>,
    delta_bias: Tensor<1>,
    spec: ScanSpec,
    implementation: Implementation,
) -> ScanOutput {
    reference::note_argument(&delta, &inputs, &delta_bias, spec);
    match implementation {
        Implementation::Reference => {
            // The state and every sum are f32, whatever the activations are.
            let dtype = u.dtype();
            let [u, delta, z] = [u, delta, z].map(|t| t.cast(FloatDType::F32));
            let ComplexInputs { a, b, c, imaginary } = inputs;
            let wide = |t: Tensor<4>| t.cast(FloatDType::F32);
            let [b, c, b_im, c_im] = [b, c, imaginary.b, imaginary.c].map(wide);
            let imaginary = Imaginary { a: imaginary.a, b: b_im, c: c_im };
            let inputs = ComplexInputs { a, b, c, imaginary };
            let out = reference::scan(u, delta, inputs, d, z, delta_bias, spec);
            ScanOutput { y: out.y.cast(dtype), ..out }
        }
        #[cfg(any(feature = "cuda", feature = "wgpu"))]
        Implementation::Kernel => kernel(u, delta, inputs, d, z, delta_bias, spec),
        #[cfg(not(any(feature = "cuda", feature = "wgpu")))]
        Implementation::Kernel => unreachable!("`resolve` finds no kernel in this build"),
    }
}

/// The kernel's scan of a checked call.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn kernel(
    u: Tensor<3>,
    delta: Tensor<3>,
    inputs: ComplexInputs,
    d: Tensor<1>,
    z: Tensor<3>,
    delta_bias: Tensor<1>,
    spec: ScanSpec,
) -> ScanOutput {
    use autodiff::ComplexScanBackend;
    let arguments = autodiff::ComplexScanArguments {
        u: u.into_dispatch(),
        delta: delta.into_dispatch(),
        a_re: inputs.a.into_dispatch(),
        a_im: inputs.imaginary.a.into_dispatch(),
        b_re: inputs.b.into_dispatch(),
        b_im: inputs.imaginary.b.into_dispatch(),
        c_re: inputs.c.into_dispatch(),
        c_im: inputs.imaginary.c.into_dispatch(),
        d: d.into_dispatch(),
        z: z.into_dispatch(),
        delta_bias: delta_bias.into_dispatch(),
    };
    let out = burn::backend::Dispatch::complex_scan(arguments, spec);
    ScanOutput {
        y: Tensor::from_dispatch(out.y),
        last_state: Tensor::from_dispatch(out.last_re),
        last_state_im: Some(Tensor::from_dispatch(out.last_im)),
    }
}
