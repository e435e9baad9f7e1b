//! Coefficients that depend on x = delta·a only, up to a factor per token: `a_bar(x)` and
//! `b_bar = token_factor(delta)·ψ(x)`.

use super::phi_k::phi_k_slopes;
use super::{FactoredMethod, TokenTerms, ViaX};
use crate::real::Real;

impl FactoredMethod {
    /// The factor per token that [`Factored`](super::Coefficient::Factored) leaves out: a power of
    /// delta times a constant.
    pub(crate) fn token_factor<T: Real>(self, token: &TokenTerms<T>) -> T {
        let (power, factor) = self.token_factor_power();
        token.powers[power].clone().scale(factor).like(&token.delta)
    }

    /// Its derivative by delta.
    pub(crate) fn token_factor_slope<T: Real>(self, token: &TokenTerms<T>) -> T {
        let (power, factor) = self.token_factor_power();
        token.powers[power - 1].clone().scale(factor * power as f64).like(&token.delta)
    }

    fn token_factor_power(self) -> (usize, f64) {
        let of_phi = |(k, weight)| (k, weight / std::f64::consts::LN_2.powi(k as i32));
        self.phi_k().map_or((1, 1.0), of_phi)
    }

    /// Whether all gradients pass through x once, by [`Self::backward_via_x`].
    pub(crate) fn goes_via_x(self) -> bool {
        self.is_polynomial_in_x() || self.phi_k().is_some()
    }

    /// The derivatives, from [token terms](Self::backward_token) and [state
    /// terms](Self::backward_state).
    pub(crate) fn backward_via_x<T: Real>(self, token: &TokenTerms<T>, state: &[T]) -> ViaX<T> {
        match self.phi_k() {
            Some((k, _)) => phi_k_slopes(k, token, &state[0]),
            None => self.backward_polynomial(token, state),
        }
    }
}
