//! The forms of A, B and C that a caller may pass.

use burn::tensor::Tensor;

/// A of a scan, `[D, N]`; its real part is negative for a stable system.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a handful of them live, for the length of a call")]
pub enum ScanA {
    /// Real.
    Real(Tensor<2>),
    /// Complex, as two tensors; B and C then are complex too.
    Complex {
        /// The real part.
        re: Tensor<2>,
        /// The imaginary part.
        im: Tensor<2>,
    },
}

impl From<Tensor<2>> for ScanA {
    fn from(tensor: Tensor<2>) -> Self {
        Self::Real(tensor)
    }
}
impl From<(Tensor<2>, Tensor<2>)> for ScanA {
    fn from((re, im): (Tensor<2>, Tensor<2>)) -> Self {
        Self::Complex { re, im }
    }
}

impl ScanA {
    /// The real part, and the imaginary part of a complex one.
    pub(super) fn into_parts(self) -> (Tensor<2>, Option<Tensor<2>>) {
        match self {
            Self::Real(re) => (re, None),
            Self::Complex { re, im } => (re, Some(im)),
        }
    }
}

/// B or C of a scan; complex where A is.
#[derive(Clone, Debug)]
pub enum ScanBC {
    /// One per token, `[B, L, N]`.
    Variable(Tensor<3>),
    /// One per token and group of channels, `[B, L, G, N]`; channel `i` is in group `i·G/D`.
    Grouped(Tensor<4>),
    /// One per channel, the same at every token, `[D, N]`.
    Constant(Tensor<2>),
    /// Complex, one per token, each part `[B, L, N]`.
    VariableComplex {
        /// The real part.
        re: Tensor<3>,
        /// The imaginary part.
        im: Tensor<3>,
    },
    /// Complex, one per token and group of channels, each part `[B, L, G, N]`.
    GroupedComplex {
        /// The real part.
        re: Tensor<4>,
        /// The imaginary part.
        im: Tensor<4>,
    },
    /// Complex, one per channel, each part `[D, N]`.
    ConstantComplex {
        /// The real part.
        re: Tensor<2>,
        /// The imaginary part.
        im: Tensor<2>,
    },
}

impl From<Tensor<3>> for ScanBC {
    fn from(tensor: Tensor<3>) -> Self {
        Self::Variable(tensor)
    }
}
impl From<Tensor<4>> for ScanBC {
    fn from(tensor: Tensor<4>) -> Self {
        Self::Grouped(tensor)
    }
}
impl From<Tensor<2>> for ScanBC {
    fn from(tensor: Tensor<2>) -> Self {
        Self::Constant(tensor)
    }
}
impl From<(Tensor<3>, Tensor<3>)> for ScanBC {
    fn from((re, im): (Tensor<3>, Tensor<3>)) -> Self {
        Self::VariableComplex { re, im }
    }
}
impl From<(Tensor<4>, Tensor<4>)> for ScanBC {
    fn from((re, im): (Tensor<4>, Tensor<4>)) -> Self {
        Self::GroupedComplex { re, im }
    }
}
impl From<(Tensor<2>, Tensor<2>)> for ScanBC {
    fn from((re, im): (Tensor<2>, Tensor<2>)) -> Self {
        Self::ConstantComplex { re, im }
    }
}

impl ScanBC {
    /// `[B, L, G, N]`, or `[1, 1, D, N]` if constant; the imaginary part of a complex one; whether
    /// it is constant.
    pub(crate) fn into_parts(self) -> (Tensor<4>, Option<Tensor<4>>, bool) {
        match self {
            Self::Variable(t) => (t.unsqueeze_dim(2), None, false),
            Self::Grouped(t) => (t, None, false),
            Self::Constant(t) => (t.unsqueeze(), None, true),
            Self::VariableComplex { re, im } => {
                (re.unsqueeze_dim(2), Some(im.unsqueeze_dim(2)), false)
            }
            Self::GroupedComplex { re, im } => (re, Some(im), false),
            Self::ConstantComplex { re, im } => (re.unsqueeze(), Some(im.unsqueeze()), true),
        }
    }
}
