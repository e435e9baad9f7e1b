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
    /// The original resizes squares alone; grids that are no squares follow the same rule here.
    Parity,
}

/// Rows and columns of the patches that a table of positions has a row each of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grid {
    /// As recorded with the table, or the square of that many patches.
    Known([usize; 2]),
    /// That of the model, which is no square and has as many patches: nothing says that it is the
    /// table's.
    Assumed([usize; 2]),
    /// Of this many patches, which are no square and not as many as the model's.
    Unknown(usize),
}

/// The grid of `table`, `[1, L, M]`, with the class tokens of `from`, where `recorded` was recorded
/// with it. `None` if a model of `config` has no positions of such a shape.
pub(crate) fn grid_of(
    table: &Array,
    from: ClassToken,
    recorded: Option<[usize; 2]>,
    config: &VimConfig,
) -> Option<Grid> {
    let &[1, length, d_model] = &table.shape[..] else { return None };
    let patches = length.checked_sub(from.positions(0).len()).filter(|&patches| patches > 0)?;
    if d_model != config.d_model {
        return None;
    }
    // A record that does not fit the table is of other positions, and says nothing of these.
    let fits = |&[rows, columns]: &[usize; 2]| rows.checked_mul(columns) == Some(patches);
    let side = patches.isqrt();
    let square = Some([side, side]).filter(fits);
    let own = Some(config.grid()).filter(fits);
    Some(match (recorded.filter(fits), own) {
        (Some(grid), _) => Grid::Known(grid),
        (None, Some(own)) if Some(own) != square => Grid::Assumed(own),
        (None, _) => square.map_or(Grid::Unknown(patches), Grid::Known),
    })
}

/// The table `[1, L, M]` of the grid `[rows, columns]` with the class tokens of `from`, as
/// [`grid_of`] accepts it, as values `[1, L', M]` of the grid of `config`. A model without class
/// tokens loses their rows. `None` if the two have different numbers of class tokens otherwise.
pub(crate) fn resize_positions(
    table: &Array,
    from: ClassToken,
    grid: [usize; 2],
    config: &VimConfig,
    resize: Resize,
) -> Option<Vec<f32>> {
    let &[_, length, d_model] = &table.shape[..] else { return None };
    let class_tokens = from.positions(0).len();
    if config.class_token != ClassToken::None && class_tokens != config.num_class_tokens() {
        return None;
    }
    let patches = length - class_tokens;
    let row = |index: usize| &table.values[index * d_model..(index + 1) * d_model];
    let (old_rows, new_rows): (Vec<usize>, Vec<usize>) = match resize {
        Resize::Parity => ((0..class_tokens).collect(), (0..config.num_class_tokens()).collect()),
        Resize::MiddleAware => (from.positions(patches), config.class_token_positions()),
    };
    let old: Vec<f32> = (0..length)
        .filter(|index| !old_rows.contains(index))
        .flat_map(|index| row(index).iter().copied())
        .collect();
    let resized = bicubic(&old, grid, config.grid(), d_model);
    let mut rows = resized.chunks_exact(d_model);
    let mut values = Vec::with_capacity(config.num_tokens() * d_model);
    for index in 0..config.num_tokens() {
        match new_rows.iter().position(|&class| class == index) {
            Some(class) => values.extend_from_slice(row(old_rows[class])),
            None => values.extend_from_slice(rows.next()?),
        }
    }
    Some(values)
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
            let got = resize_positions(&table, ClassToken::Middle, [3, 3], &config, mode).unwrap();
            assert_eq!(got.len(), 18);
            for (got, expected) in got.iter().zip(expected) {
                assert!((got - expected).abs() < 2e-6, "{mode:?}: {got} {expected}");
            }
        }
    }

    #[test]
    fn a_grid_is_the_recorded_one_then_a_square_then_the_model_s() {
        let grid = |rows: usize, recorded, own: [usize; 2]| {
            let image_size = own.map(|side| 16 * side).into();
            let config = VimConfig { image_size, d_model: 2, ..VimConfig::default() };
            let values = vec![0.0; 2 * rows];
            let table = Array { shape: vec![1, rows, 2], values, stored: vim_torch::Element::F32 };
            grid_of(&table, ClassToken::Middle, recorded, &config)
        };
        assert_eq!(grid(37, Some([4, 9]), [6, 6]), Some(Grid::Known([4, 9])));
        assert_eq!(grid(37, Some([4, 9]), [9, 4]), Some(Grid::Known([4, 9])));
        assert_eq!(grid(37, None, [6, 6]), Some(Grid::Known([6, 6])));
        assert_eq!(grid(37, None, [3, 3]), Some(Grid::Known([6, 6])));
        assert_eq!(grid(37, None, [4, 9]), Some(Grid::Assumed([4, 9])), "36 is a square, too");
        assert_eq!(grid(25, None, [4, 6]), Some(Grid::Assumed([4, 6])));
        assert_eq!(grid(25, None, [6, 6]), Some(Grid::Unknown(24)));
        assert_eq!(grid(25, Some([4, 9]), [6, 6]), Some(Grid::Unknown(24)), "of another table");
        assert_eq!(grid(1, None, [6, 6]), None, "there is a class token alone");
    }
}
