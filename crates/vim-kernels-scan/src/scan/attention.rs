//! The hidden attention of a scan: the matrix that takes its inputs to its outputs.

use rayon::prelude::*;

use super::oracle::{Number, OracleScan};
use crate::discretization::{Coefficients, discretize};

/// Squared size below which what is carried back is nothing: it cannot be seen in an f64 beside
/// what was carried before, and smaller numbers are slow.
const NOTHING: f64 = 1e-300;

impl<T: Number + Sync> OracleScan<T> {
    /// Rows of the hidden attention α of a channel, for the outputs of `tokens`: `[R, L]`.
    ///
    /// `α[t,s] = c[t]·(∏ a_bar[k], s < k ≤ t)·b_bar[s]·b[s]`, in the order of the scan; where the
    /// method reads the token before, plus `c[t]·(∏ a_bar[k], s + 1 < k ≤ t)·b_prev[s+1]·b[s]` for
    /// s < t; the mean of both ways for a two-way method; twice the real part where complex. So
    /// `y[t] = Σ α[t,s]·u[s] + d·u[t]` before the gate, and what a scan cannot see has 0.
    ///
    /// # Source
    ///
    /// Ali, Zimerman and Wolf 2024, arXiv 2403.01590, eq. 12.
    #[must_use]
    pub fn alpha(&self, batch: usize, channel: usize, tokens: &[usize]) -> Vec<f64> {
        let sweeps = if self.method.form().two_way { 2 } else { 1 };
        let mut alpha = vec![0.0; tokens.len() * self.len];
        for sweep in 0..sweeps {
            let gains = self.gains(batch, channel, sweep);
            for (row, &token) in alpha.chunks_exact_mut(self.len).zip(tokens) {
                let c = |n| self.c[self.projection(self.c_constant, batch, token, channel, n)];
                let share = T::OUTPUT / sweeps as f64;
                let mut carried: Vec<T> = (0..self.d_state).map(|n| c(n).scale(share)).collect();
                // The step of a token is the token of that step.
                let steps = gains.chunks_exact(self.d_state).take(self.token(token, sweep) + 1);
                for (step, gains) in steps.enumerate().rev() {
                    let (mut here, mut before, mut is_over) = (0.0, 0.0, true);
                    for (carried, by) in carried.iter_mut().zip(gains) {
                        here += (*carried * by.b_bar).re();
                        before += by.b_prev.map_or(0.0, |b_prev| (*carried * b_prev).re());
                        *carried = *carried * by.a_bar;
                        match (*carried * carried.conj()).re() < NOTHING {
                            true => *carried = T::real(0.0),
                            false => is_over = false,
                        }
                    }
                    row[self.token(step, sweep)] += here;
                    if let Some(step) = step.checked_sub(1) {
                        row[self.token(step, sweep)] += before;
                    }
                    if is_over {
                        break;
                    }
                }
            }
        }
        alpha
    }

    /// The mean over the channels of |α|, for the outputs of `tokens`: `[R, L]`. It takes
    /// `R·L·D/16` numbers of memory, and `O(R·L·D·N)` operations.
    #[must_use]
    pub fn attention(&self, batch: usize, tokens: &[usize]) -> Vec<f64> {
        let none = || vec![0.0; tokens.len() * self.len];
        let add = |mut sum: Vec<f64>, of: &[f64]| {
            sum.iter_mut().zip(of).for_each(|(sum, of)| *sum += of.abs());
            sum
        };
        // Parts of a fixed size, added in order: the number of threads changes nothing.
        let channels = (0..self.d_inner).into_par_iter();
        let parts: Vec<Vec<f64>> = channels
            .fold_chunks(16, none, |sum, channel| add(sum, &self.alpha(batch, channel, tokens)))
            .collect();
        let sum = parts.iter().fold(none(), |sum, part| add(sum, part));
        sum.into_iter().map(|sum| sum / self.d_inner as f64).collect()
    }

    /// What a channel's steps do to each state, `[L, N]`: the coefficients, with b in the gains.
    fn gains(&self, batch: usize, channel: usize, sweep: usize) -> Vec<Coefficients<T>> {
        let b = |token, n| self.b[self.projection(self.b_constant, batch, token, channel, n)];
        let mut gains = Vec::with_capacity(self.len * self.d_state);
        for step in 0..self.len {
            let token = self.token(step, sweep);
            let before = step.checked_sub(1).map(|step| self.token(step, sweep));
            let (delta, _) = self.delta(self.at(batch, token, channel), channel);
            for n in 0..self.d_state {
                let a = self.rate(channel * self.d_state + n);
                let by = discretize(self.method, self.series, T::real(delta), a);
                let b_prev = by.b_prev.zip(before).map(|(b_prev, before)| b_prev * b(before, n));
                gains.push(Coefficients { b_bar: by.b_bar * b(token, n), b_prev, ..by });
            }
        }
        gains
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::*;
    use crate::complex::Complex;
    use crate::discretization::{Discretization, Series};

    fn wave(count: usize, step: f64) -> Vec<f64> {
        (0..count).map(|at| (at as f64 * step + 0.3).sin()).collect()
    }

    /// Two images of eleven tokens, three channels, five states; B and C vary and have groups.
    fn scan(method: Discretization, series: Series, reverse: bool) -> OracleScan {
        let (batch, len, d_inner, d_state) = (2, 11, 3, 5);
        let tokens = batch * len * d_inner;
        OracleScan {
            batch,
            len,
            d_inner,
            d_state,
            groups: 3,
            method,
            series,
            delta_softplus: true,
            reverse,
            u: wave(tokens, 0.7),
            delta: wave(tokens, 1.3),
            a: wave(d_inner * d_state, 0.9).iter().map(|x| -1.5 - x).collect(),
            b: wave(batch * len * 3 * d_state, 0.41),
            c: wave(batch * len * 3 * d_state, 0.23),
            d: Some(wave(d_inner, 0.5)),
            delta_bias: Some(wave(d_inner, 0.8)),
            ..OracleScan::default()
        }
    }

    /// The largest difference of `α·u + d·u` and y, over the largest |y|.
    fn off<T: Number + Sync>(scan: &OracleScan<T>) -> f64 {
        let all: Vec<usize> = (0..scan.len).collect();
        let (y, _) = scan.forward();
        let mut worst = 0.0_f64;
        for (batch, channel) in (0..scan.batch).flat_map(|b| (0..scan.d_inner).map(move |d| (b, d)))
        {
            let u: Vec<f64> = all.iter().map(|&t| scan.u[scan.at(batch, t, channel)]).collect();
            let alpha = scan.alpha(batch, channel, &all);
            for (token, row) in alpha.chunks_exact(scan.len).enumerate() {
                let at = scan.at(batch, token, channel);
                let read: f64 = row.iter().zip(&u).map(|(alpha, u)| alpha * u).sum();
                worst = worst.max((scan.gated(read, at, channel) - y[at]).abs());
            }
        }
        worst / y.iter().fold(0.0_f64, |most, y| most.max(y.abs()))
    }

    #[test]
    fn rows_times_the_input_are_the_output() {
        for &method in Discretization::VARIANTS {
            for &series in method.series() {
                for reverse in [false, true] {
                    let off = off(&scan(method, series, reverse));
                    assert!(off < 1e-13, "{method} {series} {reverse}: {off:e}");
                }
            }
        }
        let real = scan(Discretization::Zoh, Series::Exact, false);
        let turned = |x: &[f64]| x.iter().map(|&x| Complex::new(x, 0.4 - x)).collect::<Vec<_>>();
        let complex = OracleScan {
            a: real.a.iter().map(|&a| Complex::new(a, 2.0 + a)).collect(),
            b: turned(&real.b),
            c: turned(&real.c),
            batch: 2,
            len: 11,
            d_inner: 3,
            d_state: 5,
            groups: 3,
            method: Discretization::Bilinear,
            delta_softplus: true,
            u: real.u.clone(),
            delta: real.delta.clone(),
            d: real.d.clone(),
            z: Some(wave(66, 0.6)),
            ..OracleScan::default()
        };
        assert!(off(&complex) < 1e-13, "{:e}", off(&complex));
    }

    #[test]
    fn what_a_scan_cannot_see_has_none() {
        for &method in Discretization::VARIANTS {
            for reverse in [false, true] {
                let scan = scan(method, Series::Exact, reverse);
                let rows = [2, 7];
                let attention = scan.attention(1, &rows);
                for (row, token) in attention.chunks_exact(scan.len).zip(rows) {
                    for (at, &alpha) in row.iter().enumerate() {
                        let is_seen = if reverse { at >= token } else { at <= token };
                        let is_seen = is_seen || method.form().two_way;
                        assert_eq!(alpha != 0.0, is_seen, "{method} {reverse}: {token} {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn rows_are_those_of_the_whole_and_a_state_that_is_gone_stays_gone() {
        let mut scan = scan(Discretization::FohLinear, Series::Exact, false);
        let all: Vec<usize> = (0..scan.len).collect();
        let whole = scan.attention(0, &all);
        assert_eq!(scan.attention(0, &[9, 4]), [&whole[99..110], &whole[44..55]].concat());
        // Steps so long that nothing is left of a token after the next one.
        scan.delta.iter_mut().for_each(|delta| *delta = 1e4);
        let far = scan.alpha(0, 1, &[10]);
        assert!(far[..9].iter().all(|&alpha| alpha == 0.0) && far[10] != 0.0, "{far:?}");
        assert!(off(&scan) < 1e-13);
    }
}
