//! The arguments of a scan: the forms that a caller may pass, and the tensors of a call.

use burn::backend::Dispatch;
use burn::tensor::{DType, Tensor};

use super::ScanArguments;
use super::shapes::ScanShapes;
use vim_kernels_core::check::shape_of;

/// A of a scan, `[D, N]`; its real part is negative for a stable system. From one tensor, or from
/// two: the real and the imaginary part, where B and C are complex too.
#[derive(Clone, Debug)]
pub struct ScanA {
    pub(super) re: Tensor<2>,
    pub(super) im: Option<Tensor<2>>,
}

impl From<Tensor<2>> for ScanA {
    fn from(re: Tensor<2>) -> Self {
        Self { re, im: None }
    }
}
impl From<(Tensor<2>, Tensor<2>)> for ScanA {
    fn from((re, im): (Tensor<2>, Tensor<2>)) -> Self {
        Self { re, im: Some(im) }
    }
}

/// B or C of a scan; complex where A is. From one tensor, or from two: the real and the imaginary
/// part. By their rank they are
///
/// - one per token, `[B, L, N]`
/// - one per token and group of channels, `[B, L, G, N]`; channel `i` is in group `i·G/D`
/// - constant, one per channel and the same at every token, `[D, N]`
#[derive(Clone, Debug)]
pub struct ScanBC {
    /// `[B, L, G, N]`, or `[1, 1, D, N]` if constant.
    pub(crate) re: Tensor<4>,
    pub(crate) im: Option<Tensor<4>>,
    pub(crate) constant: bool,
}

impl From<Tensor<3>> for ScanBC {
    fn from(t: Tensor<3>) -> Self {
        t.unsqueeze_dim::<4>(2).into()
    }
}
impl From<Tensor<4>> for ScanBC {
    fn from(re: Tensor<4>) -> Self {
        Self { re, im: None, constant: false }
    }
}
impl From<Tensor<2>> for ScanBC {
    fn from(t: Tensor<2>) -> Self {
        Self { re: t.unsqueeze(), im: None, constant: true }
    }
}
impl<const R: usize> From<(Tensor<R>, Tensor<R>)> for ScanBC
where
    Self: From<Tensor<R>>,
{
    fn from((re, im): (Tensor<R>, Tensor<R>)) -> Self {
        Self { im: Some(Self::from(im).re), ..Self::from(re) }
    }
}

/// The tensors of a call, with A of rank `A`, and B and C as in [`ScanBC`].
#[derive(Clone, Debug)]
pub(crate) struct ScanCall<const A: usize> {
    pub(crate) u: Tensor<3>,
    pub(crate) delta: Tensor<3>,
    pub(crate) a: Tensor<A>,
    pub(crate) b: Tensor<4>,
    pub(crate) c: Tensor<4>,
    pub(crate) d: Option<Tensor<1>>,
    pub(crate) z: Option<Tensor<3>>,
    pub(crate) delta_bias: Option<Tensor<1>>,
}

impl<const A: usize> ScanCall<A> {
    pub(crate) fn shapes(
        &self,
        operation: &'static str,
        b_constant: bool,
        c_constant: bool,
    ) -> ScanShapes<A> {
        ScanShapes {
            operation,
            u: shape_of(&self.u),
            delta: shape_of(&self.delta),
            a: shape_of(&self.a),
            b: shape_of(&self.b),
            c: shape_of(&self.c),
            d: self.d.as_ref().map(shape_of),
            z: self.z.as_ref().map(shape_of),
            delta_bias: self.delta_bias.as_ref().map(shape_of),
            b_constant,
            c_constant,
        }
    }

    /// The arguments of a kernel. A backend extension has no optional tensors: an absent input is
    /// passed as one zero, and the spec says that it is absent.
    pub(crate) fn into_arguments(self) -> ScanArguments<Dispatch> {
        let (device, dtype) = (self.u.device(), self.u.dtype());
        let absent = || Tensor::<1>::zeros([1], (&device, DType::F32));
        let z = self.z.unwrap_or_else(|| Tensor::zeros([1, 1, 1], (&device, dtype)));
        ScanArguments {
            u: self.u.into_dispatch(),
            delta: self.delta.into_dispatch(),
            a: self.a.into_dispatch(),
            b: self.b.into_dispatch(),
            c: self.c.into_dispatch(),
            d: self.d.unwrap_or_else(absent).into_dispatch(),
            z: z.into_dispatch(),
            delta_bias: self.delta_bias.unwrap_or_else(absent).into_dispatch(),
        }
    }
}
