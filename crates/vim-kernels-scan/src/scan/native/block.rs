//! Sixteen channels of a scan: the inputs of every token, and the token's step.

use strum::VariantArray;

use super::inputs::{ScanInputs, Strip};
use crate::discretization::{Discretization, LEAST_RATE, Series, discretize};
use vim_kernels_core::Real;
use vim_kernels_core::native::lanes::{LANES, Lanes};

/// Inputs of every step of sixteen channels.
pub(super) struct Block<const FMA: bool> {
    /// Delta after bias and softplus, `[L]`.
    pub(super) delta: Vec<Lanes<FMA>>,
    /// The slope of softplus, `[L]`.
    pub(super) delta_slope: Vec<Lanes<FMA>>,
    /// `[L]`.
    pub(super) u: Vec<Lanes<FMA>>,
    /// `[N]`.
    pub(super) a: Vec<Lanes<FMA>>,
    /// `[N]`; used where B is constant.
    pub(super) b: Vec<Lanes<FMA>>,
    /// `[N]`; used where C is constant.
    pub(super) c: Vec<Lanes<FMA>>,
    /// The skip gain.
    pub(super) d: Lanes<FMA>,
    /// Sum of `c·h` over states and sweeps, `[L]`.
    pub(super) y: Vec<Lanes<FMA>>,
}

impl<const FMA: bool> Block<FMA> {
    #[inline(always)]
    pub(super) fn new(inputs: ScanInputs<'_>) -> Self {
        let tokens = vec![Lanes::ZERO; inputs.sizes.len];
        let states = vec![Lanes::ZERO; inputs.sizes.d_state];
        Self {
            delta: tokens.clone(),
            delta_slope: tokens.clone(),
            u: tokens.clone(),
            y: tokens,
            a: states.clone(),
            b: states.clone(),
            c: states,
            d: Lanes::ZERO,
        }
    }

    /// Reads the block of `width` channels from `first` on.
    #[inline(always)]
    pub(super) fn load(
        &mut self,
        inputs: ScanInputs<'_>,
        batch: usize,
        first: usize,
        width: usize,
    ) {
        let zero = Lanes::ZERO;
        let bias = match inputs.delta_bias {
            Some(bias) => Lanes::load(&bias[first..first + width]),
            None => zero,
        };
        for token in 0..inputs.sizes.len {
            let raw = inputs.columns::<FMA>(inputs.delta, batch, token, first, width) + bias;
            let softplus = inputs.spec.options.delta_softplus;
            [self.delta[token], self.delta_slope[token]] =
                if softplus { raw.softplus_and_slope() } else { [raw, Lanes::splat(1.0)] };
            self.u[token] = inputs.columns(inputs.u, batch, token, first, width);
            self.y[token] = zero;
        }
        let channels = first * inputs.sizes.d_state..(first + width) * inputs.sizes.d_state;
        transpose(&inputs.a[channels.clone()], &mut self.a);
        self.a.iter_mut().for_each(|a| *a = a.at_least(f64::from(LEAST_RATE)));
        if inputs.spec.b_constant {
            transpose(&inputs.b[channels.clone()], &mut self.b);
        }
        if inputs.spec.c_constant {
            transpose(&inputs.c[channels], &mut self.c);
        }
        self.d = match inputs.d {
            Some(d) => Lanes::load(&d[first..first + width]),
            None => zero,
        };
    }

    /// The largest |delta·a| of the channels; a lane without a channel has a = 0.
    pub(super) fn largest_argument(&self) -> f32 {
        let largest = |of: &[Lanes<FMA>]| {
            of.iter().fold([0.0; LANES], |most: [f32; LANES], lanes| {
                let lanes = lanes.to_array();
                std::array::from_fn(|lane| most[lane].max(lanes[lane].abs()))
            })
        };
        let (delta, a) = (largest(&self.delta), largest(&self.a));
        (0..LANES).map(|lane| delta[lane] * a[lane]).fold(0.0, f32::max)
    }

    /// One token: `h ← a_bar·h + b_bar·b·u`, and `b_prev·b·u` of the token before where the method
    /// reads it; returns `c·h`, weighted for the mean of a two-way method.
    ///
    /// Stores every `a_bar` in `decays` if it has room.
    #[inline(always)]
    pub(super) fn step<const METHOD: usize, const SERIES: usize>(
        &self,
        inputs: ScanInputs<'_>,
        batch: usize,
        strip: Strip,
        token: usize,
        h: &mut [Lanes<FMA>],
        decays: &mut [Lanes<FMA>],
    ) -> Lanes<FMA> {
        debug_assert_eq!(h.len(), inputs.sizes.d_state);
        let [b, c] = self.projections(inputs, batch, token, strip);
        let (b_before, u_before) = self.before::<METHOD>(inputs, batch, token, strip);
        let before = |n| b_before.at(n) * u_before;
        let y = match (b, c) {
            // A loop of its own, in which nothing asks whether they are constant.
            (TokenProjection::Row(b), TokenProjection::Row(c)) => {
                let (b, c) = (&b[..h.len()], &c[..h.len()]);
                let at = |n| [Lanes::splat(b[n]), Lanes::splat(c[n])];
                self.states::<METHOD, SERIES>(token, h, decays, at, before)
            }
            (b, c) => {
                self.states::<METHOD, SERIES>(token, h, decays, |n| [b.at(n), c.at(n)], before)
            }
        };
        y * Lanes::splat(inputs.spec.sweep_weight())
    }

    /// B and u of the token before, where the method reads it; u is 0 before the first token.
    #[inline(always)]
    pub(super) fn before<'a, const METHOD: usize>(
        &'a self,
        inputs: ScanInputs<'a>,
        batch: usize,
        token: usize,
        strip: Strip,
    ) -> (TokenProjection<'a, FMA>, Lanes<FMA>) {
        let before = match const { Discretization::VARIANTS[METHOD].form().previous } {
            Some(_) => inputs.spec.token_before(inputs.sizes.len, token),
            None => None,
        };
        match before {
            Some(before) => {
                let [b, _] = self.projections(inputs, batch, before, strip);
                (b, self.u[before])
            }
            None => (TokenProjection::PerChannel(&self.b), Lanes::ZERO),
        }
    }

    /// The states of [`Block::step`], with `at` for B and C of a state, and `before` for B·u of the
    /// token before: the sum of `c·h`.
    #[inline(always)]
    fn states<const METHOD: usize, const SERIES: usize>(
        &self,
        token: usize,
        h: &mut [Lanes<FMA>],
        decays: &mut [Lanes<FMA>],
        at: impl Fn(usize) -> [Lanes<FMA>; 2],
        before: impl Fn(usize) -> Lanes<FMA>,
    ) -> Lanes<FMA> {
        let method = const { Discretization::VARIANTS[METHOD] };
        let series = const { Series::VARIANTS[SERIES] };
        let (delta, u) = (self.delta[token], self.u[token]);
        let a = &self.a[..h.len()];
        let mut y = Lanes::ZERO;
        for n in 0..h.len() {
            let step = discretize(method, series, delta, a[n]);
            if let Some(decay) = decays.get_mut(n) {
                *decay = step.a_bar;
            }
            let [b, c] = at(n);
            h[n] = step.a_bar.fma(h[n], step.b_bar * (b * u));
            if let Some(b_prev) = step.b_prev {
                h[n] = b_prev.fma(before(n), h[n]);
            }
            y = c.fma(h[n], y);
        }
        y
    }

    /// B and C of a token.
    #[inline(always)]
    pub(super) fn projections<'a>(
        &'a self,
        inputs: ScanInputs<'a>,
        batch: usize,
        token: usize,
        strip: Strip,
    ) -> [TokenProjection<'a, FMA>; 2] {
        let at = inputs.sizes.row(batch, token, strip.group);
        let row = at..at + inputs.sizes.d_state;
        [
            if inputs.spec.b_constant {
                TokenProjection::PerChannel(&self.b)
            } else {
                TokenProjection::Row(&inputs.b[row.clone()])
            },
            if inputs.spec.c_constant {
                TokenProjection::PerChannel(&self.c)
            } else {
                TokenProjection::Row(&inputs.c[row])
            },
        ]
    }

    /// `(Σ c·h + d·u)·silu(z)` of a token.
    #[inline(always)]
    pub(super) fn gated(
        &self,
        inputs: ScanInputs<'_>,
        batch: usize,
        first: usize,
        width: usize,
        token: usize,
    ) -> Lanes<FMA> {
        let y = self.d.fma(self.u[token], self.y[token]);
        let Some(z) = inputs.z else { return y };
        y * inputs.columns::<FMA>(z, batch, token, first, width).silu()
    }
}

/// `[channels, N]` of up to sixteen channels into a vector for each state.
fn transpose<const FMA: bool>(from: &[f32], to: &mut [Lanes<FMA>]) {
    let d_state = to.len();
    for (n, to) in to.iter_mut().enumerate() {
        let mut lanes = [0.0; LANES];
        for (lane, row) in lanes.iter_mut().zip(from.chunks_exact(d_state)) {
            *lane = row[n];
        }
        *to = Lanes::load(&lanes);
    }
}

/// The inverse of [`transpose`], for as many channels as `to` has room for.
pub(super) fn untranspose<const FMA: bool>(from: &[Lanes<FMA>], to: &mut [f32]) {
    for (n, lanes) in from.iter().enumerate() {
        for (row, value) in to.chunks_exact_mut(from.len()).zip(lanes.to_array()) {
            row[n] = value;
        }
    }
}

/// B or C at one token: a row shared by the channels of a group, or a value for each channel.
#[derive(Clone, Copy)]
pub(super) enum TokenProjection<'a, const FMA: bool> {
    Row(&'a [f32]),
    PerChannel(&'a [Lanes<FMA>]),
}

impl<const FMA: bool> TokenProjection<'_, FMA> {
    #[inline(always)]
    pub(super) fn at(self, n: usize) -> Lanes<FMA> {
        match self {
            Self::Row(row) => Lanes::splat(row[n]),
            Self::PerChannel(lanes) => lanes[n],
        }
    }
}
