//! Positions at another grid, against `torch.nn.functional.interpolate`.
//!
//! The numbers are PyTorch 2.15's, of a 3 × 3 grid with two channels and the class token in its
//! middle:
//!
//! ```python
//! x = torch.sin(torch.arange(20.) * 1.7).reshape(10, 2)
//! def bicubic(p, h, w):  # [9, 2] -> [h*w, 2]
//!     p = p.reshape(1, 3, 3, 2).permute(0, 3, 1, 2)
//!     p = F.interpolate(p, size=(h, w), mode="bicubic", align_corners=False)
//!     return p.permute(0, 2, 3, 1).reshape(-1, 2)
//! parity = torch.cat([x[:1], bicubic(x[1:], h, w)])
//! patches = bicubic(torch.cat([x[:4], x[5:]]), h, w)
//! middle_aware = torch.cat([patches[:h*w//2], x[4:5], patches[h*w//2:]])
//! ```

use burn::tensor::Device;
use vim_model::{ClassToken, LoadOptions, Names, Resize, StateDictMismatch, VimConfig};

use vim_torch::StateDict;

use crate::support::{arrays, build, dict, small, values};

fn model(grid: usize) -> VimConfig {
    VimConfig { image_size: (4 * grid).into(), d_model: 2, depth: 1, d_state: 2, ..small() }
}

/// The table of a 3 × 3 grid, resized to `grid` × `grid`.
fn resized(grid: usize, mode: Resize) -> Vec<f32> {
    let mut arrays = arrays(&build(&model(3), 0), Names::Pytorch);
    let (_, table) = arrays.iter_mut().find(|(key, _)| key == "pos_embed").unwrap();
    table.values = (0..20).map(|i| (i as f32 * 1.7).sin()).collect();
    let options = LoadOptions { resize: Some(mode), ..LoadOptions::default() };
    let (model, _) = build(&model(grid), 0).load(&dict(arrays), options).unwrap();
    values(&model)["pos_embed"].1.clone()
}

fn close(got: &[f32], expected: &[f64]) {
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        assert!((f64::from(*got) - expected).abs() < 2e-6, "{got} {expected}"); // f32 there, f64 here
    }
}

#[test]
#[rustfmt::skip]
fn larger_grids_are_pytorch_s() {
    close(&resized(4, Resize::Parity), &[
        0.0000000, 0.9916648, -0.4026016, -1.1562051, 0.4180245, 0.3535498, 0.1893490, 0.5256657, -0.9238297, -0.7638950, 0.7517818, -0.0983936, -0.3051021, 0.1956539, -0.3434043, 0.0482758, 0.6644783, -0.4343176, 0.3778135, 0.5958534, -0.2892528, -0.1463255, -0.1754873, -0.2701360, 0.6371233, 0.3136477, -1.2550008, 0.4262169, 0.4541503, -0.4259359, 0.5720882, -0.2001017, -0.9861809, 0.9409689,
    ]);
    close(&resized(4, Resize::MiddleAware), &[
        0.0685464, 1.2571396, -0.1857525, -0.4315921, 0.0058986, -0.5461430, 0.5053837, 0.9960396, -0.3825238, -0.1284925, -0.9427379, -0.3512571, -0.2725731, -0.2258267, 1.1450065, 0.1574053, 0.8591620, 0.3967404, -0.9105776, -0.4587857, -0.6443055, -0.3372591, -0.0295657, -0.0775210, 0.4906208, 0.1332444, -1.1350651, 0.5042907, 0.4944750, -0.3996860, 0.5597941, -0.2081047, -0.9861809, 0.9409689,
    ]);
}

#[test]
#[rustfmt::skip]
fn smaller_grids_are_pytorch_s() {
    close(&resized(2, Resize::Parity), &[
        0.0000000, 0.9916648, 0.0824806, -0.3077031, -0.1725637, -0.2340089, -0.2831454, 0.1633824, -0.0885082, 0.3067685,
    ]);
    close(&resized(2, Resize::MiddleAware), &[
        -0.2644517, 0.2463510, 0.3973358, 0.2215843, 0.8591620, 0.3967404, -0.5973057, -0.0765743, -0.0994159, 0.2958221,
    ]);
}

/// `torch.nn.functional.interpolate(…, mode="bicubic", align_corners=False)` of an image
/// `[h, w, 2]`: one sum over the sixteen pixels around each place.
fn bicubic(image: &[f32], from: [usize; 2], to: [usize; 2]) -> Vec<f64> {
    let kernel = |x: f64| match x.abs() {
        x if x <= 1.0 => 1.25 * x.powi(3) - 2.25 * x * x + 1.0,
        x if x < 2.0 => -0.75 * (x.powi(3) - 5.0 * x * x + 8.0 * x - 4.0),
        _ => 0.0,
    };
    let inside = |place: i64, length: usize| place.clamp(0, length as i64 - 1) as usize;
    let mut result = Vec::new();
    for place in 0..to[0] * to[1] {
        let centre = |place: usize, axis: usize| {
            (place as f64 + 0.5) * from[axis] as f64 / to[axis] as f64 - 0.5
        };
        let (y, x) = (centre(place / to[1], 0), centre(place % to[1], 1));
        let (top, left) = (y.floor() as i64, x.floor() as i64);
        for channel in 0..2 {
            let mut sum = 0.0;
            for v in top - 1..=top + 2 {
                for u in left - 1..=left + 2 {
                    let pixel = inside(v, from[0]) * from[1] + inside(u, from[1]);
                    let weight = kernel(y - v as f64) * kernel(x - u as f64);
                    sum += weight * f64::from(image[2 * pixel + channel]);
                }
            }
            result.push(sum);
        }
    }
    result
}

/// A model of a grid of patches.
fn of_grid(grid: [usize; 2], class_token: ClassToken) -> VimConfig {
    VimConfig { image_size: grid.map(|side| 4 * side).into(), class_token, ..model(1) }
}

/// Weights of such a model, and its table of positions.
fn weights(grid: [usize; 2], class_token: ClassToken) -> (StateDict, Vec<f32>) {
    let mut arrays = arrays(&build(&of_grid(grid, class_token), 0), Names::Pytorch);
    let (_, table) = arrays.iter_mut().find(|(key, _)| key == "pos_embed").unwrap();
    table.values = (0..table.values.len()).map(|i| (i as f32 * 1.7).sin()).collect();
    let values = table.values.clone();
    (dict(arrays), values)
}

/// The rows of class tokens in a table of positions of `patches` patches.
fn token_rows(class_token: ClassToken, mode: Resize, patches: usize) -> Vec<usize> {
    match (class_token, mode) {
        (ClassToken::None, _) => vec![],
        (ClassToken::Middle, Resize::MiddleAware) => vec![patches / 2],
        (ClassToken::Double, Resize::MiddleAware) => vec![0, patches + 1],
        (ClassToken::Double, Resize::Parity) => vec![0, 1],
        (ClassToken::Middle | ClassToken::Head | ClassToken::Random, _) => vec![0],
    }
}

#[test]
fn the_sum_of_sixteen_pixels_is_pytorch_s() {
    let image: Vec<f32> = (2..20).map(|i| (i as f32 * 1.7).sin()).collect();
    close(&resized(4, Resize::Parity)[2..], &bicubic(&image, [3, 3], [4, 4]));
}

#[test]
fn a_known_grid_becomes_any_other_also_of_as_many_patches() {
    let tokens = [ClassToken::Middle, ClassToken::Head, ClassToken::None, ClassToken::Double];
    for (from, to) in [
        ([4, 9], [6, 6]),
        ([6, 6], [4, 9]),
        ([4, 9], [9, 4]),
        ([14, 56], [28, 28]),
        ([2, 5], [3, 4]),
        ([4, 9], [4, 9]),
    ] {
        for class_token in tokens {
            let (state, table) = weights(from, class_token);
            for mode in [Resize::MiddleAware, Resize::Parity] {
                let options =
                    LoadOptions { resize: Some(mode), grid: Some(from), ..LoadOptions::default() };
                let to_model = build(&of_grid(to, class_token), 1);
                let (loaded, report) = to_model.load(&state, options).unwrap();
                let got = &values(&loaded)["pos_embed"].1;
                let what = format!("{from:?} {to:?} {class_token} {mode:?}");
                assert_eq!(report.resized, (from != to).then_some((from, to)), "{what}");
                assert_eq!(report.assumed_grid, None, "{what}");
                if from == to {
                    assert_eq!(*got, table, "{what}");
                    continue;
                }
                let old = token_rows(class_token, mode, from[0] * from[1]);
                let rows = || table.chunks_exact(2).enumerate();
                let is_token = |(index, _): &(usize, &[f32])| old.contains(index);
                let image: Vec<f32> =
                    rows().filter(|row| !is_token(row)).flat_map(|(_, row)| row.to_vec()).collect();
                let mut expected = bicubic(&image, from, to);
                let new = token_rows(class_token, mode, to[0] * to[1]);
                for ((_, row), at) in rows().filter(is_token).zip(new) {
                    expected.splice(2 * at..2 * at, row.iter().map(|&value| f64::from(value)));
                }
                close(got, &expected);
            }
        }
    }
}

#[test]
fn another_grid_of_as_many_patches_is_refused_where_nothing_is_resized() {
    let (state, _) = weights([4, 9], ClassToken::Middle);
    let options = LoadOptions { grid: Some([4, 9]), ..LoadOptions::default() };
    let square = build(&of_grid([6, 6], ClassToken::Middle), 1);
    assert_eq!(
        square.load(&state, options).unwrap_err().lines(),
        ["of another grid: pos_embed (expected 6 x 6 patches, got 4 x 9)"]
    );
}

#[test]
fn a_grid_that_is_not_known_is_a_square_or_the_model_s() {
    let options = LoadOptions { resize: Some(Resize::MiddleAware), ..LoadOptions::default() };
    let load = |patches, to| {
        let (state, table) = weights(patches, ClassToken::Middle);
        let (model, report) = build(&of_grid(to, ClassToken::Middle), 1).load(&state, options)?;
        let is_same = values(&model)["pos_embed"].1 == table;
        Ok::<_, Box<StateDictMismatch>>((is_same, report.resized, report.assumed_grid))
    };
    assert_eq!(load([6, 6], [6, 6]).unwrap(), (true, None, None));
    assert_eq!(load([6, 6], [3, 4]).unwrap(), (false, Some(([6, 6], [3, 4])), None));
    // 36 patches are a square, too.
    assert_eq!(load([4, 9], [4, 9]).unwrap(), (true, None, Some([4, 9])));
    assert_eq!(load([4, 6], [4, 6]).unwrap(), (true, None, Some([4, 6])));
    let lines = load([4, 6], [6, 6]).unwrap_err().lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("of another grid: pos_embed (24 patches are no square"));
}

/// A backbone without class token takes a classifier's weights, whose class token is in the middle:
/// the rows of the patches, or, as the original, all but the first.
#[test]
fn a_backbone_without_class_token_cuts_its_row_out() {
    let mut arrays = arrays(&build(&model(3), 0), Names::Pytorch);
    let (_, table) = arrays.iter_mut().find(|(key, _)| key == "pos_embed").unwrap();
    table.values = (0..20).map(|i| (i as f32 * 1.7).sin()).collect();
    let state = dict(arrays);
    for (grid, mode, row) in [
        (3, Resize::Parity, 0),
        (3, Resize::MiddleAware, 4),
        (4, Resize::Parity, 0),
        (4, Resize::MiddleAware, 8),
    ] {
        let config = VimConfig { class_token: ClassToken::None, ..model(grid) };
        let backbone = config.init_backbone(&Device::flex(), 1).unwrap();
        let class_token = Some(ClassToken::Middle);
        let resize = Some(mode);
        let options = LoadOptions { head: true, resize, class_token, ..LoadOptions::default() };
        let (backbone, report) = backbone.load(&state, options).unwrap();
        let mut expected = resized(grid, mode);
        expected.drain(2 * row..2 * row + 2);
        assert_eq!(values(&backbone)["pos_embed"].1, expected, "{grid} {mode:?}");
        assert_eq!((report.head, report.dropped_class_tokens), (Some((5, 0)), 1));
        assert_eq!(report.resized, (grid != 3).then_some(([3, 3], [grid, grid])));
    }
    // Without the options nothing is left out.
    let config = VimConfig { class_token: ClassToken::None, ..model(3) };
    let backbone = config.init_backbone(&Device::flex(), 1).unwrap();
    let resize = Some(Resize::MiddleAware);
    let mismatch =
        backbone.load(&state, LoadOptions { resize, ..LoadOptions::default() }).unwrap_err();
    assert_eq!(mismatch.unexpected, ["cls_token", "head.weight", "head.bias"]);
}
