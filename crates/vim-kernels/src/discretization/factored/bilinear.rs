//! The bilinear method, whose coefficients both come from the Cayley transform: `a_bar = 2r − 1`,
//! `b_bar = delta·r`, `r = 1/(1 − x/2)`.
//!
//! As `∂r/∂x = ½r²`, `∂a_bar/∂x` and `∂b_bar/∂delta` are r², and `∂b_bar/∂a` is ½delta²·r²: every
//! gradient takes r once or twice. The derivative by delta has no subtraction, so nothing cancels
//! at large |x|.

use super::{FactoredMethod, TokenTerms};
use crate::discretization::Decay;
use crate::real::Real;

impl FactoredMethod {
    /// Whether the method is bilinear.
    pub(crate) fn is_bilinear(self) -> bool {
        self.form.decay == Decay::Cayley
            && self.evaluates_no_phi()
            && self.polynomial().is_empty()
            && self.cayley() == [0.0, 1.0, 0.0, 0.0, 0.0]
    }

    /// r, from [token terms](Self::backward_token) and [state terms](Self::backward_state).
    pub(crate) fn backward_bilinear<T: Real>(self, token: &TokenTerms<T>, state: &[T]) -> T {
        self.inverse(token, state).expect("invariant: its decay is of the Cayley transform")
    }
}
