//! The forward scan of one strip of channels.

use super::block::{Block, untranspose};
use super::inputs::{CHUNK, ScanInputs, Strip, chunk_states_len};
use crate::discretization::{PerMethod, per_method};
use crate::scan::watch::{is_watched, note_on_host};
use vim_kernels_core::native::lanes::Lanes;
use vim_kernels_core::native::{Kernel, widest};

/// A strip's part of the outputs.
pub(super) struct StripForward {
    /// `[L, channels]`.
    pub(super) y: Vec<f32>,
    /// `[channels, N]`.
    pub(super) last_state: Vec<f32>,
    /// `[blocks, sweeps, chunks, N, LANES]`, empty unless saved.
    pub(super) chunk_states: Vec<f32>,
}

/// Runs the strip; saves the chunk states if `save`.
pub(super) fn forward_strip(
    inputs: ScanInputs<'_>,
    batch: usize,
    strip: Strip,
    save: bool,
) -> StripForward {
    per_method(
        inputs.spec.options.method,
        inputs.spec.options.series,
        Job { inputs, batch, strip, save },
    )
}

#[derive(Clone, Copy)]
struct Job<'a> {
    inputs: ScanInputs<'a>,
    batch: usize,
    strip: Strip,
    save: bool,
}

struct Specialized<'a, const METHOD: usize, const SERIES: usize>(Job<'a>);

impl PerMethod for Job<'_> {
    type Output = StripForward;

    fn run<const METHOD: usize, const SERIES: usize>(self) -> StripForward {
        widest(Specialized::<METHOD, SERIES>(self))
    }
}

impl<const METHOD: usize, const SERIES: usize> Kernel for Specialized<'_, METHOD, SERIES> {
    type Output = StripForward;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> StripForward {
        let Job { inputs, batch, strip, save } = self.0;
        let (sizes, spec) = (inputs.sizes, inputs.spec);
        let channels = strip.channels;
        let mut out = StripForward {
            y: vec![0.0; sizes.len * channels],
            last_state: vec![0.0; channels * sizes.d_state],
            chunk_states: Vec::with_capacity(if save {
                chunk_states_len(sizes, spec, strip)
            } else {
                0
            }),
        };
        let mut block = Block::<FMA>::new(inputs);
        for (first, width) in strip.blocks() {
            block.load(inputs, batch, first, width);
            if is_watched(spec) {
                note_on_host(block.largest_argument());
            }
            for sweep in 0..spec.sweeps() {
                let mut h = vec![Lanes::ZERO; sizes.d_state];
                for step in 0..sizes.len {
                    if save && step % CHUNK == 0 {
                        for h in &h {
                            out.chunk_states.extend_from_slice(&h.to_array());
                        }
                    }
                    let token = spec.token(sizes.len, step, sweep);
                    let none = &mut [];
                    let y = block.step::<METHOD, SERIES>(inputs, batch, strip, token, &mut h, none);
                    block.y[token] += y;
                }
                if sweep == 0 {
                    untranspose(&h, &mut out.last_state[(first - strip.first) * sizes.d_state..]);
                }
            }
            for token in 0..sizes.len {
                let at = token * channels + first - strip.first;
                let y = block.gated(inputs, batch, first, width, token);
                y.store(&mut out.y[at..at + width]);
            }
        }
        out
    }
}
