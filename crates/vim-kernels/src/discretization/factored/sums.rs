//! Sums of coefficients.

use super::Coefficient;
use crate::discretization::term::Term;
use crate::real::Real;

/// `Σⱼ cⱼ·vʲ`.
pub(super) fn polynomial<T: Real>(coefficients: &[Term<T>], v: &T) -> Term<T> {
    coefficients.iter().rev().fold(Term::Constant(0.0), |sum, c| sum.times(v).plus(c.clone()))
}

/// `Σₚ cₚ·deltaᵖ`.
pub(super) fn weighted<T: Real>(weights: &[f64; 5], powers: &[Term<T>; 5]) -> Term<T> {
    powers.iter().zip(weights).fold(Term::Constant(0.0), |sum, (power, &c)| {
        if c == 0.0 { sum } else { sum.plus(power.clone().scale(c)) }
    })
}

/// The sum of a gain's terms, and whether it is per token.
pub(super) fn total<T: Real>(
    exact: Option<T>,
    plain: Term<T>,
    cayley: Option<Term<T>>,
    plain_of_token: bool,
    v: &T,
) -> Coefficient<T> {
    let of_token = exact.is_none() && cayley.is_none() && plain_of_token;
    let mut sum = plain;
    for term in [exact.map(Term::Of), cayley].into_iter().flatten() {
        sum = sum.plus(term);
    }
    let value = sum.like(v);
    if of_token { Coefficient::PerToken(value) } else { Coefficient::PerState(value) }
}
