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
use vim_model::{ClassToken, LoadOptions, Names, Resize, VimConfig};

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
        let options = LoadOptions { head: true, missing: false, resize: Some(mode), class_token };
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
