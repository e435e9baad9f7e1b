//! What the shapes of a checkpoint say.

use burn::tensor::Device;
use vim_kernels::Discretization;
use vim_model::{
    Bimamba, ClassToken, DtRank, InferError, LayerScale, Names, NormKind, Preset, Rope, SsmConfig,
    StateMatrix, VimConfig, infer,
};
use vim_torch::{Item, StateDict};

use crate::support::{arrays, small};

fn state(config: &VimConfig, names: Names) -> StateDict {
    let mut state = StateDict::default();
    for (key, array) in arrays(&config.init(&Device::flex(), 0).unwrap(), names) {
        state.insert(key, Item::Array(array));
    }
    state
}

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
        let inferred = infer(&state(&config, names)).unwrap();
        // These leave no trace.
        let VimConfig { drop_path, preset, .. } = inferred.config;
        let expected = VimConfig { drop_path, preset, ..config.effective() };
        assert_eq!(inferred.config.effective(), expected, "{names:?}");
    }
}

#[test]
fn what_is_no_vim_is_told_by_its_first_tensor_that_is_not() {
    let mut state = StateDict::default();
    assert_eq!(infer(&state), Err(InferError::Missing("patch_embed.proj.weight".into())));
    let config = small();
    let model = config.init(&Device::flex(), 0).unwrap();
    for (key, mut array) in arrays(&model, Names::Pytorch) {
        if key == "pos_embed" {
            array.shape = vec![1, 16, 17];
        }
        state.insert(key, Item::Array(array));
    }
    assert_eq!(
        infer(&state).unwrap_err().to_string(),
        "has pos_embed of shape [1, 16, 17], not [1, grid · grid + class tokens, d_model]"
    );
}
