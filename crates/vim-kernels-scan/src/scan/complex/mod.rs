//! The scan with complex A, B and C: state `h` complex, `y = 2·Re(c·h)`; u, delta, z, D and the
//! bias real.
//!
//! An operation of its own behind [`super::selective_scan`], with the same two implementations:
//! tensor operations anywhere, and a fused kernel on CubeCL devices.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;

use burn::tensor::{Device, FloatDType, Tensor};

use super::reference::{at, largest, per_channel, recur, row, skip_and_gate, step_size};
use super::shapes::ScanShapes;
use super::watch::note;
use super::{ScanCall, ScanOutput, ScanSpec};
use crate::complex::Complex;
use crate::discretization::{LEAST_RATE, discretize};
use vim_kernels_core::Real;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use vim_kernels_core::op::{fused_op, tensors};
use vim_kernels_core::{Implementation, KernelChoice, KernelError, device_name, runs_cubecl};

const OPERATION: &str = "selective_scan";

/// Tokens between saved states, and tokens whose states the backward pass holds at once.
const CHUNK: usize = 16;

/// Units of a GPU's cube, each a channel.
const UNITS: usize = 64;

#[cfg(any(feature = "cuda", feature = "wgpu"))]
tensors! {
    /// The arguments of a scan on a backend, A, B and C in two parts.
    ComplexScanArguments, 11: { u, delta, a_re, a_im, b_re, b_im, c_re, c_im, d, z, delta_bias }
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
tensors! {
    /// What a scan returns: `y [B, L, D]` and the parts of the last state, `[B, D, N]`.
    ComplexScanOutputs, 3: { y, last_re, last_im }
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
fused_op! {
    Cube:
    ComplexScanBackend::complex_scan(ScanSpec, ComplexScanArguments, 11)
        -> ComplexScanOutputs { y, last_re, last_im }
}

/// The imaginary parts of A, B and C, each shaped as its real part.
pub(super) struct Imaginary {
    a: Tensor<2>,
    b: Tensor<4>,
    c: Tensor<4>,
}

/// The imaginary parts, if there are any: of all three, each with the shape and type of its real
/// part.
pub(super) fn imaginary_parts(
    inputs: &ScanCall<2>,
    a: Option<Tensor<2>>,
    b: Option<Tensor<4>>,
    c: Option<Tensor<4>>,
) -> Result<Option<Imaginary>, KernelError> {
    for (tensor, complex) in [("b", b.is_some()), ("c", c.is_some())] {
        if complex != a.is_some() {
            let got = if complex { "complex" } else { "real" };
            return Err(KernelError::Complex { operation: OPERATION, tensor, got });
        }
    }
    let (Some(a), Some(b), Some(c)) = (a, b, c) else { return Ok(None) };
    check_like_real("a.im", &a, &inputs.a)?;
    check_like_real("b.im", &b, &inputs.b)?;
    check_like_real("c.im", &c, &inputs.c)?;
    Ok(Some(Imaginary { a, b, c }))
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

/// The implementation that runs on `device` where A is complex: only CubeCL devices have a kernel.
pub(super) fn resolve(
    choice: KernelChoice,
    device: &Device,
) -> Result<Implementation, KernelError> {
    choice.resolve_with(runs_cubecl(device), || format!("complex A on {}", device_name(device)))
}

impl ScanShapes<2> {
    /// Checks that a GPU's kernels can run a scan with complex A.
    ///
    /// # Errors
    ///
    /// [`KernelError::TooLarge`] names what is too large.
    pub(super) fn check_complex_size(&self, spec: ScanSpec) -> Result<(), KernelError> {
        let ([batch, len, _], sweeps) = (self.u.0, spec.sweeps());
        let [tokens, states] = self.elements();
        let constants = usize::from(spec.b_constant) + usize::from(spec.c_constant);
        let buffers = [
            // What the second of two sweeps adds to: the gradients of u, delta and z.
            if sweeps == 2 { 3 * tokens } else { tokens },
            // In two parts each: the states that are saved, the sums of the gradient of A and of
            // constant B and C, and those of B and C that vary.
            2 * sweeps * (len.div_ceil(CHUNK) - 1) * states,
            (2 + 2 * constants) * states,
            if constants == 2 { 0 } else { 4 * self.varying_sums(UNITS) },
        ];
        self.check_size([batch, UNITS], buffers)
    }
}

/// The scan of a checked call.
pub(super) fn scan(
    inputs: ScanCall<2>,
    imaginary: Imaginary,
    spec: ScanSpec,
    implementation: Implementation,
) -> ScanOutput {
    note(spec, || {
        let delta = inputs.delta.clone().cast(FloatDType::F32);
        let delta = step_size(delta, inputs.delta_bias.clone(), spec.options.delta_softplus);
        let square = |t: &Tensor<2>| t.clone().detach().powi_scalar(2);
        largest(&delta) * (square(&inputs.a) + square(&imaginary.a)).max().sqrt()
    });
    match implementation {
        Implementation::Reference => reference(inputs, imaginary, spec),
        #[cfg(any(feature = "cuda", feature = "wgpu"))]
        Implementation::Kernel => kernel(inputs, imaginary, spec),
        #[cfg(not(any(feature = "cuda", feature = "wgpu")))]
        Implementation::Kernel => unreachable!("`resolve` finds no kernel in this build"),
    }
}

/// The scan in tensor operations, on pairs of tensors.
fn reference(inputs: ScanCall<2>, imaginary: Imaginary, spec: ScanSpec) -> ScanOutput {
    let dtype = inputs.u.dtype();
    let ScanCall { u, delta, a, b, c, d, z, delta_bias } = inputs.wide();
    let [batch, len, d_inner] = u.dims();
    let delta = step_size(delta, delta_bias, spec.options.delta_softplus);
    let pair = |re: Tensor<4>, im: Tensor<4>, constant| {
        let im = im.cast(FloatDType::F32);
        Complex::new(per_channel(re, d_inner, constant), per_channel(im, d_inner, constant))
    };
    let b = pair(b, imaginary.b, spec.b_constant);
    let c = pair(c, imaginary.c, spec.c_constant);
    let token = |x: &Complex<Tensor<4>>, t| Complex::new(row(&x.re, t), row(&x.im, t));
    let zero = Complex::real(Tensor::zeros([batch, d_inner, a.dims()[1]], &u.device()));
    let a = Complex::new(a.unsqueeze::<3>(), imaginary.a.unsqueeze()); // [1, D, N]
    let a = a.at_least(f64::from(LEAST_RATE));

    let steps: Vec<_> = (0..len)
        .map(|t| {
            let delta = Complex::real(at(&delta, t).reshape([batch, d_inner, 1]));
            let step = discretize(spec.options.method, spec.options.series, delta, a.clone());
            let u = at(&u, t).reshape([batch, d_inner, 1]);
            (step.a_bar, (step.b_bar * token(&b, t)).times(u)) // [B, D, N]
        })
        .collect();
    // Re(c·h), doubled: a state stands for a conjugate pair.
    let output = |h, t| token(&c, t).conj().dot(h) * 2.0;
    let (y, last_state) = recur(&steps, &zero, spec, output);
    ScanOutput {
        y: skip_and_gate(y, u, d, z).cast(dtype),
        last_state: last_state.re.detach(),
        last_state_im: Some(last_state.im.detach()),
    }
}

/// The kernel's scan of a checked call.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn kernel(inputs: ScanCall<2>, imaginary: Imaginary, spec: ScanSpec) -> ScanOutput {
    let real = inputs.into_arguments();
    let arguments = ComplexScanArguments {
        u: real.u,
        delta: real.delta,
        a_re: real.a,
        a_im: imaginary.a.into_dispatch(),
        b_re: real.b,
        b_im: imaginary.b.into_dispatch(),
        c_re: real.c,
        c_im: imaginary.c.into_dispatch(),
        d: real.d,
        z: real.z,
        delta_bias: real.delta_bias,
    };
    let out = burn::backend::Dispatch::complex_scan(arguments, spec);
    ScanOutput {
        y: Tensor::from_dispatch(out.y),
        last_state: Tensor::from_dispatch(out.last_re),
        last_state_im: Some(Tensor::from_dispatch(out.last_im)),
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::DType;

    use super::*;
    use crate::scan::ScanOptions;
    use crate::scan::shapes::named;

    // Nothing of these sizes is allocated.
    #[test]
    fn every_buffer_of_a_gpu_is_counted() {
        let sized = |[batch, len, d_inner, d_state]: [usize; 4], constant: bool| {
            let tokens = ([batch, len, d_inner], DType::F32);
            let projected =
                if constant { [1, 1, d_inner, d_state] } else { [batch, len, 1, d_state] };
            let shapes = ScanShapes {
                operation: OPERATION,
                u: tokens,
                delta: tokens,
                a: ([d_inner, d_state], DType::F32),
                b: (projected, DType::F32),
                c: (projected, DType::F32),
                d: None,
                z: None,
                delta_bias: None,
                b_constant: constant,
                c_constant: constant,
            };
            let spec = ScanSpec {
                options: ScanOptions::default(),
                bidirectional: false,
                has_d: false,
                has_z: false,
                has_delta_bias: false,
                b_constant: constant,
                c_constant: constant,
                compact_states: false,
            };
            named(shapes.check_complex_size(spec))
        };
        assert_eq!(sized([128, 197, 384, 16], false), "nothing");
        // The sums of A, 2 · 5000 · 64 · 8192, and with those of constant B and C six.
        assert_eq!(sized([5000, 8, 8192, 64], false), "a buffer");
        assert_eq!([4000, 1300].map(|b| sized([b, 1, 8192, 64], true)), ["a buffer", "nothing"]);
        // Sums of B and C, 4 · 1000 · 1600 · 700.
        let wide = [600, 700].map(|states| sized([1000, 1600, 8, states], false));
        assert_eq!(wide, ["nothing", "a buffer"]);
    }
}
