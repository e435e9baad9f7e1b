//! Coefficients that are functions of x = delta·a but for a factor of the token's: `a_bar(x)` and `b_bar = outer(delta)·ψ(x)`.

use super::phi_k::single_slopes;
use super::{OfToken, PartThrough, Parts};
use crate::real::Real;

impl Parts {
    /// The token's factor that [`OverOuter`](super::Part::OverOuter) leaves out: a power of delta and a number.
    pub(crate) fn outer<T: Real>(self, token: &OfToken<T>) -> T {
        let (power, factor) = self.outer_power();
        token.powers[power].clone().scale(factor).like(&token.delta)
    }

    /// Its derivative by delta.
    pub(crate) fn outer_slope<T: Real>(self, token: &OfToken<T>) -> T {
        let (power, factor) = self.outer_power();
        token.powers[power - 1].clone().scale(factor * power as f64).like(&token.delta)
    }

    fn outer_power(self) -> (usize, f64) {
        let of_phi = |(k, weight)| (k, weight / std::f64::consts::LN_2.powi(k as i32));
        self.single().map_or((1, 1.0), of_phi)
    }

    /// Whether a gradient goes through x once for all of the coefficients, by [`Self::backward_through`].
    pub(crate) fn is_through(self) -> bool {
        self.is_scaled() || self.single().is_some()
    }

    /// What that takes, from a [token](Self::slope_token) and a [state](Self::slope_state).
    pub(crate) fn backward_through<T: Real>(
        self,
        token: &OfToken<T>,
        state: &[T],
    ) -> PartThrough<T> {
        match self.single() {
            Some((k, _)) => single_slopes(k, token, &state[0]),
            None => self.backward_scaled(token, state),
        }
    }
}
