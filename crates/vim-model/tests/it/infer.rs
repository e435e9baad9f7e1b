//! What the shapes of a checkpoint say.

use vim_kernels::Discretization;
use vim_model::{
    Bimamba, ClassToken, DtRank, InferError, LayerScale, Names, NormKind, Preset, Rope, SsmConfig,
    StateMatrix, VimConfig, infer, infer_backbone,
};
use vim_torch::{Item, StateDict};

use crate::support::{arrays, build, dict, small};

#[test]
fn sizes_are_found_under_either_naming() {
    let full = VimConfig {
        discretization: Discretization::Bilinear,
        ssm: SsmConfig { a: StateMatrix::Full, ..SsmConfig::default() },
        ..small()
    };
    for (config, names) in [
        (small(), Names::Ours),
        (small(), Names::Pytorch),
        (VimConfig { d_conv: 3, expand: 3, d_state: 7, ..small() }, Names::Pytorch),
        (VimConfig { depth: 2, ..VimConfig::preset(Preset::Tiny) }, Names::Pytorch),
        (VimConfig { depth: 1, ..VimConfig::preset(Preset::TinyStride8) }, Names::Pytorch),
        (
            VimConfig { image_size: 32.into(), depth: 1, ..VimConfig::preset(Preset::Tiny) },
            Names::Pytorch,
        ),
        (full, Names::Ours),
        (VimConfig { bimamba: Bimamba::V1, ..small() }, Names::Pytorch),
        (VimConfig { bimamba: Bimamba::None, ..small() }, Names::Ours),
        (VimConfig { class_token: ClassToken::Double, ..small() }, Names::Pytorch),
        (VimConfig { class_token: ClassToken::None, ..small() }, Names::Pytorch),
        (VimConfig { norm: NormKind::Layer, ..small() }, Names::Ours),
        (VimConfig { layer_scale: LayerScale::Starts(1.0), ..small() }, Names::Pytorch),
        (VimConfig { dt_rank: DtRank::Rank(5), ..small() }, Names::Pytorch),
        (VimConfig { rope: Rope::Hidden, ..small() }, Names::Pytorch),
        (VimConfig { rope: Rope::Hidden, abs_pos_embed: false, ..small() }, Names::Pytorch),
    ] {
        let inferred = infer(&dict(arrays(&build(&config, 0), names))).unwrap();
        // These leave no trace.
        let VimConfig { drop_path, preset, .. } = inferred.config;
        let expected = VimConfig { drop_path, preset, ..config.effective() };
        assert_eq!(inferred.config.effective(), expected, "{names:?}");
    }
}

#[test]
fn a_backbone_is_found_below_its_prefix() {
    // Patches that overlap would make this a model of 232 px.
    let small = VimConfig {
        image_size: (28 * 16).into(),
        patch_size: 16,
        stride: None,
        class_token: ClassToken::None,
        ..small()
    };
    for config in [
        VimConfig { rope: Rope::Both, ..small.clone() },
        VimConfig { norm: NormKind::Layer, abs_pos_embed: false, rope: Rope::Both, ..small },
    ] {
        for names in [Names::Ours, Names::Pytorch] {
            // As some files have them, without what follows the blocks.
            let arrays = arrays(&build(&config, 0), names).into_iter();
            let arrays = arrays.filter(|(key, _)| !key.starts_with("head") && key != "norm_f.bias");
            let named = arrays.map(|(key, array)| (format!("a.b.{key}"), array)).collect();
            let state = dict(named);
            if names == Names::Ours && !config.abs_pos_embed {
                continue; // nothing tells the grid
            }
            let inferred = infer_backbone(&state, "a.b.", Rope::Both).unwrap();
            let rope = if names == Names::Ours { Rope::None } else { config.rope };
            let VimConfig { drop_path, preset, .. } = inferred.config;
            let expected =
                VimConfig { drop_path, preset, rope, num_classes: 0, ..config.effective() };
            assert_eq!(inferred.config.effective(), expected.effective(), "{names:?}");
            let keys: Vec<&str> = inferred.assumed.iter().map(|assumed| assumed.key).collect();
            assert!(keys.contains(&"discretization") && !keys.contains(&"pool"), "{keys:?}");
            assert!(infer_backbone(&state, "b.", Rope::Both).is_err());
        }
    }
}

#[test]
fn what_is_no_vim_is_told_by_its_first_tensor_that_is_not() {
    let nothing = infer(&StateDict::default());
    assert_eq!(nothing, Err(InferError::Missing("patch_embed.proj.weight".into())));
    let mut arrays = arrays(&build(&small(), 0), Names::Pytorch);
    arrays.iter_mut().find(|(key, _)| key == "pos_embed").unwrap().1.shape = vec![1, 16, 17];
    assert_eq!(
        infer(&dict(arrays.clone())).unwrap_err().to_string(),
        "has pos_embed of shape [1, 16, 17], not [1, grid · grid + class tokens, d_model] of \
         a square grid (of another one the configuration must be given)"
    );
    let mut state = dict(arrays);
    state.insert("head.weight".into(), Item::Unreadable("int64 numbers".into()));
    assert_eq!(
        infer(&state).unwrap_err().to_string(),
        "has head.weight as int64 numbers, not as floats: no weights of this type are read"
    );
}
