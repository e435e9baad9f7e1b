//! Tokens and logits of the named sizes and of awkward ones.

use burn::tensor::{Device, Tensor};
use strum::VariantArray;
use vim_kernels::{Discretization, KernelError, Precision};
use vim_model::{
    Bimamba, ClassToken, DtRank, GateGradient, ModelConfig, ModelError, ModelName, Pool, Preset,
    REGISTERED, Rope, SsmConfig, StateMatrix, VimConfig,
};

use crate::support::{images, numbers, small};

fn runs(config: &VimConfig, batch: usize) {
    let device = Device::flex();
    let model = config.init(&device, 0).unwrap();
    assert_eq!(model.pos_embed.as_ref().unwrap().dims(), [1, config.num_tokens(), config.d_model]);
    let logits =
        model.forward(Tensor::from_data(images(batch, config.image_size), &device)).unwrap();
    assert_eq!(logits.dims(), [batch, config.num_classes]);
    assert!(numbers(logits).iter().all(|x| x.is_finite()));
}

#[test]
fn every_preset_runs_at_depth_one() {
    for &preset in Preset::VARIANTS {
        let config = VimConfig { depth: 1, ..VimConfig::preset(preset) };
        let (tokens, middle) = match preset {
            Preset::Tiny | Preset::Small | Preset::Base | Preset::BaseDepth12 => (197, 98),
            Preset::TinyStride8 | Preset::SmallStride8 => (730, 364),
        };
        assert_eq!((config.num_tokens(), config.class_token_positions()), (tokens, vec![middle]));
        runs(&config, 1);
    }
}

#[test]
fn awkward_sizes_run() {
    // side, patch, stride, tokens, place of the class token
    for (image_size, patch_size, stride, tokens, middle) in [
        (32, 16, 16, 5, 2),
        (32, 4, 4, 65, 32),
        (32, 16, 8, 10, 4),
        (16, 16, 16, 2, 0),
        (33, 8, 5, 37, 18),
    ] {
        let config = VimConfig { image_size: image_size.into(), patch_size, stride, ..small() };
        assert_eq!((config.num_tokens(), config.class_token_positions()), (tokens, vec![middle]));
        runs(&config, 3);
    }
    runs(&VimConfig { d_conv: 2, d_state: 1, expand: 1, d_model: 17, depth: 1, ..small() }, 2);
}

#[test]
fn images_of_another_size_are_refused() {
    let device = Device::flex();
    let model = small().init(&device, 0).unwrap();
    let forward = |size| model.forward(Tensor::from_data(images(1, size), &device));
    let error = forward(20).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Vim: `images` has shape [1, 3, 20, 20], expected [B, 3, 16, 16]: image_size"
    );
    let error = model.patch_embed.forward(Tensor::from_data(images(1, 3), &device)).unwrap_err();
    assert!(error.to_string().contains("H and W at least 4"), "{error}");
}

#[test]
fn a_precision_that_the_device_lacks_is_refused() {
    let model = small().init(&Device::flex(), 0).unwrap();
    let model = model.with_precision(Precision::Tf32).unwrap();
    let error = model.with_precision(Precision::Bf16).unwrap_err();
    assert!(matches!(error, KernelError::NoPrecision { .. }), "{error}");
}

#[test]
fn an_image_does_not_see_its_batch() {
    let device = Device::flex();
    let model = small().init(&device, 0).unwrap();
    let all = Tensor::<4>::from_data(images(3, 16), &device);
    let together = numbers(model.forward(all.clone()).unwrap().narrow(0, 1, 1));
    let alone = numbers(model.forward(all.narrow(0, 1, 1)).unwrap());
    assert!(crate::support::error(&together, &alone) < 1e-6);
}

#[test]
fn what_cannot_be_built_is_an_error() {
    let key = |config: VimConfig| match config.init(&Device::flex(), 0) {
        Err(ModelError::Range { key, .. }) => key,
        other => panic!("{other:?}"),
    };
    assert_eq!(key(VimConfig { d_state: 257, ..small() }), "d_state");
    assert_eq!(key(VimConfig { d_conv: 5, ..small() }), "d_conv");
    assert_eq!(key(VimConfig { image_size: 3.into(), ..small() }), "image_size");
    assert_eq!(key(VimConfig { drop_path: f64::NAN, ..small() }), "drop_path");
    assert_eq!(key(VimConfig { num_classes: 0, ..small() }), "num_classes");
    assert_eq!(key(VimConfig { flip_ratio: 1.1, ..small() }), "flip_ratio");
    assert_eq!(key(VimConfig { norm_eps: 0.0, ..small() }), "norm_eps");
    assert_eq!(key(VimConfig { dropout: 1.0, ..small() }), "dropout");
    assert_eq!(key(VimConfig { dt_rank: DtRank::Rank(0), ..small() }), "dt_rank");
    assert_eq!(key(VimConfig { depth: usize::MAX, ..small() }), "depth");
    let depthless = ModelConfig { depth: Some(0), ..ModelConfig::default() };
    let error = VimConfig::new(&depthless, SsmConfig::default(), 10).unwrap_err();
    assert_eq!(error.to_string(), "model.depth: 0 is out of range (at least 1)");
}

/// The key, and the other one that it does not go with.
fn conflict(config: &VimConfig) -> (&'static str, String) {
    match config.init(&Device::flex(), 0) {
        Err(ModelError::Conflict { key, other, .. }) => (key, other),
        other => panic!("{other:?}"),
    }
}

#[test]
fn options_that_do_not_go_together_are_errors() {
    let rope = |rest: VimConfig| VimConfig { rope: Rope::Hidden, ..rest };
    let ssm = SsmConfig::default();
    for (config, key, other) in [
        (
            VimConfig { dropout: 0.1, abs_pos_embed: false, ..small() },
            "model.dropout",
            "model.abs_pos_embed = false",
        ),
        (
            VimConfig { layer_pairs: true, depth: 3, ..small() },
            "model.layer_pairs",
            "model.depth = 3",
        ),
        (
            VimConfig { bimamba: Bimamba::V1, ..small() },
            "model.divide_out",
            "model.bimamba = \"v1\"",
        ),
        (
            rope(VimConfig { class_token: ClassToken::Double, ..small() }),
            "model.rope",
            "model.class_token = \"double\"",
        ),
        (
            rope(VimConfig { image_size: [16, 8].into(), ..small() }),
            "model.rope",
            "model.image_size = [16, 8]",
        ),
        (rope(VimConfig { stride: 2, ..small() }), "model.rope", "model.stride = 2"),
        (rope(VimConfig { d_model: 18, ..small() }), "model.rope", "model.d_model = 18"),
        (
            rope(VimConfig { image_size: 12.into(), ..small() }),
            "model.rope",
            "a grid of 3 x 3 patches",
        ),
        (
            VimConfig {
                bimamba: Bimamba::None,
                divide_out: false,
                ssm: SsmConfig { method_bwd: Some(Discretization::Foh), ..ssm },
                ..small()
            },
            "ssm.method_bwd",
            "model.bimamba = \"none\"",
        ),
        (
            VimConfig {
                discretization: Discretization::Bilinear,
                ssm: SsmConfig {
                    a: StateMatrix::Full,
                    method_fwd: Some(Discretization::Zoh),
                    ..ssm
                },
                ..small()
            },
            "ssm.method_fwd",
            "ssm.a = \"full\"",
        ),
        (
            VimConfig {
                ssm: SsmConfig { v1_gate_gradient: Some(GateGradient::Exact), ..ssm },
                ..small()
            },
            "ssm.v1_gate_gradient",
            "model.bimamba = \"v2\"",
        ),
    ] {
        assert_eq!(conflict(&config), (key, other.to_owned()));
    }
}

#[test]
fn what_is_written_in_vain_is_an_error() {
    let new = |model: ModelConfig| VimConfig::new(&model, SsmConfig::default(), 10);
    let text = |model| new(model).unwrap_err().to_string();
    let pooled = text(ModelConfig { pool: Some(Pool::Max), ..ModelConfig::default() });
    assert!(
        pooled.starts_with("model.pool: max does not go with model.class_token = \"middle\": ")
    );
    let scaled = text(ModelConfig { rope_grid: Some(7), ..ModelConfig::default() });
    assert!(scaled.starts_with("model.rope_grid: 7 does not go with model.rope = \"none\": "));
    // What the preset says is not written: it gives way.
    let v1 = ModelConfig { bimamba: Some(Bimamba::V1), ..ModelConfig::default() };
    assert!(!new(v1).unwrap().divide_out);
}

/// What is recorded of a run builds the same model.
#[test]
fn a_section_that_spells_a_model_out_is_that_model() {
    for (name, config) in crate::variants::variants() {
        let section = config.to_section(Preset::Tiny);
        let back = VimConfig::new(&section, config.ssm, config.num_classes).unwrap();
        let ignored = VimConfig { pool: back.pool, rope_grid: back.rope_grid, ..config.clone() };
        assert_eq!(back, ignored, "{name}");
    }
}

#[test]
fn registered_names_are_sizes_with_a_method() {
    for model in REGISTERED {
        let name: ModelName = model.name.parse().unwrap();
        assert_eq!(name.preset, model.preset);
        let section = ModelConfig { preset: name, ..ModelConfig::default() };
        let config = VimConfig::new(&section, SsmConfig::default(), 1000).unwrap();
        let expected =
            VimConfig { discretization: model.discretization, ..VimConfig::preset(model.preset) };
        assert_eq!(config, expected, "{}", model.name);
        // What is written stands over what the name says.
        let discretization = Some(Discretization::Rk4);
        let section = ModelConfig { discretization, ..section };
        let config = VimConfig::new(&section, SsmConfig::default(), 1000).unwrap();
        assert_eq!(config.discretization, Discretization::Rk4);
    }
    for name in Preset::names() {
        assert_eq!(name.parse::<ModelName>().unwrap().to_string(), name);
    }
    let error = "vim_tiny".parse::<ModelName>().unwrap_err();
    assert!(error.contains("tiny, small, base, tiny_stride8"), "{error}");
}
