//! A method's `b_bar` by kind of term.

use super::{FactoredMethod, Table};
use crate::discretization::phi::series_coefficient;
use crate::discretization::{Gain, Series};

impl FactoredMethod {
    /// Weights of the φ functions that are evaluated exactly.
    pub(super) fn weights(self) -> [f64; 3] {
        let mut weights = [0.0; 3];
        for gain in self.form.gains {
            if let (Gain::Phi { k, weight, .. }, Series::Exact) = (gain, self.series) {
                // `deltaᵏ·φₖ`: a gain of φₖ is the k-th gain in every form.
                weights[k - 1] += weight;
            }
        }
        weights
    }

    /// The highest k of a φₖ that is evaluated exactly, 0 if there is none.
    pub(super) fn highest(self) -> usize {
        (1..=3).rev().find(|&k| self.weights()[k - 1] != 0.0).unwrap_or(0)
    }

    /// The part of `b_bar` that is a polynomial by definition.
    pub(super) fn polynomial(self) -> Table {
        let mut table = Table::new();
        let mut add = |j: usize, p: usize, value: f64| {
            if table.len() <= j {
                table.resize(j + 1, [0.0; 5]);
            }
            table[j][p] += value;
        };
        for (place, gain) in self.form.gains.into_iter().enumerate() {
            let p = place + 1;
            match (gain, self.series) {
                (Gain::Constant(value), _) => {
                    if value != 0.0 {
                        add(0, p, value);
                    }
                }
                (Gain::Cayley, _) | (Gain::Phi { .. }, Series::Exact) => {}
                (Gain::Phi { k, weight, terms }, Series::Taylor) => {
                    (0..terms).for_each(|j| add(j, p, weight * series_coefficient(k, j)));
                }
                (Gain::Truncated { k, terms }, _) => {
                    (0..terms).for_each(|j| add(j, p, series_coefficient(k, j)));
                }
            }
        }
        table
    }

    /// Weights of `delta^p/(1 − x/2)`.
    pub(super) fn cayley(self) -> [f64; 5] {
        let mut weights = [0.0; 5];
        for (place, gain) in self.form.gains.into_iter().enumerate() {
            if gain == Gain::Cayley {
                weights[place + 1] = 1.0;
            }
        }
        weights
    }
}
