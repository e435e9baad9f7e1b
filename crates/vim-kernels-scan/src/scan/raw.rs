//! The scan below Burn's tensors: on slices of a CPU's memory, and on buffers of a GPU. For
//! bindings, which have an autodiff of their own and hold what its backward pass needs.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
use burn::backend::DispatchDevice;
use burn::tensor::DType;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use burn_cubecl::{CubeBackend, tensor::CubeTensor};

#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub use super::cube::{MOST_TURNED, channels_last};
use super::native::{ScanInputs, Sizes, backward, forward, saved_len};
use super::shapes::ScanShapes;
use super::{ScanOptions, ScanSpec};
use vim_kernels_core::KernelError;
use vim_kernels_core::check::{ShapeAndType, expect};

/// What errors call the operation.
const OPERATION: &str = "selective_scan";

/// A call of [`selective_scan`](crate::selective_scan()) on arrays: [`Slice`]s, or, on a GPU,
/// `CubeTensor`s. Shapes and ranges are as there, and A is real. The kernels run, whatever
/// `options.choice` says: there is no reference of arrays.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the arguments are those of the operation")]
pub struct RawScan<T> {
    pub options: ScanOptions,
    pub u: T,
    pub delta: T,
    pub a: T,
    /// `[B, L, N]`, `[B, L, G, N]` or `[D, N]`, as C.
    pub b: T,
    pub c: T,
    pub d: Option<T>,
    pub z: Option<T>,
    pub delta_bias: Option<T>,
}

/// Numbers of a CPU's memory in row-major order, and their shape.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the name says it")]
pub struct Slice<'a> {
    pub values: &'a [f32],
    pub shape: &'a [usize],
}

/// What a scan returns.
#[derive(Clone, Debug)]
pub struct RawOutput<T> {
    /// `[B, L, D]`.
    pub y: T,
    /// `[B, D, N]`, as in [`ScanOutput`](crate::ScanOutput).
    pub last_state: T,
    /// What [`RawScan::backward`] needs, if the forward pass saved it: [`RawSizes::on_cpu`] or
    /// [`RawSizes::on_gpu`] f32 numbers.
    pub saved: Option<T>,
}

/// Sizes of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "B, L, D, N and G")]
pub struct RawSizes {
    pub batch: usize,
    pub len: usize,
    pub d_inner: usize,
    pub d_state: usize,
    pub groups: usize,
}

impl RawSizes {
    /// Numbers that a forward pass saves on a CPU.
    #[must_use]
    pub fn on_cpu(self, options: ScanOptions) -> usize {
        let Self { batch, len, d_inner, d_state, groups } = self;
        let sizes = Sizes { batch, len, d_inner, d_state, groups };
        batch * saved_len(sizes, ScanSpec::plain(options), &sizes.strips())
    }

    /// Those that it saves on a GPU.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    #[must_use]
    pub fn on_gpu(self, options: ScanOptions) -> usize {
        let chunks =
            self.len.div_ceil(super::cube::tokens_between_states(ScanSpec::plain(options)));
        chunks * self.batch * self.d_inner * self.d_state
    }
}

impl<T> RawScan<T> {
    /// Checks that the method has the series, and the shapes; returns the sizes. `shape_of` tells
    /// the shape of an array.
    ///
    /// # Errors
    ///
    /// [`KernelError::Shape`] names the argument whose shape disagrees with `u` and `a`;
    /// [`KernelError::Method`] a method that has no such series.
    pub fn sizes(&self, shape_of: impl Fn(&T) -> Vec<usize>) -> Result<RawSizes, KernelError> {
        let (_, shapes) = self.check(|of| (shape_of(of), DType::F32))?;
        let ([batch, len, d_inner], [_, d_state]) = (shapes.u.0, shapes.a.0);
        Ok(RawSizes { batch, len, d_inner, d_state, groups: shapes.groups() })
    }

    /// The checked call; `shape_of` tells the shape and the type of an array.
    fn check(
        &self,
        shape_of: impl Fn(&T) -> (Vec<usize>, DType),
    ) -> Result<(ScanSpec, ScanShapes<2>), KernelError> {
        self.options.check_series(OPERATION)?;
        let [(b, b_constant), (c, c_constant)] =
            [("b", &self.b), ("c", &self.c)].map(|(name, of)| projection(name, shape_of(of)));
        let optional = |name, of: &Option<T>| of.as_ref().map(|of| ranked(name, shape_of(of)));
        let shapes = ScanShapes {
            operation: OPERATION,
            u: ranked("u", shape_of(&self.u))?,
            delta: ranked("delta", shape_of(&self.delta))?,
            a: ranked("a", shape_of(&self.a))?,
            b: b?,
            c: c?,
            d: optional("d", &self.d).transpose()?,
            z: self.z.as_ref().map(|z| ranked("z", shape_of(z))).transpose()?,
            delta_bias: optional("delta_bias", &self.delta_bias).transpose()?,
            b_constant,
            c_constant,
        };
        shapes.check_dims()?;
        let spec = ScanSpec {
            has_d: self.d.is_some(),
            has_z: self.z.is_some(),
            has_delta_bias: self.delta_bias.is_some(),
            b_constant,
            c_constant,
            ..ScanSpec::plain(self.options)
        };
        Ok((spec, shapes))
    }
}

/// The shape of an argument of `R` dimensions.
fn ranked<const R: usize>(
    tensor: &'static str,
    (shape, dtype): (Vec<usize>, DType),
) -> Result<ShapeAndType<R>, KernelError> {
    match <[usize; R]>::try_from(shape) {
        Ok(shape) => Ok((shape, dtype)),
        Err(got) => {
            let expected = format!("{R} dimensions");
            Err(KernelError::Shape { operation: OPERATION, tensor, got, expected })
        }
    }
}

/// The shape of B or C with groups, and whether it is constant.
fn projection(
    tensor: &'static str,
    (shape, dtype): (Vec<usize>, DType),
) -> (Result<ShapeAndType<4>, KernelError>, bool) {
    match shape[..] {
        [d_inner, d_state] => (Ok(([1, 1, d_inner, d_state], dtype)), true),
        [batch, len, d_state] => (Ok(([batch, len, 1, d_state], dtype)), false),
        _ => (ranked(tensor, (shape, dtype)), false),
    }
}

impl<'a> RawScan<Slice<'a>> {
    /// Runs the scan, and saves what [`backward`](Self::backward) needs if `save`.
    ///
    /// # Errors
    ///
    /// As [`selective_scan`](crate::selective_scan()).
    pub fn forward(&self, save: bool) -> Result<RawOutput<Vec<f32>>, KernelError> {
        let out = forward(self.inputs()?, save);
        let saved = save.then_some(out.chunk_states);
        Ok(RawOutput { y: out.y, last_state: out.last_state, saved })
    }

    /// The gradients of `Σ grad_y·y` that are `wanted`, in the order of the arguments and shaped as
    /// they are; none of one that is absent. `grad_y` is `[B, L, D]`, and `saved` what the forward
    /// pass of this call saved.
    ///
    /// # Errors
    ///
    /// As [`selective_scan`](crate::selective_scan()), and [`KernelError::Shape`] for `grad_y` or
    /// `saved` of another size.
    pub fn backward(
        &self,
        grad_y: &[f32],
        saved: &[f32],
        wanted: [bool; 8],
    ) -> Result<[Option<Vec<f32>>; 8], KernelError> {
        let inputs = self.inputs()?;
        let Sizes { batch, len, d_inner, d_state, groups } = inputs.sizes;
        let sizes = RawSizes { batch, len, d_inner, d_state, groups };
        for (name, got, len) in [
            ("grad_y", grad_y.len(), inputs.u.len()),
            ("saved", saved.len(), sizes.on_cpu(self.options)),
        ] {
            expect(OPERATION, name, &[got], got == len, format!("{len} numbers"))?;
        }
        let grads = backward(inputs, grad_y, saved, wanted).into_array();
        // No input that is there is empty.
        Ok(grads.map(|grad| (!grad.is_empty()).then_some(grad)))
    }

    fn inputs(&self) -> Result<ScanInputs<'a>, KernelError> {
        let (spec, shapes) = self.check(|slice| (slice.shape.to_vec(), DType::F32))?;
        let all = [
            ("u", Some(self.u)),
            ("delta", Some(self.delta)),
            ("a", Some(self.a)),
            ("b", Some(self.b)),
            ("c", Some(self.c)),
            ("d", self.d),
            ("z", self.z),
            ("delta_bias", self.delta_bias),
        ];
        for (name, slice) in all.into_iter().filter_map(|(name, of)| Some((name, of?))) {
            let len = slice.shape.iter().product::<usize>();
            let expected = format!("{len} numbers, as its shape says");
            let got = slice.values.len();
            expect(OPERATION, name, &[got], got == len, expected)?;
        }
        let [batch, len, d_inner] = shapes.u.0;
        let values = |of: Option<Slice<'a>>| of.map(|slice| slice.values);
        Ok(ScanInputs {
            sizes: Sizes { batch, len, d_inner, d_state: shapes.a.0[1], groups: shapes.groups() },
            spec,
            u: self.u.values,
            delta: self.delta.values,
            a: self.a.values,
            b: self.b.values,
            c: self.c.values,
            d: values(self.d),
            z: values(self.z),
            delta_bias: values(self.delta_bias),
        })
    }
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
impl RawScan<CubeTensor> {
    /// Queues the scan, which saves what [`backward`](Self::backward) needs if `save`.
    ///
    /// # Errors
    ///
    /// As [`selective_scan`](crate::selective_scan()).
    pub fn forward(&self, save: bool) -> Result<RawOutput<CubeTensor>, KernelError> {
        use vim_kernels_core::op::FusedOp;
        let (spec, arguments) = self.arguments()?;
        let (y, [last_state], saved) = FusedOp::<CubeBackend, 8, 1>::forward(spec, arguments, save);
        Ok(RawOutput { y, last_state, saved: saved.map(|(_, states)| states) })
    }

    /// Queues the gradients of `Σ grad_y·y` that are `wanted`, as on a CPU; `grad_y` may have any
    /// row stride.
    ///
    /// # Errors
    ///
    /// As on a CPU, and [`KernelError::Dtype`] for a `grad_y` of another type than `u`, or a
    /// `saved` that is not f32.
    pub fn backward(
        &self,
        grad_y: CubeTensor,
        saved: CubeTensor,
        wanted: [bool; 8],
    ) -> Result<[Option<CubeTensor>; 8], KernelError> {
        use vim_kernels_core::op::FusedOp;
        let (spec, arguments) = self.arguments()?;
        let (u, [d_inner, d_state]) = (&self.u, self.a.meta.shape().dims());
        let [batch, len, _] = u.meta.shape().dims();
        let sizes = RawSizes { batch, len, d_inner, d_state, groups: 1 };
        let [got, count] = [saved.meta.shape().num_elements(), sizes.on_gpu(self.options)];
        expect(OPERATION, "saved", &[got], got == count, format!("{count} numbers"))?;
        let shape = grad_y.meta.shape();
        expect(OPERATION, "grad_y", shape, shape == u.meta.shape(), "that of `u`".into())?;
        for (tensor, got, expected) in
            [("grad_y", grad_y.dtype, u.dtype), ("saved", saved.dtype, DType::F32)]
        {
            if got != expected {
                let got = got.name().to_string();
                return Err(KernelError::Dtype { operation: OPERATION, tensor, got });
            }
        }
        let here = [true, true, true, true, true, spec.has_d, spec.has_z, spec.has_delta_bias];
        let mut here = here.into_iter().zip(wanted).map(|(here, wanted)| here && wanted);
        let wanted = [(); 8].map(|()| here.next().unwrap_or_default());
        Ok(FusedOp::<CubeBackend, 8, 1>::backward(spec, grad_y, (arguments, saved), wanted))
    }

    fn arguments(&self) -> Result<(ScanSpec, super::ScanArguments<CubeBackend>), KernelError> {
        use burn::backend::ops::FloatTensorOps;
        use vim_kernels_core::cube::empty;
        let (spec, shapes) = self.check(|of| (of.meta.shape().to_vec(), of.dtype))?;
        let device = burn::tensor::Device::new(DispatchDevice::Cube(self.u.device.clone()));
        shapes.check_types(&device)?;
        shapes.check_scan_size(spec, 1)?;
        let absent = |dims: usize, dtype| empty(&self.u, vec![1; dims], dtype);
        let or_absent = |of: &Option<CubeTensor>, dims, dtype| {
            of.clone().unwrap_or_else(|| absent(dims, dtype))
        };
        let arguments = super::ScanArguments {
            u: self.u.clone(),
            delta: self.delta.clone(),
            a: self.a.clone(),
            b: CubeBackend::float_reshape(self.b.clone(), shapes.b.0.into()),
            c: CubeBackend::float_reshape(self.c.clone(), shapes.c.0.into()),
            d: or_absent(&self.d, 1, DType::F32),
            z: or_absent(&self.z, 3, self.u.dtype),
            delta_bias: or_absent(&self.delta_bias, 1, DType::F32),
        };
        Ok((spec, arguments))
    }
}

#[cfg(test)]
mod tests;
