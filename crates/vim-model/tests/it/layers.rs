//! Layers that are built without a model.

use burn::tensor::Device;
use vim_kernels::{KernelChoice, Precision};
use vim_model::{
    Bimamba, BlockConfig, Direction, MixerConfig, ModelError, NormConfig, NormKind,
    PatchEmbedConfig, SsmConfig, StateMatrix,
};

use crate::support::{batch, numbers, small};

#[test]
fn layers_are_built_alone() {
    let device = Device::flex();
    let patches = PatchEmbedConfig { stride: 2, ..PatchEmbedConfig::new(4, 16) };
    let tokens = patches.init(&device, 0).unwrap().forward(batch(2, 16)).unwrap();
    assert_eq!(tokens.dims(), [2, 49, 16]);
    let norm = NormConfig { kind: NormKind::Layer, ..NormConfig::new(16) };
    let layer = norm.init(&device).unwrap();
    let (normed, _) = layer.forward(tokens.clone(), None, None, KernelChoice::Auto).unwrap();
    let mixer = MixerConfig { expand: 1, ..MixerConfig::new(16) };
    let direction = Direction::init(&mixer, true, &device, 0).unwrap();
    assert!(direction.scan_options.reverse);
    let scanned = direction.forward(normed.clone(), normed, Precision::F32).unwrap();
    assert_eq!(scanned.dims(), [2, 49, 16]);
    for bimamba in [Bimamba::None, Bimamba::V1, Bimamba::V2] {
        let mixer = MixerConfig { bimamba, expand: 3, d_state: 5, ..MixerConfig::new(16) };
        let block = BlockConfig { norm: norm.clone(), mixer }.init(&device, 0).unwrap();
        let (mixed, sum) = block.forward(scanned.clone(), Some(tokens.clone())).unwrap();
        assert_eq!([mixed.dims(), sum.dims()], [[2, 49, 16]; 2]);
    }
}

#[test]
fn a_model_has_the_layers_of_its_configurations() {
    let mixer = MixerConfig { d_state: 4, depth: 2, ..MixerConfig::new(16) };
    assert_eq!(small().block(), BlockConfig { mixer, ..BlockConfig::new(16) });
    assert_eq!(small().patch_embed(), PatchEmbedConfig::new(4, 16));
    let weight = |seed| {
        let block = small().block().init(&Device::flex(), seed).unwrap();
        numbers(block.mixer.in_proj.weight.val())
    };
    assert_eq!(weight(3), weight(3));
    assert_ne!(weight(3), weight(4));
}

#[test]
fn a_layer_that_cannot_be_built_is_an_error() {
    let device = Device::flex();
    let key = |error: ModelError| match error {
        ModelError::Range { key, .. } | ModelError::Conflict { key, .. } => key,
        ModelError::Kernel(error) => panic!("{error}"),
    };
    let patches = PatchEmbedConfig { stride: 0, ..PatchEmbedConfig::new(4, 16) };
    assert_eq!(key(patches.init(&device, 0).unwrap_err()), "stride");
    let norm = NormConfig { epsilon: 0.0, ..NormConfig::new(16) };
    assert_eq!(key(norm.init(&device).unwrap_err()), "norm_eps");
    let mixer = MixerConfig { d_conv: 5, ..MixerConfig::new(16) };
    assert_eq!(key(mixer.init(&device, 0).unwrap_err()), "d_conv");
    let ssm = SsmConfig { a: StateMatrix::Full, ..SsmConfig::default() };
    let full = MixerConfig { ssm, ..MixerConfig::new(16) };
    assert_eq!(key(Direction::init(&full, false, &device, 0).unwrap_err()), "discretization");
    let block = BlockConfig { norm: NormConfig::new(8), ..BlockConfig::new(16) };
    assert_eq!(key(block.init(&device, 0).unwrap_err()), "norm.d_model");
}
