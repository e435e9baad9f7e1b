//! Tokens and logits of the named sizes and of awkward ones.

use burn::tensor::Device;
use strum::VariantArray;
use vim_kernels::{Discretization, KernelError, Precision, Series};
use vim_model::{
    Bimamba, ClassToken, DtRank, GateGradient, ModelError, Pool, Preset, REGISTERED, Rope,
    SsmConfig, StateMatrix, VimConfig,
};

use crate::support::{batch, build, error, logits, numbers, small};

fn runs(config: &VimConfig, count: usize) {
    let model = build(config, 0);
    assert_eq!(model.pos_embed.as_ref().unwrap().dims(), [1, config.num_tokens(), config.d_model]);
    let logits = model.forward(batch(count, config.image_size)).unwrap();
    assert_eq!(logits.dims(), [count, config.num_classes]);
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
        let (image_size, stride) = (image_size.into(), Some(stride));
        let config = VimConfig { image_size, patch_size, stride, ..small() };
        assert_eq!((config.num_tokens(), config.class_token_positions()), (tokens, vec![middle]));
        runs(&config, 3);
    }
    runs(&VimConfig { d_conv: 2, d_state: 1, expand: 1, d_model: 17, depth: 1, ..small() }, 2);
}

#[test]
fn images_of_another_size_are_refused() {
    let model = build(&small(), 0);
    let error = model.forward(batch(1, 20)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Vim: `images` has shape [1, 3, 20, 20], expected [B, 3, 16, 16]: image_size"
    );
    let error = model.patch_embed.forward(batch(1, 3)).unwrap_err();
    assert!(error.to_string().contains("H and W at least 4"), "{error}");
}

#[test]
fn a_precision_that_the_device_lacks_is_refused() {
    let model = build(&small(), 0);
    let model = model.with_precision(Precision::Tf32).unwrap();
    let error = model.with_precision(Precision::Bf16).unwrap_err();
    assert!(matches!(error, KernelError::NoPrecision { .. }), "{error}");
}

#[test]
fn an_image_does_not_see_its_batch() {
    let (model, all) = (build(&small(), 0), batch(3, 16));
    let together = numbers(model.forward(all.clone()).unwrap().narrow(0, 1, 1));
    assert!(error(&together, &logits(&model, all.narrow(0, 1, 1))) < 1e-6);
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
    let error = VimConfig { depth: 0, ..small() }.with_classes(10).unwrap_err();
    assert_eq!(error.to_string(), "model.depth: 0 is out of range (at least 1)");
}

#[test]
fn options_that_do_not_go_together_are_errors() {
    let conflict = |config: VimConfig, key: &str, other: &str| {
        let error = config.init(&Device::flex(), 0).unwrap_err();
        let ModelError::Conflict { key: found, other: beside, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!((found, &*beside), (key, other));
    };
    let dropout = VimConfig { dropout: 0.1, abs_pos_embed: false, ..small() };
    conflict(dropout, "model.dropout", "model.abs_pos_embed = false");
    let odd = VimConfig { layer_pairs: true, depth: 3, ..small() };
    conflict(odd, "model.layer_pairs", "model.depth = 3");
    let halved = VimConfig { bimamba: Bimamba::V1, divide_out: Some(true), ..small() };
    conflict(halved, "model.divide_out", "model.bimamba = \"v1\"");

    let rope = || VimConfig { rope: Rope::Hidden, ..small() };
    let double = VimConfig { class_token: ClassToken::Double, ..rope() };
    conflict(double, "model.rope", "model.class_token = \"double\"");
    let upright = VimConfig { image_size: [16, 8].into(), ..rope() };
    conflict(upright, "model.rope", "model.image_size = [16, 8]");
    conflict(VimConfig { stride: Some(2), ..rope() }, "model.rope", "model.stride = 2");
    conflict(VimConfig { d_model: 18, ..rope() }, "model.rope", "model.d_model = 18");
    let odd_grid = VimConfig { image_size: 12.into(), ..rope() };
    conflict(odd_grid, "model.rope", "a grid of 3 x 3 patches");

    let ssm = SsmConfig::default();
    let backward = SsmConfig { method_bwd: Some(Discretization::Foh), ..ssm };
    let forward_only = VimConfig { bimamba: Bimamba::None, ssm: backward, ..small() };
    conflict(forward_only, "ssm.method_bwd", "model.bimamba = \"none\"");
    let a = StateMatrix::Full;
    let full_zoh = SsmConfig { a, method_fwd: Some(Discretization::Zoh), ..ssm };
    let discretization = Discretization::Bilinear;
    let full = VimConfig { discretization, ssm: full_zoh, ..small() };
    conflict(full, "ssm.method_fwd", "ssm.a = \"full\"");
    let series = Series::Taylor;
    let discretization = Discretization::ZohExact;
    let exact_alone = VimConfig { discretization, ssm: SsmConfig { series, ..ssm }, ..small() };
    conflict(exact_alone, "model.discretization", "ssm.series = \"taylor\"");
    let ways = SsmConfig { series, method_bwd: Some(Discretization::Tustin), ..ssm };
    conflict(VimConfig { ssm: ways, ..small() }, "ssm.method_bwd", "ssm.series = \"taylor\"");
    let exact = SsmConfig { v1_gate_gradient: Some(GateGradient::Exact), ..ssm };
    let v2 = VimConfig { ssm: exact, ..small() };
    conflict(v2, "ssm.v1_gate_gradient", "model.bimamba = \"v2\"");
}

#[test]
fn a_key_without_effect_is_an_error() {
    let text = |model: VimConfig| model.check().unwrap_err().to_string();
    let pooled = text(VimConfig { pool: Some(Pool::Max), ..small() });
    assert!(
        pooled.starts_with("model.pool: max does not go with model.class_token = \"middle\": ")
    );
    let scaled = text(VimConfig { rope_grid: Some(7), ..small() });
    assert!(scaled.starts_with("model.rope_grid: 7 does not go with model.rope = \"none\": "));
}

#[test]
fn keys_that_are_not_set_follow_the_others() {
    let tiny = VimConfig::preset(Preset::Tiny);
    assert!(tiny.divide_out() && tiny.stride() == 16);
    let patches = VimConfig { image_size: 32.into(), patch_size: 4, ..tiny.clone() };
    assert_eq!((patches.stride(), patches.num_patches()), (4, 64));
    let v1 = VimConfig { bimamba: Bimamba::V1, ..tiny };
    assert!(!v1.divide_out());
    v1.check().unwrap();
}

/// What is recorded of a run builds the same model.
#[test]
fn an_effective_section_is_the_same_model() {
    for (name, config) in crate::variants::variants() {
        let text = toml::to_string(&config.effective()).unwrap();
        let section: VimConfig = toml::from_str(&text).unwrap();
        let back = VimConfig { ssm: config.ssm, num_classes: config.num_classes, ..section };
        back.check().unwrap();
        assert_eq!(back, config.effective(), "{name}");
    }
}

/// The model of a `[model]` section.
fn section(text: &str) -> VimConfig {
    let mut section: toml::Table = text.parse().unwrap();
    VimConfig::fill_from_preset(&mut section);
    section.try_into().unwrap()
}

#[test]
fn presets_lie_under_sections() {
    assert_eq!(section(""), VimConfig::default());
    for &preset in Preset::VARIANTS {
        let config = section(&format!("preset = \"{preset}\"\nd_state = 8"));
        assert_eq!(config, VimConfig { d_state: 8, ..VimConfig::preset(preset) });
    }
    let patches = section("preset = \"tiny_stride8\"\npatch_size = 4");
    assert_eq!(patches.stride(), 4, "the patches decide, unless the section says it");
    assert_eq!(section("preset = \"tiny_stride8\"\npatch_size = 4\nstride = 2").stride(), 2);
}

#[test]
fn registered_names_are_sizes_with_a_method() {
    for model in REGISTERED {
        let expected =
            VimConfig { discretization: model.discretization, ..VimConfig::preset(model.preset) };
        assert_eq!(VimConfig::named(model.name).unwrap(), expected, "{}", model.name);
        let preset = format!("preset = \"{}\"\n", model.name);
        assert_eq!(section(&preset), expected);
        // What is written stands over what the name says.
        let config = section(&format!("{preset}discretization = \"rk4\""));
        assert_eq!(config, VimConfig { discretization: Discretization::Rk4, ..expected });
    }
    for name in Preset::names() {
        assert_eq!(VimConfig::named(name).unwrap().preset.to_string(), name);
    }
    let error = VimConfig::named("vim_tiny").unwrap_err();
    assert!(error.contains("tiny, small, base, tiny_stride8"), "{error}");
}
