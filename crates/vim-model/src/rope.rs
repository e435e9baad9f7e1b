//! Rotary positions: pairs of channels rotated by an angle that grows with a patch's row or column.

use burn::tensor::{Device, FloatDType, Tensor, TensorData};

use crate::config::{Rope, VimConfig};

/// Base of the geometric series of frequencies.
const THETA: f32 = 10_000.0;

/// The cosines and sines of a model's rotary positions, as the original's `rope.freqs_cos` and
/// `rope.freqs_sin` hold them: `[G², M]`, row by row of the patches.
///
/// They follow from the sizes and are no parameters, but the original's checkpoints carry them.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTable {
    /// Patches, and `d_model`.
    pub shape: [usize; 2],
    /// Cosines.
    pub cos: Vec<f32>,
    /// Sines.
    pub sin: Vec<f32>,
}

impl VimConfig {
    /// The rotary positions; `None` where [`VimConfig::rope`] is [`Rope::None`].
    ///
    /// Channels `2k` and `2k + 1` rotate together. The first half of the channels rotates with the
    /// patch's row, the second with its column, by `t·θ^(−4k/M)` with θ = 10⁴, `k` from 0 in each
    /// half, and `t = position / G · rope_grid`.
    ///
    /// # Source
    ///
    /// Su et al. 2021, on two axes as in EVA-02; the original's `VisionRotaryEmbeddingFast`, in its
    /// f32.
    #[must_use]
    pub fn rope_table(&self) -> Option<RopeTable> {
        if self.rope == Rope::None {
            return None;
        }
        let [rows, columns] = self.grid();
        let half = self.d_model / 2;
        // Every operation is rounded to f32, as there.
        let frequency = |pair: usize| {
            let exponent = (2 * pair) as f32 / half as f32;
            1.0 / f64::from(THETA).powf(f64::from(exponent)) as f32
        };
        let scale = self.rope_grid() as f32;
        let time = |position: usize, grid: usize| position as f32 / grid as f32 * scale;
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for row in 0..rows {
            for column in 0..columns {
                for channel in 0..self.d_model {
                    let t = if channel < half { time(row, rows) } else { time(column, columns) };
                    let angle = f64::from(t * frequency(channel % half / 2));
                    cos.push(angle.cos() as f32);
                    sin.push(angle.sin() as f32);
                }
            }
        }
        Some(RopeTable { shape: [rows * columns, self.d_model], cos, sin })
    }
}

/// The rotation of a sequence.
#[derive(Debug)]
pub(crate) struct Rotation {
    /// `[1, L, M]`.
    cos: Tensor<3>,
    /// The sine, negated where a channel is the first of its pair: `[1, L, M]`.
    sin: Tensor<3>,
}

impl Rotation {
    /// The rotation of a model's tokens, if it has one; of reversed tokens if `flipped`.
    ///
    /// Of an odd number of tokens the first is left alone and the others are rotated as the patches
    /// in their order, wherever the class token is: the original assumes that it comes first.
    pub(crate) fn new(config: &VimConfig, flipped: bool, device: &Device) -> Option<Self> {
        let RopeTable { shape: [_, d_model], cos, sin } = config.rope_table()?;
        let len = config.num_tokens();
        let still = len % 2 * d_model;
        let sign = |(i, s): (usize, f32)| if i % 2 == 0 { -s } else { s };
        let cos = [vec![1.0; still], cos].concat();
        let sin = [vec![0.0; still], sin.into_iter().enumerate().map(sign).collect()].concat();
        let upload = |values: Vec<f32>| {
            let table = Tensor::<3>::from_data(TensorData::new(values, [1, len, d_model]), device);
            if flipped { table.flip([1]) } else { table }
        };
        Some(Self { cos: upload(cos), sin: upload(sin) })
    }

    /// `x`, `[B, L, M]`, rotated.
    pub(crate) fn apply(&self, x: Tensor<3>) -> Tensor<3> {
        let [batch, len, d_model] = x.dims();
        let dtype = x.dtype();
        let x = x.cast(FloatDType::F32);
        let partner = x.clone().reshape([batch, len, d_model / 2, 2]).flip([3]);
        let rotated =
            x * self.cos.clone() + partner.reshape([batch, len, d_model]) * self.sin.clone();
        rotated.cast(dtype)
    }
}
