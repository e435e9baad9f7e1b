//! A number in f64 that counts the operations done with its like, by component.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{Add, Mul, Neg, Sub};

use vim_kernels::Real;

/// Multiply-adds and all operations (a multiply-add is two), by component.
pub(crate) type Counts = BTreeMap<&'static str, (u64, u64)>;

thread_local! {
    static COUNTS: RefCell<(&'static str, Counts)> = const { RefCell::new(("", Counts::new())) };
}

/// What `work` does, and what it comes to.
pub(crate) fn counts_of<T>(work: impl FnOnce() -> T) -> (T, Counts) {
    COUNTS.with_borrow_mut(|counts| *counts = ("", Counts::new()));
    let result = work();
    (result, COUNTS.with_borrow(|counts| counts.1.clone()))
}

/// From here on operations count as `name`'s.
pub(crate) fn component(name: &'static str) {
    COUNTS.with_borrow_mut(|(current, _)| *current = name);
}

pub(crate) fn count(macs: u64, operations: u64) {
    COUNTS.with_borrow_mut(|(current, counts)| {
        let entry = counts.entry(current).or_default();
        *entry = (entry.0 + macs, entry.1 + operations);
    });
}

/// A number that counts: 1 for each operation but a change of sign and a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub(crate) struct Counted(pub(crate) f64);

macro_rules! operator {
    ($trait:ident, $method:ident) => {
        impl $trait for Counted {
            type Output = Self;
            fn $method(self, other: Self) -> Self {
                count(0, 1);
                Self(self.0.$method(other.0))
            }
        }
    };
}
operator!(Add, add);
operator!(Sub, sub);
operator!(Mul, mul);

impl Neg for Counted {
    type Output = Self;
    fn neg(self) -> Self {
        Self(-self.0)
    }
}

impl Counted {
    pub(crate) fn one(self, f: impl Fn(f64) -> f64) -> Self {
        count(0, 1);
        Self(f(self.0))
    }
    pub(crate) fn silu(self) -> Self {
        self * (-self).one(f64::exp).one(|e| 1.0 + e).one(f64::recip)
    }
    pub(crate) fn softplus(self) -> Self {
        self.one(f64::exp).one(|e| 1.0 + e).one(f64::ln)
    }
}

impl Real for Counted {
    // As many as the tensors' type takes.
    const SERIES_TERMS: usize = <burn::tensor::Tensor<1> as Real>::SERIES_TERMS;

    fn scale(self, factor: f64) -> Self {
        self.one(|x| x * factor)
    }
    fn offset(self, term: f64) -> Self {
        self.one(|x| x + term)
    }
    fn mul_add(self, factor: Self, term: f64) -> Self {
        (self * factor).offset(term)
    }
    fn constant(&self, value: f64) -> Self {
        Self(value)
    }
    fn exp(self) -> Self {
        self.one(f64::exp)
    }
    fn recip(self) -> Self {
        self.one(f64::recip)
    }
    fn choose_near(self, bound: f64, near: Self, far: Self) -> Self {
        if self.0.abs() < bound { near } else { far }
    }
    fn near_zero(self, bound: f64) -> Self {
        if self.0.abs() < bound { self } else { Self(0.0) }
    }
    fn away_from_zero(self, bound: f64) -> Self {
        if self.0.abs() < bound { Self(bound) } else { self }
    }
    fn at_least(self, bound: f64) -> Self {
        if self.0 < bound { Self(bound) } else { self }
    }
}
