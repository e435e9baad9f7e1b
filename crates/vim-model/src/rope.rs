//! Rotary positions: pairs of channels rotated by an angle that grows with a patch's row or column.

use burn::tensor::{Device, Tensor, TensorData};
use vim_kernels::{KernelChoice, KernelError, rotate_pairs};

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
        let [of_rows, of_columns] = self.rope_axes();
        let spread = |of: fn((f32, f32)) -> f32| -> Vec<f32> {
            let pixels = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
            let line = |angles: &[(f32, f32)], at: usize| -> Vec<f32> {
                angles[at * half..][..half].iter().copied().map(of).collect()
            };
            pixels.flat_map(|(y, x)| [line(&of_rows, y), line(&of_columns, x)].concat()).collect()
        };
        let (cos, sin) = (spread(|(cos, _)| cos), spread(|(_, sin)| sin));
        Some(RopeTable { shape: [rows * columns, 2 * half], cos, sin })
    }

    /// Cosine and sine of the angle of every row of patches, and of every column, both for half of
    /// the channels: `[G, M/2]`.
    fn rope_axes(&self) -> [Vec<(f32, f32)>; 2] {
        let half = self.d_model / 2;
        // Every operation is rounded to f32, as there.
        let frequency = |pair: usize| {
            let exponent = (2 * pair) as f32 / half as f32;
            1.0 / f64::from(THETA).powf(f64::from(exponent)) as f32
        };
        let frequencies: Vec<f32> = (0..half).map(|channel| frequency(channel / 2)).collect();
        let scale = self.rope_grid() as f32;
        let turn = |angle: f32| {
            let angle = f64::from(angle);
            (angle.cos() as f32, angle.sin() as f32)
        };
        self.grid().map(|grid| {
            let times = (0..grid).map(|position| position as f32 / grid as f32 * scale);
            times.flat_map(|t| frequencies.iter().map(move |by| turn(t * by))).collect()
        })
    }
}

/// The rotation of a sequence.
#[derive(Debug)]
pub(crate) struct Rotation {
    /// `[1, L, M]`.
    cos: Tensor<3>,
    /// The sine, negated where a channel is the first of its pair: `[1, L, M]`.
    sin: Tensor<3>,
    choice: KernelChoice,
}

impl Rotation {
    /// The rotation of a model's tokens, if it has one; of reversed tokens if `flipped`.
    ///
    /// Of an odd number of tokens the first is left alone and the others are rotated as the patches
    /// in their order, wherever the class token is: the original assumes that it comes first.
    pub(crate) fn new(config: &VimConfig, flipped: bool, device: &Device) -> Option<Self> {
        if config.rope == Rope::None {
            return None;
        }
        let ([rows, columns], half) = (config.grid(), config.d_model / 2);
        let axes = config.rope_axes();
        let still = config.num_tokens() % 2;
        // A row's and a column's part meet on the device: what is uploaded grows with G, not G².
        let spread = |of: fn(usize, (f32, f32)) -> f32, alone: f32| {
            let part = |axis: usize, shape: [usize; 3]| {
                let values = axes[axis].iter().enumerate();
                let values = values.map(|(i, &angle)| of(axis * half + i % half, angle)).collect();
                let values = TensorData::new::<f32, _>(values, shape);
                Tensor::<3>::from_data(values, device).expand([rows, columns, half])
            };
            let all = Tensor::cat(vec![part(0, [rows, 1, half]), part(1, [1, columns, half])], 2);
            let all = all.reshape([1, rows * columns, 2 * half]);
            let first = Tensor::full([1, 1, 2 * half], alone, device);
            let all = if still == 1 { Tensor::cat(vec![first, all], 1) } else { all };
            if flipped { all.flip([1]) } else { all }
        };
        let sine = |channel: usize, (_, sin): (f32, f32)| {
            if channel.is_multiple_of(2) { -sin } else { sin }
        };
        let cos = spread(|_, (cos, _)| cos, 1.0);
        Some(Self { cos, sin: spread(sine, 0.0), choice: config.ssm.scan })
    }

    /// `x`, `[B, L, M]`, rotated.
    pub(crate) fn apply(&self, x: Tensor<3>) -> Result<Tensor<3>, KernelError> {
        rotate_pairs(x, self.cos.clone(), self.sin.clone(), self.choice)
    }
}
