//! A checkpoint that does not fit is refused, with every reason.

use std::collections::BTreeSet;
use std::path::Path;

use burn::tensor::Device;
use vim_kernels::KernelChoice;
use vim_model::{
    Bimamba, ClassToken, ImportError, LayerScale, ModelError, NormKind, Rope, ShapeMismatch,
    StateDictMismatch, VimConfig, import_pytorch, pytorch_key,
};

use crate::golden::a_mid;
use crate::support::{build, fixture, small};

fn import(config: &VimConfig) -> ImportError {
    import_pytorch(config, &fixture("a_mid.pth"), &Device::flex()).unwrap_err()
}

fn mismatch(error: ImportError) -> StateDictMismatch {
    let ImportError::Mismatch { mismatch, .. } = error else { panic!("{error}") };
    *mismatch
}

#[test]
fn a_layer_too_many_is_missing_from_the_file() {
    let error = import(&VimConfig { depth: 5, ..a_mid(KernelChoice::Auto) });
    assert!(error.to_string().contains("missing: layers.4."), "{error}");
    let StateDictMismatch { missing, unexpected, wrong_shape, grid, rows, unreadable } =
        mismatch(error);
    assert_eq!(missing.len(), 17, "{missing:?}");
    for (key, shape) in [
        ("layers.4.mixer.A_b_log", &[128, 16][..]),
        ("layers.4.mixer.in_proj.weight", &[256, 64]),
        ("layers.4.norm.weight", &[64]),
    ] {
        assert!(missing.contains(&(key.to_owned(), shape.to_vec())), "{key} in {missing:?}");
    }
    assert_eq!((unexpected.len(), wrong_shape.len(), unreadable.len()), (0, 0, 0));
    assert!(grid.is_empty() && rows.is_empty(), "{grid:?}, {rows:?}");
}

#[test]
fn a_layer_too_few_leaves_names_unmatched() {
    let error = import(&VimConfig { depth: 3, ..a_mid(KernelChoice::Auto) });
    let StateDictMismatch { missing, unexpected, wrong_shape, .. } = mismatch(error);
    assert_eq!((missing.len(), unexpected.len(), wrong_shape.len()), (0, 17, 0));
    assert!(unexpected.iter().all(|name| name.starts_with("layers.3.")), "{unexpected:?}");
    assert!(unexpected.iter().any(|name| name == "layers.3.mixer.D_b"), "{unexpected:?}");
}

#[test]
fn other_sizes_are_misshapen_in_pytorch_s_shapes() {
    let error = import(&VimConfig { num_classes: 7, ..a_mid(KernelChoice::Auto) });
    let text = error.to_string();
    assert!(text.ends_with("of another shape: head.weight (expected [7, 64], got [10, 64]), head.bias (expected [7], got [10])"), "{text}");
    let StateDictMismatch { missing, unexpected, wrong_shape, .. } = mismatch(error);
    assert_eq!((missing.len(), unexpected.len()), (0, 0));
    let key = "head.weight".to_string();
    assert_eq!(wrong_shape[0], ShapeMismatch { key, expected: vec![7, 64], got: vec![10, 64] });
}

#[test]
fn a_file_that_is_no_checkpoint_is_named() {
    let config = a_mid(KernelChoice::Auto);
    for name in ["a_mid.npz", "absent.pth"] {
        let error = import_pytorch(&config, &fixture(name), &Device::flex()).unwrap_err();
        assert!(matches!(error, ImportError::Read { .. }), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    let config = VimConfig { depth: 0, ..config };
    let error = import_pytorch(&config, Path::new("unread.pth"), &Device::flex()).unwrap_err();
    assert!(matches!(error, ImportError::Model(ModelError::Range { key: "depth", .. })), "{error}");
}

#[test]
fn a_checkpoint_cut_short_is_an_error_not_a_panic() {
    let whole = std::fs::read(fixture("a_mid.pth")).unwrap();
    let path = std::env::temp_dir().join(format!("vim-model-cut-{}.pth", std::process::id()));
    for length in [0, 10, 1000, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).unwrap();
        let result = import_pytorch(&a_mid(KernelChoice::Auto), &path, &Device::flex());
        let refused =
            matches!(result, Err(ImportError::Read { .. } | ImportError::Mismatch { .. }));
        assert!(refused, "{length} bytes of {}", whole.len());
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn names_map_to_the_original_s() {
    for (path, key) in [
        ("layers.3.mixer.forward.a_log", "layers.3.mixer.A_log"),
        ("layers.3.mixer.forward.d", "layers.3.mixer.D"),
        ("layers.3.mixer.forward.dt_proj.bias", "layers.3.mixer.dt_proj.bias"),
        ("layers.23.mixer.backward.a_log", "layers.23.mixer.A_b_log"),
        ("layers.23.mixer.backward.d", "layers.23.mixer.D_b"),
        ("layers.23.mixer.backward.dt_proj.bias", "layers.23.mixer.dt_proj_b.bias"),
        ("layers.0.mixer.in_proj.weight", "layers.0.mixer.in_proj.weight"),
        ("norm_f.weight", "norm_f.weight"),
        ("patch_embed.proj.weight", "patch_embed.proj.weight"),
    ] {
        assert_eq!(pytorch_key(path), key);
    }
}

/// The original's names of what a variant adds or lacks, as its state dictionary has them.
#[test]
fn variants_have_the_original_s_names_and_shapes() {
    let own = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    // A layer of the plain model: every name behind `layers.i.`.
    let outer = own(&["mixer.in_proj.weight", "mixer.out_proj.weight", "norm.weight"]);
    let way = |b: &str| {
        let names = ["A{b}_log", "D{b}", "conv1d{b}.weight", "conv1d{b}.bias", "x_proj{b}.weight"];
        let names = names.into_iter().chain(["dt_proj{b}.weight", "dt_proj{b}.bias"]);
        names.map(|name| format!("mixer.{}", name.replace("{b}", b))).collect::<Vec<_>>()
    };
    let (forward, backward) = (way(""), way("_b"));
    let v2 = [outer.clone(), forward.clone(), backward].concat();
    let frame = own(&[
        "patch_embed.proj.weight",
        "patch_embed.proj.bias",
        "norm_f.weight",
        "head.weight",
        "head.bias",
    ]);
    let one = own(&["cls_token", "pos_embed"]);
    let v2_and = |more: &str| [v2.clone(), own(&[more])].concat();
    let cases = [
        (small(), one.clone(), v2.clone()),
        (
            VimConfig { bimamba: Bimamba::V1, ..small() },
            one.clone(),
            [outer.clone(), forward.clone(), own(&["mixer.A_b_log"])].concat(),
        ),
        (VimConfig { bimamba: Bimamba::None, ..small() }, one.clone(), [outer, forward].concat()),
        (
            VimConfig { class_token: ClassToken::Double, ..small() },
            own(&["cls_token_head", "cls_token_tail", "pos_embed"]),
            v2.clone(),
        ),
        (VimConfig { class_token: ClassToken::None, ..small() }, own(&["pos_embed"]), v2.clone()),
        (VimConfig { abs_pos_embed: false, ..small() }, own(&["cls_token"]), v2.clone()),
        (
            VimConfig { norm: NormKind::Layer, ..small() },
            [one.clone(), own(&["norm_f.bias"])].concat(),
            v2_and("norm.bias"),
        ),
        (
            VimConfig { layer_scale: LayerScale::Starts(1e-5), ..small() },
            one.clone(),
            v2_and("mixer.gamma"),
        ),
        (VimConfig { rope: Rope::Both, ..small() }, one, v2),
    ];
    for (config, tokens, layer) in cases {
        let names: BTreeSet<String> =
            build(&config, 0).parameters().iter().map(|p| pytorch_key(&p.path)).collect();
        let layers = (0..config.depth)
            .flat_map(|i| layer.iter().map(move |name| format!("layers.{i}.{name}")));
        let expected: BTreeSet<String> =
            [frame.clone(), tokens].concat().into_iter().chain(layers).collect();
        assert_eq!(names, expected, "{config:?}");
    }
}

/// What the original keeps beside the parameters of a model with rotary positions.
#[test]
fn rotary_tables_follow_from_the_sizes() {
    assert_eq!(small().rope_table(), None);
    let config = VimConfig { rope: Rope::Hidden, rope_grid: Some(14), ..small() };
    let table = config.rope_table().unwrap();
    assert_eq!(table.shape, [16, 16]);
    // Patch (1, 2) of 4 x 4. A half of the channels has four frequencies, 10000^(-k/4).
    let angle = |position: f64, pair: i32| position / 4.0 * 14.0 / 10_f64.powi(pair);
    let at = |values: &[f32], channel: usize| f64::from(values[(4 + 2) * 16 + channel]);
    for pair in 0..4 {
        for (half, position) in [(0, 1.0), (8, 2.0)] {
            for channel in [half + 2 * pair, half + 2 * pair + 1] {
                let angle = angle(position, pair as i32);
                assert!((at(&table.cos, channel) - angle.cos()).abs() < 1e-6, "{channel}");
                assert!((at(&table.sin, channel) - angle.sin()).abs() < 1e-6, "{channel}");
            }
        }
    }
}
