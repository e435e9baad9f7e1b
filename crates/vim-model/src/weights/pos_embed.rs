//! Resizing learned positions to another grid.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantArray;
use vim_torch::Array;

use crate::config::{ClassToken, VimConfig};

/// How a table of positions is resized, bicubically in either case.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, VariantArray,
)]
#[serde(rename_all = "snake_case")]
pub enum Resize {
    /// Rows of class tokens stay theirs, rows of patches keep their places in the image.
    #[default]
    MiddleAware,
    /// As the original: the first rows are taken for those of class tokens wherever these are, so a
    /// class token in the middle shifts half of the patches by one. Published fine-tunes did this.
    Parity,
}

/// The table `[1, L, M]` of a square grid with the class tokens of `from` as values `[1, L', M]` of
/// the grid of `config`, with the square grid. A model without class tokens loses their rows.
/// `None` if the table is not of a square grid.
pub(crate) fn resize_positions(
    table: &Array,
    from: ClassToken,
    config: &VimConfig,
    resize: Resize,
) -> Option<(Vec<f32>, [usize; 2])> {
    let &[1, length, d_model] = &table.shape[..] else { return None };
    let class_tokens = from.positions(0).len();
    if config.class_token != ClassToken::None && class_tokens != config.num_class_tokens() {
        return None;
    }
    let patches = length.checked_sub(class_tokens)?;
    let side = patches.isqrt();
    if d_model != config.d_model || side == 0 || side * side != patches {
        return None;
    }
    let row = |index: usize| &table.values[index * d_model..(index + 1) * d_model];
    let (old_rows, new_rows): (Vec<usize>, Vec<usize>) = match resize {
        Resize::Parity => ((0..class_tokens).collect(), (0..config.num_class_tokens()).collect()),
        Resize::MiddleAware => (from.positions(patches), config.class_token_positions()),
    };
    let old: Vec<f32> = (0..length)
        .filter(|index| !old_rows.contains(index))
        .flat_map(|index| row(index).iter().copied())
        .collect();
    let resized = bicubic(&old, [side, side], config.grid(), d_model);
    let mut rows = resized.chunks_exact(d_model);
    let mut values = Vec::with_capacity(config.num_tokens() * d_model);
    for index in 0..config.num_tokens() {
        match new_rows.iter().position(|&class| class == index) {
            Some(class) => values.extend_from_slice(row(old_rows[class])),
            None => values.extend_from_slice(rows.next()?),
        }
    }
    Some((values, [side, side]))
}

/// The image `[h, w, channels]` of size `from`, at the size `to`.
///
/// # Source
///
/// `torch.nn.functional.interpolate(…, mode="bicubic", align_corners=False)`: the cubic convolution
/// of Keys 1981 with a = −0.75, edges repeated, no antialiasing. One axis after the other, in f64.
fn bicubic(image: &[f32], from: [usize; 2], to: [usize; 2], channels: usize) -> Vec<f32> {
    let (rows, columns) = (taps(from[0], to[0]), taps(from[1], to[1]));
    let at = |y: usize, x: usize, c: usize| f64::from(image[(y * from[1] + x) * channels + c]);
    let mut result = Vec::with_capacity(to[0] * to[1] * channels);
    for (ys, by) in &rows {
        for (xs, bx) in &columns {
            for c in 0..channels {
                let along = |&y: &usize| -> f64 {
                    xs.iter().zip(bx).map(|(&x, weight)| weight * at(y, x, c)).sum()
                };
                let sum: f64 = ys.iter().zip(by).map(|(y, weight)| weight * along(y)).sum();
                result.push(sum as f32);
            }
        }
    }
    result
}

/// For every pixel of an axis of `to` pixels, its four source pixels of `from` and their weights.
fn taps(from: usize, to: usize) -> Vec<([usize; 4], [f64; 4])> {
    const A: f64 = -0.75;
    let near = |x: f64| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0; // |x| ≤ 1
    let far = |x: f64| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A; // 1 < |x| < 2
    let scale = from as f64 / to as f64;
    (0..to)
        .map(|place| {
            let centre = (place as f64 + 0.5) * scale - 0.5;
            let (first, t) = (centre.floor() as isize, centre - centre.floor());
            let pixels =
                [-1, 0, 1, 2].map(|offset| (first + offset).clamp(0, from as isize - 1) as usize);
            (pixels, [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are those of tests/it/pos_embed.rs at `h, w = 2, 4`.
    #[test]
    #[rustfmt::skip]
    fn rectangular_grids_are_pytorch_s() {
        let config = VimConfig { image_size: [32, 64].into(), d_model: 2, ..VimConfig::default() };
        let values = (0..20).map(|i| (i as f32 * 1.7).sin()).collect();
        let table = Array { shape: vec![1, 10, 2], values, stored: vim_torch::Element::F32 };
        for (mode, expected) in [
            (Resize::Parity, [
                0.0, 0.991665, 0.058632, -0.712705, 0.124707, 0.282557, -0.023606, 0.325412, -0.279425,
                -0.615025, -0.584453, 0.481140, 0.151962, -0.305520, 0.265148, -0.222137, -0.326465, 0.671196_f32,
            ]),
            (Resize::MiddleAware, [
                -0.125235, 0.687842, -0.487136, -0.398689, -0.102292, -0.413092, 0.751953, 0.655014, 0.859162,
                0.396740, -1.03329, 0.119861, 0.026056, -0.374618, 0.315590, -0.158062, -0.373346, 0.613467,
            ]),
        ] {
            let (got, from) = resize_positions(&table, ClassToken::Middle, &config, mode).unwrap();
            assert_eq!((got.len(), from), (18, [3, 3]));
            for (got, expected) in got.iter().zip(expected) {
                assert!((got - expected).abs() < 2e-6, "{mode:?}: {got} {expected}");
            }
        }
        let odd = Array { shape: vec![1, 9, 2], ..table };
        assert_eq!(resize_positions(&odd, ClassToken::Middle, &config, Resize::Parity), None, "no square grid has 8 patches");
    }
}
